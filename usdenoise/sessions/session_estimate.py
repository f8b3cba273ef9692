"""The estimate of a session: the clutter that its blocks have in common, from a sample of their frames."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_background import TINY
from usdenoise.clutter.clutter_cutoff import CLUTTER_FALL_DB, FALL_OVER
from usdenoise.clutter.cutoff_reason import CutoffCertainty
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.session_options import SessionOptions
from usdenoise.pipeline.clutter_estimate import ClutterEstimate, estimate_clutter, with_cutoff
from usdenoise.pipeline.denoise import working_type
from usdenoise.pipeline.fit_result import FitResult, fit_result
from usdenoise.pipeline.frame_sources import ArrayBlock
from usdenoise.pipeline.passes import Passes
from usdenoise.pipeline.stack_filter import measure_fit
from usdenoise.sessions.alignment import Reference, mean_envelope, reference_of
from usdenoise.sessions.bad_blocks import FEWEST_BLOCKS, SPREAD_FLOOR, WEAK_DB, BlockLevel, find_bad_blocks
from usdenoise.sessions.blocks import BlockReader, Blocks, in_order, mark_missing
from usdenoise.sessions.measured_block import MeasuredBlock, own_options
from usdenoise.sessions.session_clutter import SessionClutter, SessionFrames, sampled_frames, session_clutter
from usdenoise.sessions.session_series import BlockSpectrum, BlockSums, leak_share
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.sampling import spread_rows

TRIED_BLOCKS, MOST_LEAK, MORE = 4, 0.5, 1.12
"""Blocks on which a cutoff is tried, the largest share of leaked tissue in their power above the noise, and how much the
cutoff is raised at a time. On a phantom with tissue 50 dB over blood 65 components left a share of 0.68, and the map
correlated with the truth by 0.876; with 92 components by 0.993. On one of 45 dB the share was 0.23, and more components took
blood. With a bound of 0.3 two of three other sessions lost hits, with shares of 0.32 and 0.45."""

SUFFICIENT_CUTOFFS = 2
"""Consecutive cutoffs without too much leaked tissue of which the first is chosen. In a session whose tissue stretched, 9
components left a share of 0.39 of the tissue, 8 and 11 left 0.52 and 0.62, and 129 were needed."""

MOST_COMPONENTS = 0.4
"""Largest number of components to which the cutoff is raised, over the sampled entries of an average pixel or frame: the
factors have fewer unknowns than the sample has entries. Tissue that stretched by 2 pixels during a session needed 155
components, and 600 entries of a pixel were sampled."""

UNUSUAL_SPREADS = 4.0
"""Robust standard deviations of the logarithm of the power outside the clutter from which a block is not used for the
estimate. On two simulated sessions blocks in which the image moved by a pixel had 4.6 to 12, others 3 at most; with them
the cutoff was 19 instead of 43, and 30 instead of 36."""

OWN_RATIO, LOCAL_AREA = 10.0, 0.2
"""A block has an artefact, and is not used for the estimate, if a component is above OWN_RATIO times its median power in
it, and covers less than LOCAL_AREA of the pixels. On phantoms clipping in 0.6 to 20 % of the pixels gave components with
shares of .01 to .2. Components of bursts of motion had shares of 0.22 to 0.48, and the only one in a good block 0.45."""

SEARCHED_PIXELS = 2048
"""Pixels of the sample in which artefacts are looked for, spread over the image."""

MOST_ROUNDS = 4
"""Number of fits of the sample, each without the blocks that were unusual in the previous fit."""

JOINED_FRAMES = 128
"""Frames of the blocks in which a sample is filtered, at least: products with a few frames of each block are slow."""

Measure = Callable[[Sequence[int], SessionClutter], Mapping[int, MeasuredBlock]]
"""Filters the blocks of some numbers, and returns those that could be read."""


@dataclass(frozen=True)
class SessionEstimate:
    """The estimate of a session from a sample of its frames.

    Attributes
    ----------
    clutter : SessionClutter
        The clutter of all blocks.
    fit : FitResult
        How it was found.
    measured : mapping
        Number -> what was measured of a block, of those that were filtered to try the cutoff.
    """

    clutter: SessionClutter
    fit: FitResult
    measured: Mapping[int, MeasuredBlock] = field(default_factory=dict)


def estimate_session(
    blocks: Blocks,
    options: DenoiseOptions,
    executor: Executor,
    measure: Measure,
    on_iteration: Callable[..., None] | None = None,
) -> SessionEstimate:
    """Find the clutter that the blocks of a session have in common, from a sample of their frames.

    Parameters
    ----------
    blocks : Blocks
        The blocks.
    options : DenoiseOptions
        Options of the estimate.
    executor : Executor
        Maps over the blocks.
    measure : callable
        Filters blocks, to try the cutoff.
    on_iteration : callable, optional
        Called with each line of the trace.

    Raises
    ------
    UsdenoiseError
        As for :func:`usdenoise.denoise`.
    """
    check_method(options)
    check_bad_frames(options, blocks)
    sample, reference = _aligned_sample(_sample(blocks, options, executor), executor, blocks.options)
    if not sample.numbers:
        raise InputError(
            "no block of the session has good frames", remedy="check the frames that {bad_frames} excludes"
        )
    with ThreadExecutor(options.threads) as threads:
        for more in reversed(range(MOST_ROUNDS)):
            fit = _SampleFit(sample, blocks.geometry, options, threads)
            clutter_estimate = fit.estimate(on_iteration)
            usual = _usual_blocks(clutter_estimate, sample)
            if usual.all() or not more:
                break
            sample = sample.only(usual)
        frames = _frames_in_sample(blocks, sample)

        def clutter_of(chosen: ClutterEstimate) -> SessionClutter:
            return session_clutter(chosen, frames, blocks.geometry, options.high_cutoff, reference)

        is_tried = len(sample.numbers) > 1 and options.low_cutoff == "auto" and options.high_cutoff == "none"
        tried = _calm_blocks(clutter_estimate, sample) if is_tried else []
        if len(tried) < 2 or not clutter_estimate.band.low:
            return SessionEstimate(clutter_of(clutter_estimate), fit.result(clutter_estimate))
        sufficient: list[tuple[ClutterEstimate, SessionClutter, Mapping[int, MeasuredBlock]]] = []
        for raised in fit.raised_estimates(clutter_estimate, on_iteration):
            clutter = clutter_of(raised)
            measured = measure(tried, clutter)
            candidate = raised, clutter, measured
            sufficient = [] if _leaks(measured.values(), clutter) else [*sufficient, candidate]
            if len(sufficient) == SUFFICIENT_CUTOFFS:
                break
        chosen, clutter, measured = sufficient[0] if sufficient else candidate
        return SessionEstimate(clutter, fit.result(chosen), measured)


def estimate_sample(
    parts: Sequence[NDArray[Any]],
    geometry: Geometry,
    frames: SessionFrames,
    options: DenoiseOptions,
    session: SessionOptions | None = None,
    before: Reference | None = None,
) -> SessionEstimate:
    """Find the clutter of blocks from a sample of frames, without trying the cutoff.

    Parameters
    ----------
    parts : sequence of (n, pixels along each axis...) arrays
        Frames of each block, in the order t, z, x, y.
    geometry : Geometry
        Axes and scales of the blocks.
    frames : SessionFrames
        Of which blocks they are.
    options : DenoiseOptions
        Options of the estimate.
    session : SessionOptions, optional
        Whether blocks are registered and their gain is divided out; by default both.
    before : Reference, optional
        Reference to which earlier blocks of the session were aligned.
    """
    none = [np.zeros(0, np.intp)] * len(parts)
    with ThreadExecutor(options.threads) as threads:
        sample, reference = _aligned_sample(
            _Sample(list(range(len(parts))), none, list(parts)), threads, session or SessionOptions(), before
        )
        fit = _SampleFit(sample, geometry, options, threads)
        clutter_estimate = fit.estimate(None)
        clutter = session_clutter(clutter_estimate, frames, geometry, options.high_cutoff, reference)
        return SessionEstimate(clutter, fit.result(clutter_estimate))


@dataclass(frozen=True)
class _Sample:
    """Sampled frames of blocks.

    Attributes
    ----------
    numbers : list of int
        The blocks.
    frames : list of arrays
        Numbers of the frames in each block.
    parts : list of (n, pixels along each axis...) arrays
        The frames of each block, in the order t, z, x, y.
    is_shifted : bool
        Whether some were shifted back; by default not.
    """

    numbers: list[int]
    frames: list[NDArray[np.intp]]
    parts: list[NDArray[Any]]
    is_shifted: bool = False

    @property
    def lengths(self) -> list[int]:
        """Number of sampled frames of each block."""
        return [len(part) for part in self.parts]

    def only(self, chosen: NDArray[np.bool_]) -> "_Sample":
        """Return the sample of some blocks."""
        kept = np.flatnonzero(chosen).tolist()
        return replace(
            self,
            numbers=[self.numbers[k] for k in kept],
            frames=[self.frames[k] for k in kept],
            parts=[self.parts[k] for k in kept],
        )


def _aligned_sample(
    sample: _Sample, executor: Executor, session: SessionOptions, before: Reference | None = None
) -> tuple[_Sample, Reference | None]:
    """Return the sampled frames of each block as they are in the reference of the session, and the reference.

    Blocks without tissue are excluded.
    """
    sample = replace(sample, parts=_without_dead_pixels(sample.parts))
    images = [mean_envelope(part) for part in sample.parts]
    reference = reference_of(images, executor, session.registration, session.gain_correction, before)
    if reference is None:
        return sample, None
    alignments = list(executor.map(reference.alignment, images))
    has_tissue = np.array([alignment.gain_db >= WEAK_DB for alignment in alignments])
    sample, alignments = (
        sample.only(has_tissue),
        [alignments[number] for number in np.flatnonzero(has_tissue)],
    )
    if not any(alignment.is_shifted or alignment.is_scaled for alignment in alignments):
        return sample, reference
    aligned = [
        reference.apply(part, alignment) for part, alignment in zip(sample.parts, alignments, strict=True)
    ]
    return replace(
        sample, parts=aligned, is_shifted=any(alignment.is_shifted for alignment in alignments)
    ), reference


class JoinedFrames:
    """Frames of several blocks as a stack of their own: each part is a block of a :class:`FrameSource`.

    Parameters
    ----------
    parts : sequence of (n, pixels along each axis...) arrays
        Frames of blocks, in the order t, z, x, y.
    geometry : Geometry
        Axes and scales of the blocks.
    precision : str
        "single" or "double".
    """

    target = None

    def __init__(self, parts: Sequence[NDArray[Any]], geometry: Geometry, precision: str) -> None:
        self._parts, axes = parts, in_order(geometry)
        shape = (sum(map(len, parts)), *geometry.shape_in(axes[1:]))
        self.stack = replace(
            geometry, axes=axes, shape=shape, frame_rate_hz=None, coordinates={}, labels=None
        )
        self.dtype = working_type(self.stack, precision)
        self.pixel_axes = axes[1:]

    def items(self) -> list[ArrayBlock]:
        """Return the parts as blocks of consecutive frames."""
        edges = np.cumsum([0, *map(len, self._parts)]).tolist()
        return [
            ArrayBlock(start, stop, part, self.dtype, self.stack.name)
            for (start, stop), part in zip(pairwise(edges), self._parts, strict=True)
        ]


class _SampleFit:
    """The fit of the components to sampled frames of blocks, as to a stack of their own."""

    def __init__(
        self, sample: _Sample, geometry: Geometry, options: DenoiseOptions, threads: ThreadExecutor
    ) -> None:
        # Numbers of bad frames count in a file, and the sample has none of these frames.
        bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
        self._options = replace(options, bad_frames=bad_frames)
        self._requested, self._is_shifted = options, sample.is_shifted
        frames = JoinedFrames(list(joined_frames(sample.parts)), geometry, options.precision)
        self._passes = Passes(frames, threads, threads)

    def estimate(self, on_iteration: Callable[..., None] | None) -> ClutterEstimate:
        """Return the estimate of the sample."""
        clutter_estimate = estimate_clutter(self._passes, self._options, None, on_iteration)
        low = _steep(clutter_estimate.singular_values)
        is_given = not isinstance(self._options.low_cutoff, str)
        if not self._is_shifted or is_given or not 0 < clutter_estimate.band.low < low:
            return clutter_estimate
        return self._with_low(clutter_estimate, low, "because the singular values fall steeply up to there")

    def highest_cutoff(self, clutter_estimate: ClutterEstimate) -> int:
        """Return the highest cutoff to which an estimate can be raised; never above a given rank."""
        n_components, estimate = len(clutter_estimate.singular_values), clutter_estimate.estimate
        if isinstance(self._requested.rank, int) or estimate.samples_per_pixel is None:
            return n_components
        n_pixels = estimate.n_sampled / estimate.samples_per_pixel
        longest = max(n_pixels, len(clutter_estimate.model.right))
        return max(n_components, int(MOST_COMPONENTS * estimate.n_sampled / longest))

    def raised_estimates(
        self, clutter_estimate: ClutterEstimate, on_iteration: Callable[..., None] | None
    ) -> Iterator[ClutterEstimate]:
        """Yield the estimate, and then with ever higher cutoffs and their reason, with more components if it has too few."""
        yield clutter_estimate
        while (low := clutter_estimate.band.low) < (highest := self.highest_cutoff(clutter_estimate)):
            low = min(math.ceil(MORE * low), highest)
            if low > (n_components := len(clutter_estimate.singular_values)):
                self._options = replace(self._options, rank=min(2 * n_components, highest))
                clutter_estimate = replace(self.estimate(on_iteration), cutoff=clutter_estimate.cutoff)
            clutter_estimate = self._with_low(clutter_estimate, low, "because tissue remained in the blocks")
            yield clutter_estimate

    def _with_low(self, clutter_estimate: ClutterEstimate, low: int, why: str) -> ClutterEstimate:
        before = clutter_estimate.cutoff
        first = before.sentence.partition("; raised")[0]
        sentence = f"{first}; raised to {low} {why}"
        choice = replace(before, low=low, sentence=sentence, certainty=CutoffCertainty.UNSURE)
        return with_cutoff(self._passes, clutter_estimate, choice)

    def result(self, clutter_estimate: ClutterEstimate) -> FitResult:
        """Return how the components were found."""
        measured = measure_fit(self._passes, clutter_estimate, self._options)
        fit = fit_result(clutter_estimate, measured, self._options)
        return replace(fit, options=replace(fit.options, bad_frames=self._requested.bad_frames))


def _without_dead_pixels(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the frames of blocks with NaN in pixels that are 0 in most of the block, and have a signal in another block.

    Blocks without any data stay as they are. Interference in a few frames does not count as a signal.
    """
    dead = np.stack([np.count_nonzero(part, axis=0) < len(part) / 2 for part in parts])
    is_empty = np.array([is_dead.all() for is_dead in dead], bool)
    dead &= ~dead[~is_empty].all(axis=0)
    dead[is_empty] = False
    return [
        np.where(is_dead, np.array(np.nan, part.dtype), part) if is_dead.any() else part
        for is_dead, part in zip(dead, parts, strict=True)
    ]


