"""The passes over a stack in chunks: what the estimate and the filter do to a whole matrix, chunk by chunk.

Importing this file teaches the functions of the pipeline to take a :class:`ChunkedMatrix`.
"""

from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.lags import LagSums
from usdenoise.clutter.band import Band, Residual, is_residual, keep_band, remove_clutter, some_lags
from usdenoise.clutter.local_cutoffs import LocalCutoffs
from usdenoise.components.estimate import COARSE_PIXELS
from usdenoise.components.pixel_subset import RANK_LIMIT, SUBSET_PIXELS
from usdenoise.components.refit import Fit, fit_both, fit_left, mend_rows
from usdenoise.components.sampled_pixels import sampled_pixel_count
from usdenoise.errors import OptionError
from usdenoise.frames.bad_frames import SAMPLE_PIXELS, clear_frames
from usdenoise.frames.displacement import displacements, image_displacements, middle
from usdenoise.frames.frame_check import CURVE_PIXELS
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.chunks.chunk_functions import (
    add_sums,
    band_of,
    energy,
    frames_energy,
    look,
    measure_chunk,
    moments,
    observed_entries,
    project,
    without,
)
from usdenoise.recipe.chunks.chunk_grid import ChunkGrid
from usdenoise.recipe.chunks.chunked_matrix import ChunkedMatrix, ChunkedRows
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.bit_mask import pack
from usdenoise.stack.casorati import EntryCheck, filtered_stack
from usdenoise.stack.random_streams import RandomStream

_MENDED_ROWS = 1024
"""Rows whose masks are unpacked at a time."""


CHUNKED_IMAGE = {1: 256, 2: 48, 3: 16}
"""Pixels along an axis of the middle part in which displacements are measured, by the number of spatial axes. It is gathered
in all frames."""


def check_chunks(stack: Acquisition, dtype: Any, options: DenoiseOptions, executor: Executor) -> EntryCheck:
    """Take a first look at all chunks of a stack, and gather the rows that the estimate will ask for.

    Parameters
    ----------
    stack : Acquisition
        A stack that is a Dask array.
    dtype : dtype
        Type of the entries.
    options : DenoiseOptions
        Say which rows those are.
    executor : Executor
        For the work on gathered rows.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    OptionError
        If an option needs the whole stack in memory.
    """
    for name, value, wanted in (
        ("method", options.method == "svd", "another method"),
        ("refit", options.refit == "none", "'all'"),
        ("motion", options.motion == "rigid", "'none'"),
    ):
        if value:
            raise OptionError(
                f"{name} '{getattr(options, name)}' needs the whole stack in memory, and '{stack.name}' is in chunks; "
                f"choose {wanted}, or call compute() on the stack first"
            )
    rows = ChunkedRows(ChunkGrid.of(stack, dtype))
    sets = _wanted_rows(rows.shape[0], stack.shape_in(canonical_axes(stack.spatial_axes)), options)
    energy, missing, largest = np.zeros(rows.shape[0]), np.zeros(rows.shape[0], np.int64), 0.0
    for group, seen in rows.gather(sets, look, attrgetter("picked")):
        energy[rows.grid.pixels[group]] += seen.energy
        missing[rows.grid.pixels[group]] += seen.n_unobserved
        largest = max(largest, seen.largest)
    observed = _observed_bits(rows, missing) if missing.any() else None
    matrix = ChunkedMatrix(rows, observed, executor, largest=largest)
    return EntryCheck(matrix, int(missing.sum()), energy)


@displacements.register
def _displacements(matrix: ChunkedMatrix, shape: tuple[int, ...]) -> NDArray[np.float64]:
    numbers = np.arange(matrix.n_pixels).reshape(shape)[middle(shape, CHUNKED_IMAGE[len(shape)])]
    values = matrix.in_memory(numbers.ravel()).values
    moved = image_displacements(values.reshape(*numbers.shape, matrix.n_frames), matrix.executor)
    matrix.values.forget(numbers.ravel())
    return moved


