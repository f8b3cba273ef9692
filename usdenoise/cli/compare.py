"""``usdenoise compare``."""

from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, columns, two_columns, typed_command
from usdenoise.cli.main import FAILED
from usdenoise.cli.option_groups import GroupedCommand, flag_option
from usdenoise.cli.option_types import PathType
from usdenoise.cli.time_left import Clock
from usdenoise.options import DenoiseOptions, Display, ReadOptions
from usdenoise.options.declaration import Group


def _parameters(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    parameters: dict[str, dict[str, Any]] = {}
    for text in values:
        name, equals, value = text.partition("=")
        method, dot, key = name.partition(".")
        if not (method and dot and key and equals):
            raise click.BadParameter(f"'{text}' is not METHOD.NAME=VALUE, for example highpass.cutoff_hz=60")
        parameters.setdefault(method, {})[key.replace("-", "_")] = _value(value)
    return parameters


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _contenders(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from usdenoise.comparison.clutter_filters import CONTENDERS

    return [name for name in (*CONTENDERS, "all") if name.startswith(incomplete)]


@click.command(
    "compare",
    cls=GroupedCommand,
    examples=[
        ("usdenoise compare scan.h5 -m eta-decay -m svd", "Compare the default method with the full SVD"),
        (
            "usdenoise compare scan.h5 -m svd -m highpass --set highpass.cutoff_hz=60",
            "Compare the full SVD with a high-pass filter at 60 Hz",
        ),
        (
            "usdenoise compare scan.h5 --signal circle:20,15,4 --background rect:2,2,8,8",
            "Run the usual methods, and measure the contrast of two regions",
        ),
    ],
)
@click.argument("acquisition", type=PathType(readable=False))
@flag_option(
    Group.ESTIMATOR,
    "-m",
    "--method",
    "methods",
    multiple=True,
    shell_complete=_contenders,
    metavar="NAME",
    show_default="eta-decay, svd, rsvd, highpass",
    help="Method to run, or all. Repeat it for several methods.",
)
@shared.output_option(show_default="<stem>-comparison")
@flag_option(
    Group.ESTIMATOR,
    "--sampling",
    type=float,
    multiple=True,
    metavar="P",
    show_default="0.5",
    help="Fraction of the entries to sample, for methods that use a sample. Repeat it for several fractions.",
)
@flag_option(
    Group.REGIONS,
    "--signal",
    metavar="REGION",
    help="Region of blood: rect:Z0,X0,Z1,X1 or circle:Z,X,R in pixels, or in mm with mm at the end, or a mask "
    "image.",
)
@flag_option(
    Group.REGIONS,
    "--background",
    metavar="REGION",
    help="Region to compare the signal with, in the same forms.",
)
@flag_option(
    Group.RARE,
    "--set",
    "parameters",
    multiple=True,
    metavar="METHOD.NAME=VALUE",
    callback=_parameters,
    help="Set a parameter of one method, e.g. highpass.cutoff_hz=60. Repeat it for several parameters.",
)
@flag_option(
    Group.RARE,
    "--timeout",
    type=float,
    default=600.0,
    show_default="600",
    metavar="SECONDS",
    help="Time after which a method is stopped. Raise it for long acquisitions.",
)
@shared.flags_of(DenoiseOptions, "low_cutoff", "high_cutoff", "rank", "seed", "threads")
@shared.reading_options
@shared.scale_options
@shared.overwrite_option
@shared.messages
def command(
    acquisition: Path,
    methods: tuple[str, ...],
    output: Path | None,
    sampling: tuple[float, ...],
    signal: str | None,
    background: str | None,
    parameters: dict[str, dict[str, Any]],
    timeout: float,
    overwrite: bool,
    console: Console,
    **values: Any,
) -> None:
    """Run several methods on ACQUISITION, and show their images and figures of merit side by side.

    The methods run one after the other, each in its own process. All low-rank methods keep the same band of
    components, which is chosen on the full SVD. A method that fails has a row with the reason, and the exit code
    is then 1.
    """
    from usdenoise.comparison import Settings
    from usdenoise.comparison.compare_file import compare_file
    from usdenoise.comparison.comparison_rows import table_of

    progress = _Progress(console)
    report = compare_file(
        acquisition,
        output,
        list(methods),
        **({"sampling": sampling} if sampling else {}),
        settings=Settings(timeout=timeout, parameters=parameters, **shared.given(DenoiseOptions, values)),
        signal=signal,
        background=background,
        reading=shared.given(ReadOptions, values),
        display=Display(**shared.given(Display, values)),
        overwrite=overwrite,
        command=typed_command(),
        on_row=progress.row,
        on_start=progress.start,
    )
    rows = report["rows"]
    bad = [row for row in rows if row["status"] != "done"]
    for row in bad:
        console.warn(f"{row['method']} {row['status']}: {row['message']}")
    written = [("wrote", name) for name in report["output"].values()]
    console.show(report, lambda: [*columns(*table_of(rows)), "", *two_columns(written)])
    if bad:
        click.get_current_context().exit(FAILED)


class _Progress:
    """The progress of a comparison: the method, its number, and the time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = Clock()
        self._ended, self._total = 0, 0

    def start(self, label: str, ended: int, total: int) -> None:
        if ended == 0:
            self._console.begin("compare", total)
        self._ended, self._total = ended, total
        self._console.advance(ended, f"{label}, {ended + 1} of {total}{self._left(ended)}")
        if ended == 0:
            self._console.say(f"{label}, 1 of {total}")

    def row(self, row: dict[str, Any]) -> None:
        sampling = "" if row["sampling"] is None else f" at {row['sampling']:g}"
        outcome = f"{row['seconds']:.2f} s" if row["status"] == "done" else row["status"]
        number = self._ended + 1
        self._console.say(
            f"{row['method']}{sampling}: {outcome} ({number} of {self._total}{self._left(number)})"
        )

    def _left(self, ended: int) -> str:
        left = self._clock.left_at_this_pace(ended, self._total)
        return f", {left}" if left else ""
