"""``usdenoise run``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.configured import ConfiguredCommand, config_option
from usdenoise.cli.console import DETAIL, Console, print_json, print_table, shape_text, summary
from usdenoise.cli.option_groups import Group, option
from usdenoise.pipeline.cutoff_reason import CutoffCertainty

if TYPE_CHECKING:
    from usdenoise.completion.solve import Iteration
    from usdenoise.stack.acquisition import Acquisition


class _Narrator:
    """A watcher of a job that shows its progress on the console."""

    def __init__(self, console: Console, iterations: int) -> None:
        self._console = console
        self._iterations = iterations

    def stage(self, name: str) -> None:
        self._console.begin(name, self._iterations if name == "solve" else None)

    def loaded(self, acquisition: "Acquisition") -> None:
        for assumption in acquisition.assumptions:
            self._console.say(f"note: {assumption}")

    def iteration(self, line: "Iteration") -> None:
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
    cls=ConfiguredCommand,
    examples=[
        ("usdenoise run scan.h5", "Filter scan.h5 with automatic settings; the results go to scan-usdenoise"),
        (
            "usdenoise run scan.h5 -o out --low-cutoff 5 --products power,velocity",
            "Remove five components as clutter, and map the velocity too",
        ),
        (
            "usdenoise run scan.h5 -o film --window 400 --stride 200 --movie gif",
            "Filter 400 frames at a time, and make a film of the images",
        ),
    ],
)
@click.argument("acquisition", type=click.Path(path_type=Path, readable=False))
@option(
    Group.OUTPUTS,
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    show_default="<stem>-usdenoise",
    help="Folder of the results.",
)
@shared.job_options
@config_option
@shared.overwrite_option
@shared.json_option
@shared.verbosity_options
def command(
    acquisition: Path,
    output: Path | None,
    preset: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: int,
    verbose: int,
    **values: Any,
) -> None:
    """Denoise or clutter-filter ACQUISITION, a stack of beamformed frames.

    The file may be HDF5, MATLAB, UFF, zea, EchoFrame, AUTC, NumPy or Zarr. The results are the filtered stack,
    its power Doppler image as a picture and as numbers, and a report. Nothing has to be set: the rank and the
    low cutoff are chosen from the data, and the report says why.
    """
    arguments = shared.job_arguments(preset, values)
    from usdenoise.jobs.cautions import cautions
    from usdenoise.jobs.run_job import run

    with Console(quiet, verbose) as console:
        report = run(
            acquisition,
            output,
            **arguments,
            overwrite=overwrite,
            command=["usdenoise", *sys.argv[1:]],
            watcher=_Narrator(console, arguments["options"].iterations),
        )
    for sentence in cautions(report):
        console.warn(sentence)
    if as_json:
        print_json(report)
    elif not quiet:
        print_table(_rows(report))


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    source = report["input"]
    rows = [
        ("input", f"{source['path']} ({source['dataset']}, {shape_text(source)}, {source['dtype']})"),
        ("method", f"{report['method']}, rank {report['rank']}, sampling {report['sampling']:g}"),
        ("kept", _kept(report)),
        ("clutter", _clutter(report)),
        ("stopped", _stopped(report)),
        ("error", _error(report)),
        ("picture", report["blood"]["sentence"]),
        ("estimate", report["estimate"]),
        ("time", summary(report["timings_s"])),
        ("memory", f"{report['peak_memory_bytes'] / 2**20:.0f} MiB at the peak"),
    ]
    if (sequence := report.get("sequence")) is not None:
        windows = sequence["blocks"]
        length, last = sequence["window"], windows[-1]["n_frames"]
        other = "" if last == length else f", the last one of {last}"
        words = f"{len(windows)} of {length} frames every {sequence['stride']}{other}"
        worst = f"the lines below are for number {sequence['worst_block']}, counted from 0, the worst"
        rows.insert(1, ("windows", f"{words}; {worst}"))
    return rows + [("wrote", name) for name in report["output"].values()]


def _kept(report: dict[str, Any]) -> str:
    low, high = report["low_cutoff"], report["high_cutoff"]
    if high == "none":
        return f"all components from {low} on, counted from 0, and the residual"
    return f"components {low} to {high - 1}, counted from 0"


def _clutter(report: dict[str, Any]) -> str:
    cutoff, low = report["cutoff"], report["low_cutoff"]
    removed = f"{low} component{'' if low == 1 else 's'} removed"
    if cutoff["certainty"] == CutoffCertainty.GIVEN:
        return f"{removed}, as given"
    return f"{removed}, {cutoff['certainty']}: {cutoff['reason']}"


def _stopped(report: dict[str, Any]) -> str:
    sequence = report.get("sequence")
    # The report of a sequence has the total over the windows.
    count = (
        report["iterations"]
        if sequence is None
        else sequence["blocks"][sequence["worst_block"]]["iterations"]
    )
    return f"after {count} iteration{'' if count == 1 else 's'}: {report['stop_reason']}"


def _error(report: dict[str, Any]) -> str:
    error, expected = report["held_out_rmse"], report["held_out_allowed"]
    if error is None:
        return f"noise {report['noise_floor']:.4g}"
    shown = "" if expected is None else f" (expected {expected:.4g})"
    return f"held-out {error:.4g}{shown}, noise {report['noise_floor']:.4g}"
