"""Contents of an opened file: its arrays, and the arrays that could be the stack in any layout."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from usdenoise.files.stored import StoredArray, everything, joined, paired, without_axes
from usdenoise.options.reading_options import ReadOptions
from usdenoise.stack.geometry import StoredForm, shape_text
from usdenoise.stack.metadata import interpret

Found = Mapping[str, tuple[Any, str]]
"""Metadata of a stack: name in the file -> (value, source of the value in the file)."""

MAX_METADATA_ITEMS, MAX_TEXT = 4, 64
"""Most numbers and characters of an array that counts as metadata: four numbers are one for each axis."""

STRUCTS = ("UF", "PData")
"""Structs of MATLAB in which PALA keeps the scales of a stack."""

# Lower-case names of the real and the imaginary part, and the name of the complex array; None takes the group's.
_PARTS = (
    ("idata", "qdata", "IQData"),
    ("riq", "iiq", "IQ"),
    ("iq_real", "iq_imag", "IQ"),
    ("iq_re", "iq_im", "IQ"),
    ("i", "q", "IQ"),
    ("real", "imag", None),
    ("re", "im", None),
)


MATLAB_5, NPZ = "MATLAB before 7.3", "NumPy .npz"
READ_WHOLE = (MATLAB_5, NPZ)
"""Containers whose arrays cannot be read in parts."""


@dataclass(frozen=True)
class Candidate:
    """A dataset or variable that could be the stack.

    Attributes
    ----------
    name : str
        Name of the dataset or variable, as --dataset takes it.
    shape : tuple of int
        Lengths of the axes, in the order in which the file's own software shows them (MATLAB's for .mat files).
    dtype : str
        Type of the values.
    layout : str
        How the values are stored, in words; empty (the default) for one plain array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = ""


@dataclass(frozen=True)
class Stack:
    """An array that could be the stack.

    Attributes
    ----------
    name : str
        Name of the stack, as --dataset takes it.
    array : StoredArray
        The values, with the axes and the type that the stack would have.
    layout : str
        How the values are stored, in words; empty (the default) for one plain array.
    time_last : bool or None
        Whether the format usually puts time last; None (the default) for a format without a usual order.
    metadata : callable
        Returns the metadata of the stack, also the values that do not describe axes or scales, because they are copied to
        the output.
    check : callable
        Raises an InputError if the file holds less than its header claims.
    assumptions : tuple of str
        Sentences on what was guessed about the layout, each with the option that overrides the guess.
    form : StoredForm
        How the file holds the stack, for a result in the same form.
    frames : slice
        The frames that are read, by default all.
    block_frames : int or None
        Frames of each block if the file holds several, of which the first one is read by default; None (the default) if the
        stack is one block.
    """

    name: str
    array: StoredArray
    layout: str = ""
    time_last: bool | None = None
    metadata: Callable[[], Found] = dict
    check: Callable[[], None] = lambda: None
    assumptions: tuple[str, ...] = ()
    form: StoredForm = field(default_factory=StoredForm)
    frames: slice = field(default_factory=lambda: slice(None))
    block_frames: int | None = None

    @property
    def candidate(self) -> Candidate:
        """The stack as a person is shown it."""
        return Candidate(self.name, self.array.shape, str(self.array.dtype), self.layout)


@dataclass(frozen=True)
class Contents:
    """Contents of an opened file.

    Attributes
    ----------
    container : str
        Format of the file, in words.
    stacks : tuple of Stack
        All arrays that could be the stack.
    every : mapping
        Name of each array -> its number of axes, type and shape in words. Error messages list them.
    look_up : callable
        Takes a name and returns a stack that is not in `stacks`; None if no array of that name could be one.
    damaged : str
        Rest of the message where the library of the format fails, while the contents are used, as for
        :func:`usdenoise.files.damage.guard`.
    """

    container: str
    stacks: tuple[Stack, ...]
    every: Mapping[str, str] = field(default_factory=dict)
    look_up: Callable[[str], Stack | None] = lambda name: None
    damaged: str = ""


Opener = Callable[[Path, ReadOptions], AbstractContextManager[Contents]]
"""Opens an acquisition and lists its contents."""


def describe_array(array: StoredArray) -> str:
    """Return the number of axes, the type and the shape of an array as text for error messages."""
    kind = "compound" if array.dtype.names else array.dtype
    return f"{len(array.shape)}-D {kind}" + (f" ({shape_text(array.shape)})" if array.shape else "")


