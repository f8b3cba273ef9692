"""Progress of a job: the methods that it calls while it runs."""

from typing import TYPE_CHECKING, Protocol

from usdenoise.completion.solve import Iteration
from usdenoise.stack.geometry import GriddedStack

if TYPE_CHECKING:
    # Only live sessions need them.
    from usdenoise.jobs.live_files import LiveBlocks
    from usdenoise.sessions.live_state import SessionUpdate


class Watcher(Protocol):
    """An object whose methods a job calls while it runs."""

    def stage(self, name: str) -> None:
        """Note that a stage begins: "load", "solve" or "write"."""

    def read(self, done: int, total: int) -> None:
        """Note how many bytes of the acquisition are read, of how many."""

    def loaded(self, stack: GriddedStack) -> None:
        """Note that the acquisition was read, or the geometry of a session."""

    def iteration(self, line: Iteration) -> None:
        """Note that the solver made a step."""

    def blocks(self, done: int, total: int) -> None:
        """Note how many blocks of a session are done, of how many."""

    def live(self, update: "SessionUpdate", blocks: "LiveBlocks") -> None:
        """Note the state of a live session after a block, and the blocks that are still to come."""


class NoProgress:
    """A watcher that does nothing."""

    def stage(self, name: str) -> None:
        """Do nothing."""

    def read(self, done: int, total: int) -> None:
        """Do nothing."""

    def loaded(self, stack: GriddedStack) -> None:
        """Do nothing."""

    def iteration(self, line: Iteration) -> None:
        """Do nothing."""

    def blocks(self, done: int, total: int) -> None:
        """Do nothing."""

    def live(self, update: "SessionUpdate", blocks: "LiveBlocks") -> None:
        """Do nothing."""
