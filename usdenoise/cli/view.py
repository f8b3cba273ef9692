"""``usdenoise view``."""

from pathlib import Path

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, two_columns
from usdenoise.cli.option_groups import GroupedCommand, flag_option
from usdenoise.options.declaration import Group


@click.command(
    "view",
    cls=GroupedCommand,
    examples=[
        ("usdenoise view scan-usdenoise", "Open the page of a scan from the folder of its results"),
        ("usdenoise view scan-usdenoise/scan_denoised.h5", "Open the page that belongs to a result file"),
    ],
)
@click.argument("results", nargs=-1, required=True, type=shared.PathType(readable=False), metavar="RESULT...")
@flag_option(
    Group.OUTPUTS, "--live", is_flag=True, help="Open the page of a live session, which loads itself again."
)
@shared.messages
def command(results: tuple[Path, ...], live: bool, console: Console) -> None:
    """Open the page of each RESULT in the browser.

    RESULT is a folder of results of any command, or a file in it.
    """
    import webbrowser

    from usdenoise.jobs.result_pages import result_pages

    pages = [page for result in results for page in result_pages(result, live)]
    opened = [webbrowser.open(page.absolute().as_uri()) for page in pages]
    if not all(opened):
        console.warn(
            "no browser was found here; copy the page to a computer that has one: it needs no other file"
        )
    console.show(
        {"pages": [str(page) for page in pages], "opened": opened},
        lambda: two_columns(("page", str(page)) for page in pages),
    )
