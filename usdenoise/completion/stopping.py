"""When the loop ends, and how it says so."""

import math
from dataclasses import dataclass, field
from enum import Enum


class StopReason(Enum):
    """Why the loop ended: a sentence each."""

    ITERATIONS = "all iterations were done"
    HELD_OUT = "the held-out error stopped falling"
    NO_DESCENT = "no step lowered the objective any further"


@dataclass
class StoppingRule:
    """Stop after some iterations, or earlier when the held-out error has not fallen for a while.

    Attributes
    ----------
    iterations : int
        Number of accepted steps at most.
    patience : int or None
        Iterations without a fall of the held-out error after which to stop; None never stops for that.
    improvement : float
        Relative fall that counts as one.
    """

    iterations: int
    patience: int | None = None
    improvement: float = 1e-3
    _best: float = field(default=math.inf, init=False)
    _waited: int = field(default=0, init=False)

    @property
    def keeps_best(self) -> bool:
        """Whether the factors with the smallest held-out error are wanted, not the last ones."""
        return self.patience is not None

    def check(self, iteration: int, held_out_rmse: float | None) -> StopReason | None:
        """The reason to stop after `iteration` steps, or None to go on."""
        if held_out_rmse is not None and self.patience is not None:
            if held_out_rmse < (1 - self.improvement) * self._best:
                self._best, self._waited = held_out_rmse, 0
            else:
                self._waited += 1
            if self._waited >= self.patience:
                return StopReason.HELD_OUT
        return StopReason.ITERATIONS if iteration >= self.iterations else None
