"""Choice of the stack among the arrays of a file."""

from typing import Any

from numpy.typing import NDArray

from usdenoise.errors import InputError, NoStackError
from usdenoise.files.contents import Contents, Stack
from usdenoise.stack.arrays import is_power, offset_of
from usdenoise.stack.geometry import shape_text

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
        for stack in contents.stacks:
            if stack.name == name:
                return stack
        if (linked := contents.look_up(name)) is not None:
            return linked
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
        contents_listing = (
            ", ".join(f"{name} ({description})" for name, description in list(every.items())[:8]) or "nothing"
        )
        raise NoStackError(
            f"{path} holds no stack: a stack is numeric with 3 axes (2-D + time) or 4 (3-D + time), "
            f"and the file holds {contents_listing}",
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


def check_not_power(stack: Stack, path: str) -> None:
    """Check that a stack is not power Doppler, which is real and nowhere negative.

    The first and the middle slab are read. A stack that is zero in both of them passes.

    Parameters
    ----------
    stack : Stack
        The stack to read.
    path : str
        Path of the file, for the message.

    Raises
    ------
    InputError
        If the stack is real, and its two slabs hold positive values and no negative one.
    """
    array = stack.array
    if array.dtype.kind == "c":
        return
    whole = [slice(0, n, 1) for n in array.shape]

    def slab(number: int) -> NDArray[Any]:
        whole[array.slow] = slice(number, number + 1, 1)
        return array.read(tuple(whole))

    middle = array.shape[array.slow] // 2
    if is_power(slab(number) for number in (0, middle)):
        if offset := offset_of(slab(middle)):
            raise InputError(
                f"'{stack.name}' in {path} is real, and symmetric about {offset:g}",
                remedy=f"subtract the offset {offset:g} if it is RF, or name it with {{dataset}} to filter it as it is",
            )
        raise InputError(
            f"'{stack.name}' in {path} is real and nowhere negative: it is power Doppler already, "
            "without the phase that the filter requires",
            remedy="give the beamformed IQ, or name it with {dataset} to filter it anyway",
        )
