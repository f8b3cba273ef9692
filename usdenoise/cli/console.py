"""The console: messages, the progress of a job and the remaining time on stderr, results on stdout."""

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from usdenoise.errors import OutputError
from usdenoise.progress import Progress
from usdenoise.system.text import counted, printable

if TYPE_CHECKING:
    import rich.progress

    from usdenoise.completion.solve import Iteration
    from usdenoise.report.record import ModelReport, Report, SequenceRecord


COUNT_S = 60.0
"""Seconds between two lines of progress where stderr is not a terminal."""


class Clock:
    """A clock that starts when it is made, and estimates the time that is left.

    Parameters
    ----------
    n_before : int
        Steps that were done before; by default none.
    """

    def __init__(self, n_before: int = 0) -> None:
        self._began, self._n_before = time.monotonic(), n_before

    def left(self, done: int, total: int) -> str:
        """Return the time left after some of the steps; empty before the first and after the last."""
        if not self._n_before < done < total:
            return ""
        pace = (time.monotonic() - self._began) / (done - self._n_before)
        return f"about {duration(pace * (total - done))} left"


def duration(seconds: float) -> str:
    """Return a time in the two largest of hours, minutes and seconds that it has, for example "1 h 5 min"."""
    whole = max(round(seconds), 1)
    hours, minutes, remaining = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {remaining} s" if minutes else f"{remaining} s"


class Console:
    """Messages on stderr at the level that -q and -v set, and a progress bar where it is a terminal, else lines at times.

    Parameters
    ----------
    quiet, verbose : int
        Number of times that -q and -v were given.
    as_json : bool
        Whether the result is printed as JSON.
    """

    WARNING, NOTE, DETAIL = -1, 0, 1

    def __init__(self, quiet: int = 0, verbose: int = 0, as_json: bool = False) -> None:
        self.level = verbose - quiet
        self.as_json = as_json
        self._quiet = quiet > 0
        self._progress: rich.progress.Progress | None = None
        self._tasks: dict[Hashable, rich.progress.TaskID] = {}
        self._label, self._counted_s = "", time.monotonic()

    @property
    def is_animated(self) -> bool:
        """Whether progress is shown."""
        return self.level >= self.NOTE and sys.stderr.isatty()

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
        self.say(f"warning: {message}", self.WARNING)

    def begin(self, label: str, total: int | None, key: Hashable = None) -> None:
        """Show the progress of a new stage, as a bar of `total` steps or, with None, only with its name.

        It replaces the previous stage with the same key. Without a terminal, only the stage without a key is shown.
        """
        if key is None:
            self._label = label
        if not self.is_animated:
            return
        if self._progress is None:
            from rich import progress
            from rich.console import Console as RichConsole

            name = progress.TextColumn("{task.description:<8}", markup=False)
            note = progress.TextColumn("{task.fields[note]}", markup=False)
            shown = (name, progress.BarColumn(bar_width=24), note, progress.TimeElapsedColumn())
            self._progress = progress.Progress(*shown, console=RichConsole(stderr=True), transient=True)
            self._progress.start()
        self.end(key)
        self._tasks[key] = self._progress.add_task(label, total=total, note="")

    def advance(self, done: int, note: str = "", key: Hashable = None) -> None:
        """Move the bar of a stage to step `done`, with a note behind it; without a terminal, print the note at times."""
        if self._progress is not None and key in self._tasks:
            self._progress.update(self._tasks[key], completed=done, note=printable(note))
        elif key is None and not self.is_animated and time.monotonic() > self._counted_s + COUNT_S:
            self._counted_s = time.monotonic()
            self.say(f"{self._label:<8}  {note}")

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
            for line in lines():
                print_line(line)

    def show_rows(self, report: object, rows: Iterable[tuple[str, str]]) -> None:
        """Print the result on stdout: the report as JSON, or rows of names and values unless -q is given."""
        self.show(report, lambda: two_columns(rows))

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


def print_json(value: object) -> None:
    """Print one JSON object on one line of stdout."""
    from usdenoise.system.text import to_json

    print_line(to_json(value))


def typed_command() -> list[str]:
    """Return the command line as the user typed it, for the record in the results."""
    return ["usdenoise", *sys.argv[1:]]


