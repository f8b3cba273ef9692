"""Shared options, declared once, and their parameter types."""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from usdenoise.jobs.job_options import COMPRESSIONS, MOVIES, PRODUCTS, Output
from usdenoise.pipeline.options import CHOICES, PRESETS, DenoiseOptions, make_options, preset_values

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]

READING = ("dataset", "axes", "frames", "frame_rate_hz", "spacing_mm")
_DISPLAY = ("dynamic_range", "db_factor", "cutoff_figure")
_OUTPUT = ("products", "keep_factors", "compression", "window", "stride", "movie", "nifti")
_DEFAULTS = {field.name: field.default for field in fields(DenoiseOptions)}


def _high_cutoff(ctx: click.Context, param: click.Parameter, value: str | None) -> str | int | None:
    if value is None or value in ("rank", "none"):
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is not rank, none or a number") from None


def _auto(
    kind: type[int] | type[float],
) -> Callable[[click.Context, click.Parameter, str | None], str | int | float | None]:
    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> str | int | float | None:
        if value is None or value == "auto":
            return value
        try:
            return kind(value)
        except ValueError:
            raise click.BadParameter(f"'{value}' is not auto or a number") from None

    return convert


def _frames(ctx: click.Context, param: click.Parameter, value: str | None) -> slice | None:
    if value is None:
        return None
    parts = value.split(":")
    try:
        numbers = [int(part) if part else None for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3):
        raise click.BadParameter(f"'{value}' is not A:B or A:B:S, for example 0:400")
    return slice(*numbers)


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(","))
    unknown = [name for name in names if name not in PRODUCTS]
    if unknown:
        raise click.BadParameter(f"'{unknown[0]}' is not one of {', '.join(PRODUCTS)}")
    return names


