"""The estimate of a session: the clutter that its blocks have in common, from a sample without unusual blocks."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.noise import blocks_projection
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.clutter.clutter_cutoff import CutoffCertainty, CutoffChoice, CutoffReason
from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import Reference, nearest_good
from usdenoise.frames.still_tissue import StillReference, tiles_of
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import interpolated
from usdenoise.linalg.tall_matrices import COMPILED_ENTRIES, TINY, covered_shares, row_squared_norms
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate, estimate_clutter
from usdenoise.pipeline.filter_chunk import OWN_RATIO, filter_chunks
from usdenoise.pipeline.fit_result import FitResult, components_only, fit_result
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Recording
from usdenoise.sessions.bad_blocks import (
    FEWEST_BLOCKS,
    MOST_UNUSUAL,
    SPREAD_FLOOR,
    BlockLevel,
    find_bad_blocks,
    upper_group,
)
from usdenoise.sessions.session_sample import Sample, aligned_sample, look_at_block, still_sample
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.sampling import MANY_PIXELS, spread_rows

MOST_FITS = 6
"""Number of fits of the sample of a finished session, each without the blocks that were unusual in the previous fit. The
estimate of a live session is repeated in any case."""

TEMPORAL = 6
"""Largest number of temporal components that are removed from a block. Six change the hits of steady sessions to 0.98 times
those without (8 sessions), and of sessions that move to 1.10 times (9 sessions; benchmarks/RECORDS.md, "Temporal components
of a block")."""


@dataclass(frozen=True)
class SessionEstimate:
    """The estimate of a session from a sample of its frames.

    Attributes
    ----------
    sample : Sample
        Sampled frames of the blocks, aligned to the reference, without unusual blocks.
    found : ClutterEstimate
        The estimate of the sample as a scan, with the cutoff that is reported.
    fit : FitResult
        How the components were found, by the sampled frames without them.
    reference : Reference or None
        What the blocks are aligned to; None if they are not.
    still : StillReference or None
        What their tissue is held still by; None (the default) if it is not.
    n_unusual : int
        Number of unusual blocks that were left out; by default none.
    is_own : bool
        Whether each block has components of its own, as their tissue is not the same; by default not.
    """

    sample: Sample
    found: ClutterEstimate
    fit: FitResult
    reference: Reference | None
    still: StillReference | None = None
    n_unusual: int = 0
    is_own: bool = False


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

    Where the tissue changes during the session, each block has components of its own.

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
        Largest number of fits, each without the blocks that were unusual in the one before; by default MOST_FITS. With one,
        as in a live session, which is to keep its components, neither changes over time nor an unsure cutoff count.

    Raises
    ------
    UsdenoiseError
        As for :func:`usdenoise.denoise`.
    """
    if not sample.blocks:
        remedy = "check the frames that {bad_frames} excludes"
        raise InputError("no block of the session has good frames", remedy=remedy)
    sample, reference = aligned_sample(sample, geometry, executor, session, before)
    # More blocks come in a live session
    n_frames = math.inf if n_fits == 1 else sum(block.n_frames for block in sample.blocks)
    is_recorded = sample.scan_findings.is_still is False
    tiles = None if is_recorded else tiles_of(geometry, options, n_frames)
    still = None if tiles is None else still_sample(sample, tiles, executor)
    # Bad frames that were given by their number are not in the sample
    bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
    of_sample = replace(options, bad_frames=bad_frames)

    def fitted(sample: Sample) -> tuple[Recording, ClutterEstimate]:
        scan = sample.recording(geometry)
        estimated = partial(estimate_clutter, scan, executor=executor, on_iteration=on_iteration)
        found = estimated(of_sample, scan_findings=sample.scan_findings)
        if found.cutoff.reason is CutoffReason.BEYOND_RANK and options.rank == "auto":
            # The tissue reaches its last component: twice as many, if the sample determines these
            more = replace(of_sample, rank=2 * len(found.singular_values))
            with suppress(OptionError):
                found = estimated(more, scan_findings=sample.scan_findings)
        return scan, found

    (scan, found), alone, n_blocks = fitted(sample), sample.scan_findings, len(sample.blocks)
    # Where the tissue changes, blocks are unusual for that, and each has components of its own
    may_be_own = isinstance(options.low_cutoff, str) and found.band.keeps_residual
    may_be_own = may_be_own and alone.cutoff is not None and alone.cutoff.low > 0
    is_own = may_be_own and n_fits > 1 and tissue_changes(found, sample)
    for n_more in reversed(range(n_fits)):
        # An unsure cutoff most often is one of tissue that blocks do not share, unless it leaves far less than their own
        is_unsure = n_fits > 1 and found.cutoff.certainty is CutoffCertainty.UNSURE
        ratio = 1 / OWN_RATIO if is_unsure else OWN_RATIO
        is_own = is_own or (may_be_own and found.left_share > ratio * alone.left_share)
        if is_own or not n_more:
            break
        usual = usual_blocks(found, sample)
        if usual.all() or usual.mean() < 1 - MOST_UNUSUAL:
            break
        sample = sample.only(usual)
        scan, found = fitted(sample)
    if is_own:
        cutoff = _own_cutoff(sample, geometry, options, executor, n_others=4 if n_fits > 1 else 0)
        sentence = CutoffReason.BLOCK_ALONE.value.format(alone=cutoff.sentence)
        choice = replace(cutoff, reason=CutoffReason.BLOCK_ALONE, sentence=sentence)
        found = replace(found, band=replace(found.band, low=choice.low), cutoff=choice)
    # Numbers of bad frames that were given count in a file, and the sample has none of these frames.
    measures = filter_chunks(scan.chunks, components_only(found, options), found.excluded, executor)
    fit = fit_result(found, measures, options)
    return SessionEstimate(sample, found, fit, reference, still, n_blocks - len(sample.blocks), is_own)


def _own_cutoff(
    sample: Sample, geometry: Geometry, options: DenoiseOptions, executor: Executor, n_others: int
) -> CutoffChoice:
    """Return the median of the cutoffs of the block in the middle and of others: one of them may be a burst."""
    numbers = np.linspace(0, len(sample.blocks) - 1, n_others + 2).astype(int)[1:-1]
    choices = [sample.scan_findings.cutoff]
    for block in (sample.blocks[number] for number in numbers.tolist()):
        with suppress(InputError):
            choices.append(look_at_block(block, geometry, options, executor.local).cutoff)
    known = sorted((each for each in choices if each is not None), key=lambda each: each.low)
    return known[len(known) // 2]


def session_clutter(estimate: SessionEstimate, options: DenoiseOptions, is_new: bool = False) -> Clutter:
    """Return the clutter of a session.

    Parameters
    ----------
    estimate : SessionEstimate
        The estimate of a sample of its frames.
    options : DenoiseOptions
        Which components are kept.
    is_new : bool
        Whether the clutter is for blocks that are not in the sample, as in a live session; by default False.
    """
    found, sample = estimate.found, estimate.sample
    low, keeps_residual = found.band.low, options.high_cutoff == "none"
    model = interpolated(found.model, found.excluded)
    left = found.grid.everywhere(model.left)
    n_kept = low if keeps_residual else min(found.band.high, model.rank)
    # The components take more from a block to whose frames they were fitted
    lengths = [block.n_frames for block in sample.blocks]
    if is_new:
        lengths = [int(np.median(lengths))]
    courses = [np.zeros((length, low), np.complex128) for length in lengths]
    if not is_new and not estimate.is_own:
        for course, (frames, at) in zip(courses, sample.places(), strict=True):
            course[frames] = model.right[at, :low]
    n_own = low if estimate.is_own else 0
    return Clutter(
        left=np.ascontiguousarray(left[:, :n_kept]),
        low=low - n_own,
        high=n_kept,
        keeps_residual=keeps_residual,
        projection=blocks_projection(courses),
        grid=found.grid,
        n_temporal=TEMPORAL if keeps_residual else 0,
        n_own=n_own,
        speckle=weak_speckle(left, low),
        tissue=removed_energy(left, model.singular_values, low),
        noise_rms=found.estimate.noise_rms,
        power=float(np.sum(found.singular_values**2)) / (found.grid.n_pixels * len(model.right)),
        reference=estimate.reference,
        still=estimate.still,
        replaced=nearest_good(found.bad_pixels.mask) if found.bad_pixels.mask.any() else None,
        is_compiled=is_new or sum(lengths) * found.grid.mask.size >= COMPILED_ENTRIES,
    )


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


UNUSUAL_SPREADS = 4.0
"""Robust standard deviations of the logarithm of the power outside the clutter from which a block is not used for the
estimate. On two simulated sessions blocks in which the image moved by a pixel had 4.6 to 12, others 3 at most; with them
the cutoff was 19 instead of 43, and 30 instead of 36."""

LOCAL_RATIO, LOCAL_AREA = 10.0, 0.2
"""A block has an artefact, and is not used for the estimate, if a component is above LOCAL_RATIO times its median power in
it, and covers less than LOCAL_AREA of the pixels. On phantoms clipping in 0.6 to 20 % of the pixels gave components with
shares of .01 to .2. Components of bursts of motion had shares of 0.22 to 0.48, and the only one in a good block 0.45."""

HELD_OUT = 4
"""One in how many usual blocks judges whether the estimate is better without the unusual ones."""

JUDGES, LEAST_NEARER_DB = 8, 1.0
"""Blocks that judge whether the clutter changes during the session, and by how many dB less energy the blocks near in time
must leave in them than all blocks. The nearest quarter left 1.3 to 7 dB less in nine simulated sessions whose tissue turned,
deformed or left the image plane, and 1 dB less to 5 dB more in 23 others, still, shifted, jittered or scaled. With the half
instead a session with a step of 2 degrees had a mean map of .26 instead of .97, without the blocks of one side."""


def _of_blocks(
    middle: Callable[..., Any], values: NDArray[Any], used: NDArray[np.bool_], sample: Sample
) -> NDArray[Any]:
    """Return the mean or the median over the frames of each block that are used, (n_blocks, ...); NaN without any."""
    none = np.full(values.shape[1:], np.nan)
    parts = zip(sample.parts_of(values), sample.parts_of(used), strict=True)
    return np.array([middle(part[of_part], axis=0) if of_part.any() else none for part, of_part in parts])


def usual_blocks(found: ClutterEstimate, sample: Sample) -> NDArray[np.bool_]:
    """Return the blocks without unusual power outside the clutter or an artefact, and outside of groups of such blocks.

    There are five kinds, tried one at a time: an artefact spoils the fit, by which other blocks are judged.
    """
    left, model, used = found.frames.curves.outside, found.model, ~found.excluded
    # The median power outside the clutter; frames without data have 0 or NaN
    with np.errstate(divide="ignore"):
        levels = np.log(_of_blocks(np.median, left, left > 0, sample))
    if len(levels) < FEWEST_BLOCKS or not np.isfinite(levels).any():
        return np.ones(len(levels), bool)
    above = levels - np.nanmedian(levels)
    spread = 1.4826 * np.nanmedian(np.abs(above)) + SPREAD_FLOOR
    # The components in few pixels; all of them, as an artefact disturbs the cutoff, too
    areas = covered_shares(np.abs(model.left.T) ** 2)
    local = np.abs(model.right[:, areas < LOCAL_AREA]).astype(np.float64) ** 2
    local = np.stack([part.mean(axis=0) for part in sample.parts_of(local)])
    # The weaker half of the clutter, and the noise
    weak = slice(found.band.low // 2, found.band.low)
    powers = (np.abs(model.right[:, weak]) ** 2) @ model.singular_values[weak] ** 2 / found.grid.n_pixels
    of_weak = _of_blocks(np.mean, powers, used, sample) + found.estimate.noise_rms**2
    # Many unusual blocks widen the spread, and are found as a group.

    def kinds() -> Iterator[Any]:
        yield above > UNUSUAL_SPREADS * spread
        yield (local > LOCAL_RATIO * np.median(local, axis=0)).any(axis=1)
        yield _have_artefacts(found, sample)
        yield upper_group(levels)
        yield upper_group(np.log(of_weak))

    for unusual in kinds():
        if not 0 < np.count_nonzero(unusual) <= MOST_UNUSUAL * len(unusual):
            continue
        if not (usual := _explained(found, sample, ~unusual)).all():
            return usual
    return np.ones(len(levels), bool)


def _explained(found: ClutterEstimate, sample: Sample, usual: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the blocks whose components explain other blocks best: all, or without those that are unusual and spoil them.

    Every HELD_OUT-th usual block is in no fit, and judges fits by the energy that they leave in its frames. Fewer blocks fit
    worse, unless the ones that are left out take components of their own. Then those of them that are nearer to the held-out
    blocks by what the others leave of them come back, one by one, if they do not spoil the fit.
    """
    from scipy.linalg import eigh

    values, used = _in_some_pixels(found, sample)
    values = np.ascontiguousarray(values)
    block, low = np.repeat(np.arange(len(usual)), np.diff(sample.edges)), max(found.band.low, 1)
    energies = row_squared_norms(values)
    counts = np.maximum(np.bincount(block[used], minlength=len(usual)), 1)
    is_held = np.zeros(len(usual), bool)
    is_held[np.flatnonzero(usual)[HELD_OUT // 2 :: HELD_OUT]] = True

    def left_by(fitted_blocks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the mean logarithm of the energy of each block that the components of some blocks leave."""
        fitted = values[used & fitted_blocks[block]]
        gram = (fitted @ fitted.conj().T).astype(np.result_type(fitted, np.float64))
        strengths, courses = eigh(gram, subset_by_index=[max(len(fitted) - low, 0), len(fitted) - 1])
        leading = courses / np.sqrt(np.maximum(strengths, TINY))
        explained = row_squared_norms(values @ (fitted.conj().T @ leading.astype(fitted.dtype)))
        left = np.log(np.maximum(energies - explained, TINY))
        return np.asarray(np.bincount(block[used], left[used], len(usual)) / counts)

    every = np.ones(len(usual), bool)
    if not is_held.any() or not (used & (usual & ~is_held)[block]).any():
        return every
    left = left_by(usual & ~is_held)
    if left[is_held].mean() >= left_by(~is_held)[is_held].mean():
        return every
    middle = (left[is_held].max() + left[~usual].max()) / 2
    for number in np.flatnonzero(~usual & (left < middle)).tolist():
        with_it = usual | (np.arange(len(usual)) == number)
        if left_by(with_it & ~is_held)[is_held].mean() <= left[is_held].mean():
            usual = with_it
    return usual


def _have_artefacts(found: ClutterEstimate, sample: Sample) -> NDArray[np.bool_]:
    """Return the blocks whose sampled frames have unusual power that is in no component.

    Tissue is in the components. What an artefact adds to its blocks is beyond them, too.
    """
    right, (values, used) = found.estimate.model.right, _in_some_pixels(found, sample)
    if not values.shape[1]:
        return np.zeros(len(sample.blocks), bool)
    squares = np.abs(values - right.conj() @ (right.T @ values)) ** 2
    powers = _of_blocks(np.mean, squares, used, sample).astype(np.float64)
    blocks = [BlockLevel(None if np.isnan(power).all() else power) for power in powers]
    return np.array([bool(why) for why in find_bad_blocks(blocks)[0]], bool)


def _in_some_pixels(found: ClutterEstimate, sample: Sample) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the sampled frames in some of the signal pixels, 0 in frames that do not count, and which frames count.

    Pixels with a missing entry in a frame that counts are excluded: it would be filled from the other blocks.
    """
    signal_pixels = np.flatnonzero(found.grid.mask)
    pixels = signal_pixels[spread_rows(len(signal_pixels), 2 * MANY_PIXELS)]
    values = np.concatenate([part[:, pixels] for part in sample.parts])
    used = ~found.excluded & np.isfinite(values).any(axis=1)
    values[~used] = 0
    return values[:, np.isfinite(values).all(axis=0)], used


def tissue_changes(found: ClutterEstimate, sample: Sample) -> bool:
    """Return whether the tissue changes during a session, so that blocks do not have the components of all blocks.

    A few blocks, spread over the session, judge by the energy that the components of the others leave in their frames: of
    all others, or of those near in time. From fewer frames components have more noise, unless those that are far in time
    are elsewhere.

    Parameters
    ----------
    found : ClutterEstimate
        The estimate of the session.
    sample : Sample
        The frames from which it was made.
    """
    n_blocks, model, used = len(sample.blocks), found.model, ~found.excluded
    # All components of the model would leave nothing
    low = min(found.band.low, model.rank // 2)
    # From a quarter on: where tissue moves by a step, half of the session still has tissue of both sides
    size = n_blocks // 4
    if not low or not found.band.keeps_residual or size < FEWEST_BLOCKS:
        return False
    frames = (model.right.conj() * model.singular_values).astype(np.complex128)
    numbers = np.repeat(np.arange(n_blocks), np.diff(sample.edges))
    times = np.array([block.start_s for block in sample.blocks])
    judges = np.unique(numbers[used])
    judges = judges[spread_rows(len(judges), JUDGES)].tolist()
    of_noise = found.estimate.noise_rms**2 * found.grid.n_pixels

    def left_by(size: int) -> float:
        """Return the mean logarithm of the energy that is left in the judges by so many blocks near to each."""
        left = list[float]()
        for judge in judges:
            own, distances = frames[(numbers == judge) & used], np.abs(times - times[judge])
            distances[judge] = np.inf
            nearest = np.argsort(distances, kind="stable")[: min(size, n_blocks - 1)]
            near = frames[np.isin(numbers, nearest) & used]
            vectors = np.linalg.eigh(near.conj().T @ near)[1][:, ::-1][:, :low]
            rest = row_squared_norms(own) - row_squared_norms(own @ vectors)
            left.append(float(np.log(np.maximum(rest, 0) + of_noise + TINY).mean()))
        return float(np.mean(left))

    bound, least = left_by(n_blocks) - LEAST_NEARER_DB * np.log(10) / 10, np.inf
    while size >= FEWEST_BLOCKS and bound <= (left := left_by(size)) < least:
        least, size = left, size // 2
    return size >= FEWEST_BLOCKS and left < bound
