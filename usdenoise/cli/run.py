"""``usdenoise run``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.config_file import config_option
from usdenoise.cli.console import DETAIL, Console, typed_command
from usdenoise.cli.option_groups import GroupedCommand
from usdenoise.cli.option_types import PathType
from usdenoise.cli.run_summary import show_summary
from usdenoise.cli.time_left import Clock
from usdenoise.options import DenoiseOptions, Display, Output

if TYPE_CHECKING:
    from usdenoise.completion.solve import Iteration
    from usdenoise.jobs.live_files import LiveBlocks
    from usdenoise.sessions.live_state import SessionUpdate
    from usdenoise.stack.geometry import GriddedStack


class ProgressView:
    """A watcher of a job that shows its progress on the console."""

    def __init__(self, console: Console, iterations: int) -> None:
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

    def loaded(self, stack: "GriddedStack") -> None:
        """Print the assumptions of the reader."""
        for assumption in stack.assumptions:
            self._console.say(f"note: {assumption}")

    def blocks(self, done: int, total: int) -> None:
        """Show the blocks that are done."""
        if done == 1:
            self._console.begin("blocks", total)
        self._console.advance(done, f"{done} of {total}  {self._clock.left(done, total)}")

    def live(self, update: "SessionUpdate", blocks: "LiveBlocks") -> None:
        """Show the state of a live session after a block: as a line, or in the progress bar if there is one."""
        blood, steady = update.blood_to_noise_db, update.unsteadiness
        parts = [
            f"{blocks.n_waiting} waiting",
            f"{blocks.seconds:.1f} s",
            "no blood" if blood is None else f"blood {blood:.1f} dB",
            f"moved {update.motion[-1]:.2f} pixels",
            "" if steady is None else f"varies by {100 * steady:.1f} %",
        ]
        line = "  ".join(part for part in parts if part)
        number = update.number
        if self._console.is_animated:
            self._console.begin(f"{number + 1} done  {line}", None)
        else:
            self._console.say(f"block {number} {update.name}  {line}")
        new = [f"{update.name or number} is bad: {update.why}"] if update.why else []
        new += [remark for remark in blocks.remarks if remark not in self._said]
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


@click.command(
    "run",
    cls=GroupedCommand,
    examples=[
        ("usdenoise run scan.h5", "Filter scan.h5 with automatic settings; the results go to scan-usdenoise"),
        (
            "usdenoise run scan.h5 -o out --low-cutoff 5 --products power,velocity",
            "Remove five components as clutter, and map the velocity too",
        ),
        (
            "usdenoise run scan.h5 -o more --rank 40 --estimator iterations=30",
            "Estimate 40 components in up to 30 iterations",
        ),
    ],
)
@click.argument("acquisition", type=PathType(readable=False))
@shared.reading_options
@config_option
@shared.flags_of(
    DenoiseOptions, "low_cutoff", "high_cutoff", "rank", "bad_frames", "method", "seed", "threads", "device"
)
@shared.preset_option
@shared.estimator_option
@shared.output_option(show_default="<stem>-usdenoise")
@shared.overwrite_option
@shared.flags_of(Output, "stack", "stack_name", "products", "nifti")
@shared.bids_option
@shared.flags_of(Display, "dynamic_range", "figure_formats")
# A batch hands these over from its Python caller, or from the preset.
@shared.flags_of(Display, "color_map", "db_factor", hidden=True)
@shared.resource_options
@shared.messages
def command(
    acquisition: Path,
    output: Path | None,
    bids: str | None,
    overwrite: bool,
    console: Console,
    **values: Any,
) -> None:
    """Denoise or clutter-filter ACQUISITION, a stack of beamformed frames.

    The file may be HDF5, MATLAB, UFF, zea, NumPy, Zarr or Iconeus IQ. The results are the filtered stack, the blood map and
    the power Doppler image as pictures and as numbers, and a report, also as a page for the browser. No option is
    required: the rank and the low cutoff are chosen from the data, and the report gives the reason.
    """
    arguments = shared.job_arguments(values)
    from usdenoise.files.bids import is_recording_of_bids
    from usdenoise.jobs.run_job import run
    from usdenoise.system.memory import use_one_heap

    use_one_heap()
    if bids is None and arguments["output"].nifti and is_recording_of_bids(acquisition):
        bids = "auto"
    if bids == "none":
        bids = None
    report = run(
        acquisition,
        output,
        **arguments,
        bids=bids,
        overwrite=overwrite,
        command=typed_command(),
        watcher=ProgressView(console, arguments["options"].iterations),
    )
    show_summary(console, report)