def _positive(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter(f"{value:g} is not a positive number")
    return value


def positive_numbers(
    form: str, separator: str, kind: type[int] | type[float], allowed: range
) -> Callable[[click.Context, click.Parameter, str | None], tuple[int | float, ...] | None]:
    """A callback that reads as many positive numbers as are allowed, with a separator between them."""

    def convert(
        ctx: click.Context, param: click.Parameter, value: str | None
    ) -> tuple[int | float, ...] | None:
        if value is None:
            return None
        try:
            numbers = tuple(kind(part) for part in value.lower().split(separator))
        except ValueError:
            numbers = ()
        if len(numbers) not in allowed or not all(number > 0 and math.isfinite(number) for number in numbers):
            raise click.BadParameter(f"'{value}' is not {form} in positive numbers")
        return numbers

    return convert


def _stack(*decorators: Decorator[Any]) -> Decorator[Any]:
    def apply(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


def _estimator(name: str, help_text: str, **settings: Any) -> tuple[str, Decorator[Any]]:
    """An option of the estimator by its name. It is None unless given, so that a preset can tell."""
    default = _DEFAULTS[name]
    if name in CHOICES:
        settings.setdefault("type", click.Choice(CHOICES[name]))
    if default is not None:
        help_text += f"  [default: {default}]"
    return name, click.option("--" + name.replace("_", "-"), name, default=None, help=help_text, **settings)


_ESTIMATOR = dict((
    _estimator("method", "Estimator of the low-rank matrix."),
    _estimator("rank", "Components to estimate.", metavar="auto|N", callback=_auto(int)),
    _estimator("sampling", "Fraction of the entries to use.", type=float, metavar="P"),
    _estimator("seed", "Seed of every random choice.", type=int),
    _estimator("iterations", "Steps at most.", type=int),
    _estimator("decay", "Ratio of successive dampings.", type=float, metavar="BETA"),
    _estimator("damping", "First damping; for precgd sigma_hat, for scaledgd-lambda lambda.", type=float,
               metavar="ETA0"),
    _estimator("step", "Step for the sum of squares over the sampling fraction.", type=float, metavar="TAU"),
    _estimator("alpha", "Step in the paper's units, in place of --step.", type=float),
    _estimator("init", "First factors."),
    _estimator("ridge", "Penalty on the factors, in units of the noise's edge.", metavar="auto|X",
               callback=_auto(float)),
    _estimator("patience", "Steps without a better held-out error; 0 does all.", type=int),
    _estimator("low_cutoff", "Components to remove as clutter, counted from the largest.", metavar="auto|N",
               callback=_auto(int)),
    _estimator("high_cutoff", "End of the band; none keeps the residual too.", metavar="rank|none|N", callback=_high_cutoff),
    _estimator("refit", "Fit the factors again to all entries, or use the sample alone."),
    _estimator("precision", "Precision of the computation."),
    _estimator("threads", "Threads; by default all processors.", type=int),
))  # fmt: skip

_preset_option = click.option(
    "--preset", type=click.Choice(list(PRESETS)), help="Settings of the paper's experiment."
)

estimator_options = _stack(_ESTIMATOR["method"], _preset_option, *list(_ESTIMATOR.values())[1:])


def estimator_subset(*names: str) -> Decorator[Any]:
    """Some of the estimator's options."""
    return _stack(*(_ESTIMATOR[name] for name in names))


reading_options = _stack(
    click.option("--dataset", metavar="NAME", help="The stack's name in the file."),
    click.option("--axes", metavar="ORDER", help="Letters z x y t in the file's own order, e.g. tzx."),
    click.option("--frames", metavar="A:B[:S]", callback=_frames, help="Frames to read, as Python counts."),
    click.option(
        "--frame-rate",
        "frame_rate_hz",
        type=float,
        callback=_positive,
        metavar="HZ",
        help="Frames a second, where the file does not say.",
    ),
    click.option(
        "--spacing",
        "spacing_mm",
        metavar="MM[,MM[,MM]]",
        callback=positive_numbers("MM[,MM[,MM]]", ",", float, range(1, 4)),
        help="Pixel pitch, one or one for each spatial axis.",
    ),
)

scale_options = _stack(
    click.option(
        "--dynamic-range",
        type=float,
        callback=_positive,
        metavar="DB",
        help="dB shown below the maximum; by default what suits the image.",
    ),
    click.option(
        "--db-factor",
        type=click.Choice(["10", "20"]),
        default=None,
        help="Decibels of power, or the paper's 20 log10 of it.  [default: 10]",
    ),
)

display_options = _stack(
    scale_options,
    click.option("--cutoff-figure", is_flag=True, help="Draw how the low cutoff was chosen."),
)

output_options = _stack(
    click.option(
        "--products",
        callback=_names,
        metavar="NAME[,NAME]",
        help="Of power, directional, velocity.  [default: power]",
    ),
    click.option("--keep-factors", is_flag=True, help="Store U, S and V of the estimate too."),
    click.option(
        "--no-stack", is_flag=True, help="Leave the stack out; expand rebuilds it from the factors."
    ),
    click.option(
        "--compression",
        type=click.Choice(COMPRESSIONS),
        default=None,
        help="Of the stack in its file.  [default: none]",
    ),
    click.option(
        "--window", type=int, metavar="N", help="Filter in blocks of N frames: a sequence of images."
    ),
    click.option(
        "--stride", type=int, metavar="M", help="Frames from block to block.  [default: the window]"
    ),
    click.option("--movie", type=click.Choice(MOVIES), help="The sequence as a film."),
    click.option("--nifti", is_flag=True, help="The sequence as NIfTI with a JSON sidecar."),
)

job_options = _stack(estimator_options, reading_options, display_options, output_options)

overwrite_option = click.option("--overwrite", is_flag=True, help="Replace results that exist.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
verbosity_options = _stack(
    click.option("-q", "--quiet", count=True, help="Say less; twice silences warnings too."),
    click.option("-v", "--verbose", count=True, help="Say more."),
)


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given on the command line."""
    return {name: value for name, value in values.items() if value is not None}


def job_arguments(preset: str | None, values: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of :func:`usdenoise.jobs.run_job.run` from the values of `job_options`.

    Raises
    ------
    OptionError
        If the options contradict each other.
    """
    from usdenoise.jobs.job_options import Display

    values = given(values)
    reading = {name: values.pop(name) for name in READING if name in values}
    display = {name: values.pop(name) for name in _DISPLAY if name in values}
    if "db_factor" in preset_values(preset):
        display.setdefault("db_factor", preset_values(preset)["db_factor"])
    if "db_factor" in display:
        display["db_factor"] = float(display["db_factor"])
    output = {name: values.pop(name) for name in _OUTPUT if name in values}
    output["stack"] = not values.pop("no_stack", False)
    return {
        "options": make_options(preset, **values),
        "display": Display(**display),
        "output": Output(**output),
        "reading": reading,
    }
