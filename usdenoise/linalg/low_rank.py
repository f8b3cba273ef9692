"""A low-rank matrix by its singular triplets, fits of rows with gaps to it, and the singular values of noise."""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import rotated, triangular

LOW_END = 0.5
"""Share of the noise singular values, from the smallest, that gives the noise level: weak components raise the
upper half."""

EDGE_MARGIN = 1.05
"""Singular value, over the noise edge, from which a component is signal. In 20 white noise matrices of 256 rows the largest
one was 0.97 to 1.012 of the edge; noise that is correlated in space exceeds it by more."""


def noise_edge(noise: float, shape: tuple[int, int]) -> float:
    """Return the noise edge, noise (sqrt(m) + sqrt(n)): the largest singular value that noise alone has.

    Parameters
    ----------
    noise : float
        Root mean square of the noise in an entry, in the units of the data.
    shape : (int, int)
        Shape (m, n) of the matrix.
    """
    return noise * (math.sqrt(shape[0]) + math.sqrt(shape[1]))


def noise_from_spectrum(singular_values: NDArray[np.float64], shape: tuple[int, ...]) -> float:
    """Return the root mean square of the white noise in an entry, real and imaginary parts together.

    The squared singular values are compared with the quantiles of the Marchenko-Pastur law. Values above the
    edge of the law are signal, and the lower half of the remaining ones gives the variance; both are found in turn. If
    noise is correlated between pixels, its law is wider, and the estimate is too low.

    Parameters
    ----------
    singular_values : (k,) array
        All singular values of a matrix of low rank plus noise, decreasing.
    shape : (int, int)
        Shape of the matrix, k being the smaller of both.
    """
    short, long = min(shape), max(shape)
    ascending = np.sort(singular_values**2)
    n_signal, variance = 0, 0.0
    for _ in range(short):
        # The part that is orthogonal to the signal is a noise matrix with fewer rows and columns.
        n_rows, n_columns = short - n_signal, long - n_signal
        low = max(int(LOW_END * n_rows), 1)
        quantiles = marchenko_pastur_quantiles(n_rows / n_columns, (np.arange(low) + 0.5) / n_rows)
        variance = float(np.median(ascending[:low] / (n_columns * quantiles)))
        edge = EDGE_MARGIN**2 * variance * (np.sqrt(n_rows) + np.sqrt(n_columns)) ** 2
        before, n_signal = n_signal, min(int(np.count_nonzero(ascending > edge)), short - 1)
        if n_signal == before:
            break
    return float(np.sqrt(variance))


def content(
    singular_values: NDArray[np.float64], usual: NDArray[np.float64], noise: float, shape: tuple[int, int]
) -> float:
    """Return how much a matrix holds above the noise: sum_k log(s_k / edge) over the components above the edge.

    That is the length of its description but for a constant factor: fewer and weaker components are simpler.

    Parameters
    ----------
    singular_values : (k,) array
        Its singular values s.
    usual : (k,) array
        Singular values of the matrix with which it is compared; what is below their rounding is noise.
    noise : float
        Root mean square of the noise in an entry.
    shape : (int, int)
        Shape of the matrix.

    Examples
    --------
    >>> values = np.array([400.0, 1.0])
    >>> round(content(values, values, 0.1, (100, 100)) / np.log(200), 12)
    1.0
    """
    edge = max(
        noise_edge(noise, shape), float(np.finfo(np.float32).eps * usual[0]), float(np.finfo(float).tiny)
    )
    return float(np.log(np.maximum(singular_values / edge, 1)).sum())


def compared_contents(first: Numbers, second: Numbers) -> tuple[float, float]:
    """Return how much each of two matrices holds over the noise of the second one."""
    of_both = [np.linalg.svd(values, compute_uv=False).astype(np.float64) for values in (first, second)]
    noise = noise_from_spectrum(of_both[1], second.shape)
    mine, theirs = (content(values, of_both[1], noise, second.shape) for values in of_both)
    return mine, theirs


def marchenko_pastur_quantiles(aspect: float, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quantiles of the Marchenko-Pastur law of unit variance (Marchenko and Pastur, 1967).

    Parameters
    ----------
    aspect : float
        Rows over columns of the noise matrix, in (0, 1].
    levels : array of numbers in (0, 1)
        Where the quantile function is evaluated.

    Returns
    -------
    float64 array of the shape of `levels`
    """
    lower, upper = (1 - np.sqrt(aspect)) ** 2, (1 + np.sqrt(aspect)) ** 2
    # x = middle + half cos(theta) removes the square-root edges from the integrand.
    theta = np.linspace(np.pi, 0, 4001)
    x = 0.5 * (lower + upper) + 0.5 * (upper - lower) * np.cos(theta)
    density = np.sin(theta) ** 2 / np.maximum(x, 1e-300)
    cumulative = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return np.asarray(np.interp(levels, cumulative / cumulative[-1], x))


def fit_gapped_rows(
    projected: Numbers, observed: NDArray[np.bool_] | None, right: Numbers, ridge: NDArray[np.float64] | None
) -> Numbers:
    """Turn the projections M V of some rows, with 0 for unobserved entries, into least-squares fits U, in place.

    U minimises |M - U V^H|^2 over the observed entries plus sum_k ridge_k |u_k|^2, each row on its own. Where all
    entries of a row are observed, M V is the fit, without a ridge.

    Parameters
    ----------
    projected : (m, r) array
        M V.
    observed : (m, n) boolean array or None
        Observed entries; None when all are.
    right : (n, r) array
        Orthonormal columns V.
    ridge : (r,) float64 array or None
        Weights of the squared coefficients, at least the rounding level; None for that.
    """
    if observed is None:
        return projected
    least = right.shape[1] * np.finfo(right.real.dtype).eps
    weights = least if ridge is None else np.maximum(ridge, least)
    for row in np.flatnonzero(~observed.all(axis=1)):
        # The regressors are orthonormal over all columns, so the normal matrix is I minus the part of the unobserved ones.
        wide = right[~observed[row]].astype(np.result_type(right.dtype, np.float64))
        normal = -_normal(wide)
        normal[np.diag_indices_from(normal)] += 1 + weights
        projected[row] = np.linalg.solve(normal, projected[row].astype(wide.dtype))
    return projected


def unobserved_normal(missing: NDArray[np.bool_], right: Numbers) -> Numbers:
    """Return sum_t v_t v_t^H over the unobserved frames of each row, by which its normal matrix is less than I.

    Parameters
    ----------
    missing : (m, n) boolean array
        Unobserved entries.
    right : (n, r) array
        Rows v_t of orthonormal columns V.

    Returns
    -------
    (m, r, r) array
    """
    sums = np.zeros((len(missing), right.shape[1], right.shape[1]), right.dtype)
    for row in np.flatnonzero(missing.any(axis=1)):
        sums[row] = _normal(right[missing[row]])
    return sums


def _normal(rows: Numbers) -> Numbers:
    """Return sum_t v_t v_t^H of rows v_t: the fit of m_t = sum_k u_k conj(v_tk) solves sum_t v_t v_t^H u = sum_t m_t v_t."""
    return rows.T @ rows.conj()


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

    left: Numbers
    singular_values: NDArray[np.float64]
    right: Numbers

    @property
    def rank(self) -> int:
        """Number of components."""
        return len(self.singular_values)

    @classmethod
    def from_factors(cls, u: Numbers, v: Numbers) -> Self:
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

    def band(self, low: int, high: int) -> tuple[Numbers, Numbers]:
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
