"""The methods as a table: which preconditioner, which damping schedule, which defaults, whose idea."""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from usdenoise.completion import damping as schedules
from usdenoise.completion.damping import Damping
from usdenoise.completion.preconditioners import Preconditioner, damped_gram, identity


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    name : str
        As on the command line.
    preconditioner : callable
        From gradients to directions.
    make_damping : callable
        (eta0 or None, decay) -> schedule. What eta0 means is the method's: the first damping of eta-decay,
        the lambda of ScaledGD(lambda), the proxy sigma_hat of PrecGD.
    step_tau : float
        Default step for the sum-of-squares objective divided by the sampling fraction; where
        `preconditioner` is the identity, in units of the safe bound instead.
    summary, citation : str
        One line each.
    """

    name: str
    preconditioner: Preconditioner
    make_damping: Callable[[float | None, float], Damping]
    step_tau: float
    summary: str
    citation: str


_TABLE = (
    Method(
        "eta-decay",
        damped_gram,
        lambda eta0, decay: schedules.geometric(decay, eta0),
        0.5,
        "preconditioned descent with a geometrically decaying damping",
        "Zhang, Chiu and Zhang, AISTATS 2024",
    ),
    Method(
        "precgd",
        damped_gram,
        lambda eta0, decay: schedules.residual(5e-3 if eta0 is None else eta0),
        0.5,
        "damping sqrt(|f - sigma_hat^2|), with --damping as the proxy sigma_hat",
        "Zhang, Fattahi and Zhang, NeurIPS 2021",
    ),
    Method(
        "scaledgd-lambda",
        damped_gram,
        lambda eta0, decay: schedules.constant(5e-2 if eta0 is None else eta0),
        0.5,
        "constant damping, with --damping as lambda",
        "Xu, Shen, Chi and Ma, ICML 2023",
    ),
    Method(
        "scaledgd",
        damped_gram,
        lambda eta0, decay: schedules.none(),
        0.5,
        "no damping",
        "Tong, Ma and Chi, JMLR 2021",
    ),
    Method(
        "gd",
        identity,
        lambda eta0, decay: schedules.none(),
        0.5,
        "plain gradient descent",
        "Chi, Lu and Chen, IEEE Trans. Signal Process. 67(20), 2019",
    ),
)

METHODS = MappingProxyType({method.name: method for method in _TABLE})
