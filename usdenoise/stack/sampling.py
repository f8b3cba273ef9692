"""Sample entries of the Casorati matrix: uniformly, seeded, and the same for any row blocks; the random streams.

A new stream gets a number that no other one has. NumPy's ``SeedSequence([seed, 2])`` and
``SeedSequence([seed, 2, 0])`` have the same state, so the numbers of :class:`RandomStream` and of
:class:`TileStream` may coincide only because the two use different generators (PCG64 and SFC64).

The rows are cut into tiles of a fixed size. One random stream gives the number of samples in each tile. Each tile
has a stream of its own, keyed by seed and tile, which gives the entries. The result is a uniform draw without
replacement from all observed entries. It does not depend on the row blocks or on the number of threads.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.stack.arrays import pack, packed_width, unpack


class RandomStream(IntEnum):
    """Streams of which a run has one each, and a live session one for each block."""

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

    def generator(self, seed: int, block: int | None = None) -> np.random.Generator:
        """Return the generator of this stream for a seed, or of the part of it for a block, by its number."""
        return np.random.default_rng([seed, int(self), *([] if block is None else [block + 1])])


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


TILE_ROWS = 256
"""Rows of a tile. Another number gives other entries for the same seed."""

HELD_OUT_FRACTION = 0.01
"""Share of the sampled entries that is held out: 10^4 entries of 10^6 give their rms error to 1 %."""


def spread_rows(n_rows: int, n_wanted: int) -> NDArray[np.intp]:
    """Return row numbers that are spread over the image: one at random from every few rows, the same ones in every call.

    Every n-th row would be the same few columns of an image whose width has a factor in common with n.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    n_wanted : int
        Least number of rows to return; at most twice as many are returned. All rows if there are not more.

    Returns
    -------
    array of row numbers, increasing

    Examples
    --------
    >>> spread_rows(100, 10).tolist()
    [6, 13, 28, 35, 43, 54, 63, 73, 83, 91]
    """
    step = max(n_rows // n_wanted, 1)
    first = np.arange(0, n_rows, step)
    offsets = RandomStream.SPREAD_ROWS.generator(0).integers(step, size=len(first))
    rows: NDArray[np.intp] = np.minimum(first + offsets, n_rows - 1)
    return rows


@dataclass(frozen=True)
class EntrySample:
    """Sampled entries of an (n_pixels, n_frames) matrix, some of them held out.

    Attributes
    ----------
    shape : (int, int)
        Shape of the matrix.
    bits : (n_pixels, ceil(n_frames / 8)) uint8 array
        Bit mask of the fitted entries, little-endian bits along the rows.
    held_out_rows, held_out_columns : (n_held_out,) int32 arrays
        Rows and columns of the held-out entries, by increasing row.
    n_fitted, n_observed : int
        Number of fitted entries, and of entries that could be sampled.
    """

    shape: tuple[int, int]
    bits: NDArray[np.uint8]
    held_out_rows: NDArray[np.int32]
    held_out_columns: NDArray[np.int32]
    n_fitted: int
    n_observed: int

    @property
    def n_held_out(self) -> int:
        """Number of held-out entries, which are never fitted."""
        return len(self.held_out_rows)

    @property
    def density(self) -> float:
        """Number of fitted entries over the number of all entries."""
        return self.n_fitted / (self.shape[0] * self.shape[1])

    def mask(self, rows: slice) -> NDArray[np.bool_]:
        """Return the mask of the fitted entries of some rows, (n_rows, n_frames)."""
        return unpack(self.bits[rows], self.shape[1])

    def held_out(self, rows: slice) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the held-out entries of some rows: their row numbers within the block, and their columns."""
        first, last = np.searchsorted(self.held_out_rows, [rows.start, rows.stop])
        return self.held_out_rows[first:last] - np.int32(rows.start), self.held_out_columns[first:last]


