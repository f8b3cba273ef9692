"""Samples of the Casorati matrix: some of its pixels in all frames, and some of its entries; the random streams.

Entries are sampled uniformly, seeded, and the same for any parts of the rows.

A new stream gets a number that no other one has. NumPy's ``SeedSequence([seed, 2])`` and
``SeedSequence([seed, 2, 0])`` have the same state, so the numbers of :class:`RandomStream` and of
:class:`TileStream` may coincide only because the two use different generators (PCG64 and SFC64).

The rows are cut into tiles of a fixed size. One random stream gives the number of samples in each tile. Each tile
has a stream of its own, keyed by seed and tile, which gives the entries. The result is a uniform draw without
replacement from all observed entries. It does not depend on the parts of the rows or on the number of threads.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import fit_gapped_rows
from usdenoise.linalg.tall_matrices import gram, row_parts, third_difference_norms
from usdenoise.stack.arrays import pack, unpack

FEW_PIXELS, MANY_PIXELS = 256, 1024
"""Pixels, spread over the image, that are enough for what all pixels have in common, as the spectrum of a hundred components
and of the noise below them; and for what differs between parts of the image."""

SOME_FRAMES, ENOUGH_FRAMES = 64, 32
"""Frames that show what most frames are like, and fewest frames that show how components, flicker and noise are spread."""


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
    NULL_SIGNS = 7
    """Signs of the blocks of a session without activation."""

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


THIRD_DIFFERENCE_GAIN = 20
"""Power of the third differences of white noise over its own: the sum of the squares of 1, 3, 3 and 1."""


@dataclass(frozen=True)
class PixelSample:
    """Rows of the Casorati matrix M: some pixels in all frames.

    Attributes
    ----------
    values : (n_pixels, n_frames) array
        Finite everywhere, 0 where an entry is unobserved and in excluded frames.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries (see :mod:`usdenoise.stack.arrays`); None when all are observed.
    numbers : (n_pixels,) array
        Numbers of the pixels, increasing.
    executor : Executor
        Maps functions over parts of the rows.
    excluded : (n_frames,) boolean array
        Frames that are excluded from every estimate.

    Examples
    --------
    >>> import numpy as np
    >>> from usdenoise.linalg.executor import ThreadExecutor
    >>> sample = PixelSample.of(np.ones((50, 9)), np.arange(50), ThreadExecutor(1))
    >>> sample.fit(np.full((9, 1), 1 / 3))[0][0].tolist()
    [3.0]
    """

    values: Numbers
    observed: NDArray[np.uint8] | None
    numbers: NDArray[np.intp]
    executor: Executor
    excluded: NDArray[np.bool_]

    @classmethod
    def of(cls, values: Numbers, numbers: NDArray[np.intp], executor: Executor) -> Self:
        """Return the sample of some values, which become 0 in place where they are not finite."""
        finite, excluded = np.isfinite(values), np.zeros(values.shape[1], bool)
        if finite.all():
            return cls(values, None, numbers, executor, excluded)
        values[~finite] = 0
        return cls(values, pack(finite), numbers, executor, excluded)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_pixels, n_frames)."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[np.inexact]:
        """Type of the entries."""
        return self.values.dtype

    @property
    def n_pixels(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def n_frames(self) -> int:
        """Number of columns."""
        return self.shape[1]

    @property
    def used_shape(self) -> tuple[int, int]:
        """Shape without the excluded frames."""
        return self.n_pixels, int(np.count_nonzero(~self.excluded))

    @property
    def is_complete(self) -> bool:
        """Whether every entry is observed."""
        return self.observed is None

    @property
    def n_used(self) -> int:
        """Number of observed entries in frames that are not excluded."""
        bits = self.sampled_bits()
        if bits is None:
            return self.n_pixels * self.n_frames
        # Bits beyond the last frame may be set.
        return int(np.bitwise_count(bits & pack(np.ones((1, self.n_frames), bool))).sum(dtype=np.int64))

    def observed_mask(self, rows: slice | Numbers) -> NDArray[np.bool_] | None:
        """Return the mask of the observed entries of some rows, None when every entry is observed.

        Entries of excluded frames count as observed: they are zeros that a model of zeros fits.
        """
        if self.observed is None:
            return None
        mask = unpack(self.observed[rows], self.n_frames)
        return mask | self.excluded

    def sampled_bits(self) -> NDArray[np.uint8] | None:
        """Return the bit mask of the entries that may be sampled: observed, and not in an excluded frame."""
        if not self.excluded.any():
            return self.observed
        used = pack(~self.excluded[None])
        if self.observed is None:
            return np.broadcast_to(used, (self.n_pixels, used.shape[1]))
        return self.observed & used

    def take(self, rows: slice | NDArray[np.intp]) -> Self:
        """Return some rows: a view for a slice, a copy for an array of row numbers."""
        observed = None if self.observed is None else self.observed[rows]
        if observed is not None and isinstance(rows, np.ndarray) and unpack(observed, self.n_frames).all():
            observed = None
        return replace(self, values=self.values[rows], observed=observed, numbers=self.numbers[rows])

    def spread(self, n_wanted: int) -> Self:
        """Return at least `n_wanted` rows, spread over the image; the sample itself if it is not larger."""
        rows = spread_rows(self.n_pixels, n_wanted)
        return self if len(rows) == self.n_pixels else self.take(rows)

    def without(self, frames: NDArray[np.bool_]) -> Self:
        """Return the sample without some frames, whose values are 0 and count as observed."""
        values, observed = np.where(frames, 0, self.values), self.observed
        if observed is not None and (unpack(observed, self.n_frames) | frames).all():
            observed = None
        return replace(self, values=values, observed=observed, excluded=frames)

    def fast_power(self) -> NDArray[np.float64]:
        """Return the power of the third differences over time of each row, relative to white noise.

        It is the power of the noise in a row: slow tissue is not in it, and blood hardly more than in proportion.
        """
        parts = row_parts(self.shape)
        norms = self.executor.map(lambda rows: third_difference_norms(self.values[rows]), parts)
        sums = np.concatenate(list(norms))
        return sums / (THIRD_DIFFERENCE_GAIN * max(self.n_frames - 3, 1))

    def fit(self, right: Numbers, ridge: NDArray[np.float64] | None = None) -> tuple[Numbers, Numbers]:
        """Fit every row to orthonormal columns V: U = argmin |M - U V^H| over the observed entries.

        Parameters
        ----------
        right : (n_frames, r) array
            V.
        ridge : (r,) float64 array, optional
            Weights of the squared coefficients of rows with unobserved entries; by default the rounding level.

        Returns
        -------
        left : (n_pixels, r) array
            U, which is M V where every entry is observed.
        squares : (r, r) array
            U^H U in double precision.
        """
        left = np.empty((self.n_pixels, right.shape[1]), self.dtype)

        def fitted(rows: slice) -> Numbers:
            left[rows] = fit_gapped_rows(self.values[rows] @ right, self.observed_mask(rows), right, ridge)
            return gram(left[rows])

        return left, np.asarray(sum(self.executor.map(fitted, row_parts(self.shape))))

    def fit_and_moments(
        self, right: Numbers, ridge: NDArray[np.float64] | None = None
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Fit every row as :meth:`fit` does, and return U, U^H U and the moments.

        Returns
        -------
        left, squares
            As for :meth:`fit`.
        moments : (r, n_frames) array
            U^H M in double precision, with U V^H for unobserved entries.
        """
        left = np.empty((self.n_pixels, right.shape[1]), self.dtype)

        def moment(rows: slice) -> tuple[Numbers, Numbers]:
            values, observed = self.values[rows], self.observed_mask(rows)
            left[rows] = fit_gapped_rows(values @ right, observed, right, ridge)
            if observed is not None:
                values = np.where(observed, values, left[rows] @ right.conj().T)
            return left[rows].conj().T @ values, gram(left[rows])

        squares: Numbers = np.zeros(())
        moments: Numbers = np.zeros((right.shape[1], self.n_frames), np.result_type(self.dtype, np.float64))
        for part, square in self.executor.map(moment, row_parts(self.shape)):
            np.add(moments, part, out=moments)
            squares = squares + square
        return left, squares, moments


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
        """Return the held-out entries of some rows: their row numbers among them, and their columns."""
        first, last = np.searchsorted(self.held_out_rows, [rows.start, rows.stop])
        return self.held_out_rows[first:last] - np.int32(rows.start), self.held_out_columns[first:last]


