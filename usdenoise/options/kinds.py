"""The kinds of the values of options: how a text becomes a value, and which values of Python are accepted."""

import math
import numbers
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsIndex


@dataclass(frozen=True)
class Kind:
    """What the values of an option look like.

    Attributes
    ----------
    form : str
        What a text has to be, in words.
    parse : callable
        Turns a text into a value of Python. Raises a ValueError or a LookupError if it cannot.
    accept : callable
        Returns a value of Python in its one form. Raises a ValueError or a TypeError for a value of another kind.
    metavar : str
        Placeholder of a value in the help.
    python_form : str
        What a value of Python has to be; `form` by default.
    """

    form: str
    parse: Callable[[str], object]
    accept: Callable[[Any], Any]
    metavar: str = ""
    python_form: str = ""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _truth_of_text(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: SupportsIndex) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError
    return float(value)


TEXT = Kind("text", str, _text, "TEXT")
SWITCH = Kind("true or false", _truth_of_text, _truth, "true|false", "True or False")
WHOLE = Kind("a whole number", int, _whole, "N")
NUMBER = Kind("a number", float, _real, "X")
PATH = Kind("a path", Path, Path, "FILE")

KINDS = {int: WHOLE, float: NUMBER, bool: SWITCH, str: TEXT}
"""Kinds by the type of a field; the first one that a field can have is its kind."""


SCALES = (1e-6, 1e12)
"""Smallest and largest number that can be a rate, a pitch or a speed, in Hz, mm or mm/s. Others are damage or a slip of the
hand, and no library draws their pictures and times."""

PITCHES_MM = (1e-3, 5.0)
"""Smallest and largest pixel pitch of ultrafast ultrasound: one in m or um is off by 1000."""


def _names(value: Iterable[object]) -> tuple[str, ...]:
    if isinstance(value, str) or not value:
        raise TypeError
    return tuple(map(_text, value))


NAMES = Kind(
    "names with commas", lambda text: [name.strip() for name in text.split(",")], _names, "NAME[,NAME]"
)


def _device(value: object) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name := _text(value)):
        raise ValueError
    return name


DEVICE = Kind("cpu, cuda or cuda:N", str, _device, "DEVICE")


def positive_numbers(
    form: str, separator: str, each: Kind, counts: Collection[int], within: tuple[float, float] | None = None
) -> Kind:
    """Return the kind of a tuple of positive numbers.

    Parameters
    ----------
    form : str
        Form of the text, which the help shows.
    separator : str
        Text between two numbers.
    each : Kind
        WHOLE or NUMBER.
    counts : collection of int
        Allowed counts of numbers.
    within : (float, float), optional
        Smallest and largest number; by default any that is finite.
    """
    words = "positive numbers" + ("" if within is None else f" from {within[0]:g} to {within[1]:g}")
    least, most = within or (0, math.inf)

    def accept(value: numbers.Real | Iterable[object]) -> tuple[float, ...]:
        values = [value] if isinstance(value, numbers.Real) else value
        accepted: tuple[float, ...] = tuple(map(each.accept, values))
        if len(accepted) not in counts or not all(
            0 < number < math.inf and least <= number <= most for number in accepted
        ):
            raise ValueError
        return accepted

    return Kind(
        f"{form} in {words}",
        lambda text: list(map(each.parse, text.lower().split(separator))),
        accept,
        form,
        f"{' or '.join(map(str, counts))} {words}",
    )


def tagged_number(
    form: str, element: Kind, bounds: Mapping[str, tuple[float, float]], names: Collection[str] = ()
) -> Kind:
    """Return the kind of a text of a name and a number, such as "fdr:0.05".

    Parameters
    ----------
    form : str
        Form of the text, which the help shows.
    element : Kind
        WHOLE or NUMBER.
    bounds : mapping
        Name -> smallest and largest number.
    names : collection of str
        Names without a number, or texts that their name alone stands for; none by default.
    """
    alone = {text.partition(":")[0]: text for text in names}

    def accept(value: object) -> str:
        name, colon, text = _text(value).partition(":")
        if value in alone:
            return alone[name]
        least, most = bounds.get(name, (math.inf, -math.inf))
        number = element.accept(element.parse(text))
        if not (colon and least <= number <= most):
            raise ValueError
        return f"{name}:{number:g}"

    return Kind(form, str, accept, form)


def _frames_of_text(text: str) -> slice:
    ends = [int(part) if part else None for part in text.split(":")]
    if len(ends) not in (2, 3):
        raise ValueError
    return slice(*ends)


def _frames(value: object) -> slice:
    if not isinstance(value, slice):
        raise TypeError
    ends = (value.start, value.stop, value.step)
    return slice(*(None if end is None else _whole(end) for end in ends))


FRAMES = Kind(
    "A:B or A:B:S, for example 0:400",
    _frames_of_text,
    _frames,
    "A:B[:S]",
    "a slice of whole numbers, such as slice(0, 400)",
)


_MOST_FRAMES = 10_000_000
"""Most frames that a list may name: an hour at 2.8 kHz. The numbers of more would take gigabytes."""


def _frame_numbers_of_text(text: str) -> list[int]:
    frame_numbers: list[int] = []
    for part in text.split(","):
        first, colon, stop = part.partition(":")
        end = int(stop) if colon else int(first) + 1
        if end > _MOST_FRAMES:
            raise ValueError
        frame_numbers += range(int(first), end)
    return frame_numbers


def _frame_numbers(value: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    frame_numbers = set(map(_whole, value if isinstance(value, Iterable) else [value]))
    if not frame_numbers or min(frame_numbers) < 0:
        raise ValueError
    return tuple(sorted(frame_numbers))


FRAME_NUMBERS = Kind("frame numbers such as 3,17,40:45", _frame_numbers_of_text, _frame_numbers, "LIST")
"""Frame numbers, counted from 0; the end of a range is excluded."""


def _levels(value: numbers.Real | Iterable[object]) -> float | tuple[float, float]:
    low, high = map(_real, (0.0, value) if isinstance(value, numbers.Real) else value)
    if not -math.inf < low < high < math.inf:
        raise ValueError
    return high if isinstance(value, numbers.Real) else (low, high)


LEVELS = Kind(
    "a positive number, or MIN,MAX with MIN below MAX",
    lambda text: tuple(map(float, text.split(","))) if "," in text else float(text),
    _levels,
    "DB|MIN,MAX",
    "a positive number, or (low, high) with low below high",
)
"""A range below the maximum in dB, or two levels in dB."""

FILM = replace(TEXT, form="gif, which programs such as ffmpeg convert to MP4", metavar="gif")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


BYTES = Kind("a size, for example 600M or 2.5G", _size, _whole, "BYTES", "a whole number of bytes")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not (name and value):
        raise ValueError
    return name, value


NAMED_REGION = Kind(
    "NAME=REGION, for example cortex=rect:10,20,30,60", _pair, tuple, "NAME=REGION", "a name and a region"
)
