"""Callbacks that check the values of options and convert them from text."""

import math
import re
from collections.abc import Callable

import click

from usdenoise.jobs.job_options import PRODUCTS
from usdenoise.pictures.figure_choices import FORMATS


def high_cutoff(ctx: click.Context, param: click.Parameter, value: str | None) -> str | int | None:
    """Return "rank", "none" or a number."""
    if value is None or value in ("rank", "none"):
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is not rank, none or a number") from None


def auto(
    kind: type[int] | type[float],
) -> Callable[[click.Context, click.Parameter, str | None], str | int | float | None]:
    """Return a callback that reads "auto" or a number of type int or float."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> str | int | float | None:
        if value is None or value == "auto":
            return value
        try:
            return kind(value)
        except ValueError:
            raise click.BadParameter(f"'{value}' is not auto or a number") from None

    return convert


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the bytes of a size such as 600M, 2.5G or 1000000000."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if found is None or not float(found[1]) > 0:
        raise click.BadParameter(f"'{value}' is not a size, for example 600M or 2.5G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def frames(ctx: click.Context, param: click.Parameter, value: str | None) -> slice | None:
    """Return the slice of A:B or A:B:S."""
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


def names_among(
    known: tuple[str, ...],
) -> Callable[[click.Context, click.Parameter, str | None], tuple[str, ...] | None]:
    """Return a callback that reads a list of known names with commas."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = tuple(name.strip() for name in value.split(","))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise click.BadParameter(f"'{unknown[0]}' is not one of {', '.join(known)}")
        return names

    return convert


product_names = names_among(PRODUCTS)
figure_formats = names_among(FORMATS)


def dynamic_range(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | tuple[float, float] | None:
    """Return a positive number, or two levels of which the first is the lower one."""
    if value is None:
        return None
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not all(map(math.isfinite, numbers)):
        numbers = []
    if len(numbers) == 1 and numbers[0] > 0:
        return numbers[0]
    if len(numbers) == 2 and numbers[0] < numbers[1]:
        return numbers[0], numbers[1]
    raise click.BadParameter(f"'{value}' is not a positive number, or MIN,MAX with MIN below MAX")


def bad_frames(ctx: click.Context, param: click.Parameter, value: str | None) -> str | tuple[int, ...] | None:
    """Return "auto", "keep", or the frame numbers of a list such as 3,17,40:45 (the last number is excluded)."""
    if value is None or value in ("auto", "keep"):
        return value
    numbers: list[int] = []
    try:
        for part in value.split(","):
            first, colon, stop = part.partition(":")
            numbers += range(int(first), int(stop)) if colon else [int(first)]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise click.BadParameter(f"'{value}' is not auto, keep or frame numbers such as 3,17,40:45")
    return tuple(numbers)


def positive(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Return a number that is positive and finite."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter(f"{value:g} is not a positive number")
    return value


def positive_numbers(
    form: str, separator: str, kind: type[int] | type[float], allowed: range
) -> Callable[[click.Context, click.Parameter, str | None], tuple[int | float, ...] | None]:
    """Return a callback that reads positive numbers from a text.

    Parameters
    ----------
    form : str
        Form of the text, for the error message.
    separator : str
        Text between two numbers.
    kind : type
        Type of the numbers, int or float.
    allowed : range
        Allowed counts of numbers.
    """

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
