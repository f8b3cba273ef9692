"""Which of the arrays of a file is the stack."""

import numpy as np

from usdenoise.errors import InputError
from usdenoise.formats.contents import Contents, Stack
from usdenoise.formats.description import shape_text

RESULTS_AND_TRUTH = (
    "truth/", "usdenoise/", "#refs#/", "#subsystem#/", "power_doppler", "unobserved", "factors/",
    "directional_power", "axial_velocity")  # fmt: skip
"""Names in our own files, and groups of MATLAB's, that are read only when they are asked for."""

_PREFERRED = ("iq", "iqdata", "iq_data")


def choose(contents: Contents, wanted: str | None, path: str) -> Stack:
    """The stack to read.

    A name that is asked for must be there. Otherwise a single candidate called iq or IQData (in any case)
    is taken, then a single complex one, then a single one of any kind.

    Parameters
    ----------
    contents : Contents
        Of the file.
    wanted : str or None
        The user's choice.
    path : str
        For the message.

    Raises
    ------
    InputError
        If the name is not there or cannot be a stack, if there is no candidate, or more than one.
    """
    every = contents.every
    unasked = [stack for stack in contents.stacks if not stack.name.startswith(RESULTS_AND_TRUTH)]
    if wanted is not None:
        name = wanted.strip("/")
        for stack in contents.stacks:
            if stack.name == name:
                return stack
        if (linked := contents.look_up(name)) is not None:
            return linked
        if name in every:
            raise InputError(
                f"'{wanted}' in {path} is {every[name]}, but a stack is numeric with 3 axes "
                "(2-D + time) or 4 (3-D + time); pick another one with --dataset"
            )
        listing = ", ".join(stack.name for stack in unasked) or "none"
        raise InputError(f"there is no dataset '{wanted}' in {path}; the candidates are: {listing}")
    if not unasked:
        found = ", ".join(f"{name} ({what})" for name, what in list(every.items())[:8]) or "nothing"
        raise InputError(
            f"{path} holds no stack: one is numeric with 3 axes (2-D + time) or 4 (3-D + time), "
            f"and the file holds {found}; check that this is the right file"
        )
    called_iq = [stack for stack in unasked if stack.name.rsplit("/", 1)[-1].lower() in _PREFERRED]
    is_complex = [stack for stack in unasked if stack.array.dtype.kind == "c"]
    for group in (called_iq, is_complex, unasked):
        if len(group) == 1:
            return group[0]
    listing = ", ".join(f"{stack.name} {shape_text(stack.array.shape)}" for stack in unasked)
    raise InputError(f"{path} holds several stacks: {listing}; pick one with --dataset")


def check_not_power(stack: Stack, path: str) -> None:
    """Check that a stack is no power Doppler already: real, and nowhere negative in a sample of its slabs.

    Raises
    ------
    InputError
        If it is.
    """
    array = stack.array
    if array.dtype.kind == "c":
        return
    whole = [slice(0, n, 1) for n in array.shape]
    positive = False
    for middle in (0, array.shape[array.slow] // 2):
        whole[array.slow] = slice(middle, middle + 1, 1)
        values = array.read(tuple(whole))
        values = values[np.isfinite(values)]
        if values.size and values.min() < 0:
            return
        positive = positive or bool(values.any())
    if positive:
        raise InputError(
            f"'{stack.name}' in {path} is real and nowhere negative: it is power Doppler already, with no phase "
            "left to filter by; give the beamformed IQ, or name it with --dataset to filter it all the same"
        )
