"""The effect of a clutter filter on the autocorrelation over time of what it leaves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.lag_sums import pair_counts
from usdenoise.linalg.tall_matrices import part_slices

MOST_LAGS = 8
"""Twelve lags changed the correlation with the true blood power by .0003 on the mean of 84 stacks of two simulators, and by
-.0005 in strong noise (benchmarks/RECORDS.md)."""

LEAST_EIGENVALUE = 0.45
"""The loss of the filter is compensated with the largest number of lags that keeps the smallest eigenvalue above this.

On eight development phantoms 0.62 left a loss of 9 % and 0.35 amplified what tissue was left: the correlation with
the true power was lower by 0.016 with the first and equal with the second, its worst case lower by 0.02.
"""


@dataclass(frozen=True)
class ClutterProjection:
    """Expected autocorrelations over time after the projection I - V V^H.

    A signal with the autocorrelation rho_m, zero beyond the lag L, has after the filter the expected lag sums

        r_l = rho_l - sum_m q_{l-m} rho_m,    q_l = 1/n sum_t sum_k V[t + l, k] conj(V[t, k]),

    with r_l = 1/n sum_t f[t + l] conj(f[t]) (1 - l/n dropped on both sides). White noise has rho_0 alone. The
    equation is solved for rho_0, the power before the filter.

    Attributes
    ----------
    n_frames : int
        Number of frames n.
    white : (L + 1,) array
        Lags 0 to L of white noise of unit power after the filter: 1 - q_0, -q_1, ..., -q_L.
    recovery : (2 L + 1,) complex array
        Weights of the lags -L to L that give rho_0.
    removed : (4 n,) float64 array
        Share of white noise that the filter removes at each of 4 n frequencies.
    """

    n_frames: int
    white: NDArray[np.complex128]
    recovery: NDArray[np.complex128]
    removed: NDArray[np.float64]

    @property
    def n_lags(self) -> int:
        """Number of lags L + 1, lag 0 included."""
        return len(self.white)

    def power_before(self, lags: NDArray[np.complex128]) -> NDArray[np.float64]:
        """Return the power before the filter of signals with the given lags after it.

        Parameters
        ----------
        lags : (..., L + 1) array
            Lags 0 to L, after subtraction of the white noise.
        """
        negative = lags[..., :0:-1].conj() @ self.recovery[: self.n_lags - 1]
        return (negative + lags @ self.recovery[self.n_lags - 1 :]).real

    @property
    def remaining_tissue(self) -> NDArray[np.complex128]:
        """Lags of remaining tissue, (L + 1,), with 1 at lag 0; all are 0 where nothing was removed.

        It is a signal with the spectrum h (1 - h), where h is the share of white noise that the filter keeps at a frequency.
        """
        kept = np.clip(1 - self.removed, 0, 1)
        lags = np.fft.ifft(kept * (1 - kept))[: self.n_lags]
        scale = lags[0].real
        return lags / scale if scale > 0 else lags * 0

    def followed_by(self, removed: NDArray[np.float64]) -> "ClutterProjection":
        """Return the effect of this filter and of another one after it, with as many lags.

        Parameters
        ----------
        removed : (4 m,) float64 array
            Share of white noise that the other filter removes, from :func:`removed_by`; of blocks of any length.
        """
        both = 1 - (1 - self.removed) * (1 - at_frequencies(removed, len(self.removed)))
        return _projection(self.n_frames, both, n_lags=self.n_lags)

    def white_followed_by(self, removed: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Return `white` of :meth:`followed_by` alone."""
        return np.fft.ifft((1 - self.removed) * (1 - removed))[: self.n_lags]


def removed_by(right: Numbers, n_frames: int) -> NDArray[np.float64]:
    """Return the share of white noise that I - V V^H removes, at each of 4 n frequencies.

    Parameters
    ----------
    right : (n_frames of the block, k) array
        Orthonormal columns V.
    n_frames : int
        n: the frames of the projection that this is for.
    """
    spectra = np.fft.fft(right.astype(np.complex128), 4 * n_frames, axis=0)
    removed: NDArray[np.float64] = np.sum(np.abs(spectra) ** 2, axis=1) / len(right)
    return removed


