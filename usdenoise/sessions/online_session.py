"""A session whose blocks are still to come: each is filtered as it comes, with the latest estimate."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError, UsdenoiseError
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.session_options import SessionOptions
from usdenoise.pipeline.denoise import as_acquisition, working_type
from usdenoise.sessions.activation import Event, running_t
from usdenoise.sessions.bad_blocks import BlockLevel, find_bad_blocks
from usdenoise.sessions.block_filter import FilteredBlock, filter_session_block
from usdenoise.sessions.blocks import FileTime, check_alike, frames_in_order, start_times, time_unit
from usdenoise.sessions.filter_session import HELD_BLOCK
from usdenoise.sessions.regions import WHOLE_IMAGE, Region, mean_in_region, region_masks
from usdenoise.sessions.session_clutter import SessionClutter, SessionFrames
from usdenoise.sessions.session_estimate import SessionEstimate, check_method, estimate_sample
from usdenoise.sessions.session_series import BlockMap, BlockSpectrum, BlockSums, SeriesModel, series_model
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.random_streams import RandomStream
from usdenoise.system.background import run_in_background
from usdenoise.system.blas_threads import available_threads
from usdenoise.system.memory import available_bytes

Result = TypeVar("Result")

LIVE_FRAMES = 600
"""Frames from which the clutter is estimated, half as many as for a finished session: it is done again and again."""

LATER, LATER_PART, REST = 3, 8, 2.0
"""An estimate from n blocks is repeated after n / 8 more blocks, at least 3, and after a pause of twice its computing
time: estimates use at most a third of the time."""

HELD_LIVE = 18.0
"""Bytes in memory for each byte of a block while one is filtered and the clutter is estimated. With blocks of 128 x 128 x
300 sessions in control groups of 600 and 700 MiB were killed, and none of four in 800 to 1000 MiB."""

REMEMBERED = 20
"""Blocks with whose power and motion a new one is compared."""


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
    numbers : array of int
        Their numbers in the block.
    values : (n, pixels along each axis...) array
        The frames, in the order t, z, x, y.
    length : int
        Number of all frames of the block.
    """

    numbers: NDArray[np.intp]
    values: NDArray[Any]
    length: int

    def share(self, share: float) -> "SampledFrames":
        """Return at most this share of the frames of the block, one at least."""
        n = max(1, round(share * self.length))
        if n >= len(self.numbers):
            return self
        return SampledFrames(self.numbers[:n], self.values[:n].copy(), self.length)


@dataclass(frozen=True)
class BlockAtWork:
    """A block that is being filtered.

    Attributes
    ----------
    name : str
        Name of the block.
    file_time : FileTime
        The time that its file takes.
    sample : SampledFrames
        Frames of it.
    filtered : Future
        The filtered block, and the removed clutter; fails with a UsdenoiseError for one without data.
    """

    name: str
    file_time: FileTime
    sample: SampledFrames
    filtered: Future[tuple[FilteredBlock, SessionClutter]]