def draw_entries(
    shape: tuple[int, int],
    fraction: float,
    seed: int,
    observed: NDArray[np.uint8] | None = None,
) -> EntrySample:
    """Sample a fraction of the observed entries uniformly without replacement, and hold out 1 % of the sample.

    Parameters
    ----------
    shape : (int, int)
        Shape of the matrix.
    fraction : float
        Sampled entries over observed entries, in (0, 1].
    seed : int
        Same seed, same entries.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array, optional
        Bit mask of the observed entries; by default all entries are observed.

    Returns
    -------
    EntrySample

    Raises
    ------
    OptionError
        If the fraction is outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise OptionError(
            f"sampling {fraction:g} is outside (0, 1]", remedy="give {sampling} the fraction to keep"
        )
    n_rows, n_frames = shape
    starts = np.arange(0, n_rows, TILE_ROWS)
    sizes = _tile_sizes(starts, shape, observed)
    n_observed = int(sizes.sum())
    n_sampled = max(1, round(fraction * n_observed)) if n_observed else 0
    n_held_out = _n_held_out(n_sampled)
    counts_rng = TileStream.COUNTS.generator(seed, 0)
    sampled = _spread(counts_rng, sizes, n_sampled)
    held_out = _spread(counts_rng, sampled, n_held_out)

    bits = np.zeros((n_rows, packed_width(n_frames)), np.uint8)
    rows_of, columns_of = [], []
    for tile, start in enumerate(int(first) for first in starts):
        rows = slice(start, min(start + TILE_ROWS, n_rows))
        allowed = None if observed is None else unpack(observed[rows], n_frames)
        mask = _draw_mask(
            TileStream.FITTED.generator(seed, tile),
            (rows.stop - rows.start, n_frames),
            allowed,
            sampled[tile],
        )
        if held_out[tile]:
            chosen = _choose(TileStream.HELD_OUT.generator(seed, tile), np.flatnonzero(mask), held_out[tile])
            mask.reshape(-1)[chosen] = False
            row, column = np.divmod(np.sort(chosen), n_frames)
            rows_of.append((row + start).astype(np.int32))
            columns_of.append(column.astype(np.int32))
        bits[rows] = pack(mask)
    empty = [np.empty(0, np.int32)]
    return EntrySample(
        shape,
        bits,
        np.concatenate(rows_of or empty),
        np.concatenate(columns_of or empty),
        n_sampled - n_held_out,
        n_observed,
    )


def _n_held_out(n_sampled: int) -> int:
    # 1 % of up to 50 samples rounds to 0, and the fit could not be judged. Below 20 one entry would be 5 % of them.
    return max(round(HELD_OUT_FRACTION * n_sampled), 1 if n_sampled >= 20 else 0)


def _tile_sizes(
    starts: NDArray[Any], shape: tuple[int, int], observed: NDArray[np.uint8] | None
) -> NDArray[np.int64]:
    n_rows, n_frames = shape
    if observed is None:
        return np.diff(np.append(starts, n_rows)).astype(np.int64) * n_frames
    return np.array(
        [np.count_nonzero(unpack(observed[start : start + TILE_ROWS], n_frames)) for start in starts],
        np.int64,
    )


def _spread(rng: np.random.Generator, sizes: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Draw how many of `total` entries, sampled without replacement from all, fall into tiles of these sizes.

    Independent binomial counts are a uniform sample of a random number of entries. The entries by which that
    number is off are then drawn uniformly, too. So the counts are multivariate hypergeometric. (NumPy's own
    draw of that distribution stops at 1e9 entries.)
    """
    population = int(sizes.sum())
    if total == population:
        return sizes.copy()
    counts = rng.binomial(sizes, total / population).astype(np.int64)
    excess = int(counts.sum()) - total
    pool = counts if excess > 0 else sizes - counts
    ranks = rng.choice(int(pool.sum()), abs(excess), replace=False, shuffle=False)
    tiles = np.searchsorted(np.cumsum(pool), ranks, side="right")
    change = np.bincount(tiles, minlength=len(sizes))
    return counts - change if excess > 0 else counts + change


def _draw_mask(
    rng: np.random.Generator, shape: tuple[int, int], allowed: NDArray[np.bool_] | None, count: int
) -> NDArray[np.bool_]:
    """Choose `count` of the allowed entries uniformly: toss a coin for each entry, then correct the number.

    For a given number of heads, every set of that size is equally likely, whatever the bias of the coin. So 16
    bits of the bias are enough, and only the entries by which the number is off need exact draws.
    """
    n_allowed = shape[0] * shape[1] if allowed is None else int(np.count_nonzero(allowed))
    if count == n_allowed:
        return np.ones(shape, np.bool_) if allowed is None else allowed.copy()
    threshold = round(count / n_allowed * 65536)
    coins = np.frombuffer(rng.bytes(2 * shape[0] * shape[1]), "<u2").reshape(shape)
    mask: NDArray[np.bool_] = coins < threshold
    if allowed is not None:
        mask &= allowed
    excess = int(np.count_nonzero(mask)) - count
    flat = mask.reshape(-1)
    if excess > 0:
        flat[_choose(rng, np.flatnonzero(mask), excess)] = False
    elif excess < 0:
        unset = ~mask if allowed is None else allowed & ~mask
        flat[_choose(rng, np.flatnonzero(unset), -excess)] = True
    return mask


def _choose(rng: np.random.Generator, pool: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return pool[rng.choice(len(pool), count, replace=False, shuffle=False)]
