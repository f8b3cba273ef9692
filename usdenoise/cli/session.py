"""``usdenoise session``."""

from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.config_file import config_option, flags_first
from usdenoise.cli.console import Console, typed_command
from usdenoise.cli.option_groups import GroupedCommand, flag_option
from usdenoise.cli.run import Narrator
from usdenoise.cli.run_summary import show_summary
from usdenoise.options import SessionOptions
from usdenoise.options.declaration import Group

_REFUSED = ("dask", "memory", "local_cutoff", "no_stack", "cutoff_figure", "frames_figure")


def _regions(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the regions by their names."""
    regions = {}
    for text in texts:
        name, equals, region = text.partition("=")
        if not (name and equals and region):
            raise click.BadParameter(f"'{text}' is not NAME=REGION, for example cortex=rect:10,20,30,60")
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
            "Show pictures while the files come, until none has come for 30 s",
        ),
    ],
)
@click.argument("paths", nargs=-1, required=True, is_eager=True, type=shared.PathType())
@shared.output_option(required=True)
@flag_option(
    Group.SESSION,
    "--pattern",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Take only files of these names from a folder, for example 'block_*.h5'. May be given several times.",
)
@flag_option(
    Group.SESSION,
    "--region",
    "regions",
    multiple=True,
    metavar="NAME=REGION",
    callback=_regions,
    help="Follow the blood of a region in a live session: rect:Z0,X0,Z1,X1 or circle:Z,X,R in pixels, or in mm with mm at "
    "the end, or a mask image. May be given several times.",
)
@shared.bids_option
@shared.flags_of(SessionOptions)
@shared.job_options
@config_option
@shared.overwrite_option
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

    PATHS are files of one block each, a folder of them, or, with --window, one long file. All blocks have their clutter
    in common, so the series is steady from block to block. The results are the series of blood power and of power Doppler,
    their means, a table of the blocks, pictures and a page. A session that was stopped goes on with the same command.
    """
    values = flags_first(values, console)
    arguments = shared.job_arguments(values)
    from usdenoise.errors import OptionError
    from usdenoise.jobs.session_call import run_session
    from usdenoise.system.memory import use_one_heap

    for name in ("dask", "memory"):
        if arguments.pop(name, None) is not None:
            raise OptionError(f"the blocks of a session are filtered here; leave out --{name}")
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
        session_options=SessionOptions(**shared.given(SessionOptions, values)),
        overwrite=overwrite,
        command=typed_command(),
        watcher=Narrator(console, arguments["options"].iterations, paths[0]),
    )
    show_summary(console, report)


# Options of a single stack are refused with their reason, and not offered.
for _parameter in command.params:
    if isinstance(_parameter, click.Option) and _parameter.name in _REFUSED:
        _parameter.hidden = True