def two_columns(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield lines with names and values; on a terminal, sentences are wrapped in their column, and paths are not."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    room = max(shutil.get_terminal_size().columns - width - 2, 40)
    for name, value in rows:
        is_whole = not sys.stdout.isatty() or len(value) <= room or os.sep in value
        parts = [value] if is_whole else textwrap.wrap(value, room, break_on_hyphens=False)
        yield from (f"{'' if k else name:<{width}}  {part}" for k, part in enumerate(parts))


def columns(headings: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield the lines of a table with headings, the first column aligned left, and all other columns right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for first, *others in [headings, ["-" * width for width in widths], *rows]:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([f"{first:<{widths[0]}}", *cells])


_STAGES = {"load": "reading", "solve": "components", "filter": "filtering", "write": "writing"}
"""Names of the stages of a job in the summary."""


def show_summary(console: Console, report: Mapping[str, object]) -> None:
    """Print the warnings about a run, and its summary."""
    from usdenoise.report.record import ModelReport, Report
    from usdenoise.report.sentences import cautions

    kind = Report if "method" in report else ModelReport
    record = kind.from_json(report)
    warnings = cautions(record)
    for sentence in warnings:
        console.warn(sentence)
    console.show_rows(report, ((name, text) for name, text in summary_rows(record, warnings) if text))


def summary_rows(report: "ModelReport", warned: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of the summary of a run; without a text there is nothing to say.

    Parameters
    ----------
    report : ModelReport
        The report of the job.
    warned : sequence of str
        Sentences that were printed as warnings; the summary refers to them instead of repeating them.
    """
    from usdenoise.report.record import Report
    from usdenoise.report.sentences import conditional

    source, sequence = report.input, report.sequence
    yield "input", f"{source.path} ({source.dataset}, {source.shape_text}, {source.dtype})"
    if sequence is not None:
        for each in sequence.activation:
            yield "activation", "; ".join(filter(None, (each.title, each.proposal)))
        yield from (("region", sentence) for sentence in sequence.region_sentences)
        yield "blocks", _blocks(sequence)
        yield "aligned", sequence.alignment
        yield from _poses(sequence)
    # The reports of the positions have their estimates.
    if isinstance(report, Report) and not (sequence and sequence.poses):
        sampled = "" if report.method == "svd" else f", {report.sampled_share} of the entries sampled"
        estimate = report.estimate
        if estimate in warned:
            estimate = f"{estimate.partition(':')[0]}; see the warning"
        yield "method", f"{report.method}, rank {report.rank}{sampled}"
        yield "clutter", _clutter(report)
        yield "kept", _kept(report)
        yield "blood", conditional(report.blood.sentence, report)
        yield "estimate", estimate
        yield "error", _error(report)
        yield "stopped", f"after {counted(report.iterations, 'iteration')}: {report.stop_reason}"
    seconds = report.timings_s
    stages = [f"{name} {seconds[stage]:.2f} s" for stage, name in _STAGES.items() if seconds.get(stage)]
    yield "time", f"{seconds['total']:.2f} s: {', '.join(stages)}"
    yield "memory", f"{report.peak_memory_bytes / 2**20:.0f} MiB at the peak"
    others = ("report_html", "_denoised")
    yield from (("wrote", name) for key, name in report.output.items() if not key.endswith(others))
    if report.requested.get("session", {}).get("stacks"):
        sequence_file = Path(report.output["sequence"])
        yield "wrote", str(sequence_file.with_name(f"*_denoised{sequence_file.suffix}"))
    yield "page", report.output.get("report_html", "")


def _poses(sequence: "SequenceRecord") -> Iterator[tuple[str, str]]:
    for pose in sequence.poses:
        blood = pose.blood_to_noise_db
        shown = "no blood" if blood is None else f"blood {blood:.1f} dB over noise"
        filtered = [f"{pose.low_cutoff} components removed, {pose.certainty}", shown]
        words = [
            *([] if pose.position_mm is None else [f"at {pose.position_mm:g} mm"]),
            *(filtered if pose.certainty else []),
            f"{pose.n_bad} of {pose.n_blocks} blocks bad",
            *(f"{count} pixels active by {name}" for name, count in pose.n_active.items()),
        ]
        yield f"pose {pose.name}", "; ".join(words)


def _blocks(sequence: "SequenceRecord") -> str:
    blocks, length = sequence.blocks, sequence.window
    if sequence.poses:
        sweeps = f"{len(blocks)} sweeps over {len(sequence.poses)} positions"
        return f"{sequence.n_blocks} of {sequence.size}, {sweeps}; {sequence.n_bad} bad"
    last, stride = blocks[-1].n_frames, sequence.stride
    every = "" if stride in (None, length) else f" every {stride}"
    is_usual = sequence.size == f"{length} frames"
    other = f", the last one of {last}" if is_usual and last not in (0, length) else ""
    bad = f"; {sequence.n_bad} bad" if sequence.n_bad else ""
    frames = f" of {sequence.size}" if length > 1 else ""
    return f"{len(blocks)}{frames}{every}{other}{bad}"


def _clutter(report: "Report") -> str:
    from usdenoise.clutter.clutter_cutoff import CutoffCertainty

    components, cutoff = counted(report.low_cutoff, "component"), report.cutoff
    removed = f"{components} removed{'' if report.sequence is None else ' from all blocks'}"
    if cutoff.is_own:
        removed = f"{components} of its own removed from each block"
    if cutoff.certainty == CutoffCertainty.GIVEN:
        return f"{removed}, as given"
    return f"{removed}, {cutoff.certainty}: {cutoff.reason}"


def _kept(report: "Report") -> str:
    low, high = report.low_cutoff, report.high_cutoff
    if isinstance(high, str):
        return "all other components and the residual: blood and noise"
    if report.sequence is not None:
        return "the other components"
    return f"the next {counted(high - low, 'component')}; the residual is dropped as noise"


def _error(report: "Report") -> str:
    noise = f"noise {report.noise_floor:.4g}, in the units of the file"
    held_out, expected = report.held_out_rmse, report.held_out_allowed
    if held_out is None:
        return noise
    note = "" if expected is None else f" (expected {expected:.4g})"
    if report.parameters["refit"] == "all":
        note = " before the refit"
    return f"held-out {held_out:.4g}{note}, {noise}"


class JobView(Progress):
    """Shows the progress of a job, a session or experiments on the console.

    Parameters
    ----------
    console : Console
        Console for the lines and bars.
    iterations : int
        Largest number of iterations of the solver; by default 0, without a solver.
    """

    def __init__(self, console: Console, iterations: int = 0) -> None:
        self._console = console
        self._iterations = iterations
        self._clock: Clock | None = None
        self._reads = self._is_live = False
        self._said: set[str] = set()

    def stage(self, name: str) -> None:
        """Begin a stage."""
        self._console.begin(name, self._iterations if name == "solve" else None)

    def read(self, done: int, total: int) -> None:
        """Show the bytes that are read."""
        if not self._reads:
            self._reads = True
            self._console.begin("load", total)
        self._console.advance(done, f"{done / 2**20:.0f} of {total / 2**20:.0f} MiB")

    def assumed(self, assumptions: Sequence[str]) -> None:
        """Print the assumptions of the reader."""
        for assumption in assumptions:
            self._console.say(f"note: {assumption}")

    def blocks(self, done: int, total: int) -> None:
        """Show the blocks that are done."""
        # A session that was stopped goes on with a later block
        if self._clock is None or done == 1:
            self._console.begin("blocks", total)
            self._clock = Clock(done)
        self._console.advance(done, f"{done} of {total}  {self._clock.left(done, total)}")

    def live(self, number: int, name: str, words: str, why: str, remarks: Sequence[str]) -> None:
        """Show the state of a live session after a block."""
        if not self._is_live:
            self._is_live = True
            self._console.begin("live", None)
        self._console.advance(number + 1, f"{number + 1} done  {words}")
        self._console.say(f"block {number} {name}  {words}", Console.DETAIL)
        if why:
            self._console.warn(f"{name or number} is bad: {why}")
        for sentence in remarks:
            if sentence not in self._said:
                self._console.warn(sentence)
        self._said.update(remarks)

    def iteration(self, line: "Iteration") -> None:
        """Show an iteration."""
        error = "-" if line.held_out_rmse is None else f"{line.held_out_rmse:.4g}"
        damping = "-" if line.damping is None else f"{line.damping:.2e}"
        self._console.advance(line.iteration, f"{line.iteration}/{self._iterations}  held-out {error}")
        self._console.say(
            f"iteration {line.iteration:3d}  objective {line.objective:.5e}  held-out {error}"
            f"  damping {damping}  halvings {line.halvings}",
            Console.DETAIL,
        )

    def experiments(self, done: int, total: int) -> None:
        """Show the experiments that are done; the bar begins with none."""
        if done == 0:
            self._console.begin("experiments", total)
        else:
            self._console.advance(done, f"{done}/{total}")

    def message(self, text: str) -> None:
        """Print the next step."""
        self._console.say(text)
