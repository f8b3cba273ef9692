"""``usdenoise expand``."""

from pathlib import Path

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, shape_text, two_columns, typed_command
from usdenoise.cli.option_groups import GroupedCommand, flag_option
from usdenoise.options import ReadOptions
from usdenoise.options.declaration import Group


@click.command(
    "expand",
    cls=GroupedCommand,
    examples=[
        ("usdenoise expand out/scan_denoised.h5", "Rebuild the stack with the cutoffs of the run"),
        (
            "usdenoise expand out/scan_denoised.h5 -o more.mat --low-cutoff 8",
            "Remove eight components instead, and write a MATLAB file",
        ),
    ],
)
@click.argument("file", type=shared.PathType(readable=False))
@shared.output_option(
    "File to write; its suffix .h5, .mat or .zarr sets the format.", "FILE", show_default="<stem>_expanded"
)
@flag_option(
    Group.CUTOFFS,
    "--low-cutoff",
    "low",
    type=int,
    metavar="N",
    help="Remove the N largest components, instead of as many as the run did.",
)
@flag_option(
    Group.CUTOFFS,
    "--high-cutoff",
    "high",
    type=int,
    metavar="N",
    help="Drop components from N on, instead of from the high cutoff of the run.",
)
@shared.flags_of(ReadOptions, "allow_external")
@shared.overwrite_option
@shared.json_option
def command(
    file: Path,
    output: Path | None,
    low: int | None,
    high: int | None,
    allow_external: bool | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Rebuild a filtered stack from the factors in FILE.

    FILE is a result of `usdenoise run --keep-factors`.
    """
    from usdenoise.jobs.expand_job import expand_to_file

    report = expand_to_file(
        file,
        output,
        low=low,
        high=high,
        allow_external=bool(allow_external),
        overwrite=overwrite,
        command=typed_command(),
    )
    rows = [
        ("stack", f"{report['dataset']}, {shape_text(report)}"),
        ("kept", "the components after the first {}, up to the first {}".format(*report["band"])),
        ("wrote", report["output"]),
    ]
    Console(as_json=as_json).show(report, lambda: two_columns(rows))