@clear_frames.register
def _clear_frames(matrix: ChunkedMatrix, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the energy alone: every later pass leaves the frames out by itself."""
    wanted = np.zeros(matrix.n_frames, bool)
    wanted[columns] = True
    return _of_pixels(
        matrix,
        matrix.grid.map(
            frames_energy, lambda group, part: (wanted[matrix.grid.frames(part)],)
        ).sums_over_frames(),
    )


@fit_left.register
def _fit_left(
    matrix: ChunkedMatrix, right: NDArray[Any], ridge: NDArray[np.float64] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    grid = matrix.grid
    parts = grid.by_frames(right)
    projected = grid.map(project, lambda group, part: (parts[part], matrix.of_part(part)))
    left = _of_pixels(matrix, projected.sums_over_frames()).astype(matrix.dtype)
    for rows in row_blocks(matrix.n_pixels, _MENDED_ROWS):
        mend_rows(left[rows], matrix.observed_mask(rows), right, ridge)
    return left, gram(left)


@fit_both.register
def _fit_both(matrix: ChunkedMatrix, right: NDArray[Any], ridge: NDArray[np.float64] | None) -> Fit:
    left, squares = _fit_left(matrix, right, ridge)
    grid = matrix.grid
    groups, parts = grid.by_pixels(left), grid.by_frames(right)
    products = grid.map(
        moments, lambda group, part: (groups[group], parts[part], matrix.of_part(part))
    ).sums_over_pixels()
    return Fit(left, np.concatenate(products, axis=1), squares)


@some_lags.register
def _some_lags(
    matrix: ChunkedMatrix, model: LowRank, low: int, pixels: NDArray[np.intp], n_lags: int
) -> LagSums:
    """Return the lagged products of some pixels, of those of all pixels: a chunk is made as a whole."""
    return _measured(matrix, _without(matrix.grid, *model.band(0, low)), n_lags).lags.rows(pixels)


@remove_clutter.register
def _remove_clutter(
    matrix: ChunkedMatrix, model: LowRank, low: int, n_lags: int, cutoffs: LocalCutoffs | None = None
) -> tuple[ChunkedMatrix, Residual]:
    grid = _without(matrix.grid, *model.band(0, low))
    by_place = None if cutoffs is None else _change_taken(grid, model, cutoffs)
    residual = replace(matrix, values=ChunkedRows(grid))
    return residual, _measured(residual, grid, n_lags, by_place)


@keep_band.register
def _keep_band(
    residual: ChunkedMatrix,
    model: LowRank,
    band: Band,
    power: NDArray[np.float64],
    cutoffs: LocalCutoffs | None = None,
) -> tuple[ChunkedMatrix, NDArray[np.float64]]:
    if is_residual(residual, band, cutoffs):
        return residual, power
    grid = residual.grid if cutoffs is None else _change_taken(residual.grid, model, cutoffs)
    first = band.low if cutoffs is None else min(cutoffs.first, band.low)
    own, kept_h = model.band(first, band.high)
    if cutoffs is not None:
        own = own * (1 - cutoffs.of(slice(None), first, band.high))
    groups, parts = grid.by_pixels(own), grid.by_frames(kept_h.T)

    def arguments(group: int, part: int) -> tuple[Any, ...]:
        return groups[group], parts[part], band.keeps_residual, residual.of_part(part)

    kept = grid.map(band_of, arguments)
    energies = kept.map(energy, lambda group, part: (residual.of_part(part),)).sums_over_frames()
    matrix = replace(residual, values=ChunkedRows(kept))
    return matrix, _of_pixels(residual, energies) / residual.n_used_frames


@filtered_stack.register
def _filtered_stack(matrix: ChunkedMatrix, like: Acquisition) -> Any:
    return matrix.grid.as_array(like)


def _observed_bits(rows: ChunkedRows, missing: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the bit mask of the observed entries; only groups with unobserved entries are looked at again."""
    bits = pack(np.ones((1, rows.shape[1]), bool)).repeat(rows.shape[0], axis=0)
    some = [group for group, pixels in enumerate(rows.grid.pixels) if missing[pixels].any()]
    grid = rows.grid.only(some)
    parts: list[NDArray[np.bool_]] = []
    for group, part, observed in grid.map(observed_entries, lambda group, part: ()).each(
        [len(pixels) for pixels in grid.pixels]
    ):
        parts.append(observed)
        if part == grid.n_parts - 1:
            bits[grid.pixels[group]] = pack(np.concatenate(parts, axis=1))
            parts = []
    return bits


def _wanted_rows(n_pixels: int, shape: tuple[int, ...], options: DenoiseOptions) -> list[NDArray[np.intp]]:
    """Return the sets of rows that the estimate asks for if every entry is observed; others are gathered later."""
    numbers = np.arange(n_pixels)
    rank = RANK_LIMIT if isinstance(options.rank, str) else options.rank
    sampled = RandomStream.SAMPLED_PIXELS.generator(options.seed).permutation(n_pixels)
    coarse = numbers[:: n_pixels // COARSE_PIXELS] if n_pixels >= 2 * COARSE_PIXELS else numbers[:0]
    wanted = [
        coarse,
        RandomStream.PIXEL_SUBSET.generator(options.seed).permutation(n_pixels)[:SUBSET_PIXELS],
        sampled[: sampled_pixel_count(rank, options.sampling)],
        numbers.reshape(shape)[middle(shape, CHUNKED_IMAGE[len(shape)])].ravel(),
        *(numbers[:: max(1, n_pixels // count)] for count in (SAMPLE_PIXELS, CURVE_PIXELS)),
    ]
    return [np.sort(rows) for rows in wanted]


def _of_pixels(matrix: ChunkedMatrix, groups: list[NDArray[Any]]) -> NDArray[Any]:
    """Return values of each group's pixels in the order of the Casorati matrix."""
    values = np.empty((matrix.n_pixels, *groups[0].shape[1:]), groups[0].dtype)
    for pixels, group in zip(matrix.grid.pixels, groups, strict=True):
        values[pixels] = group
    return values


def _without(grid: ChunkGrid, factor: NDArray[Any], factor_h: NDArray[Any]) -> ChunkGrid:
    """Return the chunks minus A B^H."""
    groups, parts = grid.by_pixels(factor), grid.by_frames(factor_h.T)
    return grid.map(without, lambda group, part: (groups[group], parts[part]))


def _change_taken(grid: ChunkGrid, model: LowRank, cutoffs: LocalCutoffs) -> ChunkGrid:
    """Return the chunks of a residual without what cutoffs by place take in addition."""
    near, near_h = model.band(cutoffs.first, cutoffs.stop)
    return _without(grid, near * cutoffs.changed(slice(None)), near_h)


def _measured(
    matrix: ChunkedMatrix, grid: ChunkGrid, n_lags: int, by_place: ChunkGrid | None = None
) -> Residual:
    """Measure filtered chunks of a matrix that says which entries count; the lagged products in other chunks, if given."""
    lagged = grid if by_place is None else by_place
    before = lagged.with_last_frames(max(n_lags - 1, 0))
    n_frames, left_out = matrix.n_frames, matrix.left_out

    def arguments(group: int, part: int) -> tuple[Any, ...]:
        whole = grid.chunks[group][part]
        return before[group][part], whole, int(grid.edges[part]), n_frames, n_lags, left_out

    made = lagged.map(measure_chunk, arguments).sums_over_frames(add_sums)
    sums, counts = (
        np.stack([_of_pixels(matrix, [part[half] for part in parts]) for half in range(2)])
        for parts in ([each.sums for each in made], [each.all_counts for each in made])
    )
    power = _of_pixels(matrix, [each.energy for each in made]) / matrix.n_used_frames
    return Residual(power, LagSums(sums, counts))
