"""A sample of the pixels with all of their frames in memory: what an estimate looks at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import fit_gapped_rows
from usdenoise.linalg.tall_matrices import gram, row_parts, third_difference_norms
from usdenoise.stack.arrays import pack, unpack
from usdenoise.stack.sampling import spread_rows

Result = TypeVar("Result")

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
        Maps functions over row blocks.
    excluded : (n_frames,) boolean array
        Frames that are excluded from every estimate; by default none.

    Examples
    --------
    >>> import numpy as np
    >>> from usdenoise.linalg.executor import ThreadExecutor
    >>> sample = PixelSample.of(np.ones((50, 9)), np.arange(50), ThreadExecutor(1))
    >>> sample.fit(np.full((9, 1), 1 / 3))[0][0].tolist()
    [3.0]
    """

    values: NDArray[Any]
    observed: NDArray[np.uint8] | None
    numbers: NDArray[np.intp]
    executor: Executor
    excluded: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def __post_init__(self) -> None:
        if not len(self.excluded):
            object.__setattr__(self, "excluded", np.zeros(self.values.shape[1], bool))

    @classmethod
    def of(cls, values: NDArray[Any], numbers: NDArray[np.intp], executor: Executor) -> Self:
        """Return the sample of some values, which become 0 in place where they are not finite."""
        finite = np.isfinite(values)
        if finite.all():
            return cls(values, None, numbers, executor)
        values[~finite] = 0
        return cls(values, pack(finite), numbers, executor)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_pixels, n_frames)."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
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
    def n_used_frames(self) -> int:
        """Number of frames that are not excluded."""
        return int(np.count_nonzero(~self.excluded))

    @property
    def used_shape(self) -> tuple[int, int]:
        """Shape without the excluded frames."""
        return self.n_pixels, self.n_used_frames

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

    def observed_mask(self, rows: slice | NDArray[Any]) -> NDArray[np.bool_] | None:
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
        sums = np.concatenate(list(self._map(lambda rows: third_difference_norms(self.values[rows]))))
        return sums / (THIRD_DIFFERENCE_GAIN * max(self.n_frames - 3, 1))

    def fit(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
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

        def fitted(rows: slice) -> NDArray[Any]:
            left[rows] = self._fit_block(rows, right, ridge)
            return gram(left[rows])

        squares: Any = sum(self._map(fitted))
        return left, squares

    def fit_and_moments(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Fit every row as :meth:`fit` does, and return U, U^H U and the moments.

        Returns
        -------
        left, squares
            As for :meth:`fit`.
        moments : (r, n_frames) array
            U^H M in double precision, with U V^H for unobserved entries.
        """
        wide = np.result_type(self.dtype, np.float64)
        left = np.empty((self.n_pixels, right.shape[1]), self.dtype)

        def moment(rows: slice) -> tuple[NDArray[Any], NDArray[Any]]:
            block, observed = self.values[rows], self.observed_mask(rows)
            left[rows] = self._fit_block(rows, right, ridge)
            if observed is not None:
                block = np.where(observed, block, left[rows] @ right.conj().T)
            return left[rows].conj().T @ block, gram(left[rows])

        moments: Any = np.zeros((right.shape[1], self.n_frames), wide)
        squares: Any = 0.0
        for part, square in self._map(moment):
            moments += part
            squares = squares + square
        return left, squares, moments

    def _map(self, function: Callable[[slice], Result]) -> Iterator[Result]:
        return self.executor.map(function, row_parts(self.shape))

    def _fit_block(self, rows: slice, right: NDArray[Any], ridge: NDArray[np.float64] | None) -> NDArray[Any]:
        projected: NDArray[Any] = self.values[rows] @ right
        return fit_gapped_rows(projected, self.observed_mask(rows), right, ridge)
