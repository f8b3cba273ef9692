"""The methods as a table: preconditioner, damping schedule, defaults, citation."""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from usdenoise.completion import damping as schedules
from usdenoise.completion.damping import Damping
from usdenoise.completion.preconditioners import Preconditioner, damped_gram, identity
from usdenoise.linalg.noise_spectrum import noise_edge


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    name : str
        Name on the command line.
    preconditioner : callable
        Turns gradients into directions.
    make_damping : callable
        (eta0 or None, decay) -> schedule. The method gives eta0 its meaning: the first damping of eta-decay, the
        lambda of ScaledGD(lambda), the proxy sigma_hat of PrecGD.
    summary : str
        The method in one line.
    citation : str
        Its source in one line.
    default_damping : callable
        (noise level, shape of the matrix) -> eta0 where none is given, in the units of the data; None by default.
    step_tau : float
        Default step for the sum-of-squares objective divided by the sampling fraction; in units of the safe bound
        where `preconditioner` is the identity. 0.5 by default.
    """

    name: str
    preconditioner: Preconditioner
    make_damping: Callable[[float | None, float], Damping]
    summary: str
    citation: str
    default_damping: Callable[[float, tuple[int, int]], float | None] = lambda noise, shape: None
    step_tau: float = 0.5


_TABLE = (
    Method(
        "eta-decay",
        damped_gram,
        lambda eta0, decay: schedules.geometric(decay, eta0),
        "preconditioned descent with a geometrically decaying damping",
        "Zhang, Chiu and Zhang, AISTATS 2024",
    ),
    Method(
        "precgd",
        damped_gram,
        lambda eta0, decay: schedules.residual(eta0 or 0.0),
        "damping sqrt(|f - sigma_hat^2|), with the damping as the proxy sigma_hat, by default the noise level",
        "Zhang, Fattahi and Zhang, NeurIPS 2021",
        lambda noise, shape: noise,
    ),
    Method(
        "scaledgd-lambda",
        damped_gram,
        lambda eta0, decay: schedules.constant(eta0 or 0.0),
        "constant damping, with the damping as lambda, by default the largest singular value of the noise",
        "Xu, Shen, Chi and Ma, ICML 2023",
        noise_edge,
    ),
    Method(
        "scaledgd",
        damped_gram,
        lambda eta0, decay: schedules.constant(0.0),
        "no damping",
        "Tong, Ma and Chi, JMLR 2021",
    ),
    Method(
        "gd",
        identity,
        lambda eta0, decay: schedules.constant(0.0),
        "plain gradient descent",
        "Chi, Lu and Chen, IEEE Trans. Signal Process. 67(20), 2019",
    ),
)

METHODS = MappingProxyType({method.name: method for method in _TABLE})
