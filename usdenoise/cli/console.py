"""Narration, progress and the remaining time on stderr, results on stdout."""

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Hashable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from usdenoise.errors import OutputError
from usdenoise.system.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Clock:
    """The time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def left(self, done: int, total: int) -> str:
        """Return the time left after some of the steps; empty before the first and after the last."""
        if not 0 < done < total:
            return ""
        pace = (time.monotonic() - self._began) / done
        return f"about {duration(pace * (total - done))} left"


def duration(seconds: float) -> str:
    """Return a time in the two largest of hours, minutes and seconds that it has, for example "1 h 5 min"."""
    whole = max(round(seconds), 1)
    hours, minutes, remaining = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {remaining} s" if minutes else f"{remaining} s"


WARNING, NOTE, DETAIL = -1, 0, 1


class Console:
    """Messages on stderr at the level that -q and -v set, and a progress bar where stderr is a terminal.

    Parameters
    ----------
    quiet, verbose : int
        Number of times that -q and -v were given.
    as_json : bool
        Whether the result is printed as JSON.
    """

    def __init__(self, quiet: int = 0, verbose: int = 0, as_json: bool = False) -> None:
        self.level = verbose - quiet
        self.as_json = as_json
        self._quiet = quiet > 0
        self._progress: Progress | None = None
        self._tasks: dict[Hashable, TaskID] = {}

    @property
    def is_animated(self) -> bool:
        """Whether progress is shown."""
        return self.level >= NOTE and sys.stderr.isatty()

    def say(self, message: str, level: int = NOTE) -> None:
        """Print a line on stderr, unless its level is above the level of the console."""
        if level <= self.level:
            message = printable(message)
            if self._progress is not None:
                self._progress.console.print(message, markup=False, highlight=False, soft_wrap=True)
            else:
                click.echo(message, err=True)

    def warn(self, message: str) -> None:
        """Print a warning, which only -qq silences."""
        self.say(f"warning: {message}", WARNING)

    def begin(self, label: str, total: int | None, key: Hashable = None, state: object = "") -> None:
        """Show the progress of a new stage, as a bar of `total` steps or, with None, only with its name.

        It replaces the previous stage with the same key. The text of a state is generated again whenever it is shown.
        """
        if not self.is_animated:
            return
        if self._progress is None:
            from rich.console import Console as RichConsole
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                TextColumn("{task.description:<8}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[state]}", markup=False),
                TextColumn("{task.fields[note]}", markup=False),
                TimeElapsedColumn(),
                console=RichConsole(stderr=True),
                transient=True,
            )
            self._progress.start()
        self.end(key)
        self._tasks[key] = self._progress.add_task(label, total=total, note="", state=state)

    def advance(self, done: int, note: str = "", key: Hashable = None) -> None:
        """Move the bar of a stage to step `done`, with a note behind it."""
        if self._progress is not None and key in self._tasks:
            self._progress.update(self._tasks[key], completed=done, note=printable(note))

    def end(self, key: Hashable) -> None:
        """Remove the stage of a key."""
        if self._progress is not None and key in self._tasks:
            self._progress.remove_task(self._tasks.pop(key))

    def show(self, report: object, lines: Callable[[], Iterable[str]]) -> None:
        """Print the result on stdout: the report as JSON, or lines for people unless -q is given."""
        self._stop()
        if self.as_json:
            print_json(report)
        elif not self._quiet:
            print_lines(lines())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
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


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    for line in lines:
        print_line(line)


def print_json(value: object) -> None:
    """Print one JSON object on one line of stdout."""
    from usdenoise.system.provenance import to_json

    print_line(to_json(value))


def typed_command() -> list[str]:
    """Return the command line as the user typed it, for the record in the results."""
    return ["usdenoise", *sys.argv[1:]]


def two_columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return lines with names and values; on a terminal, sentences are wrapped in their column, and paths are not."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    room = max(shutil.get_terminal_size().columns - width - 2, 40)
    lines = []
    for name, value in rows:
        is_whole = not sys.stdout.isatty() or len(value) <= room or os.sep in value
        parts = [value] if is_whole else textwrap.wrap(value, room, break_on_hyphens=False)
        lines += [f"{'' if k else name:<{width}}  {part}" for k, part in enumerate(parts)]
    return lines


def columns(headings: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table with headings, the first column aligned left, and all other columns right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for first, *others in [headings, ["-" * width for width in widths], *rows]:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:<{widths[0]}}", *cells]))
    return lines
