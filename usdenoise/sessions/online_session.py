"""A session whose blocks are still to come: each is filtered as it comes, with the latest estimate."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError, UsdenoiseError
from usdenoise.frames.still_tissue import tiles_of
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.options.denoise_options import StackKeywords
from usdenoise.pipeline.devices import device_memory, most_blocks
from usdenoise.pipeline.estimate_clutter import ScanFindings
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import ArrayFrames, Block, Chunk, Recording, Window, working_type
from usdenoise.pipeline.result import Doubt, DoubtKind, find_doubts
from usdenoise.pipeline.series import SeriesModel, signal_image
from usdenoise.sessions.bad_blocks import find_bad_blocks
from usdenoise.sessions.blocks import FileTime, check_alike, check_interval, start_times, time_unit
from usdenoise.sessions.design import Event, delayed
from usdenoise.sessions.live_state import BlockAtWork, LiveEstimate, LiveState, SampledFrames, SessionUpdate
from usdenoise.sessions.measured_block import BlockFilter, BlockFindings, MeasuredBlock, measure_block
from usdenoise.sessions.regions import Region, RegionSeries, mean_in_region, region_doubts, region_masks
from usdenoise.sessions.session_activation import running_activation
from usdenoise.sessions.session_estimate import check_method, estimate_session, session_clutter
from usdenoise.sessions.session_sample import Sample, look_at_block, pick_completed
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.given_stack import as_acquisition
from usdenoise.stack.sampling import RandomStream
from usdenoise.system.resources import available_bytes, available_threads, held_bytes, most_side_by_side

Image = NDArray[np.float32]
"""An image of a block, (spatial)."""

logger = logging.getLogger(__name__)


class OnlineSession:
    """A session to which blocks are added one after the other, as they are acquired.

    Parameters
    ----------
    regions : mapping
        Name -> region whose mean blood power is followed, a mask or a function that makes one.
    options : DenoiseOptions
        All options.
    session : SessionOptions, optional
        The interval of the blocks, and whether they are aligned; by default intervals come from the blocks, which are
        aligned.
    events : callable, optional
        Returns the events so far, of which each update has the running activation, and why they cannot be used as they are
        now, in words; by default there are none.
    **of_stack
        Axes and scales of the blocks, as for :class:`usdenoise.Session`.
    """

    def __init__(
        self,
        regions: Mapping[str, Region],
        options: DenoiseOptions,
        *,
        session: SessionOptions | None = None,
        events: Callable[[], tuple[Sequence[Event], str]] | None = None,
        **of_stack: Unpack[StackKeywords],
    ) -> None:
        check_method(options)
        self._events, self._options = events, options
        self._session, self._regions = session or SessionOptions(), dict(regions)
        self._of_stack = of_stack
        self._pool = ThreadPoolExecutor(self._options.threads or available_threads())
        self._geometry: Geometry | None = None
        self._masks: dict[str, NDArray[np.bool_]] = {}
        self._state = LiveState()
        self._most_in_memory = 1

    @property
    def most_at_work(self) -> int:
        """Largest number of blocks that are filtered side by side: one until there is a clutter."""
        return min(self._most_in_memory, self._state.most_at_work)

    def add(self, block: Acquisition | Numbers, name: str = "") -> SessionUpdate:
        """Filter a block, and return the update after it.

        Parameters
        ----------
        block : Acquisition, array or xarray.DataArray
            The block; it stays as it is. An array of another library than NumPy is filtered on its device.
        name : str
            Its name; none by default.

        Raises
        ------
        InputError, OptionError
            If it is not a stack, differs from the first one, or an option is wrong.
        """
        stack = as_acquisition(block, **self._of_stack)
        return self.finish(self.begin(replace(stack, labels=None), name))

    def begin(
        self, stack: Acquisition, name: str = "", file_time: FileTime | None = None, n_at_work: int = 0
    ) -> BlockAtWork:
        """Begin to filter a block in the background. It counts when it is finished, and must not change until then.

        Its frames are sampled within the call; before there is a clutter, the estimate is made there, too.

        Parameters
        ----------
        stack : Acquisition
            The block.
        name : str
            Its name; none by default.
        file_time : FileTime, optional
            The time that its file takes; by default the time of these frames.
        n_at_work : int
            Blocks that have begun before it and are not finished, fewer than `most_at_work`; by default none.

        Raises
        ------
        InputError, OptionError
            If it is unlike the first one, or an option is wrong.
        """
        state, geometry = self._state, replace(stack.geometry, labels=None)
        if not state.lengths:
            check_interval(self._session.block_interval_s, geometry.frame_rate_hz, stack.n_frames)
            self._most_in_memory = _most_in_memory(stack, self._options)
            self._masks = region_masks(self._regions, geometry)
            self._geometry = geometry
        assert self._geometry is not None
        check_alike(geometry, self._geometry, Path(name or "the block"))
        geometry = self._geometry
        frames = ArrayFrames(stack.iq, stack.axes, working_type(stack, self._options.precision), stack.name)
        block = Block(chunks=[Chunk(0, frames)], window=Window(0, stack.n_frames, True), name=name)
        findings = state.scan_findings
        if findings is None:
            with ThreadExecutor(self._options.threads) as executor, device_memory(self._options.device):
                findings = look_at_block(block, geometry, self._options, executor)
        for axis in dict.fromkeys(flicker.axis for flicker in findings.flickers):
            (block,) = Recording(geometry, frames.dtype, [block]).calibrated(axis, None).blocks
        # Frames for the next estimates, in random order
        number = len(state.lengths) + n_at_work
        rng = RandomStream.SAMPLED_FRAMES.generator(self._options.seed, number)
        numbers = rng.permutation(stack.n_frames).astype(np.intp)
        known_bad = self._options.bad_frames
        if not isinstance(known_bad, str):
            numbers = numbers[~np.isin(numbers, known_bad)]
        numbers = numbers[: state.n_sampled(stack.n_frames)]
        # More blocks come
        tiles = None if findings.is_still is False else tiles_of(geometry, self._options, math.inf)
        picked = pick_completed(block, numbers, tiles, ~findings.bad_pixels)
        sample = SampledFrames(replace(block, chunks=[]), numbers, picked.values, picked.missing)
        file_time = file_time or FileTime.of(stack)
        at_work = partial(BlockAtWork, name, geometry, file_time, sample)
        estimates = state.estimates
        try:
            if not estimates.known:
                find = partial(self._estimate, (sample,), None, geometry, findings)
                estimates = estimates.after(0, find)
        except InputError as error:
            # For example, it is zero everywhere.
            failed: Future[tuple[MeasuredBlock, Clutter]] = Future()
            failed.set_exception(error)
            return at_work(failed, estimates, findings)
        usual = state.usual_strongest(number)

        def filtered() -> tuple[MeasuredBlock, Clutter]:
            clutter = estimates.at(number).result().clutter
            how = BlockFilter(options=self._options, geometry=geometry, usual_power=usual, by_halves=True)
            with ThreadExecutor(1), device_memory(self._options.device):
                return measure_block(block, clutter, how), clutter

        return at_work(self._pool.submit(filtered), estimates, findings)

    def finish(self, begun: BlockAtWork) -> SessionUpdate:
        """Wait for a block of :meth:`begin`, add it to the session, and return the update after it."""
        self._state, update = self._step(self._state, begun)
        logger.info("block %d %r: %s", update.number, update.name, update.why or "good")
        return update

    def _step(self, state: LiveState, begun: BlockAtWork) -> tuple[LiveState, SessionUpdate]:
        """Return the state after a block, and its update."""
        file_times, n_frames = (*state.file_times, begun.file_time), begun.sample.block.n_frames
        state = replace(state, file_times=file_times, lengths=(*state.lengths, n_frames))
        try:
            block, clutter = begun.filtered.result()
        except UsdenoiseError as error:
            block = MeasuredBlock(BlockFindings(error.cause))
        if block.lags is None:
            state = replace(state, motion=(*state.motion, np.nan), strongest=(*state.strongest, np.nan))
            return self._updated(state, begun, block.findings.problem, None, None)
        # Its clutter, with which the previous blocks are compared
        state = state.with_clutter(clutter)
        level, moved = block.findings.level(block.power), block.findings.displacement
        why = find_bad_blocks([*state.recent, level])[0][-1]
        strongest = block.findings.own.strongest_left
        state = state.with_block(begun.sample, replace(level, problem=why), moved, strongest)
        # The clutter of the blocks so far, for blocks that have not begun
        estimates = state.estimates if state.estimates.known else begun.estimates
        find = partial(self._estimate, state.sample, clutter, begun.geometry, begun.scan_findings)
        estimates = estimates.after(len(state.lengths), find)
        state = replace(state, estimates=estimates, scan_findings=begun.scan_findings)
        if not why:
            state = replace(state, series=state.series.added(block.lags, clutter))
        # Its blood, with the weights of the blocks so far
        blood, image = None, partial(signal_image, begun.geometry, clutter.grid)
        series = state.series
        if series.n_blocks:

            def model() -> SeriesModel:
                with ThreadExecutor(1) as executor:
                    return series.model(clutter, executor)

            state = replace(state, models=state.models.after(series.n_blocks, model))
            blood = image(state.models.at(series.n_blocks).result().blood_power(block.lags)[0])
        return self._updated(state, begun, why, blood, image(block.power))

    def _updated(
        self, state: LiveState, begun: BlockAtWork, why: str, blood: Image | None, power: Image | None
    ) -> tuple[LiveState, SessionUpdate]:
        """Return the state and the update of the last block, with its images if it has any."""
        geometry = begun.geometry
        missing = np.full(geometry.shape_in(geometry.spatial_axes), np.nan, np.float32)
        blood = missing if blood is None else blood
        means = {region: mean_in_region(blood, mask) for region, mask in self._masks.items()}
        regions = {region: (*state.regions.get(region, ()), mean) for region, mean in means.items()}
        state = replace(state, bad=(*state.bad, bool(why)), regions=regions)
        frame_time = 1 / (geometry.frame_rate_hz or 1.0)
        starts = start_times(state.file_times, frame_time, self._session.block_interval_s)
        offsets = np.array([file.offset for file in state.file_times])
        times = starts + (offsets + (np.array(state.lengths) - 1) / 2) * frame_time
        bad = np.array(state.bad)
        motion = geometry.displacement_unit[0] * np.array(state.motion)
        activation, events, problem = dict[str, Image](), tuple[Event, ...](), ""
        if self._events is not None and geometry.frame_rate_hz is None:
            problem = "events have times in s, and the frame rate is not known"
        elif self._events is not None:
            state = replace(state, images=(*state.images, blood))
            known, problem = self._events()
            events = tuple(known)
            if events:
                hrf, durations = self._session.hrf, np.array(state.lengths) * frame_time
                # One that is to be found is found in the finished session.
                delay = 0.0 if isinstance(self._session.delay, str) else self._session.delay
                activation, dependence = running_activation(
                    state.images, delayed(events, delay), times, durations, bad, motion, hrf
                )
                problem = problem or dependence
        clutter, n_good, doubts = state.clutter, state.series.n_blocks, tuple[Doubt, ...]()
        model = state.models.at(n_good).result() if n_good else None
        mean, noise = missing, missing
        if model is not None and clutter is not None:
            mean = signal_image(geometry, clutter.grid, model.maps.blood_power)
            noise = signal_image(geometry, clutter.grid, model.maps.noise_power)
            fit = state.estimates.at(len(state.lengths)).result().fit
            found = find_doubts(fit, model.maps.quality)
            courses = {name: RegionSeries(self._masks[name], np.array(regions[name])) for name in regions}
            lasting = [doubt for doubt in found if not doubt.has(DoubtKind.SETTLES)]
            doubts = (*lasting, *region_doubts(courses))
        return state, SessionUpdate(
            name=begun.name,
            blood_power=blood,
            power_doppler=missing if power is None else power,
            mean_blood_power=mean,
            noise_power=noise,
            times=times,
            time_unit=time_unit(geometry),
            series={region: np.array(values) for region, values in regions.items()},
            motion=motion,
            bad=bad,
            why=why,
            blood_to_noise_db=None if model is None else model.maps.quality.blood_to_noise_db,
            low_cutoff=0 if clutter is None else clutter.low + clutter.n_own,
            geometry=geometry,
            activation=activation,
            events=events,
            events_problem=problem,
            doubts=doubts,
        )

    def _estimate(
        self,
        parts: Sequence[SampledFrames],
        before: Clutter | None,
        geometry: Geometry,
        findings: ScanFindings,
    ) -> LiveEstimate:
        """Estimate the clutter of blocks that are not in the sample."""
        ordered = [(part, np.argsort(part.numbers)) for part in parts]
        sample = Sample(
            blocks=[part.block for part in parts],
            frames=[part.numbers[order] for part, order in ordered],
            values=np.concatenate([part.values[order] for part, order in ordered]),
            missing=np.concatenate([part.missing[order] for part, order in ordered]),
            scan_findings=findings,
        )
        reference = None if before is None else before.reference
        with ThreadExecutor(self._options.threads) as executor:
            how = (self._options, self._session, executor, reference)
            # One fit is enough: the next estimate is made anyway, from other blocks
            found = estimate_session(sample, geometry, *how, n_fits=1)
            return LiveEstimate(session_clutter(found, self._options, is_new=True), found.fit)


def _most_in_memory(stack: Acquisition, options: DenoiseOptions) -> int:
    """Return the largest number of blocks that are filtered side by side, for their memory.

    Raises
    ------
    OptionError
        If the first block and the estimate do not fit into the free memory: no other block would.
    """
    dtype, entries = working_type(stack, options.precision), math.prod(stack.shape)
    of_block = entries * dtype.itemsize
    free, needed = available_bytes(), held_bytes(live_block=of_block)
    most = most_side_by_side(free, needed, held_bytes(block=of_block))
    if not most:
        raise OptionError(
            f"a live session of blocks of {stack.n_frames} frames needs about {needed / 2**20:.0f} MiB of "
            f"memory, and {free / 2**20:.0f} MiB are free",
            remedy="write shorter blocks",
        )
    return int(min(most, most_blocks(options.device, dtype, entries)))
