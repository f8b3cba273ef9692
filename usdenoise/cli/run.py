"""``usdenoise run``."""

from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, typed_command
from usdenoise.cli.flags import GroupedCommand, PathType
from usdenoise.cli.job_view import JobView, show_summary
from usdenoise.options import DenoiseOptions, Display, JobOptions, Output


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
@shared.reading_flags
@shared.config_option
@shared.flags_of(
    DenoiseOptions, "low_cutoff", "high_cutoff", "rank", "bad_frames", "method", "seed", "threads", "device"
)
@shared.flags_of(JobOptions, "preset")
@shared.estimator_option
@shared.flags_of(JobOptions, "output", show_default="<stem>-usdenoise")
@shared.flags_of(JobOptions, "overwrite")
@shared.flags_of(Output)
@shared.flags_of(JobOptions, "bids")
@shared.flags_of(Display)
@shared.flags_of(JobOptions, "memory", "dask")
@shared.messages
def command(acquisition: Path, output: Path | None, console: Console, **values: Any) -> None:
    """Denoise or clutter-filter ACQUISITION, a stack of beamformed frames.

    The file may be HDF5, MATLAB, UFF, zea, NumPy, Zarr or Iconeus IQ. The results are the filtered stack, the blood map and
    the power Doppler image as pictures and as numbers, and a report, also as a page for the browser. No option is
    required: the rank and the low cutoff are chosen from the data, and the report gives the reason.
    """
    arguments = shared.job_arguments(values)
    from usdenoise.files.bids import is_recording_of_bids
    from usdenoise.jobs.run_job import run
    from usdenoise.system.resources import use_one_heap

    use_one_heap()
    bids = arguments.pop("bids", None)
    if bids is None and arguments["output"].nifti and is_recording_of_bids(acquisition):
        bids = "auto"
    report = run(
        acquisition,
        output,
        **arguments,
        bids=None if bids == "none" else bids,
        command=typed_command(),
        watcher=JobView(console, arguments["options"].iterations),
    )
    show_summary(console, report)