def _sample(blocks: Blocks, options: DenoiseOptions, executor: Executor) -> _Sample:
    """Return sampled frames of the blocks that can be read."""
    numbers = [number for number, block in enumerate(blocks.blocks) if not block.problem]
    # A frame that several blocks share is sampled in one of them only.
    frames = sampled_frames([_own_length(blocks, number) for number in numbers], options.seed)
    selected = []
    for number, frame_numbers in zip(numbers, frames, strict=True):
        reader = blocks.reader(number)
        bad = own_options(options, reader).bad_frames
        good = frame_numbers if isinstance(bad, str) else np.setdiff1d(frame_numbers, bad)
        if len(good):
            selected.append((number, good, reader))
    read = executor.map(_frames_of, [(reader, good) for _, good, reader in selected])
    sample = _Sample([], [], [])
    for (number, good, _), values in zip(selected, read, strict=True):
        if isinstance(values, InputError):
            mark_missing(blocks, number, values)
            continue
        sample.numbers.append(number)
        sample.frames.append(good)
        sample.parts.append(values)
    return sample


def joined_frames(parts: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield the frames of consecutive parts together, JOINED_FRAMES at least."""
    held: list[NDArray[Any]] = []
    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= JOINED_FRAMES:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def _frames_of(item: tuple[BlockReader, NDArray[np.intp]]) -> NDArray[Any] | InputError:
    reader, numbers = item
    try:
        return reader.read_frames(numbers)
    except InputError as error:
        return error


def _frames_in_sample(blocks: Blocks, sample: _Sample) -> SessionFrames:
    """Return the frames of each block that are in the sample, including frames of overlapping blocks."""
    parts = [blocks.blocks[number] for number in sample.numbers]
    files = np.repeat([part.file for part in parts], sample.lengths)
    frame_numbers = np.concatenate(
        [
            part.window.start + frame_numbers_of_part
            for part, frame_numbers_of_part in zip(parts, sample.frames, strict=True)
        ]
    )
    columns = [
        np.flatnonzero(
            (files == part.file) & (part.window.start <= frame_numbers) & (frame_numbers < part.window.stop)
        )
        for part in parts
    ]
    frames = [frame_numbers[inside] - part.window.start for inside, part in zip(columns, parts, strict=True)]
    return SessionFrames(frames, [part.window.n_frames for part in parts], columns)


def _steep(values: NDArray[np.floating]) -> int:
    """Return the number of leading singular values that fall as steeply over the next ones as clutter does.

    What the interpolation of blocks that are shifted leaves of the tissue is not like its leading components.
    """
    falls = values[:-FALL_OVER] >= 10 ** (CLUTTER_FALL_DB / 20) * values[FALL_OVER:]
    return int(np.argmin(falls)) if not falls.all() else len(falls)


def _levels(clutter_estimate: ClutterEstimate, lengths: Sequence[int]) -> NDArray[np.float64]:
    """Return the median power outside the clutter in the sampled frames of each block; NaN without any."""
    edges = np.cumsum([0, *lengths])
    left = clutter_estimate.frames.curves.outside
    # Frames without data have 0 or NaN.
    parts = [left[first:stop][left[first:stop] > 0] for first, stop in pairwise(edges)]
    return np.array([np.median(part) if len(part) else np.nan for part in parts])


def _usual_blocks(clutter_estimate: ClutterEstimate, sample: _Sample) -> NDArray[np.bool_]:
    """Return the blocks whose sampled frames have no unusual power outside the clutter, and no artefact."""
    lengths = sample.lengths
    with np.errstate(divide="ignore"):
        levels = np.log(_levels(clutter_estimate, lengths))
    if len(levels) < FEWEST_BLOCKS or not np.isfinite(levels).any():
        return np.ones(len(levels), bool)
    above = levels - np.nanmedian(levels)
    spread = 1.4826 * np.nanmedian(np.abs(above)) + SPREAD_FLOOR
    is_unusual: NDArray[np.bool_] = above > UNUSUAL_SPREADS * spread
    is_unusual |= _own_local_components(clutter_estimate, lengths) > 0
    is_unusual |= _have_artefacts(clutter_estimate, sample.parts)
    usual: NDArray[np.bool_] = ~is_unusual
    return usual


def _have_artefacts(clutter_estimate: ClutterEstimate, parts: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Return the blocks whose sampled frames have unusual power that is in no component."""
    powers = _powers_beyond_rank(clutter_estimate, parts)
    if not powers.shape[1]:
        return np.zeros(len(parts), bool)
    blocks = [BlockLevel(None if np.isnan(power).all() else power) for power in powers]
    return np.array([bool(why) for why in find_bad_blocks(blocks)[0]], bool)


def _powers_beyond_rank(
    clutter_estimate: ClutterEstimate, parts: Sequence[NDArray[Any]]
) -> NDArray[np.float64]:
    """Return the power in the frames of each block that no component has, (n_blocks, n), in some of the pixels.

    Blocks without frames have NaN, and pixels with a missing entry in a frame that counts are excluded.

    Tissue is in the components. What an artefact adds to its blocks is beyond them, too.
    """
    right, excluded = clutter_estimate.estimate.model.right, clutter_estimate.frames.left_out
    used = np.ones(len(right), bool) if excluded is None else ~excluded
    signal_pixels = np.flatnonzero(clutter_estimate.grid.mask)
    pixels = signal_pixels[spread_rows(len(signal_pixels), SEARCHED_PIXELS)]
    values = np.concatenate([part.reshape(len(part), -1)[:, pixels] for part in parts])
    used &= np.isfinite(values).any(axis=1)
    values[~used] = 0
    # Missing entries would be filled from the other blocks.
    values = values[:, np.isfinite(values).all(axis=0)]
    squares = np.abs(values - right.conj() @ (right.T @ values)) ** 2
    edges = np.cumsum([0, *map(len, parts)])
    blocks = [squares[first:stop][used[first:stop]] for first, stop in pairwise(edges)]
    none = np.full(values.shape[1], np.nan)
    return np.array([block.mean(axis=0) if len(block) else none for block in blocks], np.float64)


def _own_local_components(clutter_estimate: ClutterEstimate, lengths: Sequence[int]) -> NDArray[np.intp]:
    """Return the number of components in few pixels that are far stronger in a block than in most of them."""
    # All components: an artefact disturbs the cutoff, too.
    edges, shares = np.cumsum([0, *lengths]), np.abs(clutter_estimate.model.left) ** 2
    areas = shares.sum(axis=0) ** 2 / np.maximum((shares**2).sum(axis=0), TINY) / len(shares)
    right = np.abs(clutter_estimate.model.right) ** 2
    powers = np.stack([right[first:stop].mean(axis=0) for first, stop in pairwise(edges)])
    is_own = powers > OWN_RATIO * np.median(powers, axis=0)
    n_own: NDArray[np.intp] = np.count_nonzero(is_own & (areas < LOCAL_AREA), axis=1)
    return n_own


def _calm_blocks(clutter_estimate: ClutterEstimate, sample: _Sample) -> list[int]:
    """Return the numbers of a few blocks, spread over the session, of the half of which least power is left."""
    levels = _levels(clutter_estimate, sample.lengths)
    if np.isnan(levels).all():
        return []
    # In the other blocks, the image may have moved.
    calm = np.flatnonzero(levels <= np.nanmedian(levels))
    indices = np.linspace(0, len(calm) - 1, TRIED_BLOCKS).round().astype(int)
    return [sample.numbers[calm[index]] for index in dict.fromkeys(indices.tolist())]


def _leaks(tried: Any, clutter: SessionClutter) -> bool:
    """Return whether too much tissue remains; False for fewer than two blocks."""
    sums = BlockSums()
    for block in tried:
        if block.arrays:
            block_arrays = block.arrays
            sums.add(
                BlockSpectrum.of(
                    block_arrays["lags"], clutter, block_arrays["temporal"], block_arrays["observed"]
                )
            )
    return sums.n_blocks > 1 and leak_share(sums, clutter) > MOST_LEAK


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


def check_bad_frames(options: DenoiseOptions, blocks: Blocks) -> None:
    """Check that the given bad frames are frames of the blocks.

    Raises
    ------
    OptionError
        If one is not.
    """
    n_frames = max(block.window.stop for block in blocks.blocks)
    if not isinstance(options.bad_frames, str) and any(frame >= n_frames for frame in options.bad_frames):
        raise OptionError(
            f"bad frame {max(options.bad_frames)} is not among the frames 0 to {n_frames - 1}",
            remedy="change {bad_frames}",
        )


def _own_length(blocks: Blocks, number: int) -> int:
    """Return the number of frames of a block before the next one of its file begins."""
    block, *after = blocks.blocks[number : number + 2]
    n_frames = block.window.n_frames
    if after and after[0].file == block.file:
        return min(n_frames, after[0].window.start - block.window.start)
    return n_frames
