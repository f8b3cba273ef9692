"""The events by which long work reports its progress, each a method of :class:`Progress`."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usdenoise.completion.solve import Iteration


class Progress:
    """The progress of a job, a session or experiments: work calls a method for each event, and nothing happens.

    A subclass overrides the events that it shows. A function that reports a single event takes a callable, such as the
    method `iteration` of an object.
    """

    def stage(self, name: str) -> None:
        """Begin a stage: "load", "solve" or "write"."""

    def read(self, done: int, total: int) -> None:
        """Report how many bytes of the acquisition are read, of how many."""

    def assumed(self, assumptions: Sequence[str]) -> None:
        """Report what is assumed about the acquisition, or the session, that was read, in sentences."""

    def iteration(self, line: "Iteration") -> None:
        """Report a step of the solver."""

    def blocks(self, done: int, total: int) -> None:
        """Report how many blocks of a session are done, of how many."""

    def live(self, number: int, name: str, words: str, why: str, remarks: Sequence[str]) -> None:
        """Report a block of a live session: what was measured, why it is bad, and sentences on the session so far."""

    def experiments(self, done: int, total: int) -> None:
        """Report how many experiments are done, of how many."""

    def message(self, text: str) -> None:
        """Report the next longer step in words."""


class NotebookBar:
    """A progress bar in a Jupyter notebook; in other places a call does nothing.

    IPython has a bar that needs neither widgets nor another package.
    """

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` steps of `total` are done."""
        # A notebook has imported IPython, and its shell a kernel; the one of a terminal has none.
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if not hasattr(shell, "kernel"):
            return
        if self._bar is None:
            self._bar = import_module("IPython.display").ProgressBar(total)
            self._bar.display()
        self._bar.progress = done