def arranged(name: str, array: StoredArray, n_axes: int | None, **more: Any) -> Stack | None:
    """Return an array as a stack of 3 or 4 axes, or None if it cannot be one.

    An array of more than 3 axes loses axes of length 1 until 3 or 4 axes are left. A real array of 4 to 6 axes is
    taken as I and Q along its only axis of length 2, or along the first or the last axis if only one of these has it.

    Parameters
    ----------
    name : str
        Name of the array in the file.
    array : StoredArray
        The array as it is stored.
    n_axes : int or None
        Number of axes that the user named. If the array can be read in several ways, the first with this number
        of axes is taken; with None the first with the number of axes that the file names, or of all.
    **more
        Further fields of :class:`Stack`.
    """
    if array.dtype.kind not in "fciu" or len(array.shape) < 3 or min(array.shape) <= 0:
        return None
    layout, assumptions = more.pop("layout", ""), more.pop("assumptions", ())
    form: StoredForm = more.pop("form", StoredForm())
    readings: list[tuple[StoredArray, str, tuple[str, ...]]] = []
    n_stored = len(array.shape)
    pairs = [axis for axis, n in enumerate(array.shape) if n == 2]
    pairs = [axis for axis in pairs if axis in (0, n_stored - 1)] or pairs
    if n_stored in (4, 5, 6) and array.dtype.kind != "c" and len(pairs) == 1:
        if n_axes is None and "axes" in (named := interpret(more.get("metadata", dict)())[0]):
            n_axes = len(named["axes"])
        position = {0: "first", n_stored - 1: "last"}.get(
            pairs[0], ("second", "third", "fourth", "fifth")[pairs[0] - 1]
        )
        note = (
            f"the {position} axis of '{name}' ({shape_text(array.shape)}) is read as I and Q; set the axes to "
            f"{n_stored} letters if it is not"
        )
        certain = n_stored > 4
        readings += [
            (narrow, f"I and Q along the {position} axis", () if certain else (note,))
            for narrow in _narrowed(paired(array, pairs[0]))
        ]
    readings += [(narrow, "", ()) for narrow in _narrowed(array)]
    if not readings:
        return None
    fitting = [reading for reading in readings if len(reading[0].shape) == n_axes]
    best, interpretation, notes = (fitting or readings)[0]
    if fitting:
        notes = ()
    words = ", ".join(word for word in (layout, interpretation) if word)
    if not interpretation:
        single = [axis for axis, n in enumerate(array.shape) if n == 1]
        form = replace(form, singles=tuple(single[: len(array.shape) - len(best.shape)]))
    return Stack(name, best, layout=words, assumptions=(*assumptions, *notes), form=form, **more)


def _narrowed(array: StoredArray) -> Iterable[StoredArray]:
    """Yield the array with 3 axes, then with 4, where dropping its first axes of length 1 can leave that number."""
    single = [axis for axis, n in enumerate(array.shape) if n == 1]
    for n_left in (3, 4):
        n_dropped = len(array.shape) - n_left
        if n_dropped == 0:
            yield array
        elif 0 < n_dropped <= len(single):
            yield without_axes(array, single[:n_dropped])


def pair_parts(arrays: Mapping[str, StoredArray]) -> list[tuple[str, StoredArray, str, tuple[str, str]]]:
    """Return the complex arrays whose real and imaginary parts are stored under two names.

    A single number called normValue_ and the name of the complex array is a factor of both parts.

    Parameters
    ----------
    arrays : mapping
        Full name -> array.

    Returns
    -------
    list of (name, array, layout, names of the two parts)
    """
    by_lower = {name.lower(): name for name in arrays}
    pairs = []
    for name, real in arrays.items():
        group, _, last = name.rpartition("/")
        for first, second, whole in _PARTS:
            partner = by_lower.get(f"{group}/{second}".lower().lstrip("/"))
            if last.lower() != first or partner is None:
                continue
            imaginary = arrays[partner]
            if real.shape != imaginary.shape or "c" in (real.dtype.kind, imaginary.dtype.kind):
                continue
            pair_name = f"{group}/{whole}".lstrip("/") if whole else group or "iq"
            norm = arrays.get(by_lower.get(f"{group}/normValue_{whole or 'IQ'}".lower().lstrip("/"), ""))
            factor = 1.0 if norm is None or math.prod(norm.shape) != 1 else float(everything(norm).item())
            layout = f"{last} and {partner.rpartition('/')[2]}"
            layout += f" times {factor:g}" if factor != 1 else ""
            if pair_name in arrays:
                pair_name = f"{name}+{partner.rpartition('/')[2]}"
            pairs.append((pair_name, joined(real, imaginary, factor), layout, (name, partner)))
    return pairs


def stacks_of(
    arrays: Mapping[str, StoredArray],
    make: Callable[[str, StoredArray, tuple[str, ...], str], Stack | None],
    done: Collection[str] = (),
) -> tuple[Stack, ...]:
    """Return the stacks that arrays make: pairs of real and imaginary parts first, then the other arrays.

    Parameters
    ----------
    arrays : mapping
        Full name -> array.
    make : callable
        Takes a name, an array, the names of the arrays in which it is stored, and its layout in words (empty for
        one plain array); returns the stack, or None if the array cannot be one.
    done : collection of str, default none
        Names of arrays that are stacks already. They can be parts of a pair, but make no second stack alone.
    """
    pairs = pair_parts(arrays)
    used = {part for *_, parts in pairs for part in parts}.union(done)
    stacks = [make(name, array, parts, layout) for name, array, layout, parts in pairs]
    stacks += [make(name, array, (name,), "") for name, array in arrays.items() if name not in used]
    return tuple(stack for stack in stacks if stack is not None)
