"""The estimate of the clutter of a stack: a spatial subspace, a cutoff and the noise level.

Every command estimates with :func:`estimate_clutter`: `run` from all blocks of an acquisition, a session
from a sample of its frames.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.band import Band
from usdenoise.clutter.choose_local_cutoffs import LatticeFrames
from usdenoise.clutter.clutter_cutoff import CutoffChoice, choose_low_cutoff
from usdenoise.clutter.lattice import Lattice
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration
from usdenoise.estimate.estimate import Estimate, estimate_components
from usdenoise.estimate.rank import least_rank
from usdenoise.frames.displacement import displacements, envelope, middle_part
from usdenoise.frames.frame_check import check_frames
from usdenoise.frames.frame_quality import FrameQuality
from usdenoise.frames.time_axis import time_axis
from usdenoise.linalg.gapped_rows import unobserved_normal
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.block_filter import FrameBlock, observed_frames
from usdenoise.pipeline.inspection import Inspection, fast_power, inspect
from usdenoise.pipeline.passes import Passes
from usdenoise.pipeline.signal_pixels import find_signal_pixels
from usdenoise.stack.acquisition import canonical_axes
from usdenoise.stack.pixel_sample import PixelSample

COMPONENTS_BEYOND_CUTOFF = 8
"""Components above the low cutoff that are fitted to all pixels, so that the last one below it is exact."""

FITTED_ENTRIES = 1 << 24
"""Entries of the normal matrices of pixels with unobserved entries that are held together."""


@dataclass(frozen=True)
class ClutterEstimate:
    """The clutter of a stack.

    Attributes
    ----------
    model : LowRank
        Components in all pixels with a signal: those below the low cutoff and a few more, or all of them where they fill
        entries.
    singular_values : (rank,) float64 array
        Singular values of all components. Those that the model does not have are estimated from the sample.
    band : Band
        The part that is kept.
    cutoff : CutoffChoice
        The low cutoff that the data suggest. It is the low cutoff of the band unless one was given.
    estimate : Estimate
        The components of the sample.
    frames : FrameQuality
        The bad frames, and curves over all frames.
    n_used_frames : int
        Number of frames that are not excluded.
    grid : Neighbourhood
        Shape of the image, and the pixels that have a signal.
    inspection : Inspection
        What the first look at the blocks found.
    is_sample : bool
        Whether the sample has all pixels with a signal, so that the model is the sample's.
    is_complete : bool
        Whether all entries of the sample are observed.
    time_letter : str or None
        Letter of the axis that is time by the data; None if that is not clear.
    """

    model: LowRank
    singular_values: NDArray[np.float64]
    band: Band
    cutoff: CutoffChoice
    estimate: Estimate
    frames: FrameQuality
    n_used_frames: int
    grid: Neighbourhood
    inspection: Inspection
    is_sample: bool
    is_complete: bool
    time_letter: str | None

    @property
    def lattice_frames(self) -> LatticeFrames:
        """The values from which the first blood map is made."""
        inspection, excluded = self.inspection, self.frames.left_out
        positions = inspection.lattice_places
        # A slice is a view, and all pixels count in most stacks.
        counted: Any = (
            slice(None) if self.grid.signal_pixels is None else self.grid.mask[np.ix_(*positions)].ravel()
        )
        lattice = Lattice(self.grid, positions)
        used = None if excluded is None else ~excluded
        return LatticeFrames(lattice, inspection.lattice[counted], inspection.lattice_frames[0], used)

    @property
    def has_gaps(self) -> bool:
        """Whether entries of pixels with a signal are unobserved in frames that are not excluded."""
        return has_gaps(self.inspection, self.grid, self.frames.left_out)

    @property
    def energy(self) -> float:
        """Sum of |x|^2 over the observed entries in these frames."""
        excluded = self.frames.left_out
        by_frame = self.inspection.frame_energy
        return float(by_frame.sum() if excluded is None else by_frame[~excluded].sum())


def has_gaps(inspection: Inspection, grid: Neighbourhood, excluded: NDArray[np.bool_] | None) -> bool:
    """Return whether entries that count are unobserved; excluded frames, and pixels without a signal, do not count."""
    if excluded is not None and not inspection.frame_missing[~excluded].any():
        return False
    return bool(
        inspection.missing.any()
        if grid.signal_pixels is None
        else inspection.missing[grid.signal_pixels].any()
    )


def estimate_clutter(
    passes: Passes,
    options: DenoiseOptions,
    start: Factors | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
    on_checked: Callable[[], None] = lambda: None,
) -> ClutterEstimate:
    """Estimate the clutter of a stack from its blocks.

    The steps: look at all blocks, and gather a sample of the pixels; find bad frames; complete sampled entries of the
    sample (Zhang, Chiu and Zhang, AISTATS 2024), and refit the components to the sample; fit the components to all
    pixels, U = orth(M V); choose the cutoff.

    Parameters
    ----------
    passes : Passes
        The blocks.
    options : DenoiseOptions
        Options of the estimate.
    start : pair of arrays, optional
        A warm start: factors U (n_pixels, r) and V (n_frames, r) of an earlier or a similar stack.
    on_iteration : callable, optional
        Called with each line of the trace.
    on_checked : callable, optional
        Called after the frames were checked.

    Raises
    ------
    UsdenoiseError
        As for :func:`usdenoise.denoise`.
    """
    needs_all = options.method == "svd" or options.refit == "none"
    inspection, values = inspect(passes, needs_all)
    sample = PixelSample.of(values.sample, inspection.sample_pixels, passes.threads)
    energy = _energy_in_most_frames(passes, inspection, sample)
    signal_pixels = find_signal_pixels(
        sample, energy, least_rank(options), lambda: fast_power(passes, inspection.is_finite)
    )
    grid = Neighbourhood(passes.shape, signal_pixels)
    time_letter = _time_letter(passes, values.envelopes)
    moved = _displacements(passes, values.envelopes, grid)
    # In long stacks the envelopes take as much as the sample.
    del values
    if signal_pixels is not None:
        sample = sample.take(np.flatnonzero(np.isin(sample.numbers, signal_pixels)))
        sample = replace(sample, numbers=np.searchsorted(signal_pixels, sample.numbers))
    frames = check_frames(sample, moved, options)
    on_checked()
    start = None if start is None else _of_sample(start, passes.source.stack.n_pixels, grid, sample)
    # If the residual is kept, the components above the low cutoff do not change the result, unless they fill
    # unobserved entries.
    only_clutter = options.refit == "all" and options.high_cutoff == "none"
    only_clutter = only_clutter and not has_gaps(inspection, grid, frames.search.left_out)
    estimate = estimate_components(frames.sample, frames.subset, options, only_clutter, start, on_iteration)
    excluded, is_sample = frames.search.left_out, sample.n_pixels == grid.n_pixels
    model = estimate.model
    if not is_sample:
        model = fit_all_pixels(passes, inspection, grid, excluded, estimate, model.rank)
    moved_by = frames.search.movement.range_pixels
    band, choice = _choose_band(model, estimate, frames.sample, options, moved_by)
    singular_values = _all_singular_values(model, estimate.model)
    if only_clutter and not is_sample:
        model = model.truncated(_needed(band.low, model.rank))
    return ClutterEstimate(
        model=model,
        singular_values=singular_values,
        band=band,
        cutoff=choice,
        estimate=estimate,
        frames=frames.quality(estimate.model, band.low),
        n_used_frames=frames.sample.n_used_frames,
        grid=grid,
        inspection=inspection,
        is_sample=is_sample,
        is_complete=frames.sample.is_complete,
        time_letter=time_letter,
    )


def _energy_in_most_frames(
    passes: Passes, inspection: Inspection, sample: PixelSample
) -> NDArray[np.float64]:
    """Return the energy of each pixel; 0 for pixels that are 0 in more than half of the frames.

    Interference in a few frames reaches the pixels outside a sector. All pixels are counted only if the sample has such a
    pixel.
    """
    least = np.count_nonzero(inspection.frame_energy) / 2
    n_nonzero = np.count_nonzero(sample.values, axis=1)
    if not ((n_nonzero > 0) & (n_nonzero < least)).any():
        return inspection.energy
    counts = passes.by_pixel(sum(passes.map(nonzero_counts)))
    return np.where(counts < least, 0, inspection.energy)


def nonzero_counts(block: FrameBlock) -> NDArray[np.intp]:
    """Return the number of frames of a block in which each pixel is not 0."""
    counts: NDArray[np.intp] = np.count_nonzero(block.read(), axis=0)
    return counts


def _of_sample(start: Factors, n_pixels: int, grid: Neighbourhood, sample: PixelSample) -> Factors:
    """Return the factors of a warm start in the pixels of a sample."""
    left, right = start
    if grid.signal_pixels is not None and len(left) == n_pixels:
        left = left[grid.signal_pixels]
    return (left[sample.numbers] if len(left) == grid.n_pixels else left), right


def with_cutoff(passes: Passes, clutter_estimate: ClutterEstimate, choice: CutoffChoice) -> ClutterEstimate:
    """Return an estimate of which the residual is kept, with another cutoff."""
    rank = len(clutter_estimate.singular_values)
    clutter_estimate = replace(clutter_estimate, band=Band(choice.low, rank, True), cutoff=choice)
    if clutter_estimate.model.rank >= _needed(choice.low, rank):
        return clutter_estimate
    needed, excluded = _needed(choice.low, rank), clutter_estimate.frames.left_out
    model = fit_all_pixels(
        passes,
        clutter_estimate.inspection,
        clutter_estimate.grid,
        excluded,
        clutter_estimate.estimate,
        needed,
    )
    return replace(clutter_estimate, model=model)


def _needed(low: int, rank: int) -> int:
    """Return how many components a filter needs that keeps the residual."""
    return min(low + COMPONENTS_BEYOND_CUTOFF, rank)


def _all_singular_values(model: LowRank, sampled: LowRank) -> NDArray[np.float64]:
    """Return the singular values of all components; those that a model does not have are estimated from the sample."""
    remaining = sampled.singular_values[model.rank :] * np.sqrt(len(model.left) / len(sampled.left))
    return np.append(model.singular_values, np.minimum(remaining, model.singular_values[-1]))


def fit_all_pixels(
    passes: Passes,
    inspection: Inspection,
    grid: Neighbourhood,
    excluded: NDArray[np.bool_] | None,
    estimate: Estimate,
    count: int,
) -> LowRank:
    """Return the leading components of a sample, fitted to all pixels with a signal.

    Parameters
    ----------
    passes : Passes
        The blocks.
    inspection : Inspection
        What the first look at them found.
    grid : Neighbourhood
        Shape of the image, and the pixels with a signal.
    excluded : (n_frames,) boolean array or None
        Frames that do not count.
    estimate : Estimate
        The components of the sample.
    count : int
        How many of them are fitted.
    """
    right, signal_pixels = estimate.model.right[:, :count], grid.signal_pixels
    left: Any = sum(
        passes.map(projected, right, _signal_in_block(passes, signal_pixels), own=inspection.is_finite)
    )
    left = passes.by_pixel(left)
    left = left if signal_pixels is None else left[signal_pixels]
    if has_gaps(inspection, grid, excluded):
        missing = inspection.missing if signal_pixels is None else inspection.missing[signal_pixels]
        used = np.ones(len(right), bool) if excluded is None else ~excluded
        ridge = np.zeros(count) if estimate.prior is None else estimate.prior.ridge[:count]
        _fit_gapped(passes, inspection, signal_pixels, used, left, np.flatnonzero(missing), right, ridge)
    return LowRank.from_factors(left, right)


def _signal_in_block(passes: Passes, signal_pixels: NDArray[np.intp] | None) -> NDArray[np.bool_] | None:
    """Return which pixels of a block have a signal; None for all."""
    if signal_pixels is None:
        return None
    mask = np.zeros(passes.source.stack.n_pixels, bool)
    mask[signal_pixels] = True
    return passes.in_block(mask)


def projected(
    block: FrameBlock, is_finite: bool, right: NDArray[Any], has_signal: NDArray[np.bool_] | None
) -> NDArray[Any]:
    """Return M V over the frames of a block, (n_pixels, r), with 0 for unobserved entries."""
    x, _ = observed_frames(block.read(), is_finite, has_signal)
    product: NDArray[Any] = x.T @ right[block.start : block.stop]
    return product


def unobserved_part(
    block: FrameBlock, is_finite: bool, right: NDArray[Any], pixels: NDArray[np.intp], used: NDArray[np.bool_]
) -> NDArray[Any]:
    """Return sum_t v_t v_t^H over the unobserved frames of some pixels in a block, (n, r, r)."""
    r = right.shape[1]
    if is_finite:
        return np.zeros((1, r, r), right.dtype)
    missing = ~np.isfinite(block.read()[:, pixels]) & used[block.start : block.stop, None]
    return unobserved_normal(missing.T, right[block.start : block.stop])


def _fit_gapped(
    passes: Passes,
    inspection: Inspection,
    signal_pixels: NDArray[np.intp] | None,
    used: NDArray[np.bool_],
    left: NDArray[Any],
    pixels: NDArray[np.intp],
    right: NDArray[Any],
    ridge: NDArray[np.float64],
) -> None:
    """Turn the rows of M V of pixels with unobserved entries into least-squares fits, in place.

    The normal matrix of a pixel is I minus the part of its unobserved frames.
    """
    r = right.shape[1]
    weights = np.maximum(ridge, r * np.finfo(right.dtype).eps)
    for start in range(0, len(pixels), max(1, FITTED_ENTRIES // r**2)):
        group = pixels[start : start + max(1, FITTED_ENTRIES // r**2)]
        indices = passes.places(group if signal_pixels is None else signal_pixels[group])
        parts = passes.map(unobserved_part, right, indices, used, own=inspection.is_finite)
        normal: Any = np.diag(1 + weights) - sum(parts)
        left[group] = np.linalg.solve(normal, left[group][..., None])[..., 0]


def _time_letter(passes: Passes, envelopes: NDArray[np.float32]) -> str | None:
    """Return the letter of the axis that is time by the data."""
    axis = time_axis(envelopes)
    return None if axis is None else ("t" + canonical_axes(passes.source.stack.spatial_axes))[axis]


def _displacements(
    passes: Passes, envelopes: NDArray[np.float32], grid: Neighbourhood
) -> NDArray[np.float64]:
    """Return the displacement of each frame in the middle of the pixels with a signal."""
    if grid.signal_pixels is None:
        return displacements(envelopes, np.ones(envelopes.shape[1:], bool), passes.threads)
    part = middle_part(grid.shape, grid.mask)
    counted = grid.mask[part]
    numbers = np.arange(grid.mask.size).reshape(grid.shape)[part]
    indices = passes.places(numbers.ravel())
    pixel_envelopes = np.concatenate(list(passes.map(envelopes_of, indices))).reshape(-1, *counted.shape)
    return displacements(pixel_envelopes, counted, passes.threads)


def envelopes_of(block: FrameBlock, pixels: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the magnitudes of some pixels of a block, (n, n_pixels)."""
    return envelope(block.read()[:, pixels])


def _choose_band(
    model: LowRank, estimate: Estimate, sample: PixelSample, options: DenoiseOptions, moved: float
) -> tuple[Band, CutoffChoice]:
    """Return the band that is kept, and the low cutoff that the data suggest.

    The image moves by up to `moved` pixels.
    """
    rank = estimate.model.rank
    high = rank if isinstance(options.high_cutoff, str) else options.high_cutoff
    keeps_residual = options.high_cutoff == "none"
    # The band must not be empty. With the residual there is something left when all components are removed.
    highest = rank if keeps_residual else high - 1
    choice = choose_low_cutoff(model, sample, estimate.noise_rms, highest, moved)
    low = choice.low if isinstance(options.low_cutoff, str) else options.low_cutoff
    return Band(low, high, keeps_residual), choice
