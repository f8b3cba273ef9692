"""``usdenoise compare``."""

from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, columns, two_columns, typed_command
from usdenoise.cli.flags import GroupedCommand, PathType
from usdenoise.cli.main import FAILED
from usdenoise.options import CompareOptions, DenoiseOptions, Display, JobOptions, ReadOptions


def _methods(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from usdenoise.jobs.clutter_filters import CLUTTER_FILTERS

    return [name for name in (*CLUTTER_FILTERS, "all") if name.startswith(incomplete)]


@click.command(
    "compare",
    cls=GroupedCommand,
    examples=[
        ("usdenoise compare scan.h5 -m eta-decay -m svd", "Compare the default method with the full SVD"),
        (
            "usdenoise compare scan.h5 --signal circle:20,15,4 --background rect:2,2,8,8",
            "Run the usual methods, and measure the contrast of two regions",
        ),
    ],
)
@click.argument("acquisition", type=PathType(readable=False))
@shared.flags_of(CompareOptions, "methods", shell_complete=_methods)
@shared.flags_of(JobOptions, "output", show_default="<stem>-comparison")
@shared.flags_of(CompareOptions, "signal", "background")
@shared.flags_of(DenoiseOptions, "sampling", "low_cutoff", "high_cutoff", "rank", "seed", "threads")
@shared.reading_flags
@shared.flags_of(Display, "dynamic_range", "color_map")
@shared.flags_of(JobOptions, "overwrite")
@shared.messages
def command(
    acquisition: Path, methods: tuple[str, ...], output: Path | None, console: Console, **values: Any
) -> None:
    """Run several methods on ACQUISITION, and show their images and metrics side by side.

    The methods run one after the other. All low-rank methods keep the same band of components, which is chosen on
    the full SVD. A method that fails has a row with the reason, and the exit code is then 1.
    """
    from usdenoise.jobs.compare import compare_file, table_of

    report = compare_file(
        acquisition,
        output,
        methods=[name.lower() for name in methods],
        regions={name: values[name] for name in ("signal", "background") if values[name] is not None},
        reading=shared.requested(ReadOptions, values),
        display=Display(**shared.requested(Display, values)),
        overwrite=values["overwrite"],
        command=typed_command(),
        on_start=console.say,
        **shared.requested(DenoiseOptions, values),
    )
    rows = report["rows"]
    bad = [row for row in rows if row["status"] != "done"]
    for row in bad:
        console.warn(f"{row['method']} {row['status']}: {row['message']}")
    written = [("wrote", name) for name in report["output"].values()]
    console.show(report, lambda: [*columns(*table_of(rows)), "", *two_columns(written)])
    if bad:
        click.get_current_context().exit(FAILED)
