"""``usdenoise session``."""

from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, two_columns, typed_command
from usdenoise.cli.flags import GroupedCommand, PathType, flag_option
from usdenoise.cli.run import ProgressView, show_summary
from usdenoise.cli.shared_options import config_option
from usdenoise.options import DenoiseOptions, Display, Output, SessionOptions
from usdenoise.options.declaration import Group


def _regions(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the regions by their names."""
    regions = {}
    for text in texts:
        name, equals, region = text.partition("=")
        if not (name and equals and region):
            raise click.BadParameter(f"'{text}' is not NAME=REGION, for example cortex=rect:10,20,30,60")
        if name in regions:
            raise click.BadParameter(f"there are two regions '{name}'")
        regions[name] = region
    return regions


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
@shared.reading_options
@config_option
@flag_option(
    Group.SESSION,
    "--pattern",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Use only files with matching names in a folder, for example 'block_*.h5'. Repeat it for several patterns.",
)
@shared.flags_of(SessionOptions)
@flag_option(
    Group.SESSION,
    "--region",
    "regions",
    multiple=True,
    metavar="NAME=REGION",
    callback=_regions,
    help="Write the mean blood power of a region over the blocks: rect:Z0,X0,Z1,X1 or circle:Z,X,R in pixels, or in mm "
    "with mm at the end, or a mask image. Repeat it for several regions.",
)
@shared.flags_of(DenoiseOptions, "low_cutoff", "bad_frames", "device")
@shared.short_estimator_option
@shared.output_option(required=True)
@shared.overwrite_option
@shared.flags_of(Output, "nifti")
@shared.bids_option
@shared.dask_option
@shared.flags_of(Display, "dynamic_range", "figure_formats")
@shared.messages
def command(
    paths: tuple[Path, ...],
    output: Path,
    patterns: tuple[str, ...],
    regions: dict[str, str],
    bids: str | None,
    overwrite: bool,
    console: Console,
    **values: Any,
) -> None:
    """Filter the blocks of a session, and make one time series of them.

    PATHS are files of one block each, a folder of them, or, with --window, one long file. The same clutter
    components are removed from all blocks, so it is steady. The results are the series of blood power and of power Doppler,
    their means, a table of the blocks, pictures and a page. The same command resumes a stopped session.
    """
    arguments = shared.job_arguments(values)
    from usdenoise.jobs.session_call import run_session
    from usdenoise.system.memory import use_one_heap

    use_one_heap()
    if values.get("live"):
        console.say(f"page: {output / 'live.html'}")
    report = run_session(
        paths,
        output,
        patterns=patterns,
        regions=regions,
        bids=bids,
        **arguments,
        session_options=SessionOptions(**shared.requested(SessionOptions, values)),
        overwrite=overwrite,
        command=typed_command(),
        watcher=ProgressView(console, arguments["options"].iterations),
    )
    if "sequence" in report:
        show_summary(console, report)
        return
    # The files of a live session were removed before its end.
    for sentence in report["notes"]:
        console.warn(sentence)
    console.show(report, lambda: two_columns(("wrote", path) for path in report["output"].values()))
