"""The band [low, high) of the components that a filter keeps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """The part of a stack that a filter keeps.

    Attributes
    ----------
    low : int
        Low cutoff: the components [0, low) are removed.
    high : int
        High cutoff: the components [low, high) of the model are kept.
    keeps_residual : bool
        Whether the result is the data minus the components [0, low), as a classical clutter filter gives. Then
        `high` counts only where entries are unobserved: the model's components [low, high) fill them.
    """

    low: int
    high: int
    keeps_residual: bool
