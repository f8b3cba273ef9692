"""The state of a live session, which each block changes, and what a user sees of it."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import UsdenoiseError
from usdenoise.linalg.array_library import Numbers
from usdenoise.pipeline.estimate_clutter import ScanFindings
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Block
from usdenoise.pipeline.result import Doubt
from usdenoise.pipeline.series import Series, SeriesModel
from usdenoise.sessions.bad_blocks import BlockLevel
from usdenoise.sessions.blocks import FileTime
from usdenoise.sessions.design import Event
from usdenoise.sessions.measured_block import MeasuredBlock
from usdenoise.sessions.regions import WHOLE_IMAGE
from usdenoise.stack.geometry import Geometry
from usdenoise.system.resources import run_in_background

LIVE_FRAMES = 600
"""Frames from which the clutter is estimated, half as many as for a finished session: it is done again and again."""

LATER = 3
"""A result from n blocks is computed again after n / 3 more blocks, at least 3: 14 times in 200 blocks. With n / 8, blocks
of 64 x 64 x 300 every 0.5 s on two busy cores fell behind by 4 s (`python -m benchmarks.live`)."""

LEAST_DELAY, DELAY_PART = 2, 8
"""A result from n blocks is used n / 8 blocks later, at least 2. As many blocks are filtered side by side."""

REMEMBERED = 20
"""Blocks with whose power a new one is compared."""

Result = TypeVar("Result")


def delay_blocks(n_blocks: int) -> int:
    """Return the number of blocks after which a result from `n_blocks` blocks is used."""
    return max(LEAST_DELAY, n_blocks // DELAY_PART)


@dataclass(frozen=True)
class ScheduledResult(Generic[Result]):
    """A result that is computed again in the background as blocks come.

    Numbers of blocks determine when it is computed and from when it is used, and a block waits for it if necessary. If it
    was used as soon as it is there, the findings on a block would depend on the load of the computer.

    Attributes
    ----------
    known : tuple of (int, Future)
        Number of blocks from which a result is used, and the result: the current one, and the next one if there is one.
    due : int
        Number of blocks from which it is computed again.
    """

    known: tuple[tuple[int, Future[Result]], ...] = ()
    due: int = 0

    def at(self, n_blocks: int) -> Future[Result]:
        """Return the result that is used after a number of blocks."""
        return [result for first, result in self.known if first <= n_blocks][-1]

    def after(self, n_blocks: int, find: Callable[[], Result]) -> "ScheduledResult[Result]":
        """Return the schedule after a block. The result is computed again if it is due, and at once if there is none.

        If it cannot be computed, the previous result stays.
        """
        due = n_blocks + max(LATER, n_blocks // LATER)
        if not self.known:
            first: Future[Result] = Future()
            first.set_result(find())
            return ScheduledResult(((0, first),), due)
        if n_blocks < self.due:
            return self
        previous = self.known[-1][1]

        def find_again() -> Result:
            # One after the other, for their memory
            before = previous.result()
            try:
                return find()
            except UsdenoiseError:
                return before

        again = (n_blocks + delay_blocks(n_blocks), run_in_background(find_again))
        return ScheduledResult((self.known[-1], again), due)


@dataclass(frozen=True, kw_only=True)
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
        Largest displacement of the tissue in each block, in um if the centre frequency is known, otherwise in wavelengths;
        NaN if it is not known.
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
        Type of event -> t of the response so far; empty without events, and while there are few blocks.
    events : tuple of Event
        The events so far; empty without any.
    events_problem : str
        Why the events cannot be used as they are now, in words; empty if they can.
    doubts : tuple of Doubt
        Reasons not to trust the maps so far, without those that settle with the blocks.
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
    events: tuple[Event, ...] = ()
    events_problem: str = ""
    doubts: tuple[Doubt, ...] = ()

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
        The frames, with values for missing entries.
    missing : (n, n_pixels) boolean array
        Which entries these are.
    """

    block: Block
    numbers: NDArray[np.intp]
    values: Numbers
    missing: NDArray[np.bool_]

    def share(self, share: float) -> "SampledFrames":
        """Return at most this share of the frames of the block, one at least."""
        n = max(1, round(share * self.block.n_frames))
        if n >= len(self.numbers):
            return self
        return SampledFrames(self.block, self.numbers[:n], self.values[:n].copy(), self.missing[:n].copy())


