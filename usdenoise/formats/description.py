"""Description of a file from its headers: the possible stacks, their scales, and the guess of their axes."""

from dataclasses import dataclass

from usdenoise.stack.metadata import Metadata


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
