"""What an opened file offers: arrays that could be the stack, however their axes and parts are laid out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from usdenoise.formats.description import Candidate, shape_text
from usdenoise.formats.stored import StoredArray, joined, paired, without_axes

Found = Mapping[str, tuple[Any, str]]
"""Name in the file -> (value, where it stands)."""

# Lower-case names of the real and the imaginary part, and what they make; None takes the group's name.
_PARTS = (
    ("idata", "qdata", "IQData"),
    ("riq", "iiq", "IQ"),
    ("iq_real", "iq_imag", "IQ"),
    ("iq_re", "iq_im", "IQ"),
    ("i", "q", "IQ"),
    ("real", "imag", None),
    ("re", "im", None),
)


@dataclass(frozen=True)
class Stack:
    """An array that could be the stack.

    Attributes
    ----------
    name : str
        As --dataset takes it.
    array : StoredArray
        With the axes and the type that the stack would have.
    layout : str
        How it is stored, where that is not one plain array.
    time_last : bool or None
        Whether the format's habit puts time last; None where it has none.
    metadata : callable
        What the file says near it. With True whatever else is attached is read too, to be carried.
    check : callable
        Raises an InputError where the file does not hold what its header claims.
    assumptions : tuple of str
        What had to be guessed about the layout, each with the option that overrides it.
    """

    name: str
    array: StoredArray
    layout: str = ""
    time_last: bool | None = None
    metadata: Callable[[bool], Found] = lambda carried: {}
    check: Callable[[], None] = lambda: None
    assumptions: tuple[str, ...] = ()

    @property
    def candidate(self) -> Candidate:
        """What is shown of it."""
        return Candidate(self.name, self.array.shape, str(self.array.dtype), self.layout)


@dataclass(frozen=True)
class Contents:
    """An opened file.

    Attributes
    ----------
    container : str
        The format, in words.
    stacks : tuple of Stack
        Everything that could be the stack.
    every : mapping
        All arrays, each with a word on what it is, to explain a refusal.
    look_up : callable
        A stack that is not listed, by its name: None where there is none.
    find : callable
        Any array by its name, with what is said near it: None where there is none.
    """

    container: str
    stacks: tuple[Stack, ...]
    every: Mapping[str, str] = field(default_factory=dict)
    look_up: Callable[[str], Stack | None] = lambda name: None
    find: Callable[[str], tuple[StoredArray, Found] | None] = lambda name: None


def describe_array(array: StoredArray) -> str:
    """A word on an array that a refusal can use."""
    return f"{len(array.shape)}-D {array.dtype}" + (f" ({shape_text(array.shape)})" if array.shape else "")


def arranged(name: str, array: StoredArray, n_axes: int | None, **more: Any) -> Stack | None:
    """The array as a stack of 3 or 4 axes, or None where it cannot be one.

    Axes of length 1 are dropped where more than 3 are there. A real array of 4 or 5 axes of which either
    the first or the last has length 2 is I and Q apart.

    Parameters
    ----------
    name, array
        As stored.
    n_axes : int or None
        Number of axes that the user named, which decides between several readings.
    **more
        Fields of :class:`Stack`.
    """
    if array.dtype.kind not in "fciu" or len(array.shape) < 3 or min(array.shape) <= 0:
        return None
    layout, assumptions = more.pop("layout", ""), more.pop("assumptions", ())
    readings: list[tuple[StoredArray, str, tuple[str, ...]]] = []
    ends = [axis for axis in (0, len(array.shape) - 1) if array.shape[axis] == 2]
    if len(array.shape) in (4, 5, 6) and array.dtype.kind != "c" and len(ends) == 1:
        place = "first" if ends == [0] else "last"
        note = (
            f"the {place} axis of '{name}' ({shape_text(array.shape)}) is taken as I and Q; --axes with "
            f"{len(array.shape)} letters overrides that"
        )
        certain = len(array.shape) > 4
        readings += [
            (narrow, f"I and Q along the {place} axis", () if certain else (note,))
            for narrow in _narrowed(paired(array, ends[0]))
        ]
    readings += [(narrow, "", ()) for narrow in _narrowed(array)]
    if not readings:
        return None
    fitting = [reading for reading in readings if len(reading[0].shape) == n_axes]
    best, how, notes = (fitting or readings)[0]
    if fitting:
        notes = ()
    words = ", ".join(word for word in (layout, how) if word)
    return Stack(name, best, layout=words, assumptions=(*assumptions, *notes), **more)


def _narrowed(array: StoredArray) -> Iterable[StoredArray]:
    """The array with as many axes of length 1 dropped as leave 3 or 4 axes, the fewest axes first."""
    single = [axis for axis, n in enumerate(array.shape) if n == 1]
    for n_left in (3, 4):
        n_dropped = len(array.shape) - n_left
        if n_dropped == 0:
            yield array
        elif 0 < n_dropped <= len(single):
            yield without_axes(array, single[:n_dropped])


def pair_parts(
    arrays: Mapping[str, StoredArray], scale: Callable[[str], float | None]
) -> list[tuple[str, StoredArray, str, tuple[str, str]]]:
    """Real and imaginary parts that are stored under two names.

    Parameters
    ----------
    arrays : mapping
        By full name.
    scale : callable
        Value of a small array by its full name in lower case; None where there is none.

    Returns
    -------
    list of (name, array, layout, names of the parts)
    """
    by_lower = {name.lower(): name for name in arrays}
    found = []
    for name, real in arrays.items():
        group, _, last = name.rpartition("/")
        for first, second, whole in _PARTS:
            partner = by_lower.get(f"{group}/{second}".lower().lstrip("/"))
            if last.lower() != first or partner is None:
                continue
            imaginary = arrays[partner]
            if real.shape != imaginary.shape or "c" in (real.dtype.kind, imaginary.dtype.kind):
                continue
            made = f"{group}/{whole}".lstrip("/") if whole else group or "iq"
            factor = scale(f"{group}/normValue_{whole or 'IQ'}".lower().lstrip("/"))
            layout = f"{last} and {partner.rpartition('/')[2]}" + (
                "" if factor is None else f" times {factor:g}"
            )
            if made in arrays:
                made = f"{name}+{partner.rpartition('/')[2]}"
            found.append(
                (made, joined(real, imaginary, 1.0 if factor is None else factor), layout, (name, partner))
            )
    return found


def pitch(coordinates: Any, unit_mm: float) -> float | None:
    """Spacing in mm of evenly spaced coordinates, None where they are too few, uneven or no numbers.

    Parameters
    ----------
    coordinates : (n,) array
        Positions.
    unit_mm : float
        Their unit in mm.
    """
    steps = np.diff(np.asarray(coordinates, np.float64).reshape(-1)) * unit_mm
    if len(steps) == 0 or not np.isfinite(steps).all():
        return None
    mean = float(np.mean(steps))
    even = np.abs(steps - mean).max() <= 0.02 * abs(mean)
    # Where 8 digits hold, those of single-precision coordinates go no further.
    return float(f"{abs(mean):.7g}") if mean and even else None
