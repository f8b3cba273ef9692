"""``usdenoise session``."""

from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, two_columns, typed_command
from usdenoise.cli.flags import GroupedCommand, PathType
from usdenoise.cli.job_view import JobView, show_summary
from usdenoise.options import DenoiseOptions, Display, JobOptions, Output, SessionOptions


@click.command(
    "session",
    cls=GroupedCommand,
    examples=[
        ("usdenoise session blocks -o out", "One time series from the files of a folder, each a block"),
        ("usdenoise session long.h5 --window 300 -o out", "The same from a long file, 300 frames a block"),
        (
            "usdenoise session blocks -o out --live --until-idle 30",
            "Show pictures while the files arrive, until none arrives for 30 s",
        ),
    ],
)
@click.argument("paths", nargs=-1, required=True, type=PathType(), metavar="PATH...")
@shared.reading_flags
@shared.config_option
@shared.flags_of(JobOptions, "patterns")
@shared.flags_of(SessionOptions)
@shared.flags_of(JobOptions, "regions")
@shared.flags_of(DenoiseOptions, "low_cutoff", "bad_frames", "device")
@shared.short_estimator_option
@shared.flags_of(JobOptions, "output", required=True)
@shared.flags_of(JobOptions, "overwrite")
@shared.flags_of(Output, "nifti")
@shared.flags_of(JobOptions, "bids", "dask")
@shared.flags_of(Display, "dynamic_range", "figure_formats")
@shared.messages
def command(paths: tuple[Path, ...], output: Path, console: Console, **values: Any) -> None:
    """Filter the blocks of a session, and make one time series of them.

    PATHS are files of one block each, a folder of them, or, with --window, one long file. The same clutter
    components are removed from all blocks, so it is steady. The results are the series of blood power and of power Doppler,
    their means, a table of the blocks, pictures and a page. The same command resumes a stopped session.
    """
    arguments = shared.job_arguments(values)
    session_options = SessionOptions(**shared.requested(SessionOptions, values))
    regions = dict(arguments.pop("regions"))
    if len(regions) < len(values["regions"]):
        raise click.BadParameter("two regions have the same name", param_hint="--region")
    from usdenoise.jobs.session_job import run_session
    from usdenoise.system.resources import use_one_heap

    use_one_heap()
    if session_options.live:
        console.say(f"page: {output / 'live.html'}")
    report = run_session(
        paths,
        output,
        regions=regions,
        **arguments,
        session_options=session_options,
        command=typed_command(),
        watcher=JobView(console, arguments["options"].iterations),
    )
    if "sequence" in report:
        show_summary(console, report)
        return
    # The files of a live session were removed before its end.
    for sentence in report["notes"]:
        console.warn(sentence)
    console.show(report, lambda: two_columns(("wrote", path) for path in report["output"].values()))
