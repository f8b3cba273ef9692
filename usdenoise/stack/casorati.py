"""The Casorati matrix of a stack: one row for each pixel, one column for each frame."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.row_blocks import row_blocks, row_squared_norms
from usdenoise.stack.acquisition import Acquisition, canonical_axes, spatial_order

BLOCK_ENTRIES = 1 << 19


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


@dataclass(frozen=True)
class Observed:
    """Which entries of a Casorati matrix are finite, and how large they are.

    Attributes
    ----------
    bits : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the finite entries, little-endian bits along the rows; None when all are finite.
    n_missing : int
        Number of entries that are NaN or infinite.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the finite entries of each row; infinite where that is beyond the precision.
    """

    bits: NDArray[np.uint8] | None
    n_missing: int
    energy: NDArray[np.float64]


def blank_unobserved(matrix: NDArray[Any], apply: Callable[..., Iterable[Any]] = map) -> Observed:
    """Put 0 where a matrix is not finite, in place, and say where that was.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Changed in place.
    apply : callable
        Maps a function over row blocks, in order: the built-in map, or an executor's.
    """
    n_rows, n_frames = matrix.shape

    @np.errstate(over="ignore", invalid="ignore")
    def blank(rows: slice) -> tuple[NDArray[np.uint8] | None, int, NDArray[np.float64]]:
        block = matrix[rows]
        # NaN and infinities show in the sums, so that a finite block is read once and no more.
        energy = row_squared_norms(block)
        if np.isfinite(energy).all():
            return None, 0, energy
        finite = np.isfinite(block)
        n_missing = int(finite.size - np.count_nonzero(finite))
        if n_missing == 0:
            return None, 0, energy
        block[~finite] = 0
        return np.packbits(finite, axis=1, bitorder="little"), n_missing, row_squared_norms(block)

    observed: NDArray[np.uint8] | None = None
    n_missing, energies = 0, []
    blocks = list(row_blocks(n_rows, max(1, BLOCK_ENTRIES // n_frames)))
    for rows, (bits, missing, energy) in zip(blocks, apply(blank, blocks), strict=True):
        n_missing += missing
        energies.append(energy)
        if bits is not None:
            if observed is None:
                observed = np.full((n_rows, -(-n_frames // 8)), 255, np.uint8)
            observed[rows] = bits
    return Observed(observed, n_missing, np.concatenate(energies))
