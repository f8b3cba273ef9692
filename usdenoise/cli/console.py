"""Narration and progress on stderr, results on stdout."""

import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from usdenoise.errors import OutputError
from usdenoise.system.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

WARNING, NOTE, DETAIL = -1, 0, 1


class Console:
    """Messages on stderr at the level that -q and -v set, and a progress bar where stderr is a terminal.

    Parameters
    ----------
    quiet, verbose : int
        Number of times that -q and -v were given.
    """

    def __init__(self, quiet: int = 0, verbose: int = 0) -> None:
        self.level = verbose - quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def say(self, message: str, level: int = NOTE) -> None:
        """Print a line on stderr, unless its level is above that of the console."""
        if level <= self.level:
            message = printable(message)
            if self._progress is not None:
                self._progress.console.print(message, markup=False, highlight=False, soft_wrap=True)
            else:
                click.echo(message, err=True)

    def warn(self, message: str) -> None:
        """Print a warning, which only -qq silences."""
        self.say(f"warning: {message}", WARNING)

    def begin(self, what: str, total: int | None) -> None:
        """Show the progress of a new stage, as a bar of `total` steps or, with None, only with its name."""
        if self.level < NOTE or not sys.stderr.isatty():
            return
        if self._progress is None:
            from rich.console import Console as RichConsole
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description:<8}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=RichConsole(stderr=True),
                transient=True,
            )
            self._progress.start()
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total, note="")

    def advance(self, done: int, note: str = "") -> None:
        """Move the progress bar to step `done`, with a note behind it."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, note=note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def print_line(text: str) -> None:
    """Print one line on stdout.

    Raises
    ------
    OutputError
        If stdout cannot be written, as on a full disk.
    """
    try:
        click.echo(printable(text))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"stdout cannot be written ({error.strerror}); free some space for it") from error


def print_json(value: Any) -> None:
    """Print one JSON object on one line of stdout."""
    from usdenoise.system.provenance import to_json

    print_line(to_json(value))


def print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns on stdout."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_line(f"{name:<{width}}  {value}")


def print_rows(headings: list[str], rows: list[list[str]]) -> None:
    """Print a table on stdout, the first column to the left and the others to the right.

    A redirected table is 200 characters wide, so that its rows are not wrapped.
    """
    from rich import box
    from rich.console import Console as RichConsole
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = RichConsole(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)
    console.print(table)


def shape_text(described: Mapping[str, Any]) -> str:
    """Return the axes and the shape of a stack in one line, for example "t 150, z 72, x 56"."""
    return ", ".join(f"{letter} {n}" for letter, n in zip(described["axes"], described["shape"], strict=True))


def duration(seconds: float) -> str:
    """Return a time in the two largest of hours, minutes and seconds that it has, for example "1 h 5 min"."""
    whole = max(round(seconds), 1)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