class _BackgroundResult(Generic[Result]):
    """A result that is recomputed from the blocks so far, in the background, so that no block waits for it."""

    def __init__(self) -> None:
        self.found: Result | None = None
        self._n_blocks, self._began, self._next = 0, 0.0, 0.0
        self._future: Future[Result] | None = None

    def current(self, n_blocks: int, find: Callable[[], Result]) -> Result:
        """Return the latest result; compute it again from `n_blocks` blocks if that is due."""
        now = time.monotonic()
        if self.found is None:
            self.found = find()
        elif self._future is not None and self._future.done():
            error = self._future.exception()
            if error is None:
                self.found = self._future.result()
            elif not isinstance(error, UsdenoiseError):
                raise error
            self._future, self._next = None, now + REST * (now - self._began)
        is_time = now >= self._next and n_blocks >= self._n_blocks + max(LATER, self._n_blocks // LATER_PART)
        if self._future is None and is_time:
            self._n_blocks, self._began = n_blocks, now
            self._future = run_in_background(find)
        return self.found


class OnlineSession:
    """A session to which blocks are added one after the other, as they are acquired.

    Parameters
    ----------
    regions : mapping
        Name -> region whose mean blood power is followed, a mask or a function that makes one.
    options : DenoiseOptions
        All options.
    axes, frame_rate, spacing
        As for :class:`usdenoise.Session`.
    session : SessionOptions, optional
        The interval of the blocks, and whether they are aligned; by default intervals come from the blocks, which are
        aligned.
    events : callable, optional
        Returns the events so far, of which each update has the running activation; by default there are none.
    """

    def __init__(
        self,
        regions: Mapping[str, Region],
        options: DenoiseOptions,
        *,
        axes: str | None = None,
        frame_rate: float | None = None,
        spacing: float | Sequence[float] | None = None,
        session: SessionOptions | None = None,
        events: Callable[[], Sequence[Event]] | None = None,
    ) -> None:
        check_method(options)
        self._events, self._images = events, list[NDArray[np.float32]]()
        self._options, self._session = options, session or SessionOptions()
        self._scales = (axes, frame_rate, spacing)
        self._interval, self._regions = self._session.block_interval_s, dict(regions)
        self._pool = ThreadPoolExecutor(self._options.threads or available_threads())
        self._rng = RandomStream.SAMPLED_FRAMES.generator(self._options.seed)
        self._geometry: Geometry | None = None
        self._sample: list[SampledFrames] = []
        self._sums = BlockSums()
        self._estimates = _BackgroundResult[SessionEstimate]()
        self._models = _BackgroundResult[SeriesModel]()
        self._file_times: list[FileTime] = []
        self._lengths: list[int] = []
        self._motion: list[float] = []
        self._bad: list[bool] = []
        self._recent: list[tuple[BlockLevel, float]] = []
        self._clutter: SessionClutter | None = None
        self._before: tuple[Any, ...] = self._sums, self._recent, self._sample, self._clutter
        self.most_at_work = 1
        self._masks: dict[str, NDArray[np.bool_]] = {}
        self._series: dict[str, list[float]] = {}

    def add(self, block: Acquisition | NDArray[Any], name: str = "") -> SessionUpdate:
        """Filter a block, and return the update after it.

        Parameters
        ----------
        block : Acquisition, array or xarray.DataArray
            The block; it stays as it is.
        name : str
            Its name; none by default.

        Raises
        ------
        InputError, OptionError
            If it is not a stack, differs from the first one, or an option is wrong.
        """
        stack = as_acquisition(block, *self._scales)
        return self.finish(self.begin(replace(stack, labels=None), name))

    def begin(self, stack: Acquisition, name: str = "", file_time: FileTime | None = None) -> BlockAtWork:
        """Begin to filter a block in the background. It counts when it is finished, and must not change until then.

        Parameters
        ----------
        stack : Acquisition
            The block.
        name : str
            Its name; none by default.
        file_time : FileTime, optional
            The time that its file takes; by default the time of these frames.

        Raises
        ------
        InputError, OptionError
            If it is unlike the first one, or an option is wrong.
        """
        who = Path(name or "the block")
        # The labels would keep the values.
        geometry = replace(stack.geometry, labels=None)
        if not self._lengths:
            self.most_at_work = _most_at_work(stack, self._options.precision)
            self._masks = region_masks(self._regions, geometry)
            self._series = {region: [] for region in self._masks}
            self._geometry = geometry
            # The first file was not whole: its results are not valid.
            self._estimates = _BackgroundResult()
        assert self._geometry is not None
        check_alike(geometry, self._geometry, who)
        numbers = self._rng.permutation(stack.n_frames).astype(np.intp)
        known_bad = self._options.bad_frames
        if not isinstance(known_bad, str):
            numbers = numbers[~np.isin(numbers, known_bad)]
        frames = frames_in_order(stack)
        file_time = file_time or FileTime.of(stack)
        share = LIVE_FRAMES / (sum(self._lengths) + stack.n_frames)
        numbers = numbers[: max(1, round(share * stack.n_frames))]
        sample = SampledFrames(numbers, frames[numbers], stack.n_frames)
        try:
            blocks = list(self._sample or [sample])
            clutter = self._estimates.current(len(self._sample), lambda: self._estimate(blocks)).clutter
        except InputError as error:
            # For example, it is zero everywhere.
            failed: Future[tuple[FilteredBlock, SessionClutter]] = Future()
            failed.set_exception(error)
            return BlockAtWork(name, file_time, sample, failed)
        options = replace(self._options, threads=1)
        usual = float(np.median([strongest for _, strongest in self._recent])) if self._recent else np.inf
        filtered = self._pool.submit(
            lambda: (filter_session_block(stack, clutter, options, usual, is_kept=False), clutter)
        )
        return BlockAtWork(name, file_time, sample, filtered)

    def finish(self, begun: BlockAtWork) -> SessionUpdate:
        """Wait for a block of :meth:`begin`, add it to the session, and return the update after it."""
        self._before = replace(self._sums), self._recent, self._sample, self._clutter
        self._file_times.append(begun.file_time)
        self._lengths.append(begun.sample.length)
        try:
            block, clutter = begun.filtered.result()
        except UsdenoiseError as error:
            self._motion.append(0.0)
            return self._update(begun.name, error.cause)
        self._take_over(clutter)
        level = block.level
        why = find_bad_blocks([*(before for before, _ in self._recent), level])[0][-1]
        self._motion.append(level.moves_pixels)
        self._recent = [*self._recent[1 - REMEMBERED :], (replace(level, problem=why), block.strongest)]
        if not why:
            self._sums.add(BlockSpectrum.of(block.lags, clutter, block.temporal, block.observed))
        self._remember(begun.sample)
        blood = None
        if self._sums.n_blocks:
            sums = replace(self._sums)
            is_first, length = sums.n_blocks == 1, begun.sample.length
            alone = BlockMap.of_halves(block.halves, sums.filtered(clutter), length) if is_first else None
            model = self._models.current(sums.n_blocks, lambda: series_model(sums, clutter, alone))
            is_scaled = block.alignment is not None and block.alignment.is_scaled
            noise_level = model.noise_level(block.lags, block.observed) if is_scaled else 1.0
            power = model.blood_power(block.lags, noise_level)
            blood = clutter.image_of(np.where(block.observed > 0, power, np.nan))
        return self._update(begun.name, why, blood, clutter.image_of(block.power))

    def take_back(self) -> None:
        """Forget the last block. Its file has changed, and is read again."""
        self._sums, self._recent, self._sample, self._clutter = self._before
        of_blocks: list[list[Any]] = [self._file_times, self._lengths, self._motion, self._bad]
        # Without events there are no images.
        of_blocks += [*self._series.values(), *([self._images] if self._images else [])]
        for values in of_blocks:
            values.pop()

    def _update(
        self,
        name: str,
        why: str,
        blood: NDArray[np.float32] | None = None,
        power: NDArray[np.float32] | None = None,
    ) -> SessionUpdate:
        """Return the update of the last block, with its images if it has any."""
        assert self._geometry is not None
        missing = np.full(self._geometry.shape_in(self._geometry.spatial_axes), np.nan, np.float32)
        blood = missing if blood is None else blood
        model, clutter = self._models.found, self._clutter
        self._bad.append(bool(why))
        for region_name, mask in self._masks.items():
            self._series[region_name].append(mean_in_region(blood, mask))
        frame_time = 1 / (self._geometry.frame_rate_hz or 1.0)
        starts = start_times(self._file_times, frame_time, self._interval)
        offsets = np.array([file.offset for file in self._file_times])
        times = starts + (offsets + (np.array(self._lengths) - 1) / 2) * frame_time
        activation = {}
        if self._events is not None and self._geometry.frame_rate_hz is not None:
            self._images.append(blood)
            activation = running_t(np.stack(self._images), times, np.array(self._bad), self._events())
        return SessionUpdate(
            name,
            blood,
            missing if power is None else power,
            missing if model is None or clutter is None else clutter.image_of(model.mean_blood_power),
            missing if model is None or clutter is None else clutter.image_of(model.noise_power),
            times,
            time_unit(self._geometry),
            {region_name: np.array(values) for region_name, values in self._series.items()},
            np.array(self._motion),
            np.array(self._bad),
            why,
            None if model is None else model.quality.blood_to_noise_db,
            0 if clutter is None else clutter.cutoff,
            self._geometry,
            activation,
        )

    def _take_over(self, clutter: SessionClutter) -> None:
        """Use the clutter of a block; map values of previous blocks to its pixels, if the lags are the same."""
        before, self._clutter = self._clutter or clutter, clutter
        if clutter.projection.n_lags != before.projection.n_lags:
            self._sums, self._models, self._recent = BlockSums(), _BackgroundResult(), []
        elif not np.array_equal(clutter.grid.mask, before.grid.mask):

            def moved(values: Any) -> Any:
                # The first block has no differences.
                is_known = isinstance(values, np.ndarray)
                return clutter.at_signal_pixels(before.grid.everywhere(values)) if is_known else values

            self._sums = self._sums.moved(moved)
            self._recent = [
                (replace(level, power=moved(level.power)), strongest) for level, strongest in self._recent
            ]
            self._models = _BackgroundResult()

    def _remember(self, sample: SampledFrames) -> None:
        """Add frames to the sample, and take the share of others out of it."""
        share = LIVE_FRAMES / sum(self._lengths)
        self._sample = [part.share(share) for part in [*self._sample, sample]]
        if len(self._sample) > LIVE_FRAMES:
            self._sample = self._sample[::2]

    def _estimate(self, sample: Sequence[SampledFrames]) -> SessionEstimate:
        """Estimate the clutter of blocks that are not in the sample."""
        assert self._geometry is not None
        parts = [part.values[np.argsort(part.numbers)] for part in sample]
        length = int(np.median([part.length for part in sample]))
        # A block that is filtered is not in the sample.
        none = np.zeros(0, np.intp)
        frames = SessionFrames([none], [length], [none])
        before = None if self._clutter is None else self._clutter.reference
        return estimate_sample(parts, self._geometry, frames, self._options, self._session, before)


def _most_at_work(stack: Acquisition, precision: str) -> int:
    """Return the largest number of blocks that are filtered side by side, for their memory.

    Raises
    ------
    OptionError
        If the first block and the estimate do not fit into the free memory: no other block would.
    """
    free = available_bytes()
    of_block = stack.iq.size * working_type(stack, precision).itemsize
    if HELD_LIVE * of_block > free:
        raise OptionError(
            f"a live session of blocks of {stack.n_frames} frames needs about {HELD_LIVE * of_block / 2**20:.0f} MiB of "
            f"memory, and {free / 2**20:.0f} MiB are free",
            remedy="write shorter blocks",
        )
    return 1 + int((free - HELD_LIVE * of_block) // (HELD_BLOCK * of_block))