def at_frequencies(removed: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return shares at n frequencies from those at others: blocks of a live session may become longer."""
    if len(removed) == n:
        return removed
    known = np.linspace(0, 1, len(removed) + 1)
    shares: NDArray[np.float64] = np.interp(np.arange(n) / n, known, np.append(removed, removed[0]))
    return shares


def clutter_projection(right: Numbers, used: NDArray[np.bool_] | None = None) -> ClutterProjection:
    """Return the effect of removing components with the given temporal singular vectors.

    Parameters
    ----------
    right : (n_frames, k) array
        Orthonormal columns V.
    used : (n_frames,) boolean array, optional
        Frames that are not excluded. V is 0 in excluded frames. By default no frame is excluded.

    Returns
    -------
    ClutterProjection
        With L at least 1, and at most 12 and an eighth of the frames.
    """
    n = len(right)
    return _projection(n, removed_by(right, n), used)


def blocks_projection(rights: Sequence[Numbers]) -> ClutterProjection:
    """Return the mean effect on blocks of removing their common components.

    Parameters
    ----------
    rights : sequence of (n_frames, k) arrays
        Rows of V that belong to each block, 0 in frames from which the components were not estimated. Only
        the part of such frames in the span of the components is removed. Together the columns are orthonormal.

    Returns
    -------
    ClutterProjection
        For blocks of as many frames as most have.
    """
    n = int(np.median([len(right) for right in rights]))
    removed = np.zeros(4 * n)
    for right in rights:
        removed += np.sum(np.abs(np.fft.fft(right, 4 * n, axis=0)) ** 2, axis=1)
    removed /= sum(len(right) for right in rights)
    return _projection(n, removed)


def filter_projection(kept: NDArray[np.float64]) -> ClutterProjection:
    """Return the effect of a linear filter over time that is not a projection, such as a high-pass.

    The lags of a signal after such a filter are approximated by a projection that removes the same share of white noise
    at each frequency.

    Parameters
    ----------
    kept : (n_frames, n_frames) array
        The filter H: a pixel x becomes x H.

    Returns
    -------
    ClutterProjection
    """
    n = len(kept)
    removed = np.ones(4 * n)
    for rows in part_slices(n, 4 * n):
        removed -= np.sum(np.abs(np.fft.fft(kept[rows], 4 * n)) ** 2, axis=0) / n
    return _projection(n, removed)


def _projection(
    n: int, removed: NDArray[np.float64], used: NDArray[np.bool_] | None = None, n_lags: int | None = None
) -> ClutterProjection:
    """Return the projection for the share of white noise that is removed, at 4 n frequencies.

    By default all frames are used, and it has as many lags as are well solved. With more lags, the additional ones have
    weight 0 in the recovery.
    """
    most = min(MOST_LAGS, n // 8) if n_lags is None else n_lags - 1
    shares = np.fft.ifft(removed)
    if used is not None:
        shares *= _gaps(used)
    lags, recovery = _recovery(shares, most)
    if n_lags is not None:
        recovery, lags = np.pad(recovery, most - lags), most
    white = -shares[: lags + 1]  # q at the lags 0, 1, ..., L
    white[0] += 1
    return ClutterProjection(n, white, recovery, removed)


def _gaps(used: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return all pairs of frames over the pairs that are used, by lag: q is a mean over the pairs that are used."""
    n = len(used)
    gaps, longest = np.ones(4 * n), min(2 * MOST_LAGS, n - 1)
    counts = pair_counts(longest + 1, used).sum(axis=0)
    ratios = (n - np.arange(longest + 1)) / np.maximum(counts, 1)
    gaps[: longest + 1] = ratios
    gaps[4 * n - longest :] = ratios[:0:-1]
    return gaps


def _recovery(removed: NDArray[np.complex128], most: int) -> tuple[int, NDArray[np.complex128]]:
    """Return the number of lags L, and the weights of the lags -L to L, for q at the lags 0, 1, ... and -1 at the end."""
    lags, recovery = 0, np.zeros(1, complex)
    for more in range(most + 1):
        numbers = np.arange(-more, more + 1)
        system = np.eye(2 * more + 1) - removed[numbers[:, None] - numbers]
        values, vectors = np.linalg.eigh(system)
        if more and values[0] < LEAST_EIGENVALUE:
            break
        # Without lags above 0, the loss is compensated as far as it is known.
        lags, recovery = more, (vectors[more] / np.maximum(values, LEAST_EIGENVALUE)) @ vectors.conj().T
    return max(lags, 1), np.pad(recovery, max(lags, 1) - lags)
