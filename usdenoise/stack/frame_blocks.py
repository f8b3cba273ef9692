"""The blocks of frames into which a stack is cut."""

import numpy as np
from numpy.typing import NDArray

BLOCK_ENTRIES = 1 << 22
"""Entries of a block, about: 32 MB in complex64."""


def block_edges(n_frames: int, n_pixels: int, firsts: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Return the first frame of each block of a stack, and the number of frames.

    There is an even number of blocks of about one size, unless there are too few frames.

    Parameters
    ----------
    n_frames, n_pixels : int
        Size of the stack.
    firsts : (n,) array of int, optional
        Frames at which a block can begin, increasing from 0; by default all.

    Examples
    --------
    >>> block_edges(1500, 10000), block_edges(1500, 10000, np.array([0, 600, 1200]))
    (array([   0,  375,  750, 1125, 1500]), array([   0,  600, 1200, 1500]))
    """
    if firsts is None:
        firsts = np.arange(n_frames)
    count = min(2 * max(1, round(n_frames * n_pixels / (2 * BLOCK_ENTRIES))), len(firsts))
    chosen = np.linspace(0, len(firsts), count + 1).astype(np.intp)[:-1]
    return np.append(firsts[chosen], n_frames)
