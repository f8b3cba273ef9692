"""The blocks of a session: which there are, when they begin, and how their frames are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.options.session_options import SessionOptions
from usdenoise.pipeline.windows import Window, cut_into_windows
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.geometry import Geometry, GriddedStack, shape_text

SHORTEST, SHORTEST_SHARE = 16, 4
"""Frames of a last window of its own, or this part of a window: fewer join the previous window."""

OR_SKIP, OR_IGNORE = "or mark it as missing with {skip_bad_files}", "or ignore it with {skip_bad_files}"
"""What may be done with a file that cannot be read, and with one that has no stack."""

NEAR = 1e-6
"""Relative difference of frame rates and pixel pitches up to which they are the same."""


@dataclass(frozen=True)
class Block:
    """A block of a session.

    Attributes
    ----------
    name : str
        Name of its file; empty for a stack in memory.
    file : int
        Number of its file, as files of several folders may have one name.
    window : Window
        Its frames in this file.
    start : float
        Time of its first frame, in s or in frames, from the first frame of the session.
    problem : str
        Why the file cannot be read, in words; empty (the default) where it can.
    """

    name: str
    file: int
    window: Window
    start: float
    problem: str = ""


class BlockReader(Protocol):
    """The frames of a block. The reader of a file can be sent to another process, which reads the frames."""

    @property
    def window(self) -> Window:
        """Its frames in its file."""

    def read(self) -> Acquisition:
        """Return the block."""

    def read_frames(self, numbers: NDArray[np.intp]) -> NDArray[Any]:
        """Return some frames, (n, pixels along each axis...) in the order t, z, x, y; `numbers` increase from 0."""


class Blocks(Protocol):
    """The blocks of a session, and their frames."""

    blocks: list[Block]
    geometry: Geometry
    """Axes and scales of all blocks."""
    frame_time: float
    """Time from one frame to the next, in s, or in frames of the file where the frame rate is not known."""
    options: SessionOptions
    """How it was cut into blocks, whether one that cannot be read is missing, and whether blocks are aligned."""

    def reader(self, number: int) -> BlockReader:
        """Return the reader of a block."""


def mark_missing(blocks: Blocks, number: int, error: InputError) -> None:
    """Mark a block as missing if its frames cannot be read, or raise the error."""
    if blocks.options.skip_bad_files:
        blocks.blocks[number] = replace(blocks.blocks[number], problem=error.cause)
    elif blocks.blocks[0].file == blocks.blocks[-1].file:
        # A stack in memory has no file to skip.
        raise error
    else:
        raise error.at(blocks.blocks[number].name, OR_SKIP) from error


def windows_of(n_frames: int, window: int, stride: int | None) -> list[Window]:
    """Return the windows of a stack; one needs two frames at least."""
    shortest = max(2, min(SHORTEST, -(-window // SHORTEST_SHARE)))
    return cut_into_windows(n_frames, window, stride, shortest)


def time_unit(geometry: Geometry) -> str:
    """Return the unit of the times of blocks: "s", or "frames" where the frame rate is not known."""
    return "frames" if geometry.frame_rate_hz is None else "s"


@dataclass(frozen=True)
class StackWindow:
    """Some frames of a stack in memory, a :class:`BlockReader`."""

    stack: Acquisition
    window: Window

    def read(self) -> Acquisition:
        """Return a view of the frames."""
        stack, time = self.stack, self.stack.axes.index("t")
        frames = slice(self.window.start, self.window.stop)
        part = tuple(frames if axis == time else slice(None) for axis in range(stack.iq.ndim))
        coordinate = stack.coordinates.get("t")
        times = {} if coordinate is None else {"t": coordinate[frames]}
        return replace(stack, iq=stack.iq[part], coordinates={**stack.coordinates, **times}, labels=None)

    def read_frames(self, numbers: NDArray[np.intp]) -> NDArray[Any]:
        """Return some frames, in the order t, z, x, y."""
        return frames_in_order(self.read())[numbers]


class BlocksOfStack:
    """Windows of a stack in memory.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    options : SessionOptions
        The options of the session, with a window.
    """

    def __init__(self, stack: Acquisition, options: SessionOptions) -> None:
        window, stride = options.window, options.stride
        if window is None:
            raise OptionError("a stack in memory requires window, the number of frames of a block")
        self.options = options
        self._stack, self.frame_time = stack, 1 / (stack.frame_rate_hz or 1.0)
        self.blocks = [
            Block("", 0, part, part.start * self.frame_time)
            for part in windows_of(stack.n_frames, window, stride)
        ]
        self.geometry = replace(stack.geometry, labels=None)

    def reader(self, number: int) -> StackWindow:
        """Return the reader of a block."""
        return StackWindow(self._stack, self.blocks[number].window)


def in_order(stack: GriddedStack) -> str:
    """Return the axes of a stack in the order t, z, x, y."""
    return "t" + canonical_axes(stack.spatial_axes)


def frames_in_order(stack: Acquisition) -> NDArray[Any]:
    """Return the frames of a stack, (n, pixels along z, x, y): a view, or integers as floating-point numbers."""
    frames = stack.iq.transpose([stack.axes.index(letter) for letter in in_order(stack)])
    return (
        frames
        if np.issubdtype(frames.dtype, np.inexact)
        else frames.astype(np.result_type(frames, np.float32))
    )


def with_frames(stack: Acquisition, frames: NDArray[Any]) -> Acquisition:
    """Return a stack with other frames, (n, pixels along z, x, y)."""
    axes = in_order(stack)
    return replace(stack, iq=frames.transpose([axes.index(letter) for letter in stack.axes]))


@dataclass(frozen=True)
class FileTime:
    """The time that a file takes.

    Attributes
    ----------
    start_s : float or None
        Time of its first frame, if it gives one that can be used.
    offset : float
        Frames before the first selected one, in units of the frame step.
    duration : float
        All of its frames, selected or not, in units of the frame step.
    """

    start_s: float | None
    offset: float
    duration: float

    @classmethod
    def of(cls, stack: GriddedStack, offset: float = 0.0, duration: float | None = None) -> "FileTime":
        """Return the time of a file of which a stack was read; without a frame rate its start in s cannot be used."""
        start = None if stack.frame_rate_hz is None else own_start(stack)
        return cls(start, offset, stack.n_frames if duration is None else duration)


def start_times(
    files: Sequence[FileTime | None], frame_time: float, interval: float | None
) -> NDArray[np.float64]:
    """Return the times at which files begin, in s or frames, the first at 0.

    Files that cannot be read, here None, are as long as others. Files without a start have the same delay, relative to no
    pauses, as their neighbours.
    """
    numbers = np.arange(len(files), dtype=np.float64)
    if interval is not None:
        return numbers * interval
    usual = np.median([file.duration for file in files if file is not None])
    lengths = np.array([usual if file is None else file.duration for file in files])
    without_gaps: NDArray[np.float64] = (np.cumsum(lengths) - lengths) * frame_time
    known_starts = {
        n: file.start_s for n, file in enumerate(files) if file is not None and file.start_s is not None
    }
    known, times = np.array(list(known_starts), int), np.array(list(known_starts.values()))
    # A time that is the same in all files counts from the beginning of each.
    if len(np.unique(times)) < 2:
        return without_gaps
    later = times - without_gaps[known]
    slope = (later[-1] - later[0]) / (known[-1] - known[0])
    starts: NDArray[np.float64] = (
        without_gaps + slope * numbers + np.interp(numbers, known, later - slope * known)
    )
    starts[known] = times
    starts -= starts[0]
    return starts


def own_start(stack: GriddedStack) -> float | None:
    """Return the time of the first frame that a file gives, in s; None if it gives no finite number."""
    times = stack.coordinates.get("t")
    value: Any = stack.attributes.get("start_s") if times is None else times.values[0]
    try:
        start = float(np.ravel(value)[0])
    except (TypeError, ValueError, IndexError):
        return None
    return start if np.isfinite(start) else None


NO_STARTS = "the files have no start times: blocks are taken to follow without pauses; set the block interval if they do not"
"""The times of blocks are an assumption, on which an activation map depends."""


def time_notes(files: Sequence[FileTime], first: Geometry) -> tuple[str, ...]:
    """Return a sentence if starts that the files give are not used as they are."""
    starts = [file.start_s for file in files if file.start_s is not None]
    n_without = len(files) - len(starts)
    if len(files) == 1:
        return ()
    if first.frame_rate_hz is None and own_start(first) is not None:
        return (
            "the files contain start times in s, but the frame rate is unknown, so blocks follow each other without pauses; "
            "set the frame rate",
        )
    if not starts:
        return (NO_STARTS,)
    if len(set(starts)) == 1:
        return ("all files have the same start time, so blocks follow each other without pauses",)
    if starts and n_without:
        return (f"{n_without} of {len(files)} files have no valid start time; it is interpolated",)
    return ()


def check_alike(stack: GriddedStack, usual: Geometry, path: Path) -> None:
    """Check that a file has the axes, the pixels, the frame rate and the pixel pitch of its session."""
    properties: dict[str, tuple[Any, ...]] = {
        "axes": (stack.axes, usual.axes),
        "pixels": tuple(shape_text(each.shape_in(each.spatial_axes)) for each in (stack, usual)),
        "type": tuple("complex" if each.is_complex else "real" for each in (stack, usual)),
    }
    differing = {name: values for name, values in properties.items() if values[0] != values[1]}
    scales = {"frame rate": (stack.frame_rate_hz, usual.frame_rate_hz)}
    scales |= {
        f"pixel pitch along {letter}": (stack.spacing_mm.get(letter), usual.spacing_mm.get(letter))
        for letter in usual.spatial_axes
    }
    differing |= {name: values for name, values in scales.items() if not _are_near(*values)}
    if differing:
        name, (block_value, session_value) = next(iter(differing.items()))
        raise InputError(
            f"{path} differs from the session in its {name}: {block_value or 'unknown'}, not {session_value or 'unknown'}",
            remedy="exclude it",
        )


def _are_near(value: float | None, other: float | None) -> bool:
    """Return whether two scales are equal to rounding, or both unknown."""
    if value is None or other is None:
        return value is other
    return abs(value - other) <= NEAR * abs(other)
