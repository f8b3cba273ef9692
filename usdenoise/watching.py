"""What a job shows, and what it tells its caller on the way."""

from dataclasses import dataclass
from typing import Protocol

from usdenoise.acquisition import Acquisition
from usdenoise.completion.solve import Iteration


@dataclass(frozen=True)
class Display:
    """How power Doppler pictures look.

    Attributes
    ----------
    dynamic_range : float or None
        dB below the maximum that are shown; None suits it to the image.
    db_factor : float
        10 for decibels of power, 20 for the paper's formula.
    cutoff_figure : bool
        Whether to draw how the low cutoff was chosen, as ``<stem>_cutoff.png``.
    """

    dynamic_range: float | None = None
    db_factor: float = 10.0
    cutoff_figure: bool = False


class Watcher(Protocol):
    """What a job tells its caller on the way."""

    def stage(self, name: str) -> None:
        """A stage begins: load, solve or write."""

    def loaded(self, acquisition: Acquisition) -> None:
        """The acquisition was read."""

    def iteration(self, line: Iteration) -> None:
        """The solver made a step."""


class Silence:
    """A watcher that keeps it all to itself."""

    def stage(self, name: str) -> None:
        """Nothing."""

    def loaded(self, acquisition: Acquisition) -> None:
        """Nothing."""

    def iteration(self, line: Iteration) -> None:
        """Nothing."""
