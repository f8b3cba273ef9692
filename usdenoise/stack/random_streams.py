"""The random streams of a run: every random choice has one, keyed by the seed and a number.

A new stream gets a number that no other one has. NumPy's ``SeedSequence([seed, 2])`` and
``SeedSequence([seed, 2, 0])`` have the same state, so the numbers of :class:`RandomStream` and of
:class:`TileStream` may coincide only because the two use different generators (PCG64 and SFC64).
"""

from enum import IntEnum

import numpy as np


class RandomStream(IntEnum):
    """Streams of which a run has one each."""

    START = 1
    """Random columns of the first factors."""
    PIXEL_SUBSET = 2
    """Pixels of the pixel subset."""
    RANGE_FINDER = 3
    """Test matrix of the randomized SVD."""
    SAMPLED_PIXELS = 4
    """Pixels whose entries are sampled."""
    SPREAD_ROWS = 5
    """Pixels that stand for all of them; the seed is always 0."""
    SAMPLED_FRAMES = 6
    """Frames of a session that stand for all of them."""

    def generator(self, seed: int) -> np.random.Generator:
        """Return the generator of this stream for a seed."""
        return np.random.default_rng([seed, int(self)])


class TileStream(IntEnum):
    """Streams of the sampled entries, one for each tile of rows (and one for all tiles, the counts)."""

    COUNTS = 0
    """How many entries of each tile are sampled; tile 0 is the only one."""
    FITTED = 1
    """The sampled entries of a tile."""
    HELD_OUT = 2
    """The held-out entries among them."""

    def generator(self, seed: int, tile: int) -> np.random.Generator:
        """Return the generator of this stream for a seed and a tile."""
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, int(self), tile])))
