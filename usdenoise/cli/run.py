"""``usdenoise run``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.configured import ConfiguredCommand, config_option
from usdenoise.cli.console import DETAIL, Console, print_json, print_table, summary
from usdenoise.cli.option_groups import Group, option

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
        self._console.advance(line.iteration, f"{line.iteration}/{self._iterations}  held-out {error}")
        self._console.say(
            f"iteration {line.iteration:3d}  objective {line.objective:.5e}  held-out {error}"
            f"  damping {line.damping or 0:.2e}  halvings {line.halvings}",
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
@click.argument("acquisition", type=click.Path(path_type=Path))
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
    from usdenoise.jobs.run_job import run
    from usdenoise.pipeline.clutter_cutoff import CutoffCertainty
    from usdenoise.pipeline.fit_quality import Verdict

    with Console(quiet, verbose) as console:
        report = run(
            acquisition,
            output,
            **arguments,
            overwrite=overwrite,
            command=["usdenoise", *sys.argv[1:]],
            watcher=_Narrator(console, arguments["options"].iterations),
        )
    if report["n_unobserved"]:
        console.warn(
            f"{report['n_unobserved']} entries were NaN or infinite; they were not used, and are filled "
            "from the low-rank model"
        )
    if not Verdict.from_code(report["fit"]).is_good:
        console.warn(report["verdict"])
    if report["cutoff"]["certainty"] == CutoffCertainty.UNSURE:
        console.warn(
            f"the low cutoff {report['low_cutoff']} is unsure; look at the picture, or set --low-cutoff"
        )
    if as_json:
        print_json(report)
    elif not quiet:
        print_table(_rows(report))


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    high = "the rest" if report["high_cutoff"] == "none" else str(report["high_cutoff"])
    source = report["input"]
    shape = " x ".join(f"{letter}{n}" for letter, n in zip(source["axes"], source["shape"], strict=True))
    error = report["held_out_rmse"]
    cutoff = report["cutoff"]
    rows = [
        ("input", f"{source['path']} ({source['dataset']}, {shape}, {source['dtype']})"),
        ("method", f"{report['method']}, rank {report['rank']}, sampling {report['sampling']:g}"),
        ("kept", f"components {report['low_cutoff']} to {high}"),
        ("clutter", f"{report['low_cutoff']} removed, {cutoff['certainty']}: {cutoff['reason']}"),
        ("stopped", f"after {report['iterations']} iterations: {report['stop_reason']}"),
        ("error", f"held-out {'-' if error is None else f'{error:.4g}'}, noise {report['noise_floor']:.4g}"),
        ("verdict", report["verdict"]),
        ("time", summary(report["timings_s"])),
        ("memory", f"{report['peak_memory_bytes'] / 2**20:.0f} MiB at the peak"),
    ]
    if (sequence := report.get("sequence")) is not None:
        windows = sequence["blocks"]
        short = "" if windows[-1]["complete"] else f", the last one of {windows[-1]['n_frames']}"
        words = f"{len(windows)} of {sequence['window']} frames every {sequence['stride']}{short}"
        worst = f"the lines below are for window {sequence['worst_block']}, the worst"
        rows.insert(1, ("windows", f"{words}; {worst}"))
    return rows + [("wrote", name) for name in report["output"].values()]
