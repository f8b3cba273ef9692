"""Autocorrelation over time of a filtered stack, gathered while the stack is filtered."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.lag_sums import lag_sums, pair_counts


@dataclass(frozen=True)
class LagSums:
    """Lagged products of a filtered stack, and their numbers, by halves of the frames.

    Attributes
    ----------
    sums : (2, n_pixels, L + 1) array
        Sum of f[t + l] conj(f[t]) over the pairs of frames of a half in which both entries are observed.
    counts : (2, n_pixels, L + 1) or (2, 1, L + 1) array
        Number of these pairs; one row where it is the same in all pixels.
    """

    sums: NDArray[np.complex128] | NDArray[np.float64]
    counts: NDArray[np.float64]

    @classmethod
    def of_rows(
        cls,
        rows: NDArray[Any],
        observed: NDArray[np.bool_] | None,
        n_lags: int,
        used: NDArray[np.bool_] | None = None,
    ) -> Self:
        """Return the lagged products of some rows of a filtered stack.

        Parameters
        ----------
        rows : (m, n_frames) array
            Filtered rows, 0 where an entry is unobserved.
        observed : (m, n_frames) boolean array or None
            Observed entries; None when all are.
        n_lags : int
            Number of lags, lag 0 included.
        used : (n_frames,) boolean array, optional
            Frames that count, those whose entries are not all 0; by default all.
        """
        sums = lag_sums(rows, n_lags)
        if observed is None:
            counts = pair_counts(rows.shape[1], n_lags, used)[:, None]
        else:
            if used is not None:
                observed = observed & used
            counts = lag_sums(observed.astype(np.float32), n_lags)
        return cls(sums, counts)

    @classmethod
    def joined(cls, blocks: Iterable[Self]) -> Self:
        """Return the lagged products of consecutive row blocks together."""
        blocks = list(blocks)
        counts = blocks[0].counts
        if not all(np.array_equal(block.counts, counts) for block in blocks) or len(counts[0]) > 1:
            counts = np.concatenate(
                [np.broadcast_to(block.counts, block.sums.shape) for block in blocks], axis=1
            )
        return cls(np.concatenate([block.sums for block in blocks], axis=1), counts)

    @property
    def is_complex(self) -> bool:
        """Whether the stack is complex."""
        return np.iscomplexobj(self.sums)

    def rows(self, pixels: NDArray[np.intp]) -> Self:
        """Return the lagged products of some pixels."""
        counts = self.counts if self.counts.shape[1] == 1 else self.counts[:, pixels]
        return type(self)(self.sums[:, pixels], counts)

    def mean(self, halves: slice, n_frames: int) -> NDArray[Any]:
        """Return the lags r_l = (1 - l/n) times the mean product over the given halves; 0 without pairs.

        They are complex128 or float64, as the sums are.
        """
        means: NDArray[Any] = self.sums[halves].sum(axis=0)
        fade = 1 - np.arange(means.shape[-1]) / n_frames
        means *= fade / np.maximum(self.counts[halves].sum(axis=0), 1)
        return means

    def difference(self, n_frames: int) -> NDArray[Any]:
        """Return the scaled difference of the halves, whose noise has the variance of that of the mean."""
        scaled = self.mean(slice(0, 1), n_frames)
        scaled -= self.mean(slice(1, 2), n_frames)
        a, b = self.counts
        scaled *= np.sqrt(a * b) / np.maximum(a + b, 1)
        return scaled