@dataclass(frozen=True)
class LiveEstimate:
    """The clutter of blocks of a live session that are still to come, and how it was found in a sample of those before."""

    clutter: Clutter
    fit: FitResult


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
        The measured block, and the removed clutter; an InputError if there is no clutter yet, and none was found.
    estimates : ScheduledResult
        The estimates from which its clutter comes.
    scan_findings : ScanFindings
        What the frames of the first block with data show.
    """

    name: str
    geometry: Geometry
    file_time: FileTime
    sample: SampledFrames
    filtered: Future[tuple[MeasuredBlock, Clutter]]
    estimates: ScheduledResult[LiveEstimate]
    scan_findings: ScanFindings


@dataclass(frozen=True)
class LiveState:
    """The state of a live session after a block. A step returns a new one.

    Attributes
    ----------
    clutter : Clutter or None
        Clutter of the last block; None before the first one.
    series : Series
        The good blocks.
    models : ScheduledResult
        The weights of its blood map, by the number of good blocks.
    estimates : ScheduledResult
        The clutter, by the number of blocks.
    scan_findings : ScanFindings or None
        What the frames of the first block with data show; None before it.
    recent : tuple of BlockLevel
        Levels of the last blocks.
    sample : tuple of SampledFrames
        Frames from which the clutter is estimated.
    file_times : tuple of FileTime
        The time that the file of each block takes.
    lengths, motion, strongest, bad : tuples of int, float, float and bool
        Frames of each block, largest displacement of the tissue in it, power of the strongest component that
        is left in it (NaN without data), and whether it is bad.
    regions : mapping
        Name of a region -> its mean blood power in each block.
    images : tuple of arrays
        Blood power of each block, if there are events.
    """

    clutter: Clutter | None = None
    series: Series = field(default_factory=Series)
    models: ScheduledResult[SeriesModel] = field(default_factory=ScheduledResult)
    estimates: ScheduledResult[LiveEstimate] = field(default_factory=ScheduledResult)
    scan_findings: ScanFindings | None = None
    recent: tuple[BlockLevel, ...] = ()
    sample: tuple[SampledFrames, ...] = ()
    file_times: tuple[FileTime, ...] = ()
    lengths: tuple[int, ...] = ()
    motion: tuple[float, ...] = ()
    strongest: tuple[float, ...] = ()
    bad: tuple[bool, ...] = ()
    regions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    images: tuple[NDArray[np.float32], ...] = ()

    def with_clutter(self, clutter: Clutter) -> "LiveState":
        """Return the state for a new clutter: previous blocks in its pixels, or none if it has other lags."""
        before = self.clutter or clutter
        if clutter.n_lags != before.n_lags:
            return replace(self, clutter=clutter, series=Series(), models=ScheduledResult(), recent=())
        # Blocks that are divided by a gain for each depth do not compare with blocks before it was found.
        profiles = [each.reference and each.reference.profiles for each in (clutter, before)]
        recent = self.recent if (profiles[0] is None) == (profiles[1] is None) else ()
        if np.array_equal(clutter.grid.mask, before.grid.mask):
            return replace(self, clutter=clutter, recent=recent)
        recent = tuple(
            level
            if level.power is None
            else replace(level, power=clutter.grid.at_signal(before.grid.everywhere(level.power)))
            for level in recent
        )
        series = self.series.moved(clutter, before)
        return replace(self, clutter=clutter, series=series, models=ScheduledResult(), recent=recent)

    @property
    def most_at_work(self) -> int:
        """Largest number of blocks that may be filtered side by side: one until there is a clutter."""
        return delay_blocks(len(self.lengths)) if self.estimates.known else 1

    def n_sampled(self, n_frames: int) -> int:
        """Return the number of frames of a new block of some frames that are sampled, one at least."""
        return max(1, round(LIVE_FRAMES / (sum(self.lengths) + n_frames) * n_frames))

    def with_block(
        self, sample: SampledFrames, level: BlockLevel, motion: float | None, strongest: float
    ) -> "LiveState":
        """Return the state after a block with data: its frames join the sample, and each block keeps fewer."""
        share = LIVE_FRAMES / sum(self.lengths)
        parts = tuple(part.share(share) for part in (*self.sample, sample))
        return replace(
            self,
            sample=parts[::2] if len(parts) > LIVE_FRAMES else parts,
            recent=(*self.recent[1 - REMEMBERED :], level),
            motion=(*self.motion, np.nan if motion is None else motion),
            strongest=(*self.strongest, strongest),
        )

    def usual_strongest(self, number: int) -> float:
        """Return the usual power of the strongest component for a block; infinite if there are too few blocks before it.

        Blocks that may be filtered side by side with it do not count, whether they are finished or not.
        """
        # The fewest blocks that are finished when the filter of this block starts; the first block is filtered alone.
        n_finished = next(n for n in range(min(number, 1), number + 1) if number - n < delay_blocks(n))
        before = np.array(self.strongest[max(0, n_finished - REMEMBERED) : n_finished])
        return float(np.nanmedian(before)) if np.isfinite(before).any() else np.inf
