"""Contents of an opened file: its arrays, those that could be the stack, the choice among them, and damage."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from usdenoise.errors import InputError, NoStackError, UnreadableError, UsdenoiseError, is_out_of_memory
from usdenoise.files.stored import StoredArray, joined, paired, without_axes
from usdenoise.stack.geometry import StoredForm, dropped_axes, shape_text
from usdenoise.stack.labels import Found
from usdenoise.stack.metadata import interpret, is_known


def check_kind(path: Path) -> None:
    """Check that a path is not a pipe, socket or device, on which reading could wait forever.

    Raises
    ------
    InputError
        If it is one. A path that does not exist passes.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(
            f"{path} is a pipe, a socket or a device; write its content to a file, and give that"
        )


@contextmanager
def guard(path: Path, action: str) -> Iterator[None]:
    """Turn any error that a library raises on a damaged file into an InputError.

    Errors of usdenoise itself and a lack of memory pass unchanged.

    Parameters
    ----------
    path : Path
        The file, with which the message begins.
    action : str
        Rest of the message: the damage of the file, and the remedy.

    Raises
    ------
    InputError
        If the library raised an error.
    UnreadableError
        If the permissions do not let the file be read.
    """
    try:
        yield
    except UsdenoiseError:
        raise
    except PermissionError as error:
        raise unreadable(path, error) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InputError(f"{path} {action}") from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into an UnreadableError.

    A lack of memory passes unchanged.

    Parameters
    ----------
    path : Path
        The file or folder that is read in the context, with which the message begins.

    Raises
    ------
    UnreadableError
        If the operating system refused to read it, or a file in it.
    """
    try:
        yield
    except OSError as error:
        if is_out_of_memory(error):
            raise
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """Return the error with the reason of the operating system for an unreadable file, or a file in that folder."""
    reason = str(error) if error.errno is None else os.strerror(error.errno)
    if error.filename is not None and Path(os.fsdecode(error.filename)) != path:
        reason = f"{os.path.basename(os.fsdecode(error.filename))}: {reason}"
    remedy = "check the permissions" if isinstance(error, PermissionError) else "check the path and the disk"
    return UnreadableError(f"{path} cannot be read ({reason}); {remedy}")


MAX_METADATA_ITEMS, MAX_TEXT = 4, 64
"""Most numbers and characters of an array that counts as metadata: four numbers are one for each axis."""

MOST_ITEMS = 1000
"""Most items that are all listed, or searched for marks and metadata: opening 20,000 takes seconds, and most of them are
results of other programs."""


def known_first(names: Iterable[str]) -> Iterator[str]:
    """Yield the first MOST_ITEMS names of a file, and after these only names of axes and scales."""
    return (name for number, name in enumerate(names) if number < MOST_ITEMS or is_known(name))


STRUCTS = ("UF", "PData")
"""Structs of MATLAB in which PALA keeps the scales of a stack."""

# Lower-case names of the real and the imaginary part, and the name of the complex array; None takes the group's.
_PARTS = (
    ("idata", "qdata", "IQData"), ("riq", "iiq", "IQ"), ("iq_real", "iq_imag", "IQ"), ("iq_re", "iq_im", "IQ"),
    ("i", "q", "IQ"), ("real", "imag", None), ("re", "im", None))  # fmt: skip


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
    arrays : mapping
        Name of each array of numbers -> the array, with its axes in the order of the file's own software; empty by default.
    look_up : callable
        Takes a name and returns a stack that is not in `stacks`; None if no array of that name could be one.
    damaged : str
        Rest of the message on a damaged file where the library of the format fails, while the contents are used, as for
        :func:`usdenoise.files.contents.guard`.
    close : callable
        Closes the file; by default nothing is open.
    is_read_whole : bool
        Whether arrays cannot be read in parts; False by default.
    """

    container: str
    stacks: tuple[Stack, ...]
    every: Mapping[str, str] = field(default_factory=dict)
    arrays: Mapping[str, StoredArray] = field(default_factory=dict)
    look_up: Callable[[str], Stack | None] = lambda name: None
    damaged: str = ""
    close: Callable[[], None] = lambda: None
    is_read_whole: bool = False


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, which tell its format; none for a folder.

    Raises
    ------
    InputError
        As for :func:`check_kind`.
    """
    check_kind(path)
    if os.path.isdir(path):
        return b""
    with path.open("rb") as file:
        return file.read(4104)


def describe_array(array: StoredArray) -> str:
    """Return the number of axes, the type and the shape of an array as text for error messages."""
    kind = "compound" if array.dtype.names else array.dtype
    return f"{len(array.shape)}-D {kind}" + (f" ({shape_text(array.shape)})" if array.shape else "")


def arranged(stack: Stack, n_axes: int | None) -> Stack | None:
    """Return an array of a file as a stack of 3 or 4 axes, or None if it cannot be one.

    An array of more than 3 axes loses axes of length 1 until 3 or 4 axes are left. A real array of 4 to 6 axes is
    taken as I and Q along its only axis of length 2, or along the first or the last axis if only one of these has it.

    Parameters
    ----------
    stack : Stack
        The array as it is stored, and what is known of it.
    n_axes : int or None
        Number of axes that the user named. If the array can be read in several ways, the first with this number
        of axes is taken; with None the first with the number of axes that the file names, or of all.
    """
    array, name = stack.array, stack.name
    if array.dtype.kind not in "fciu" or len(array.shape) < 3 or min(array.shape) <= 0:
        return None
    readings, position = [(narrow, "") for narrow in _narrowed(array)], ""
    n_stored = len(array.shape)
    pairs = [axis for axis, n in enumerate(array.shape) if n == 2]
    pairs = [axis for axis in pairs if axis in (0, n_stored - 1)] or pairs
    if n_stored in (4, 5, 6) and array.dtype.kind != "c" and len(pairs) == 1:
        if n_axes is None and "axes" in (named := interpret(stack.metadata()).values):
            n_axes = len(named["axes"])
        numbers = ("first", "second", "third", "fourth", "fifth")
        position = "last" if pairs[0] == n_stored - 1 else numbers[pairs[0]]
        words = f"I and Q along the {position} axis"
        readings = [*((narrow, words) for narrow in _narrowed(paired(array, pairs[0]))), *readings]
    if not readings:
        return None
    fitting = [reading for reading in readings if len(reading[0].shape) == n_axes]
    best, words = (fitting or readings)[0]
    notes, form = [*stack.assumptions, *array.notes], stack.form
    if not words:
        form = replace(form, singles=dropped_axes(array.shape, len(best.shape)))
    elif n_stored == 4 and not fitting:
        notes.append(
            f"the {position} axis of '{name}' ({shape_text(array.shape)}) is read as I and Q; set the axes to "
            f"{n_stored} letters if it is not"
        )
    layout = ", ".join(filter(None, (stack.layout, words)))
    return replace(stack, array=best, layout=layout, assumptions=tuple(notes), form=form)


def _narrowed(array: StoredArray) -> Iterable[StoredArray]:
    """Yield the array with 3 axes, then with 4, where dropping its first axes of length 1 can leave that number."""
    for n_left in (3, 4):
        dropped = dropped_axes(array.shape, n_left)
        if len(array.shape) - len(dropped) == n_left:
            yield without_axes(array, dropped) if dropped else array


def pair_parts(arrays: Mapping[str, StoredArray]) -> Iterator[Stack]:
    """Yield the complex arrays whose real and imaginary parts are stored under two names, which their form has.

    A single number called normValue_ and the name of the complex array is a factor of both parts.

    Parameters
    ----------
    arrays : mapping
        Full name -> array.
    """
    by_lower = {name.lower(): name for name in arrays}
    for name, real in arrays.items():
        group, _, last = name.rpartition("/")
        for first, second, whole in _PARTS:
            partner = by_lower.get(f"{group}/{second}".lower().lstrip("/"))
            if last.lower() != first or partner is None:
                continue
            imaginary = arrays[partner]
            if real.shape != imaginary.shape or not {real.dtype.kind, imaginary.dtype.kind} <= {*"fiu"}:
                continue
            pair_name = f"{group}/{whole}".lstrip("/") if whole else group or "iq"
            norm = arrays.get(by_lower.get(f"{group}/normValue_{whole or 'IQ'}".lower().lstrip("/"), ""))
            factor = 1.0
            if norm is not None and math.prod(norm.shape) == 1:
                factor = float(norm.everything().real.item())
            layout = f"{last} and {partner.rpartition('/')[2]}"
            layout += f" times {factor:g}" if factor != 1 else ""
            if pair_name in arrays:
                pair_name = f"{name}+{partner.rpartition('/')[2]}"
            form = StoredForm((name, partner))
            yield Stack(pair_name, joined(real, imaginary, factor), layout, form=form)


def stacks_of(
    arrays: Mapping[str, StoredArray],
    n_axes: int | None,
    metadata: Callable[[str, int], Found],
    time_last: bool | None = None,
    layout: str = "",
    done: Collection[str] = (),
) -> tuple[Stack, ...]:
    """Return the stacks that arrays make: pairs of real and imaginary parts first, then the other arrays.

    Parameters
    ----------
    arrays : mapping
        Full name -> array.
    n_axes : int or None
        Number of axes that the user named.
    metadata : callable
        Takes the name of an array and the number of axes of its stack, and returns the metadata.
    time_last, layout
        As in :class:`Stack`; the layout is of plain arrays.
    done : collection of str, default none
        Names of arrays that are stacks already. They can be parts of a pair, but make no second stack alone.
    """
    pairs = [*pair_parts(arrays)]
    used = {part for pair in pairs for part in pair.form.parts}.union(done)
    stacks = []
    for one in [*pairs, *(Stack(name, arrays[name], layout) for name in arrays if name not in used)]:
        of_part = partial(metadata, (*one.form.parts, one.name)[0])
        known = replace(one, time_last=time_last, metadata=partial(of_part, len(one.array.shape)))
        if (stack := arranged(known, n_axes)) is not None:
            # With the number of axes that are left
            stacks.append(replace(stack, metadata=partial(of_part, len(stack.array.shape))))
    return tuple(stacks)


RESULTS_AND_TRUTH = (
    "truth/", "usdenoise/", "#refs#/", "#subsystem#/", "power_doppler", "blood_power", "noise_power",
    "unobserved", "directional_power", "signed_power", "axial_velocity")  # fmt: skip
"""Beginnings of names in our own files, and of groups of MATLAB, that are read only if the user names them."""

_PREFERRED = ("iq", "iqdata", "iq_data")


def choose(contents: Contents, variable: str | None, path: str) -> Stack:
    """Return the stack to read.

    Without a name from the user this is the only candidate called iq, IQData or iq_data (in upper or lower case). If
    none or several are called so it is the only complex candidate, and failing that the only candidate.

    Parameters
    ----------
    contents : Contents
        Contents of the file.
    variable : str or None
        Name of the stack that the user gave with --dataset; None for the choice above.
    path : str
        Path of the file, for the message.

    Raises
    ------
    NoStackError
        If the file has no array that can be a stack.
    InputError
        If no stack has the name `variable`, or if more than one array can be the stack.
    """
    every = contents.every
    candidates = [stack for stack in contents.stacks if not stack.name.startswith(RESULTS_AND_TRUTH)]
    if variable is not None:
        name = variable.strip("/")
        named = (stack for stack in contents.stacks if stack.name == name)
        if (found := next(named, None) or contents.look_up(name)) is not None:
            return found
        if name in every:
            raise InputError(
                f"'{variable}' in {path} is {every[name]}, but a stack is numeric with 3 axes (2-D + time) "
                "or 4 (3-D + time)",
                remedy="pick another one with {dataset}",
            )
        listing = ", ".join(stack.name for stack in candidates) or "none"
        error = InputError if candidates else NoStackError
        raise error(f"{path} has no dataset '{variable}'; the candidates are: {listing}")
    if not candidates:
        held = ", ".join(f"{name} ({words})" for name, words in list(every.items())[:8]) or "nothing"
        raise NoStackError(
            f"{path} holds no stack: a stack is numeric with 3 axes (2-D + time) or 4 (3-D + time), "
            f"and the file holds {held}",
            remedy="check the file; reshape a matrix of pixels x frames to depth x lateral x frames",
        )
    called_iq = [stack for stack in candidates if stack.name.rsplit("/", 1)[-1].lower() in _PREFERRED]
    is_complex = [stack for stack in candidates if stack.array.dtype.kind == "c"]
    for group in (called_iq, is_complex, candidates):
        if len(group) == 1:
            return group[0]
    listing = ", ".join(f"{stack.name} {shape_text(stack.array.shape)}" for stack in candidates)
    shapes = {(stack.array.shape, stack.array.dtype.kind) for stack in candidates}
    are_two_parts = len(candidates) == 2 and len(shapes) == 1 and candidates[0].array.dtype.kind != "c"
    pair = "; if they are I and Q, save a complex array, or name them I and Q" if are_two_parts else ""
    raise InputError(f"{path} holds several stacks: {listing}", remedy=f"pick one with {{dataset}}{pair}")


MOST_COMPRESSION = 500
"""Largest ratio of the bytes of a stack to those in a file that is decompressed whole. DEFLATE reaches 1032 with zeros, and
2 with noise; a stack of which 99 % is zero has 100."""

LARGE_BYTES = 64 << 20
"""Bytes from which a stack is checked: fewer are decompressed in less than a second."""


def check_compression(name: str, path: Path, n_bytes: int, n_stored: int) -> None:
    """Check by its compression that an array is not constant, before gigabytes of it are decompressed.

    Raises
    ------
    InputError
        If it is.
    """
    if n_bytes > max(LARGE_BYTES, MOST_COMPRESSION * n_stored):
        raise InputError(
            f"{name} in {path} has {n_bytes} bytes that are compressed to {n_stored}: it is constant, and has no blood; "
            "check how it was written"
        )
