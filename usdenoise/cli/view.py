"""``usdenoise view``."""

from pathlib import Path

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, print_json, print_table
from usdenoise.cli.option_groups import GroupedCommand


@click.command(
    "view",
    cls=GroupedCommand,
    examples=[
        ("usdenoise view scan-usdenoise", "Open the page of a scan from the folder of its results"),
        ("usdenoise view scan-usdenoise/scan_denoised.h5", "Open the page that belongs to a result file"),
    ],
)
@click.argument(
    "results", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False), metavar="RESULT..."
)
@shared.json_option
@shared.verbosity_options
def command(results: tuple[Path, ...], as_json: bool, quiet: int, verbose: int) -> None:
    """Open the page of each RESULT in the browser.

    RESULT is a folder that `usdenoise run` or `usdenoise batch` wrote, or a file in it.
    """
    import webbrowser

    from usdenoise.jobs.result_pages import result_pages

    pages = [page for result in results for page in result_pages(result)]
    opened = [webbrowser.open(page.absolute().as_uri()) for page in pages]
    if not all(opened):
        Console(quiet, verbose).warn(
            "no browser was found here; copy the page to a computer that has one: it needs no other file"
        )
    if as_json:
        print_json({"pages": [str(page) for page in pages], "opened": opened})
    elif not quiet:
        print_table(("page", str(page)) for page in pages)
