"""The state of a live session, which each block changes, and what a user sees of it."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Block
from usdenoise.pipeline.series import Series
from usdenoise.sessions.bad_blocks import BlockLevel
from usdenoise.sessions.blocks import FileTime
from usdenoise.sessions.measured_block import MeasuredBlock
from usdenoise.sessions.regions import WHOLE_IMAGE
from usdenoise.stack.geometry import Geometry

LIVE_FRAMES = 600
"""Frames from which the clutter is estimated, half as many as for a finished session: it is done again and again."""


@dataclass(frozen=True)
class SessionUpdate:
    """The state of a session after a block.

    Attributes
    ----------
    name : str
        Name of the block, from its file.
    blood_power, power_doppler : array
        Blood power without the noise, linear in the data, and power Doppler of the block, with the spatial axes of the
        stack; NaN without data.
    mean_blood_power, noise_power : array
        Blood map of the mean of the good blocks so far, and its noise; NaN while there is none.
    times : (n_blocks,) float64 array
        Middle of each block so far from the first frame, in `time_unit`.
    time_unit : str
        "s", or "frames" if the frame rate is not known.
    series : mapping
        Name of a region -> its mean blood power in each block, (n_blocks,) float64, as computed when the block came:
        of the whole image, and of the requested regions.
    motion : (n_blocks,) float64 array
        Largest displacement of the image in each block, in pixels.
    bad : (n_blocks,) boolean array
        Which blocks are bad.
    why : str
        Why this block is bad, in words; empty if it is good.
    blood_to_noise_db : float or None
        Median of the blood over the noise in the vessels of the mean; None if no blood was found.
    low_cutoff : int
        Number of components that were removed from the block.
    geometry : Geometry
        Axes and scales of all blocks, and the number of frames of the first one.
    activation : mapping
        Type of event -> t of the response so far, by least squares; empty without events, and while there are few blocks.
    """

    name: str
    blood_power: NDArray[np.float32]
    power_doppler: NDArray[np.float32]
    mean_blood_power: NDArray[np.float32]
    noise_power: NDArray[np.float32]
    times: NDArray[np.float64]
    time_unit: str
    series: Mapping[str, NDArray[np.float64]]
    motion: NDArray[np.float64]
    bad: NDArray[np.bool_]
    why: str
    blood_to_noise_db: float | None
    low_cutoff: int
    geometry: Geometry
    activation: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Number of the block, from 0, in the order in which blocks came."""
        return len(self.times) - 1

    @property
    def unsteadiness(self) -> float | None:
        """Standard deviation of the blood of the image from block to block, over its mean; None for fewer than 3 blocks."""
        good = self.series[WHOLE_IMAGE][~self.bad]
        if len(good) < 3 or not good.mean() > 0:
            return None
        return float(np.sqrt(np.mean(np.diff(good) ** 2) / 2) / good.mean())

    def __repr__(self) -> str:
        """Describe the content in one line."""
        named = f" ({self.name})" if self.name else ""
        return f"<SessionUpdate: block {self.number}{named}, {int(self.bad.sum())} bad so far>"


@dataclass(frozen=True)
class SampledFrames:
    """Frames of a block from which the clutter is estimated, in random order, so that the first ones are a sample too.

    Attributes
    ----------
    block : Block
        The block, without its frames.
    numbers : array of int
        Their numbers in the block.
    values : (n, n_pixels) array
        The frames.
    """

    block: Block
    numbers: NDArray[np.intp]
    values: NDArray[Any]

    def share(self, share: float) -> "SampledFrames":
        """Return at most this share of the frames of the block, one at least."""
        n = max(1, round(share * self.block.n_frames))
        if n >= len(self.numbers):
            return self
        return SampledFrames(self.block, self.numbers[:n], self.values[:n].copy())


@dataclass(frozen=True)
class BlockAtWork:
    """A block that is being filtered.

    Attributes
    ----------
    name : str
        Name of the block.
    geometry : Geometry
        Axes and scales of all blocks.
    file_time : FileTime
        The time that its file takes.
    sample : SampledFrames
        Frames of it.
    filtered : Future
        The measured block, and the removed clutter; an InputError for a block without data.
    """

    name: str
    geometry: Geometry
    file_time: FileTime
    sample: SampledFrames
    filtered: Future[tuple[MeasuredBlock | InputError, Clutter]]


@dataclass(frozen=True)
class LiveState:
    """The state of a live session after a block. A step returns a new one.

    Attributes
    ----------
    clutter : Clutter or None
        Clutter of the last block; None before the first one.
    series : Series
        The good blocks.
    recent : tuple of (BlockLevel, float)
        Level of the last blocks, and the power of their strongest component.
    sample : tuple of SampledFrames
        Frames from which the clutter is estimated.
    file_times : tuple of FileTime
        The time that the file of each block takes.
    lengths, motion, bad : tuples of int, float and bool
        Frames of each block, largest displacement of the image in it, and whether it is bad.
    regions : mapping
        Name of a region -> its mean blood power in each block.
    images : tuple of arrays
        Blood power of each block, if there are events.
    """

    clutter: Clutter | None = None
    series: Series = field(default_factory=Series)
    recent: tuple[tuple[BlockLevel, float], ...] = ()
    sample: tuple[SampledFrames, ...] = ()
    file_times: tuple[FileTime, ...] = ()
    lengths: tuple[int, ...] = ()
    motion: tuple[float, ...] = ()
    bad: tuple[bool, ...] = ()
    regions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    images: tuple[NDArray[np.float32], ...] = ()

    def with_clutter(self, clutter: Clutter) -> "LiveState":
        """Return the state for a new clutter: previous blocks in its pixels, or none if it has other lags."""
        before = self.clutter or clutter
        if clutter.n_lags != before.n_lags:
            return replace(self, clutter=clutter, series=Series(), recent=())
        if np.array_equal(clutter.grid.mask, before.grid.mask):
            return replace(self, clutter=clutter)
        recent = [
            (
                replace(
                    level,
                    power=None
                    if level.power is None
                    else clutter.grid.at_signal(before.grid.everywhere(level.power)),
                ),
                strongest,
            )
            for level, strongest in self.recent
        ]
        series = self.series.moved(clutter, before)
        return replace(self, clutter=clutter, series=series, recent=tuple(recent))

    def with_sample(self, sample: SampledFrames) -> "LiveState":
        """Return the state with frames of one more block in the sample, and fewer frames of the others."""
        share = LIVE_FRAMES / sum(self.lengths)
        parts = tuple(part.share(share) for part in (*self.sample, sample))
        return replace(self, sample=parts[::2] if len(parts) > LIVE_FRAMES else parts)
