"""What is in a file, before anything large is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
        Of the values.
    layout : str
        How it is stored, where that is not one plain array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = ""


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
