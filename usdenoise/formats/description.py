"""Description of a file from its headers: the possible stacks, and their scales."""

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


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text for people, such as 200 x 130 x 2400."""
    return " x ".join(str(n) for n in shape)