def draw_entries(
    shape: tuple[int, int], fraction: float, seed: int, observed: NDArray[np.uint8] | None = None
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
    tiles = [slice(start, min(start + TILE_ROWS, n_rows)) for start in range(0, n_rows, TILE_ROWS)]
    sizes = np.array([n_frames * (rows.stop - rows.start) for rows in tiles], np.int64)
    if observed is not None:
        sizes[:] = [np.count_nonzero(unpack(observed[rows], n_frames)) for rows in tiles]
    n_observed = int(sizes.sum())
    n_sampled = max(1, round(fraction * n_observed)) if n_observed else 0
    # 1 % of up to 50 samples rounds to 0, and the fit could not be judged. Below 20 one entry would be 5 % of them.
    n_held_out = max(round(HELD_OUT_FRACTION * n_sampled), 1 if n_sampled >= 20 else 0)
    counts_rng = TileStream.COUNTS.generator(seed, 0)
    sampled = _spread(counts_rng, sizes, n_sampled)
    held_out = _spread(counts_rng, sampled, n_held_out)

    bits = np.zeros((n_rows, -(-n_frames // 8)), np.uint8)
    rows_of, columns_of = [], []
    for tile, rows in enumerate(tiles):
        allowed = None if observed is None else unpack(observed[rows], n_frames)
        fitted_rng = TileStream.FITTED.generator(seed, tile)
        mask = _draw_mask(fitted_rng, (rows.stop - rows.start, n_frames), allowed, sampled[tile])
        if held_out[tile]:
            chosen = _choose(TileStream.HELD_OUT.generator(seed, tile), np.flatnonzero(mask), held_out[tile])
            mask.reshape(-1)[chosen] = False
            row, column = np.divmod(np.sort(chosen), n_frames)
            rows_of.append((row + rows.start).astype(np.int32))
            columns_of.append(column.astype(np.int32))
        bits[rows] = pack(mask)
    empty = [np.empty(0, np.int32)]
    of_rows, of_columns = np.concatenate(rows_of or empty), np.concatenate(columns_of or empty)
    return EntrySample(shape, bits, of_rows, of_columns, n_sampled - n_held_out, n_observed)


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
