"""Masks of entries, eight to a byte."""

import numpy as np
from numpy.typing import NDArray


def unpack(bits: NDArray[np.uint8], n_frames: int) -> NDArray[np.bool_]:
    """Bit mask of some rows as booleans, (n_rows, n_frames)."""
    return np.unpackbits(bits, axis=1, count=n_frames, bitorder="little").view(np.bool_)
