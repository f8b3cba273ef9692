"""A low-rank matrix by its singular triplets."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LowRank:
    """U diag(s) V^H with orthonormal columns and decreasing s.

    Attributes
    ----------
    left : (n_pixels, r) array
        Spatial singular vectors.
    singular_values : (r,) float64 array
        In the units of the data.
    right : (n_frames, r) array
        Temporal singular vectors.
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
        """Singular triplets of U V^H, by two QR factorisations and an r x r SVD in double precision.

        Parameters
        ----------
        u, v : (n_pixels, r) and (n_frames, r) arrays
            Factors; r may exceed neither dimension.
        """
        wide = np.result_type(u.dtype, np.float64)
        q_u, r_u = np.linalg.qr(u.astype(wide))
        q_v, r_v = np.linalg.qr(v.astype(wide))
        turn_u, singular, turn_v = np.linalg.svd(r_u @ r_v.conj().T)
        return cls(
            (q_u @ turn_u).astype(u.dtype),
            singular,
            np.ascontiguousarray(q_v @ turn_v.conj().T, dtype=v.dtype),
        )

    def truncated(self, rank: int) -> Self:
        """The leading components, no more than `rank`."""
        return type(self)(self.left[:, :rank], self.singular_values[:rank], self.right[:, :rank])

    def band(self, low: int, high: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Factors A (n_pixels, high - low) and B^H (high - low, n_frames) of the components [low, high)."""
        scaled = self.right[:, low:high] * self.singular_values[low:high].astype(self.left.real.dtype)
        return self.left[:, low:high], np.ascontiguousarray(scaled.conj().T)
