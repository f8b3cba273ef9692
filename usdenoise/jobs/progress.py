"""What a job shows, and what it tells its caller on the way."""

from typing import Protocol

from usdenoise.completion.solve import Iteration
from usdenoise.stack.acquisition import Acquisition


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
