"""Masks of the entries of a matrix, eight entries to a byte."""

import numpy as np
from numpy.typing import NDArray


def packed_width(n_columns: int) -> int:
    """Return the number of bytes that a row of `n_columns` entries takes."""
    return -(-n_columns // 8)


def pack(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return a mask of booleans as bits, little-endian along the rows.

    Parameters
    ----------
    mask : (n_rows, n_columns) array of booleans
        The mask.

    Returns
    -------
    (n_rows, ceil(n_columns / 8)) uint8 array
        Padding bits are 0.
    """
    return np.packbits(mask, axis=1, bitorder="little")


def unpack(bits: NDArray[np.uint8], n_columns: int) -> NDArray[np.bool_]:
    """Return bits of some rows as a mask of booleans, (n_rows, n_columns): the inverse of :func:`pack`."""
    return np.unpackbits(bits, axis=1, count=n_columns, bitorder="little").view(np.bool_)


def kept_bits(
    bits: NDArray[np.uint8] | None, rows: NDArray[np.intp], n_columns: int
) -> NDArray[np.uint8] | None:
    """Return the bits of some rows; None if all of them are set, or there are no bits."""
    kept = None if bits is None else bits[rows]
    return None if kept is None or unpack(kept, n_columns).all() else kept
