"""The blocks of a session: files, windows of a file, or windows of a stack in memory."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.files.file_state import check_unchanged
from usdenoise.files.open_input import Input, open_input
from usdenoise.pipeline.windows import Window, cut_into_windows
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import Geometry, GriddedStack

SHORTEST, SHORTEST_SHARE = 16, 4
"""Frames of a last window of its own, or this part of a window: fewer join the window before."""

OR_SKIP = "or make it a gap with {skip_bad_files}"
"""What may be done with a file that cannot be read."""

_NEAR = 1e-6
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


class Blocks(Protocol):
    """The blocks of a session, and their frames."""

    blocks: list[Block]
    geometry: Geometry
    """Axes and scales of all blocks."""
    frame_time: float
    """Time from one frame to the next, in s, or in frames of the file where the frame rate is not known."""
    skips: bool
    """Whether a block that cannot be read is a gap."""

    def read(self, number: int, start: int, stop: int) -> Acquisition:
        """Return the frames [start, stop) of a block."""


def windows_of(n_frames: int, window: int, stride: int | None) -> list[Window]:
    """Return the windows of a stack; one needs two frames at least."""
    shortest = max(2, min(SHORTEST, -(-window // SHORTEST_SHARE)))
    return cut_into_windows(n_frames, window, stride, shortest)


def time_unit(geometry: Geometry) -> str:
    """Return the unit of the times of blocks: "s", or "frames" where the frame rate is not known."""
    return "frames" if geometry.frame_rate_hz is None else "s"


class BlocksOfStack:
    """Windows of a stack in memory.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    window, stride : int
        As in :class:`usdenoise.options.job_options.Output`.
    """

    skips = False

    def __init__(self, stack: Acquisition, window: int, stride: int | None) -> None:
        self._stack, self.frame_time = stack, 1 / (stack.frame_rate_hz or 1.0)
        self.blocks = [
            Block("", 0, part, part.start * self.frame_time)
            for part in windows_of(stack.n_frames, window, stride)
        ]
        self.geometry = replace(stack.geometry, labels=None)

    def read(self, number: int, start: int, stop: int) -> Acquisition:
        """Return a copy of some frames of a block."""
        stack, time = self._stack, self._stack.axes.index("t")
        begin = self.blocks[number].window.start
        frames = slice(begin + start, begin + stop)
        part = tuple(frames if axis == time else slice(None) for axis in range(stack.iq.ndim))
        given = stack.coordinates.get("t")
        times = {} if given is None else {"t": given[frames]}
        return replace(
            stack, iq=stack.iq[part].copy(order="K"), coordinates={**stack.coordinates, **times}, labels=None
        )


@dataclass(frozen=True)
class _BlockFile:
    """A file of blocks: its frames, the time of the first one, and its windows; or why it cannot be read."""

    n_frames: int = 0
    own_start: float | None = None
    offset: float = 0.0
    windows: Sequence[Window] = (Window(0, 0, False),)
    problem: str = ""


class BlocksOfFiles:
    """The blocks of one or several files, of which one is open at a time; a context.

    Parameters
    ----------
    paths : sequence of Path
        The files, in the order of time.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    precision : str or None
        Of the values that are read.
    window, stride : int or None
        Windows into which each file is cut; without a window each file is a block.
    interval : float or None
        Seconds from the beginning of a file, or of a window of the only one, to that of the next. By default their own
        times, where they have any, and otherwise no gaps.
    skips : bool
        Whether a file that cannot be read, or is unlike the first one, is a gap.

    Raises
    ------
    InputError
        If a file cannot be read or is unlike the first one, and is no gap.
    OptionError
        If the window is longer than a file.
    """

    _known: Geometry | None = None
    """The geometry of the first file that can be read."""

    def __init__(
        self,
        paths: Sequence[Path],
        reading: Mapping[str, Any],
        precision: str | None,
        window: int | None,
        stride: int | None,
        interval: float | None,
        skips: bool,
    ) -> None:
        self._reading, self._precision = reading, precision
        self._window, self._stride = window, stride
        self._files, self._opened, self._at = ExitStack(), list(paths), -1
        self.source: Input
        self.blocks: list[Block] = []
        self.states: dict[str, Any] = {}
        """Size and modification time of the files of each path."""
        self.skips = skips
        files = [self._look_into(number) for number in range(len(paths))]
        for number, (path, file) in enumerate(zip(paths, files, strict=True)):
            self.blocks += [
                Block(path.name, number, part, file.offset + part.start, file.problem)
                for part in file.windows
            ]
        if self._known is None:
            raise InputError(f"none of {len(paths)} files can be read; {self.blocks[0].problem}")
        self.geometry: Geometry = self._known
        self.n_frames: int = sum(file.n_frames for file in files)
        self._set_times(files, interval)
        self._check_order()

    def _look_into(self, number: int) -> _BlockFile:
        """Return what is known of a file from its header; of one that cannot be read and is a gap, why."""
        path = self._opened[number]
        try:
            source = self._source(number)
            geometry = source.geometry
            self._known = self._known or geometry
            check_alike(geometry, self._known, path)
            rate, step = self._known.frame_rate_hz, source.frames.step
            self.frame_time = 1 / rate if rate else float(step)
            whole = [Window(0, source.n_frames, True)]
            windows = (
                whole if self._window is None else windows_of(source.n_frames, self._window, self._stride)
            )
            self.states[str(path)] = source.state
            return _BlockFile(
                n_frames=source.n_frames,
                own_start=own_start(geometry),
                offset=source.time_of_first_frame,
                windows=windows,
            )
        except (InputError, OptionError) as error:
            if len(self._opened) == 1:
                raise
            located = error.at(path.name, OR_SKIP)
            if not self.skips:
                raise located from error
            return _BlockFile(problem=located.cause)

    def _set_times(self, files: Sequence[_BlockFile], interval: float | None) -> None:
        """Set the time of the first frame of each block."""
        if interval is not None and self.geometry.frame_rate_hz is None:
            raise OptionError(
                "is in s, and the frame rate is not known",
                option="block_interval_s",
                remedy="give {frame_rate_hz}",
            )
        lengths, is_one_file = [file.n_frames for file in files], len(files) == 1
        starts = start_times([file.own_start for file in files], lengths, self.frame_time, interval)
        usual = float(np.median([n for n in lengths if n]))
        step = (self._stride or self._window or usual) if is_one_file else usual
        seconds = step * self.frame_time
        if interval is not None and interval < (1 - _NEAR) * seconds:
            raise OptionError(
                f"blocks of {seconds:g} s cannot begin every {interval:g} s",
                remedy="raise {block_interval_s}",
            )
        for place, block in enumerate(self.blocks):
            # A gap has no frames, and its time is the middle of those that it would have.
            begin = starts[block.file] + (usual / 2 if block.problem else block.start) * self.frame_time
            if interval is not None and is_one_file:
                begin = place * interval
            self.blocks[place] = replace(block, start=float(begin))

    def _check_order(self) -> None:
        times = [block.start for block in self.blocks]
        if times != sorted(times):
            later = next(n for n in range(1, len(times)) if times[n] < times[n - 1])
            raise InputError(
                f"{self.blocks[later].name} begins before the file in front of it",
                remedy="name the files in the order of time, or give {block_interval_s}",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def read(self, number: int, start: int, stop: int) -> Acquisition:
        """Return the frames [start, stop) of a block."""
        block = self.blocks[number]
        begin = block.window.start
        return self._source(block.file).read(begin + start, begin + stop)

    def path_of(self, number: int) -> Path:
        """Return the file of a block."""
        return self._opened[self.blocks[number].file]

    def check_unchanged(self) -> None:
        """Check that no file has changed since it was opened first.

        Raises
        ------
        InputError
            If one has.
        """
        for path, state in self.states.items():
            check_unchanged(Path(path), state)

    def _source(self, number: int) -> Input:
        if self._at != number:
            self._files.close()
            self._at = -1
            self.source = self._files.enter_context(
                open_input(self._opened[number], self._reading, self._precision)
            )
            self._at = number
        return self.source


def start_times(
    owns: list[float | None], n_frames: list[int], frame_time: float, interval: float | None
) -> NDArray[np.float64]:
    """Return the times at which files begin, in s or frames, the first at 0.

    Files that cannot be read are as long as others, and begin as much later than without gaps as those around them do.
    """
    numbers, lengths = np.arange(len(owns), dtype=np.float64), np.array(n_frames, np.float64)
    if interval is not None:
        return numbers * interval
    is_read = lengths > 0
    lengths[~is_read] = np.median(lengths[is_read])
    without_gaps: NDArray[np.float64] = (np.cumsum(lengths) - lengths) * frame_time
    known = np.array([n for n, own in enumerate(owns) if own is not None], int)
    times = np.array([owns[n] for n in known], np.float64)
    # A time that is the same in all files counts from the beginning of each.
    if len(known) < is_read.sum() or len(np.unique(times)) == 1:
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
    """Return the time of the first frame that a file gives, in s; None where it gives none."""
    times = stack.coordinates.get("t")
    given = stack.attributes.get("start_s") if times is None else times.values[0]
    return None if given is None else float(np.ravel(given)[0])


def check_alike(stack: GriddedStack, first: Geometry, path: Path) -> None:
    """Check that a file has the axes, the pixels, the frame rate and the pixel pitch of the first one."""
    about = {
        "axes": (stack.axes, first.axes),
        "pixels": (stack.shape_in(stack.spatial_axes), first.shape_in(first.spatial_axes)),
        "type": (stack.is_complex, first.is_complex),
    }
    for what, (own, wanted) in about.items():
        if own != wanted:
            raise InputError(
                f"{path} has other {what} than the first file: {own}, not {wanted}", remedy="leave it out"
            )
    scales = {"frame rate": (stack.frame_rate_hz, first.frame_rate_hz)}
    scales |= {
        f"pixel pitch along {letter}": (stack.spacing_mm.get(letter), first.spacing_mm.get(letter))
        for letter in first.spatial_axes
    }
    for what, (own, wanted) in scales.items():
        if (own is None) != (wanted is None) or abs((own or 0) - (wanted or 0)) > _NEAR * abs(wanted or 0):
            raise InputError(
                f"{path} has another {what} than the first file: {own}, not {wanted}", remedy="leave it out"
            )
