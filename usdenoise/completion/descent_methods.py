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
    default_damping : callable
        (noise level, shape of the matrix) -> eta0 where none is given, in the units of the data.
    step_tau : float
        Default step for the sum-of-squares objective divided by the sampling fraction; in units of the safe bound
        where `preconditioner` is the identity.
    summary : str
        The method in one line.
    citation : str
        Its source in one line.
    """

    name: str
    preconditioner: Preconditioner
    make_damping: Callable[[float | None, float], Damping]
    default_damping: Callable[[float, tuple[int, int]], float | None]
    step_tau: float
    summary: str
    citation: str


_TABLE = (
    Method(
        "eta-decay",
        damped_gram,
        lambda eta0, decay: schedules.geometric(decay, eta0),
        lambda noise, shape: None,
        0.5,
        "preconditioned descent with a geometrically decaying damping",
        "Zhang, Chiu and Zhang, AISTATS 2024",
    ),
    Method(
        "precgd",
        damped_gram,
        lambda eta0, decay: schedules.residual(eta0 or 0.0),
        lambda noise, shape: noise,
        0.5,
        "damping sqrt(|f - sigma_hat^2|), with --damping as the proxy sigma_hat, by default the noise level",
        "Zhang, Fattahi and Zhang, NeurIPS 2021",
    ),
    Method(
        "scaledgd-lambda",
        damped_gram,
        lambda eta0, decay: schedules.constant(eta0 or 0.0),
        noise_edge,
        0.5,
        "constant damping, with --damping as lambda, by default the largest singular value of the noise",
        "Xu, Shen, Chi and Ma, ICML 2023",
    ),
    Method(
        "scaledgd",
        damped_gram,
        lambda eta0, decay: schedules.constant(0.0),
        lambda noise, shape: None,
        0.5,
        "no damping",
        "Tong, Ma and Chi, JMLR 2021",
    ),
    Method(
        "gd",
        identity,
        lambda eta0, decay: schedules.constant(0.0),
        lambda noise, shape: None,
        0.5,
        "plain gradient descent",
        "Chi, Lu and Chen, IEEE Trans. Signal Process. 67(20), 2019",
    ),
)

METHODS = MappingProxyType({method.name: method for method in _TABLE})
