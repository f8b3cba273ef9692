"""The Casorati matrix of a stack: one row for each pixel, one column for each frame."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.acquisition import Acquisition, canonical_axes, spatial_order


def casorati(acquisition: Acquisition, dtype: Any = None) -> NDArray[Any]:
    """Casorati matrix of an acquisition.

    Pixels are numbered in the order z, x, y (the last fastest) whatever the order of the stack's axes, so
    that the same acquisition in another file layout gives the same matrix.

    Parameters
    ----------
    acquisition : Acquisition
        The stack.
    dtype : dtype, optional
        Type of the result; by default the stack's.

    Returns
    -------
    (n_pixels, n_frames) array, C-contiguous
        A view of the stack where its memory is in this order already, otherwise a copy.
    """
    ordered = spatial_order(acquisition.iq, acquisition.axes, canonical_axes(acquisition.axes))
    return np.ascontiguousarray(ordered.reshape(-1, acquisition.n_frames), dtype=dtype)


def from_casorati(matrix: NDArray[Any], like: Acquisition) -> NDArray[Any]:
    """View of a (n_pixels, n_frames) matrix as a stack in the axis order and shape of `like`."""
    canonical = canonical_axes(like.axes)
    shape = [like.iq.shape[like.axes.index(letter)] for letter in canonical]
    return spatial_order(matrix.reshape(shape), canonical, like.axes)


def image_from_pixels(values: NDArray[Any], like: Acquisition) -> NDArray[Any]:
    """View of a vector of n_pixels values as an image in the spatial axis order and shape of `like`."""
    canonical = canonical_axes(like.axes)[:-1]
    shape = [like.iq.shape[like.axes.index(letter)] for letter in canonical]
    return spatial_order(values.reshape(shape), canonical, like.spatial_axes)


def row_blocks(n_rows: int, rows_a_block: int) -> Iterator[slice]:
    """Consecutive slices that cover `n_rows` rows, the last one shorter where it must be."""
    return (slice(start, min(start + rows_a_block, n_rows)) for start in range(0, n_rows, rows_a_block))


def blank_unobserved(matrix: NDArray[Any]) -> tuple[NDArray[np.uint8] | None, int]:
    """Put 0 where a matrix is not finite, in place, and say where that was.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Changed in place.

    Returns
    -------
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the finite entries, little-endian bits along the rows; None when all are finite.
    n_unobserved : int
        Number of entries that were NaN or infinite.
    """
    n_rows, n_frames = matrix.shape
    observed: NDArray[np.uint8] | None = None
    n_unobserved = 0
    for rows in row_blocks(n_rows, 256):
        block = matrix[rows]
        finite = np.isfinite(block)
        if finite.all():
            continue
        if observed is None:
            observed = np.full((n_rows, -(-n_frames // 8)), 255, np.uint8)
        observed[rows] = np.packbits(finite, axis=1, bitorder="little")
        block[~finite] = 0
        n_unobserved += int(finite.size - np.count_nonzero(finite))
    return observed, n_unobserved


def largest_magnitude(matrix: NDArray[Any]) -> float:
    """Largest absolute real or imaginary part of a finite matrix."""
    parts = matrix.view(matrix.real.dtype)
    return max(float(parts.max()), -float(parts.min()))


def has_unobserved(matrix: NDArray[Any]) -> bool:
    """Whether any entry of a matrix is NaN or infinite."""
    return any(not np.isfinite(matrix[rows]).all() for rows in row_blocks(matrix.shape[0], 256))
