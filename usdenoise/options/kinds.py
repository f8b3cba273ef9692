"""Kinds of values: how a value is written on the command line, and which values of Python are of the kind."""

import math
import numbers
import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """What the values of an option look like.

    Attributes
    ----------
    form : str
        What a text has to be, in words.
    parse : callable
        Turns a text into a value of Python. Raises a ValueError if it cannot.
    accept : callable
        Returns a value of Python in its one form. Raises a ValueError or a TypeError for a value of another kind.
    metavar : str
        Placeholder of a value in the help.
    python_form : str
        What a value of Python has to be; `form` by default.
    """

    form: str
    parse: Callable[[str], Any]
    accept: Callable[[Any], Any]
    metavar: str = ""
    python_form: str = ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _parse_truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError
    return float(value)


TEXT = Kind("text", str, _text, "TEXT")
SWITCH = Kind("true or false", _parse_truth, _truth, "true|false", "True or False")
WHOLE = Kind("a whole number", int, _whole, "N")
NUMBER = Kind("a number", float, _real, "X")

KINDS = {str: TEXT, bool: SWITCH, int: WHOLE, float: NUMBER}
"""Kinds by the type of a field."""


SCALES = (1e-6, 1e12)
"""Smallest and largest number that can be a rate, a pitch or a speed, in Hz, mm or mm/s. Others are damage or a slip of the
hand, and no library draws their pictures and times."""


def _parse_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not value:
        raise TypeError
    return tuple(_text(name) for name in value)


def _device(value: Any) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", _text(value)):
        raise ValueError
    return str(value)


DEVICE = Kind("cpu, cuda or cuda:N", str, _device, "DEVICE")

NAMES = Kind("names with commas", _parse_names, _names, "NAME[,NAME]")


def positive_numbers(
    form: str,
    separator: str,
    element: Kind,
    counts: Collection[int],
    within: tuple[float, float] | None = None,
) -> Kind:
    """Return the kind of a tuple of positive numbers.

    Parameters
    ----------
    form : str
        Form of the text, which the help shows.
    separator : str
        Text between two numbers.
    element : Kind
        WHOLE or NUMBER.
    counts : collection of int
        Allowed counts of numbers.
    within : (float, float), optional
        Smallest and largest number; by default any that is finite.
    """
    words = "positive numbers" + ("" if within is None else f" from {within[0]:g} to {within[1]:g}")
    least, most = within or (0, math.inf)

    def parse(text: str) -> list[Any]:
        return [element.parse(part) for part in text.lower().split(separator)]

    def accept(value: Any) -> tuple[Any, ...]:
        values = [value] if isinstance(value, numbers.Real) else value
        accepted = tuple(element.accept(number) for number in values)
        if len(accepted) not in counts or not all(
            0 < number < math.inf and least <= number <= most for number in accepted
        ):
            raise ValueError
        return accepted

    in_python = f"{' or '.join(map(str, counts))} {words}"
    return Kind(f"{form} in {words}", parse, accept, form, in_python)


def _parse_frames(text: str) -> slice:
    numbers_or_none = [int(part) if part else None for part in text.split(":")]
    if len(numbers_or_none) not in (2, 3):
        raise ValueError
    return slice(*numbers_or_none)


def _frames(value: Any) -> slice:
    if not isinstance(value, slice):
        raise TypeError
    return slice(*(None if part is None else _whole(part) for part in (value.start, value.stop, value.step)))


FRAMES = Kind(
    "A:B or A:B:S, for example 0:400",
    _parse_frames,
    _frames,
    "A:B[:S]",
    "a slice of whole numbers, such as slice(0, 400)",
)


_MOST_FRAMES = 10_000_000
"""Most frames that a list may name: an hour at 2.8 kHz. The numbers of more would take gigabytes."""


def _parse_frame_numbers(text: str) -> list[int]:
    frame_numbers: list[int] = []
    for part in text.split(","):
        first, colon, stop = part.partition(":")
        numbers = range(int(first), int(stop) if colon else int(first) + 1)
        if numbers.stop > _MOST_FRAMES:
            raise ValueError
        frame_numbers += numbers
    return frame_numbers


def _frame_numbers(value: Any) -> tuple[int, ...]:
    frame_numbers = {_whole(number) for number in ([value] if isinstance(value, numbers.Real) else value)}
    if not frame_numbers or min(frame_numbers) < 0:
        raise ValueError
    return tuple(sorted(frame_numbers))


FRAME_NUMBERS = Kind("frame numbers such as 3,17,40:45", _parse_frame_numbers, _frame_numbers, "LIST")
"""Frame numbers, counted from 0; the end of a range is excluded."""


def _parse_levels(text: str) -> float | tuple[float, ...]:
    levels = tuple(float(part) for part in text.split(","))
    return levels[0] if len(levels) == 1 else levels


def _levels(value: Any) -> float | tuple[float, float]:
    if isinstance(value, numbers.Real):
        level = _real(value)
        if not 0 < level < math.inf:
            raise ValueError
        return level
    low, high = (_real(level) for level in value)
    if not -math.inf < low < high < math.inf:
        raise ValueError
    return low, high


LEVELS = Kind(
    "a positive number, or MIN,MAX with MIN below MAX",
    _parse_levels,
    _levels,
    "DB|MIN,MAX",
    "a positive number, or (low, high) with low below high",
)
"""A range below the maximum in dB, or two levels in dB."""
