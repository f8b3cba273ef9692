"""Description of a file from its headers: the possible stacks, their scales, and the guess of their axes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from usdenoise.stack.coordinates import Coordinate


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
class Metadata:
    """Axes and scales of a stack, each with its source.

    Attributes
    ----------
    values : mapping
        Any of "axes" (str), "frame_rate_hz", "center_frequency_hz", "sound_speed_m_s" (float) and
        "spacing_mm" (axis letter -> pixel pitch in mm).
    sources : mapping
        Name of each of these values -> "file: …", "option" or "assumed".
    attributes : mapping
        All other attributes of the stack, which are copied to the output.
    coordinates : mapping
        Axis letter -> positions of the pixels in mm, or times of the frames in s, where the file has them.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)


@dataclass(frozen=True)
class FileDescription:
    """Description of a file, as ``usdenoise info`` shows it.

    Attributes
    ----------
    path : str
        Path of the file.
    container : str
        Format of the file, in words.
    candidates : tuple of Candidate
        All datasets or variables that could be the stack.
    chosen : Candidate or None
        The one that would be read; None if `problem` says why none would be.
    problem : str or None
        Error message of reading the file; None if it can be read.
    metadata : Metadata
        Axes and scales of the chosen one.
    """

    path: str
    container: str
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    problem: str | None
    metadata: Metadata


def guess_axes(shape: tuple[int, ...], time_last: bool | None) -> str:
    """Return axis letters for a stack of which only the shape is known.

    Time is the first or the last axis. The spatial axes are called z, x and y in their order.

    Parameters
    ----------
    shape : tuple of int
        Lengths of 3 or 4 axes.
    time_last : bool or None
        Whether time is the last axis, as MATLAB users usually have it. With None it is the longer one of the first
        and the last axis if that one is longer than all others. Otherwise time is the first axis if all other axes
        have one length, and the last axis if not, or if the first and the last axis have the same length.
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
    """Return a shape as text for people, such as 200 x 130 x 2400."""
    return " x ".join(str(n) for n in shape)
