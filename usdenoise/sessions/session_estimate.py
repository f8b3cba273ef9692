"""The estimate of a session: the clutter that its blocks have in common, from a sample of their frames."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.clutter_projection import blocks_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.clutter.clutter_cutoff import Band, CutoffCertainty, CutoffChoice, CutoffReason
from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError, UsdenoiseError
from usdenoise.frames.alignment import REFERENCE_BLOCKS, Reference, nearest_good
from usdenoise.frames.still_tissue import StillReference, tiles_of
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank, interpolated
from usdenoise.linalg.tall_matrices import COMPILED_ENTRIES
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate, ConsecutiveFrames, estimate_clutter
from usdenoise.pipeline.filter_chunk import OWN_RATIO, filter_chunks
from usdenoise.pipeline.fit_result import FitResult, fit_result
from usdenoise.pipeline.measures import Clutter, ClutterOverTime
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.scan_clutter import components_only, with_cutoff
from usdenoise.sessions.bad_blocks import MOST_UNUSUAL
from usdenoise.sessions.session_sample import Sample, aligned_sample, still_sample
from usdenoise.sessions.unusual_blocks import blocks_near, usual_blocks
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.sampling import spread_rows

MOST_FITS = 6
"""Number of fits of the sample of a finished session, each without the blocks that were unusual in the previous fit. The
estimate of a live session is repeated in any case."""

TEMPORAL = 6
"""Largest number of temporal components that are removed from a block. Six change the hits of steady sessions to 0.98 times
those without (8 sessions), and of sessions that move to 1.10 times (9 sessions; benchmarks/RECORDS.md, "Temporal components
of a block")."""


@dataclass(frozen=True)
class Period:
    """Blocks of a period of a session, or of all of it, and their estimate.

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
    number : int
        Number of the one whose cutoff all have: it is reported.
    grid : Neighbourhood
        Shape of the image, and the pixels that have a signal in the session.
    reference : Reference or None
        What the blocks are aligned to; None if they are not.
    still : StillReference or None
        What their tissue is held still by; None (the default) if it is not.
    n_unusual : int
        Number of unusual blocks that were left out; by default none.
    n_near : int
        Number of blocks near in time from which the clutter of a block comes: 0 (the default) if that is all of them, 1 if
        each has components of its own.
    """

    periods: list[Period]
    number: int
    grid: Neighbourhood
    reference: Reference | None
    still: StillReference | None = None
    n_unusual: int = 0
    n_near: int = 0

    @property
    def reported(self) -> Period:
        """The session, or the period whose cutoff all periods have: what is reported."""
        return self.periods[self.number]

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
        MOST_FITS. With one, as in a live session, there are no periods.

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
    tiles = None if sample.consecutive.is_still is False else tiles_of(geometry, options)
    still = None if tiles is None else still_sample(sample, tiles, executor)
    fit = partial(_fit, options=options, executor=executor, on_iteration=on_iteration)
    scan = sample.recording(geometry)
    found = fit(scan, sample)
    whole, n_blocks, periods = Period(sample, scan, found), len(sample.blocks), list[Period]()
    if n_near := blocks_near(found, sample) if n_fits > 1 else 0:
        numbers, fitted = np.arange(n_blocks), list[Period]()
        # A period may have too few frames for options that were given
        with suppress(UsdenoiseError):
            for part in np.array_split(numbers, round(n_blocks / n_near)):
                own = sample.only(np.isin(numbers, part))
                scan = own.recording(geometry)
                fitted.append(_without_unusual(Period(own, scan, fit(scan, own)), geometry, fit, n_fits))
            periods = fitted
    if not periods:
        n_near, periods = 0, [_without_unusual(whole, geometry, fit, n_fits)]
    if reference is not None and reference.profiles is not None:
        periods = [replace(period, found=_ended_by_square(period.found, options)) for period in periods]
    n_unusual = n_blocks - sum(len(period.sample.blocks) for period in periods)
    # The tissue needs the highest cutoff, and with several ones the level of the series would have steps
    number = int(np.argmax([period.found.band.low for period in periods]))
    low = periods[number].found.band.low
    for other, period in enumerate(periods):
        if period.found.band.low != low:
            changed = with_cutoff(period.scan, executor, period.found, low, "by another period")
            periods[other] = replace(period, found=changed)
    if (alone := _block_alone(periods, sample.consecutive, options)) is not None:
        band, choice = alone
        whole = replace(whole, found=replace(found, band=band, cutoff=choice))
        return SessionEstimate([whole], 0, found.grid, reference, still, n_near=1)
    return SessionEstimate(periods, number, found.grid, reference, still, n_unusual, n_near)


def _block_alone(
    periods: Sequence[Period], block: ConsecutiveFrames, options: DenoiseOptions
) -> tuple[Band, CutoffChoice] | None:
    """Return the components of a block by itself, if the ones that blocks have in common leave far more of its energy.

    Tissue that turns or deforms from block to block, by a part of a pixel and more, has other components in each.
    """
    left, band = float(np.mean([period.found.left for period in periods])), periods[0].found.band
    is_automatic = isinstance(options.low_cutoff, str) and band.keeps_residual
    if not is_automatic or block.cutoff is None or left <= OWN_RATIO * block.left:
        return None
    # What is left of numbers alone is a rounding error
    ratio = left / max(block.left, float(np.finfo(np.float32).eps))
    sentence = CutoffReason.BLOCK_ALONE.value.format(ratio=ratio, alone=block.cutoff.sentence)
    choice = replace(block.cutoff, reason=CutoffReason.BLOCK_ALONE, sentence=sentence)
    return replace(band, low=choice.low), choice


def _ended_by_square(found: ClutterEstimate, options: DenoiseOptions) -> ClutterEstimate:
    """Return an estimate whose clutter ends with the square of tissue, if its cutoff is unsure and higher than that.

    Where a gain that changes over depth is divided out of blocks, their noise has its course, and resembles the tissue far
    beyond the square. Unusual blocks are found before, with all that is alike removed.
    """
    choice, squares = found.cutoff, found.cutoff.two_squares
    is_unsure = choice.certainty is CutoffCertainty.UNSURE and isinstance(options.low_cutoff, str)
    if not is_unsure or squares is None or squares[0] >= choice.low:
        return found
    sentence = CutoffReason.TISSUE_SQUARE.value.format(low=squares[0])
    ended = replace(choice, low=squares[0], reason=CutoffReason.TISSUE_SQUARE, sentence=sentence)
    return replace(found, band=replace(found.band, low=squares[0]), cutoff=ended)


def _without_unusual(
    period: Period, geometry: Geometry, fit: Callable[[Recording, Sample], ClutterEstimate], n_fits: int
) -> Period:
    """Return a period that was fitted, fitted without unusual blocks, by so many fits at most."""
    for _ in range(n_fits - 1):
        usual = usual_blocks(period.found, period.sample)
        if usual.all() or usual.mean() < 1 - MOST_UNUSUAL:
            break
        sample = period.sample.only(usual)
        scan = sample.recording(geometry)
        period = Period(sample, scan, fit(scan, sample))
    return period


def _fit(
    scan: Recording,
    sample: Sample,
    options: DenoiseOptions,
    executor: Executor,
    on_iteration: Callable[[Iteration], None] | None,
) -> ClutterEstimate:
    """Return the estimate of the sample; bad frames that were given by their number are not in it.

    If the tissue reaches its last component, it has twice as many components, if the sample determines these.
    """
    bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
    options = replace(options, bad_frames=bad_frames)
    estimated = partial(
        estimate_clutter, scan, executor=executor, on_iteration=on_iteration, consecutive=sample.consecutive
    )
    found = estimated(options)
    if found.cutoff.reason is CutoffReason.BEYOND_RANK and options.rank == "auto":
        with suppress(OptionError):
            found = estimated(replace(options, rank=2 * len(found.singular_values)))
    return found


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
    left, over_time, n_own = lefts[0][:, :n_kept], None, low if estimate.n_near == 1 else 0
    # The components take more from a block to whose frames they were fitted
    blocks = [block for period in periods for block in period.sample.blocks]
    lengths = [int(np.median([block.n_frames for block in blocks]))]
    if not is_new:
        lengths = [block.n_frames for block in blocks]
    courses = [np.zeros((length, low), np.complex128) for length in lengths]
    if estimate.n_near > 1:
        over_time = _components_over_time(estimate, models, lefts)
        left = over_time.span @ over_time.leading(blocks[len(blocks) // 2].start_s, low)[0]
        firsts = np.cumsum([0, *(len(model.right) for model in models)])
        places = (
            (frames, first + at)
            for first, period in zip(firsts, periods, strict=False)
            for frames, at in period.sample.places()
        )
        some = {*spread_rows(len(blocks), REFERENCE_BLOCKS).tolist()}
        for number, (course, (frames, at)) in enumerate(zip(courses, places, strict=True)):
            if number in some:
                course[frames] = over_time.leading(blocks[number].start_s, low)[1][at]
        courses = [course for number, course in enumerate(courses) if number in some]
    elif not is_new and not n_own:
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
        low=low - n_own,
        high=n_kept,
        keeps_residual=keeps_residual,
        projection=blocks_projection(courses),
        grid=grid,
        n_temporal=TEMPORAL if keeps_residual else 0,
        n_own=n_own,
        speckle=np.mean(weak, axis=0),
        tissue=np.mean(removed, axis=0),
        noise_rms=float(np.mean([period.found.estimate.noise_rms for period in periods])),
        power=float(np.mean(powers)),
        reference=estimate.reference,
        still=estimate.still,
        replaced=nearest_good(found.bad_pixels.mask) if found.bad_pixels.mask.any() else None,
        is_compiled=sum(lengths) * grid.mask.size >= COMPILED_ENTRIES,
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
