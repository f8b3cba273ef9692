"""A low-rank matrix by its singular triplets."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.orthonormal_bases import rotated, triangular

Product = tuple[NDArray[Any], NDArray[Any]]
"""The matrix A B^H by its factors: A, (n_pixels, k), and B^H, (k, n_frames)."""


@dataclass(frozen=True)
class LowRank:
    """The matrix U diag(s) V^H, with orthonormal columns in U and V and decreasing s.

    Attributes
    ----------
    left : (n_pixels, r) array
        Spatial singular vectors U.
    singular_values : (r,) float64 array
        Singular values s, in the units of the data.
    right : (n_frames, r) array
        Temporal singular vectors V.
    """

    left: NDArray[Any]
    singular_values: NDArray[np.float64]
    right: NDArray[Any]

    @property
    def rank(self) -> int:
        """Number of components."""
        return len(self.singular_values)

    @classmethod
    def from_factors(cls, u: NDArray[Any], v: NDArray[Any]) -> Self:
        """Return the singular triplets of U V^H, by two QR factorisations and an r x r SVD in double precision.

        Parameters
        ----------
        u : (n_pixels, r) array
            Left factor, r at most n_pixels.
        v : (n_frames, r) array
            Right factor, r at most n_frames.
        """
        (base_u, back_u, r_u), (base_v, back_v, r_v) = triangular(u), triangular(v)
        rotation_u, singular, rotation_v = np.linalg.svd(r_u @ r_v.conj().T)
        return cls(
            rotated(base_u, back_u @ rotation_u, u.dtype),
            singular,
            rotated(base_v, back_v @ rotation_v.conj().T, v.dtype),
        )

    def truncated(self, rank: int) -> Self:
        """Return the `rank` leading components, or all where there are fewer."""
        return type(self)(self.left[:, :rank], self.singular_values[:rank], self.right[:, :rank])

    def band(self, low: int, high: int) -> Product:
        """Return the factors A and B^H of the components [low, high), whose sum is A B^H.

        Parameters
        ----------
        low, high : int
            First component, and the one after the last.

        Returns
        -------
        a : (n_pixels, high - low) array
            Left singular vectors.
        b_h : (high - low, n_frames) array
            Conjugate transpose of the right singular vectors times the singular values, C-contiguous.
        """
        scaled = self.right[:, low:high] * self.singular_values[low:high].astype(self.left.real.dtype)
        return self.left[:, low:high], np.ascontiguousarray(scaled.conj().T)


def interpolated(model: LowRank, excluded: NDArray[np.bool_]) -> LowRank:
    """Return a model whose temporal vectors are interpolated linearly over the excluded frames.

    Parameters
    ----------
    model : LowRank
        Components with zeros in these frames.
    excluded : (n_frames,) boolean array
        The frames.
    """
    if not excluded.any():
        return model
    frames, used = np.flatnonzero(excluded), np.flatnonzero(~excluded)
    right = model.right.copy()
    for column in right.T:
        # numpy.interp takes complex values.
        column[frames] = np.interp(frames, used, column[used])
    return replace(model, right=right)
