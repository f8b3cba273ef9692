"""The filter of a stack: the filter of its blocks, the combination of their measures, and the blood map."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import BloodMap, map_blood
from usdenoise.blood.leaked_tissue import leaked_tissue, share_above_noise, weak_speckle
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.band import Band
from usdenoise.clutter.choose_local_cutoffs import LatticeFrames, choose_local_cutoffs
from usdenoise.clutter.lattice import Lattice, lattice_places
from usdenoise.frames.filling import interpolated
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.block_filter import BlockFilter, FrameBlock, Measures, filter_block
from usdenoise.pipeline.clutter_estimate import ClutterEstimate
from usdenoise.pipeline.combination import combine, lag_sums_of
from usdenoise.pipeline.frame_sources import ArrayBlock, LazyFrames, frames_as_stack
from usdenoise.pipeline.passes import Passes
from usdenoise.stack.bit_mask import pack, unpack
from usdenoise.stack.frame_blocks import block_edges


@dataclass(frozen=True)
class MeasuredFit:
    """Measures of the components of a stack from a pass over all blocks, in the signal pixels.

    Attributes
    ----------
    model : LowRank
        The components in all frames, interpolated over excluded ones.
    singular_values : (rank,) float64 array
        Singular values of all components.
    gained_energy : float or None
        Energy that the components gained in this pass; None without a refit.
    residual_power : (n_pixels,) float64 array
        Mean of |y|^2 over the frames, y the data without the components below the low cutoff.
    n_unobserved : int
        Number of unobserved entries in frames that count.
    """

    model: LowRank
    singular_values: NDArray[np.float64]
    gained_energy: float | None
    residual_power: NDArray[np.float64]
    n_unobserved: int


@dataclass(frozen=True)
class FilteredStack:
    """A filtered stack with its maps; pixels are those with a signal.

    Attributes
    ----------
    iq : array
        The filtered stack: an array, or a Dask array for a lazy stack.
    power : (n_pixels,) float64 array
        Power Doppler: mean of |y|^2 over the frames of the filtered stack y.
    blood : BloodMap
        The blood map.
    tissue_share : float
        Share of leaked tissue in the power above the noise after the filter.
    fit : MeasuredFit
        The components.
    n_unused : int
        Number of entries that are unobserved or in an excluded frame.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the entries that are observed, and in no excluded frame, for all pixels; None for all of them.
    """

    iq: Any
    power: NDArray[np.float64]
    blood: BloodMap
    tissue_share: float
    fit: MeasuredFit
    n_unused: int
    observed: NDArray[np.uint8] | None


def filter_stack(passes: Passes, clutter_estimate: ClutterEstimate, options: DenoiseOptions) -> FilteredStack:
    """Filter all blocks of a stack, and map the blood.

    Parameters
    ----------
    passes : Passes
        The blocks.
    clutter_estimate : ClutterEstimate
        The clutter.
    options : DenoiseOptions
        Whether the components were refitted.
    """
    grid, excluded = clutter_estimate.grid, clutter_estimate.frames.left_out
    projection, cutoffs = choose_local_cutoffs(
        clutter_estimate.lattice_frames,
        clutter_estimate.model,
        clutter_estimate.band.low,
        grid,
        passes.threads,
    )
    plan = _plan(passes, clutter_estimate, options)
    further = None
    if cutoffs is not None:
        further = (cutoffs.first, passes.in_block(grid.everywhere(cutoffs.further)))
    plan = replace(plan, n_lags=projection.n_lags, further=further)
    measures = combine(_filtered(passes, clutter_estimate, plan, passes.source.target), plan)
    pixels = _signal_pixels(passes, grid)
    blood = map_blood(lag_sums_of(measures, plan).rows(pixels), projection, grid, passes.threads)
    fit = _measured_fit(passes, clutter_estimate, measures)
    return FilteredStack(
        iq=_stack_of(passes, clutter_estimate, plan),
        power=measures.kept_power[pixels] / clutter_estimate.n_used_frames,
        blood=blood,
        tissue_share=_tissue_share(
            clutter_estimate, fit.residual_power, blood.noise_power * projection.white[0].real
        ),
        fit=fit,
        n_unused=n_unused(measures, excluded),
        observed=_observed_bits(passes, measures, excluded),
    )


def _tissue_share(
    clutter_estimate: ClutterEstimate, power: NDArray[np.float64], noise: NDArray[np.float64]
) -> float:
    """Return the share of leaked tissue in the power above the noise after the filter."""
    speckle = weak_speckle(clutter_estimate.model.left, clutter_estimate.band.low)
    leak = leaked_tissue((power - noise)[:, None], speckle, clutter_estimate.grid)[:, 0]
    return share_above_noise(leak, power, noise)


def measure_fit(passes: Passes, clutter_estimate: ClutterEstimate, options: DenoiseOptions) -> MeasuredFit:
    """Filter all blocks of a stack only to measure the components, without maps and filtered frames."""
    plan = replace(_plan(passes, clutter_estimate, options), n_lags=1)
    return _measured_fit(
        passes, clutter_estimate, combine(_filtered(passes, clutter_estimate, plan, None), plan)
    )


def _plan(passes: Passes, clutter_estimate: ClutterEstimate, options: DenoiseOptions) -> BlockFilter:
    """Return the filter of the blocks of a stack, without lags."""
    grid, band, excluded = clutter_estimate.grid, clutter_estimate.band, clutter_estimate.frames.left_out
    model = interpolated(clutter_estimate.model, excluded)
    return BlockFilter(
        spatial=passes.in_block(grid.everywhere(model.left)),
        low=band.low,
        high=min(band.high, model.rank),
        keeps_residual=band.keeps_residual,
        n_lags=0,
        n_frames=passes.source.stack.n_frames,
        model=model.right.conj() * model.singular_values.astype(model.right.real.dtype),
        is_given=options.refit == "none" and options.method != "svd",
        has_signal=None if grid.signal_pixels is None else passes.in_block(grid.mask.ravel()),
        excluded=excluded,
        has_gaps=clutter_estimate.has_gaps,
    )


def _signal_pixels(passes: Passes, grid: Neighbourhood) -> NDArray[np.intp]:
    """Return the indices in a block of the signal pixels."""
    return passes.places(np.arange(grid.mask.size) if grid.signal_pixels is None else grid.signal_pixels)


def _measured_fit(passes: Passes, clutter_estimate: ClutterEstimate, measures: Measures) -> MeasuredFit:
    excluded = clutter_estimate.frames.left_out
    singular_values, gained_energy = _energies(clutter_estimate, measures, excluded)
    return MeasuredFit(
        model=interpolated(clutter_estimate.model, excluded),
        singular_values=singular_values,
        gained_energy=gained_energy,
        residual_power=measures.power[_signal_pixels(passes, clutter_estimate.grid)]
        / clutter_estimate.n_used_frames,
        n_unobserved=measures.n_unobserved,
    )


def _filtered(
    passes: Passes, clutter_estimate: ClutterEstimate, plan: BlockFilter, target: NDArray[Any] | None
) -> Iterator[Measures]:
    """Yield the measures of all blocks, and copy returned frames to the target."""
    is_returned = target is not None
    for measures, filtered in passes.map(
        filter_block, plan, is_returned, own=clutter_estimate.inspection.is_finite
    ):
        if target is not None and filtered is not None:
            target[measures.start : measures.stop] = filtered
        yield measures


def _stack_of(passes: Passes, clutter_estimate: ClutterEstimate, plan: BlockFilter) -> Any:
    """Return the filtered stack: the frames in the target, or a lazy stack."""
    source = passes.source
    if source.target is not None:
        return frames_as_stack(source.target, source.stack, source.pixel_axes)
    if isinstance(source, LazyFrames):
        return source.lazy_stack(
            passes.lazy(filtered_frames, plan, own=clutter_estimate.inspection.is_finite)
        )


def filtered_frames(block: FrameBlock, is_finite: bool, plan: BlockFilter) -> NDArray[Any]:
    """Return the filtered frames of a block, (n, n_pixels)."""
    filtered = filter_block(block, is_finite, replace(plan, n_lags=0), True)[1]
    assert filtered is not None
    return filtered


def _energies(
    clutter_estimate: ClutterEstimate, measures: Measures, excluded: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float64], float | None]:
    """Return the singular values, and the energy that the components gained in the last pass; None without a refit.

    The coefficients U^H M of all frames hold what a further step of subspace iteration would find.
    """
    estimate = clutter_estimate.estimate
    if clutter_estimate.is_sample or estimate.gained_energy is None:
        return clutter_estimate.singular_values, estimate.gained_energy
    used = measures.coefficients if excluded is None else measures.coefficients[~excluded]
    gram_values = np.linalg.eigvalsh(gram(used))[::-1]
    better = np.sqrt(np.maximum(gram_values, 0))
    gained = float(np.sum(gram_values)) - float(np.sum(clutter_estimate.model.singular_values**2))
    remaining = np.minimum(clutter_estimate.singular_values[len(better) :], better[-1])
    return np.append(better, remaining), max(gained, 0.0)


def n_unused(measures: Measures, excluded: NDArray[np.bool_] | None) -> int:
    """Return the number of entries that are unobserved or in an excluded frame."""
    n_frames, n_pixels = len(measures.coefficients), len(measures.power)
    missing = np.zeros(n_frames, np.int64)
    if measures.observed is not None:
        missing = np.count_nonzero(~unpack(measures.observed, n_pixels), axis=1)
    if excluded is not None:
        missing[excluded] = n_pixels
    return int(missing.sum())


def _observed_bits(
    passes: Passes, measures: Measures, excluded: NDArray[np.bool_] | None
) -> NDArray[np.uint8] | None:
    n_pixels = len(measures.power)
    used = None if excluded is None else ~excluded
    if measures.observed is None:
        return None if used is None else np.broadcast_to(pack(used[None]), (n_pixels, -(-len(used) // 8)))
    observed = passes.by_pixel(unpack(measures.observed, n_pixels), axis=1).T
    return pack(observed if used is None else observed & used)


def filter_matrix(
    matrix: NDArray[Any], model: LowRank, band: Band, grid: Neighbourhood, executor: Executor
) -> tuple[NDArray[np.float64], BloodMap]:
    """Keep a band of the components of a matrix in place, and return its power Doppler and its blood map.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Pixels with a signal, finite everywhere.
    model : LowRank
        Components of the matrix.
    band : Band
        The part that is kept.
    grid : Neighbourhood
        Shape of the image.
    executor : Executor
        Maps over blocks of frames.
    """
    n_pixels, n_frames = matrix.shape
    lattice = Lattice(grid, lattice_places(grid.shape))
    lattice_frames = LatticeFrames(lattice, matrix[lattice.pixels], 0, None)
    projection, cutoffs = choose_local_cutoffs(lattice_frames, model, band.low, grid, executor)
    plan = BlockFilter(
        spatial=model.left,
        low=band.low,
        high=band.high,
        keeps_residual=band.keeps_residual,
        n_lags=projection.n_lags,
        n_frames=n_frames,
        further=None if cutoffs is None else (cutoffs.first, cutoffs.further),
        model=model.right.conj() * model.singular_values.astype(model.right.real.dtype),
        is_given=True,
    )
    frames = matrix.T
    blocks = [
        ArrayBlock(start, stop, frames[start:stop], matrix.dtype, "matrix", frames[start:stop])
        for start, stop in pairwise(block_edges(n_frames, n_pixels).tolist())
    ]
    filtered = executor.map(filter_block, blocks, True, plan, False)
    measures = combine((each for each, _ in filtered), plan)
    blood = map_blood(lag_sums_of(measures, plan), projection, grid, executor, with_halves=False)
    return measures.kept_power / n_frames, blood
