"""When the loop ends, and why."""

import math
from dataclasses import dataclass, field
from enum import Enum


class StopReason(Enum):
    """Why the loop ended; the value of each member is its sentence."""

    ITERATIONS = "all iterations were done"
    HELD_OUT = "the held-out error stopped falling"
    NO_DESCENT = "no step lowered the objective any further"
    DIVERGED = "diverged"


@dataclass
class StoppingRule:
    """Stop after a number of iterations, or earlier when the held-out error has stopped falling.

    A slow beginning, as from factors near zero, is not convergence: until the error has once fallen by `improvement`, only
    iterations in which it does not fall at all count.

    Attributes
    ----------
    iterations : int
        Largest number of iterations.
    patience : int or None
        Number of iterations without a fall of the held-out error after which the loop ends. None never ends it
        for that reason.
    improvement : float
        Relative fall of the held-out error that counts as one.
    """

    iterations: int
    patience: int | None = None
    improvement: float = 1e-3
    _reference: float = field(default=math.inf, init=False)
    _last: float = field(default=math.inf, init=False)
    _falls: int = field(default=0, init=False)
    _waited: int = field(default=0, init=False)

    @property
    def keeps_best(self) -> bool:
        """Whether the loop returns the factors with the smallest held-out error, not the last ones."""
        return self.patience is not None

    def check(self, iteration: int, held_out_rmse: float | None) -> StopReason | None:
        """Return the reason to stop after `iteration` steps, or None to go on.

        Parameters
        ----------
        iteration : int
            Number of iterations so far.
        held_out_rmse : float or None
            Error on the held-out entries after them; None without such entries.
        """
        if held_out_rmse is not None and self.patience is not None:
            if held_out_rmse < (1 - self.improvement) * self._reference:
                # The first error has nothing to fall from.
                self._falls += math.isfinite(self._reference)
                self._reference, self._waited = held_out_rmse, 0
            elif self._falls or held_out_rmse >= self._last:
                self._waited += 1
            self._last = held_out_rmse
            if self._waited >= self.patience:
                return StopReason.HELD_OUT
        return StopReason.ITERATIONS if iteration >= self.iterations else None
