"""The blocks of a session: which there are, when they begin, and whether they are alike."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.recording import (
    ArrayFrames,
    Block,
    Chunk,
    Recording,
    Window,
    cut_into_windows,
    working_type,
)
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import Geometry, GriddedStack, shape_text
from usdenoise.system.text import beyond

SHORTEST, SHORTEST_SHARE = 16, 4
"""Frames of a last window of its own, or this part of a window: fewer join the previous window."""

OR_SKIP, OR_IGNORE = "or mark it as missing with {skip_bad_files}", "or ignore it with {skip_bad_files}"
"""What may be done with a file that cannot be read, and with one that has no stack."""

FEWEST_DISPLACED, DISPLACED_SHARE = 2, 0.15
"""Files out of the order of time, by number and by share of all files, from which the names of files have another order."""

FROM_RANDOM, LEAST_BEHIND = 0.25, 0.25
"""Least distance of the share of files that are older than the file before from one half, the share in a random order, and
the least time of a file before the latest of the files in front of it, as a part of the whole time."""

NEAR = 1e-6
"""Relative difference of frame rates and pixel pitches up to which they are the same."""


def why_missing(error: InputError, recording: Recording, block: Block, options: SessionOptions) -> str:
    """Return why a block whose frames cannot be read is missing, in words; raise the error if none may be missing."""
    if options.skip_bad_files:
        return error.cause
    if recording.blocks[0].file == recording.blocks[-1].file:
        # A stack in memory has no file to skip.
        raise error
    raise error.at(block.name, OR_SKIP) from error


def windows_of(n_frames: int, window: int, stride: int | None) -> list[Window]:
    """Return the windows of a stack; one needs two frames at least."""
    shortest = max(2, min(SHORTEST, -(-window // SHORTEST_SHARE)))
    return cut_into_windows(n_frames, window, stride, shortest)


def time_unit(geometry: Geometry) -> str:
    """Return the unit of the times of blocks: "s", or "frames" where the frame rate is not known."""
    return "frames" if geometry.frame_rate_hz is None else "s"


def check_interval(interval_s: float | None, frame_rate_hz: float | None, n_frames: float) -> None:
    """Check that blocks of known frame rate can begin at an interval; `n_frames` are from one block to the next.

    Raises
    ------
    OptionError
        If they cannot.
    """
    if interval_s is None:
        return
    option = "block_interval_s"
    if frame_rate_hz is None:
        problem = "is in s, and the frame rate is not known"
        raise OptionError(problem, option=option, remedy="give {frame_rate}")
    seconds = n_frames / frame_rate_hz
    if interval_s < (1 - NEAR) * seconds:
        problem = f"{interval_s:g} s is shorter than blocks of {seconds:g} s"
        raise OptionError(problem, option=option, remedy="raise {block_interval_s}")


def stack_session(stack: Acquisition, options: SessionOptions, precision: str) -> Recording:
    """Return the recording of the windows of a stack in memory.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    options : SessionOptions
        The options of the session, with a window.
    precision : str
        "single" or "double".
    """
    if options.window is None:
        remedy = "give the number of frames of a block"
        raise OptionError("is required for a stack in memory", option="window", remedy=remedy)
    interval = options.block_interval_s
    check_interval(interval, stack.frame_rate_hz, options.stride or options.window)
    frame_time, dtype = 1 / (stack.frame_rate_hz or 1.0), working_type(stack, precision)
    frames = ArrayFrames(stack.iq, stack.axes, dtype, stack.name)
    blocks = [
        Block(
            chunks=[Chunk(0, frames.cut(window.start, window.stop))],
            window=window,
            start_s=window.start * frame_time if interval is None else number * interval,
        )
        for number, window in enumerate(windows_of(stack.n_frames, options.window, options.stride))
    ]
    notes = beyond(options.blocks, len(blocks), "blocks", "session")
    geometry = replace(stack.geometry, labels=None, assumptions=(*stack.geometry.assumptions, *notes))
    return Recording(geometry, dtype, chosen_blocks(blocks, options), frame_time)


def chosen_blocks(blocks: Sequence[Block], options: SessionOptions) -> list[Block]:
    """Return the blocks of a session that are filtered, by default all; their times stay.

    Raises
    ------
    OptionError
        If there are none.
    """
    if options.poses is not None:
        # They are chosen when it is known which position each shows.
        return [*blocks]
    chosen = [*blocks][options.blocks or slice(None)]
    if not chosen:
        problem = f"selects none of the {len(blocks)} blocks"
        raise OptionError(problem, option="blocks", remedy="change {blocks}")
    return chosen


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
    all_times = np.array([np.nan if file is None or file.start_s is None else file.start_s for file in files])
    known = np.flatnonzero(np.isfinite(all_times))
    times = all_times[known]
    # A time that is the same in all files counts from the beginning of each.
    if len(np.unique(times)) < 2:
        return without_gaps
    later = times - without_gaps[known]
    slope = (later[-1] - later[0]) / (known[-1] - known[0])
    starts = without_gaps + slope * numbers + np.interp(numbers, known, later - slope * known)
    starts[known] = times
    return np.asarray(starts - starts[0])


def is_against_times(written: Sequence[float]) -> bool:
    """Return whether files, in the order of their names, were written in another order, as dates and names of months give.

    Runs of files are then in the wrong place. Files that were written again, files that were written side by side, and
    files that were copied in any order are not such a case.

    Parameters
    ----------
    written : sequence of float
        Time at which each file was written, in any unit.
    """
    # The longest sequence of files in the order of time
    in_order: list[float] = []
    for time in written:
        place = bisect_right(in_order, time)
        in_order[place : place + 1] = [time]
    n_displaced = len(written) - len(in_order)
    if n_displaced < max(FEWEST_DISPLACED, DISPLACED_SHARE * len(written)):
        return False
    is_back = np.diff(written) < 0
    backwards = float(np.mean(is_back))
    # Each run that is in the wrong place gives one step back; a single file that was written again gives one, too.
    in_runs = n_displaced >= 2 * np.count_nonzero(is_back) or backwards >= 0.5 + FROM_RANDOM
    behind = np.max(np.maximum.accumulate(written) - written)
    is_random = abs(backwards - 0.5) < FROM_RANDOM
    return bool(in_runs and not is_random and behind >= LEAST_BEHIND * np.ptp(written))


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
    if n_without:
        return (f"{n_without} of {len(files)} files have no valid start time; it is interpolated",)
    return ()


def check_alike(stack: GriddedStack, usual: Geometry, path: Path) -> None:
    """Check that a file has the axes, the pixels, the frame rate and the pixel pitch of its session."""
    properties: dict[str, tuple[Any, ...]] = {
        "axes": (stack.axes, usual.axes),
        "pixels": tuple(shape_text(each.shape_in(each.spatial_axes)) for each in (stack, usual)),
        "type": tuple("complex" if each.is_complex else "real" for each in (stack, usual)),
    }
    scales = {"frame rate": (stack.frame_rate_hz, usual.frame_rate_hz)}
    for letter in usual.spatial_axes:
        scales[f"pixel pitch along {letter}"] = stack.spacing_mm.get(letter), usual.spacing_mm.get(letter)
    for name, (value, other) in {**properties, **scales}.items():
        # Scales are equal to rounding, or both unknown
        is_other = value != other
        if name in scales and value and other:
            is_other = abs(value - other) > NEAR * other
        if is_other:
            problem = f"{path} differs from the session in its {name}"
            raise InputError(
                f"{problem}: {value or 'unknown'}, not {other or 'unknown'}", remedy="exclude it"
            )
