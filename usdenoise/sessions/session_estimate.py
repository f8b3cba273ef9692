"""The estimate of a session: the clutter that its blocks have in common, from a sample of their frames."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.clutter_projection import blocks_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import Reference, nearest_good
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank, interpolated
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate, estimate_clutter
from usdenoise.pipeline.filter_chunk import filter_chunks
from usdenoise.pipeline.fit_result import FitResult, fit_result
from usdenoise.pipeline.measures import COMPILED_ENTRIES, Clutter, ClutterOverTime
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.scan_clutter import components_only, first_without_leak, raised_cutoffs, with_cutoff
from usdenoise.pipeline.series import Leak, Series
from usdenoise.sessions.bad_blocks import MOST_UNUSUAL
from usdenoise.sessions.measured_block import BlockFilter, MeasuredBlock, measure_blocks
from usdenoise.sessions.session_sample import Sample, aligned_sample
from usdenoise.sessions.unusual_blocks import blocks_near, calm_blocks, usual_blocks
from usdenoise.stack.geometry import Geometry

MOST_SESSION_LEAK = 0.5
"""Largest share of leaked tissue in the power above the noise of the tried blocks with which the cutoff of a session is not
raised. On a phantom with tissue 50 dB over blood 65 components left a share of 0.68, and the map correlated with the truth
by 0.876; with 92 components by 0.993. On one of 45 dB the share was 0.23, and more components took blood. With a bound of
0.3 two of three other sessions lost hits, with shares of 0.32 and 0.45."""

MOST_COMPONENTS = 0.4
"""Largest number of components to which the cutoff is raised, over the sampled entries of an average pixel or frame: the
factors have fewer unknowns than the sample has entries. Tissue that stretched by 2 pixels during a session needed 155
components, and 600 entries of a pixel were sampled."""

MOST_FITS = 6
"""Number of fits of the sample of a finished session, each without the blocks that were unusual in the previous fit. The
estimate of a live session is repeated in any case."""

TEMPORAL = 6
"""Largest number of temporal components that are removed from a block. Six change the hits of steady sessions to 0.98 times
those without (8 sessions), and of sessions that move to 1.10 times (9 sessions; benchmarks/RECORDS.md, "Temporal components
of a block")."""


@dataclass(frozen=True)
class Period:
    """Consecutive blocks of a session, and their estimate.

    Attributes
    ----------
    sample : Sample
        Their sampled frames, aligned to the reference, without unusual blocks.
    scan : Recording
        The same as a scan.
    found : ClutterEstimate
        The estimate of the scan.
    """

    sample: Sample
    scan: Recording
    found: ClutterEstimate


@dataclass(frozen=True)
class SessionEstimate:
    """The estimate of a session from a sample of its frames.

    Attributes
    ----------
    periods : list of Period
        The periods whose clutter was estimated, with the same cutoff: one, the session, if it does not change.
    grid : Neighbourhood
        Shape of the image, and the pixels that have a signal in the session.
    reference : Reference or None
        What the blocks are aligned to; None if they are not.
    n_unusual : int
        Number of unusual blocks that were left out; by default none.
    n_near : int
        Number of blocks near in time from which the clutter of a block comes; 0 (the default) if that is all of them.
    """

    periods: list[Period]
    grid: Neighbourhood
    reference: Reference | None
    n_unusual: int = 0
    n_near: int = 0

    @property
    def reported(self) -> Period:
        """The session, or the period that had the highest cutoff, which all periods have: what is reported."""
        return max(self.periods, key=lambda period: period.found.cutoff.low)

    def fit(self, options: DenoiseOptions, executor: Executor) -> FitResult:
        """Return how the components were found, by the sampled frames without them.

        Numbers of bad frames that were given count in a file, and the sample has none of these frames.
        """
        found, scan = self.reported.found, self.reported.scan
        measures = filter_chunks(scan.chunks, components_only(found, options), found.excluded, executor)
        return fit_result(found, measures, options)


def estimate_session(
    sample: Sample,
    geometry: Geometry,
    options: DenoiseOptions,
    session: SessionOptions,
    executor: Executor,
    before: Reference | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
    n_fits: int = MOST_FITS,
) -> SessionEstimate:
    """Estimate the clutter that the blocks of a session have in common, from a sample of their frames.

    Where it changes during the session, it is estimated in periods.

    Parameters
    ----------
    sample : Sample
        Sampled frames of the blocks.
    geometry : Geometry
        Axes and scales of the blocks.
    options : DenoiseOptions
        Options of the estimate.
    session : SessionOptions
        Whether blocks are registered, and their gain is divided out.
    executor : Executor
        Maps over parts of the sample.
    before : Reference, optional
        Reference to which earlier blocks of a live session were aligned.
    on_iteration : callable, optional
        Called with each line of the trace.
    n_fits : int
        Largest number of fits of a period, each without the blocks that were unusual in the one before; by default
        MOST_FITS. With one, there are no periods.

    Raises
    ------
    UsdenoiseError
        As for :func:`usdenoise.denoise`.
    """
    if not sample.blocks:
        raise InputError(
            "no block of the session has good frames", remedy="check the frames that {bad_frames} excludes"
        )
    sample, reference = aligned_sample(sample, geometry, executor, session, before)
    n_blocks, grid, n_near, periods = len(sample.blocks), None, 0, list[Period]()
    parts = [np.arange(n_blocks)]
    while len(periods) < len(parts):
        own = sample.only(np.isin(np.arange(n_blocks), parts[len(periods)]))
        for more in reversed(range(n_fits)):
            scan = own.recording(geometry)
            found = _fit(scan, options, own, executor, on_iteration)
            if grid is None:
                grid = found.grid
                if more and (n_near := blocks_near(found, own)):
                    parts = np.array_split(np.arange(n_blocks), round(n_blocks / n_near))
                    break
            if not more or (usual := usual_blocks(found, own)).all() or usual.mean() < 1 - MOST_UNUSUAL:
                periods.append(Period(own, scan, found))
                break
            own = own.only(usual)
    n_unusual = n_blocks - sum(len(period.sample.blocks) for period in periods)
    assert grid is not None
    estimate = SessionEstimate(periods, grid, reference, n_unusual, n_near)
    # The tissue needs the highest cutoff, and with several ones the level of the series would have steps
    low = estimate.reported.found.band.low
    for number, period in enumerate(periods):
        if period.found.band.low != low:
            changed = with_cutoff(period.scan, executor, period.found, low, "")
            changed = replace(changed, cutoff=period.found.cutoff)
            periods[number] = replace(period, found=changed)
    return estimate


def raise_cutoff(
    estimate: SessionEstimate,
    recording: Recording,
    how: BlockFilter,
    session: SessionOptions,
    executor: Executor,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> tuple[SessionEstimate, dict[int, MeasuredBlock]]:
    """Raise an automatic cutoff while tissue leaks in a few blocks of the session.

    Parameters
    ----------
    estimate : SessionEstimate
        The estimate.
    recording : Recording
        The blocks of the session.
    how, session, executor
        As for :func:`usdenoise.sessions.measured_block.measure_blocks`.
    on_iteration : callable, optional
        Called with each line of the trace of a further estimate, of more components.

    Returns
    -------
    estimate : SessionEstimate
        The estimate with the cutoff that was chosen.
    measured : dict
        Number -> the measurements of each block that was tried, with this cutoff.
    """
    options, periods = how.options, estimate.periods
    first = estimate.reported.found.band.low
    if options.low_cutoff != "auto" or not estimate.reported.found.is_raisable:
        return estimate, {}
    numbers = calm_blocks([(period.found, period.sample) for period in periods])
    if len(numbers) < 2:
        return estimate, {}

    founds = [period.found for period in periods]
    known = min(len(found.singular_values) for found in founds)
    highest = min(_most_components(found, options) for found in founds)

    def tried(low: int) -> tuple[tuple[SessionEstimate, dict[int, MeasuredBlock]], Leak]:
        """Return the estimate with a cutoff, with more components if it has too few, the measured blocks, and the leak."""
        raised = list[Period]()
        for number, period in enumerate(periods):
            found = founds[number]
            if low > (rank := len(found.singular_values)):
                longer = replace(options, rank=min(2 * rank, highest))
                more = _fit(period.scan, longer, period.sample, executor.local, on_iteration)
                found = founds[number] = replace(more, cutoff=found.cutoff)
            if low > first:
                why = "because tissue remained in the blocks"
                found = with_cutoff(period.scan, executor.local, found, low, why)
            raised.append(replace(period, found=found))
        of_cutoff = replace(estimate, periods=raised)
        clutter, series = session_clutter(of_cutoff, options), Series()
        blocks = measure_blocks(recording, numbers, clutter, how, session, executor)
        measured = dict(zip(numbers, blocks, strict=True))
        for block in measured.values():
            series = series if block.lags is None else series.added(block.lags, clutter)
        return (of_cutoff, measured), series.leak(clutter) if series.n_blocks > 1 else Leak(0.0, 0.0)

    return first_without_leak(tried, raised_cutoffs(first, highest), known, MOST_SESSION_LEAK)


def _most_components(found: ClutterEstimate, options: DenoiseOptions) -> int:
    """Return the largest number of components to which the cutoff of an estimate is raised, never above a given rank."""
    known, samples = len(found.singular_values), found.estimate.samples_per_pixel
    if isinstance(options.rank, int) or samples is None:
        return known
    longest = max(found.estimate.n_sampled / samples, len(found.model.right))
    return max(known, int(MOST_COMPONENTS * found.estimate.n_sampled / longest))


def _fit(
    scan: Recording,
    options: DenoiseOptions,
    sample: Sample,
    executor: Executor,
    on_iteration: Callable[[Iteration], None] | None,
) -> ClutterEstimate:
    """Return the estimate of the sample; bad frames that were given by their number are not in it."""
    bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
    options = replace(options, bad_frames=bad_frames)
    return estimate_clutter(scan, options, executor, None, on_iteration, consecutive=sample.consecutive)


def session_clutter(estimate: SessionEstimate, options: DenoiseOptions, is_new: bool = False) -> Clutter:
    """Return the clutter of a session.

    Parameters
    ----------
    estimate : SessionEstimate
        The estimate of a sample of its frames.
    options : DenoiseOptions
        Which components are kept.
    is_new : bool
        Whether the blocks that are filtered are not in the sample, as in a live session; by default they are.
    """
    found, periods, grid = estimate.reported.found, estimate.periods, estimate.grid
    low, keeps_residual = found.band.low, options.high_cutoff == "none"
    models = [interpolated(period.found.model, period.found.excluded) for period in periods]
    lefts = [period.found.grid.everywhere(model.left) for period, model in zip(periods, models, strict=True)]
    n_kept = low if keeps_residual else min(found.band.high, models[0].rank)
    left, over_time = lefts[0][:, :n_kept], None
    # The components take more from a block to whose frames they were fitted
    blocks = [block for period in periods for block in period.sample.blocks]
    lengths = [int(np.median([block.n_frames for block in blocks]))]
    if not is_new:
        lengths = [block.n_frames for block in blocks]
    courses = [np.zeros((length, low), np.complex128) for length in lengths]
    if estimate.n_near:
        over_time = _components_over_time(estimate, models, lefts)
        left = over_time.leading(blocks[len(blocks) // 2].start_s, low)[0]
        firsts = np.cumsum([0, *(len(model.right) for model in models)])
        places = (
            (frames, first + at)
            for first, period in zip(firsts, periods, strict=False)
            for frames, at in period.sample.places()
        )
        for course, block, (frames, at) in zip(courses, blocks, places, strict=True):
            course[frames] = over_time.leading(block.start_s, low)[1][at]
    elif not is_new:
        for course, (frames, at) in zip(courses, periods[0].sample.places(), strict=True):
            course[frames] = models[0].right[at, :low]
    powers = [
        float(np.sum(period.found.singular_values**2)) / (grid.n_pixels * len(model.right))
        for period, model in zip(periods, models, strict=True)
    ]
    weak = [weak_speckle(one, low) for one in lefts]
    removed = [
        removed_energy(one, model.singular_values, low) for one, model in zip(lefts, models, strict=True)
    ]
    return Clutter(
        left=np.ascontiguousarray(left),
        low=low,
        high=n_kept,
        keeps_residual=keeps_residual,
        projection=blocks_projection(courses),
        grid=grid,
        n_temporal=TEMPORAL if keeps_residual else 0,
        speckle=np.mean(weak, axis=0),
        tissue=np.mean(removed, axis=0),
        noise_rms=float(np.mean([period.found.estimate.noise_rms for period in periods])),
        power=float(np.mean(powers)),
        reference=estimate.reference,
        replaced=nearest_good(found.bad_pixels.mask) if found.bad_pixels.mask.any() else None,
        is_compiled=sum(map(len, courses)) * grid.mask.size >= COMPILED_ENTRIES,
        over_time=over_time,
    )


def _components_over_time(
    estimate: SessionEstimate, models: Sequence[LowRank], lefts: Sequence[Numbers]
) -> ClutterOverTime:
    """Return the components of all periods, and their sampled frames by these."""
    span, factor = np.linalg.qr(np.concatenate(lefts, axis=1))
    columns = np.cumsum([0, *(left.shape[1] for left in lefts)])
    frames, start_s = list[Numbers](), list[NDArray[np.float64]]()
    for number, (period, model) in enumerate(zip(estimate.periods, models, strict=True)):
        own = (model.right.conj() * model.singular_values) @ factor[
            :, columns[number] : columns[number + 1]
        ].T
        own[period.found.excluded] = 0
        frames.append(own.astype(span.dtype))
        times = [block.start_s for block in period.sample.blocks]
        start_s.append(np.repeat(times, np.diff(period.sample.edges)))
    return ClutterOverTime(span, np.concatenate(frames), np.concatenate(start_s), estimate.n_near)


def check_method(options: DenoiseOptions) -> None:
    """Check that the method is not the SVD: a session has common components, and the SVD of each block is another filter.

    Raises
    ------
    OptionError
        If it is.
    """
    if options.method == "svd":
        raise OptionError(
            "a session removes the same components from all blocks, and does not support the SVD of each block",
            option="method",
            remedy="filter each block by itself with `usdenoise batch` and {method} svd, or choose another method",
        )


def check_bad_frames(options: DenoiseOptions, recording: Recording) -> None:
    """Check that the given bad frames are frames of the blocks.

    Raises
    ------
    OptionError
        If one is not.
    """
    n_frames = max(block.window.stop for block in recording.blocks)
    if not isinstance(options.bad_frames, str) and any(frame >= n_frames for frame in options.bad_frames):
        raise OptionError(
            f"bad frame {max(options.bad_frames)} is not among the frames 0 to {n_frames - 1}",
            remedy="change {bad_frames}",
        )
