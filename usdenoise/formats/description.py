"""What is in a file, before anything large is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from usdenoise.errors import InputError

RESULTS_AND_TRUTH = ("truth/", "usdenoise/", "#refs#/", "power_doppler", "unobserved")
"""Names in our own files, and a group of MATLAB's, that are read only when they are asked for."""


@dataclass(frozen=True)
class Candidate:
    """A dataset or variable that could be the stack.

    Attributes
    ----------
    name : str
        As --dataset takes it.
    shape : tuple of int
        In the order in which the file's own software shows it (MATLAB's order for .mat files).
    dtype : str
        Of the values, "complex" where the header does not tell more.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Metadata:
    """Scales and axes found beside a stack, each with where it came from.

    Attributes
    ----------
    values : mapping
        Any of "axes" (str), "frame_rate_hz", "center_frequency_hz", "sound_speed_m_s" (float) and
        "spacing_mm" (mapping from axis letter).
    sources : mapping
        For each of them: "file: …", "option" or "assumed".
    attributes : mapping
        Whatever else was attached to the stack.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FileDescription:
    """What ``usdenoise info`` shows.

    Attributes
    ----------
    path, container : str
        The file, and the format it is in.
    candidates : tuple of Candidate
        Everything that could be the stack.
    chosen : Candidate or None
        What would be read; None where the choice is the user's.
    problem : str or None
        Why nothing would be read.
    metadata : Metadata
        Of the chosen one.
    """

    path: str
    container: str
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    problem: str | None
    metadata: Metadata


def choose(candidates: list[Candidate], wanted: str | None, every: Mapping[str, str], path: str) -> Candidate:
    """The candidate to read.

    A name that is asked for must be there. Otherwise a single candidate called iq (in any case) is taken,
    then a single complex one, then a single one of any kind.

    Parameters
    ----------
    candidates : list of Candidate
        What could be the stack.
    wanted : str or None
        The user's choice.
    every : mapping
        All datasets of the file, each with a word on what it is, to explain a refusal.
    path : str
        For the message.

    Raises
    ------
    InputError
        If the name is not there or cannot be a stack, if there is no candidate, or more than one.
    """
    unasked = [c for c in candidates if not c.name.startswith(RESULTS_AND_TRUTH)]
    if wanted is not None:
        for candidate in candidates:
            if candidate.name == wanted.strip("/"):
                return candidate
        if wanted.strip("/") in every:
            raise InputError(
                f"'{wanted}' in {path} is {every[wanted.strip('/')]}, but a stack is numeric with 3 axes "
                "(2-D + time) or 4 (3-D + time); pick another one with --dataset"
            )
        listing = ", ".join(candidate.name for candidate in unasked) or "none"
        raise InputError(f"there is no dataset '{wanted}' in {path}; the candidates are: {listing}")
    if not unasked:
        found = ", ".join(f"{name} ({what})" for name, what in list(every.items())[:8]) or "nothing"
        raise InputError(
            f"{path} holds no stack: one is numeric with 3 axes (2-D + time) or 4 (3-D + time), "
            f"and the file holds {found}; check that this is the right file"
        )
    called_iq = [c for c in unasked if c.name.rsplit("/", 1)[-1].lower() == "iq"]
    is_complex = [c for c in unasked if c.dtype.startswith("complex")]
    for group in (called_iq, is_complex, unasked):
        if len(group) == 1:
            return group[0]
    listing = ", ".join(f"{c.name} {shape_text(c.shape)}" for c in unasked)
    raise InputError(f"{path} holds several stacks: {listing}; pick one with --dataset")


def guess_axes(shape: tuple[int, ...], time_last: bool | None) -> str:
    """Axis letters for a shape that says nothing else.

    Time is the last axis by MATLAB's habit (`time_last`). Otherwise it is the first or the last: whichever
    is the longest of all; failing that, the one that differs when all others are equal; failing that, the
    last.
    """
    spatial = "zxy"[: len(shape) - 1]
    if time_last is None:
        first, last = shape[0], shape[-1]
        longest = max(shape)
        if first == last:
            time_last = True
        elif longest in (first, last) and shape.count(longest) == 1:
            time_last = last == longest
        else:
            time_last = len(set(shape[1:])) != 1
    return spatial + "t" if time_last else "t" + spatial


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape for people: 200 x 130 x 2400."""
    return " x ".join(str(n) for n in shape)


def is_stack(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether an array could be a stack: numeric, 3-D or 4-D without singleton frames, not empty."""
    return dtype.kind in "fciu" and len(shape) in (3, 4) and min(shape) > 0
