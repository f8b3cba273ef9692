"""``usdenoise expand``."""

import sys
from pathlib import Path

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import print_json, print_table


@click.command("expand", short_help="Rebuild a filtered stack from its factors.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to write: .h5, .mat or .zarr.  [default: <stem>_expanded]",
)
@click.option("--low-cutoff", "low", type=int, metavar="N", help="First component, in place of the one kept.")
@click.option(
    "--high-cutoff", "high", type=int, metavar="N", help="End of the band, in place of the one kept."
)
@shared.overwrite_option
@shared.json_option
def command(
    file: Path, output: Path | None, low: int | None, high: int | None, overwrite: bool, as_json: bool
) -> None:
    """Rebuild the filtered stack from the factors in FILE, which run --keep-factors wrote."""
    from usdenoise.jobs.expand_job import expand_to_file

    report = expand_to_file(
        file, output, low=low, high=high, overwrite=overwrite, command=["usdenoise", *sys.argv[1:]]
    )
    if as_json:
        print_json(report)
    else:
        shape = " x ".join(f"{letter}{n}" for letter, n in zip(report["axes"], report["shape"], strict=True))
        print_table([("stack", f"{report['dataset']}, {shape}"), ("wrote", report["output"])])
