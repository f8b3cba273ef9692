"""What the console shows of a job: its progress while it runs, and the summary at its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from usdenoise.cli.console import DETAIL, Clock, Console, two_columns
from usdenoise.progress import LiveBlock, Progress

if TYPE_CHECKING:
    from usdenoise.completion.solve import Iteration
    from usdenoise.report.record import Report, SequenceRecord

_STAGES = {"load": "reading", "solve": "components", "filter": "filtering", "write": "writing"}
"""Names of the stages of a job in the summary."""


def show_summary(console: Console, report: Mapping[str, object]) -> None:
    """Print the warnings about a run, and its summary."""
    from usdenoise.report.record import Report
    from usdenoise.report.sentences import cautions

    record = Report.from_json(report)
    warnings = cautions(record)
    for sentence in warnings:
        console.warn(sentence)
    console.show(report, lambda: two_columns(summary_rows(record, warnings)))


def summary_rows(report: "Report", warned: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names and the texts of the summary of a run.

    Parameters
    ----------
    report : Report
        The report of the job.
    warned : sequence of str
        Sentences that were printed as warnings; the summary refers to them instead of repeating them.
    """
    from usdenoise.report.sentences import conditional

    source, sequence = report.input, report.sequence
    rows = [("input", f"{source.path} ({source.dataset}, {source.shape_text}, {source.dtype})")]
    if sequence is not None:
        rows.append(("blocks", _blocks(sequence)))
    if sequence is not None and sequence.alignment:
        rows.append(("aligned", sequence.alignment))
    sampled = "" if report.method == "svd" else f", {report.sampled_share} of the entries sampled"
    count, seconds, estimate = report.iterations, report.timings_s, report.estimate
    if estimate in warned:
        estimate = f"{estimate.partition(':')[0]}; see the warning"
    stages = [
        f"{_STAGES[name]} {value:.2f} s" for name, value in seconds.items() if name in _STAGES and value
    ]
    rows += [
        ("method", f"{report.method}, rank {report.rank}{sampled}"),
        ("clutter", _clutter(report)),
        ("kept", _kept(report)),
        *([("blood", conditional(report.blood.sentence, report))] if report.blood.sentence else []),
        ("estimate", estimate),
        ("error", _error(report)),
        ("stopped", f"after {count} iteration{'' if count == 1 else 's'}: {report.stop_reason}"),
        ("time", f"{seconds['total']:.2f} s: {', '.join(stages)}"),
        ("memory", f"{report.peak_memory_bytes / 2**20:.0f} MiB at the peak"),
    ]
    if sequence is not None:
        rows += [
            ("activation", "; ".join(filter(None, (f"{each.name}: {each.sentence}", each.proposal))))
            for each in sequence.activation
        ]
    rows += [
        ("wrote", name)
        for key, name in report.output.items()
        if key != "report_html" and not key.endswith("_denoised")
    ]
    if report.requested.get("session", {}).get("stacks"):
        sequence_file = Path(report.output["sequence"])
        rows.append(("wrote", str(sequence_file.with_name(f"*_denoised{sequence_file.suffix}"))))
    if (page := report.output.get("report_html")) is not None:
        rows.append(("page", page))
    return rows


def _blocks(sequence: "SequenceRecord") -> str:
    blocks, length = sequence.blocks, sequence.window
    last, stride = blocks[-1].n_frames, sequence.stride
    every = "" if stride in (None, length) else f" every {stride}"
    is_usual = sequence.size == f"{length} frames"
    other = f", the last one of {last}" if is_usual and last not in (0, length) else ""
    bad = f"; {sequence.n_bad} bad" if sequence.n_bad else ""
    return f"{len(blocks)} of {sequence.size}{every}{other}{bad}"


def _clutter(report: "Report") -> str:
    from usdenoise.clutter.clutter_cutoff import CutoffCertainty

    count, cutoff = report.low_cutoff, report.cutoff
    removed = f"{count} component{'' if count == 1 else 's'} removed"
    if report.sequence is not None:
        removed += " from all blocks"
    if cutoff.certainty == CutoffCertainty.GIVEN:
        return f"{removed}, as given"
    return f"{removed}, {cutoff.certainty}: {cutoff.reason}"


def _kept(report: "Report") -> str:
    low, high = report.low_cutoff, report.high_cutoff
    if isinstance(high, str):
        return "all other components and the residual: blood and noise"
    if report.sequence is not None:
        return "the other components"
    return (
        f"the next {high - low} component{'' if high - low == 1 else 's'}; the residual is dropped as noise"
    )


def _error(report: "Report") -> str:
    noise = f"noise {report.noise_floor:.4g}, in the units of the file"
    held_out, expected = report.held_out_rmse, report.held_out_allowed
    if held_out is None:
        return noise
    if report.parameters["refit"] == "all":
        return f"held-out {held_out:.4g} before the refit, {noise}"
    shown = "" if expected is None else f" (expected {expected:.4g})"
    return f"held-out {held_out:.4g}{shown}, {noise}"


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
        self._clock = Clock()
        self._reads = False
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
        if done == 1:
            self._console.begin("blocks", total)
        self._console.advance(done, f"{done} of {total}  {self._clock.left(done, total)}")

    def live(self, block: LiveBlock) -> None:
        """Show the state of a live session after a block: as a line, or in the progress bar if there is one."""
        blood, steady = block.blood_to_noise_db, block.unsteadiness
        parts = [
            f"{block.n_waiting} waiting",
            f"{block.seconds:.1f} s",
            "no blood" if blood is None else f"blood {blood:.1f} dB",
            f"moved {block.motion:.2f} pixels",
            "" if steady is None else f"varies by {100 * steady:.1f} %",
        ]
        line = "  ".join(part for part in parts if part)
        if self._console.is_animated:
            self._console.begin(f"{block.number + 1} done  {line}", None)
        else:
            self._console.say(f"block {block.number} {block.name}  {line}")
        new = [f"{block.name or block.number} is bad: {block.why}"] if block.why else []
        new += [remark for remark in block.remarks if remark not in self._said]
        self._said.update(new)
        for sentence in new:
            self._console.warn(sentence)

    def iteration(self, line: "Iteration") -> None:
        """Show an iteration."""
        error = "-" if line.held_out_rmse is None else f"{line.held_out_rmse:.4g}"
        damping = "-" if line.damping is None else f"{line.damping:.2e}"
        self._console.advance(line.iteration, f"{line.iteration}/{self._iterations}  held-out {error}")
        self._console.say(
            f"iteration {line.iteration:3d}  objective {line.objective:.5e}  held-out {error}"
            f"  damping {damping}  halvings {line.halvings}",
            DETAIL,
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
