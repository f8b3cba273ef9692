"""What a pixel has without blood: the effect of the filter on white noise over time, and the power of the noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood, Slab
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.lag_sums import LagSums, pair_counts
from usdenoise.linalg.tall_matrices import NEGLIGIBLE, cached_slices, part_slices

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
    return np.asarray(np.sum(np.abs(spectra) ** 2, axis=1) / len(right))


def at_frequencies(removed: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return shares at n frequencies from those at others: blocks of a live session may become longer."""
    if len(removed) == n:
        return removed
    known = np.linspace(0, 1, len(removed) + 1)
    return np.asarray(np.interp(np.arange(n) / n, known, np.append(removed, removed[0])))


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


def to_channels(lags: Numbers, is_complex: bool) -> NDArray[np.float64]:
    """Return the lags as real channels: lag 0 first, then the other lags.

    With white noise of power N over n frames, lag 0 has the variance N^2 / n where the stack is complex, and the
    real and imaginary part of another lag half of it. Where the stack is real, lag 0 has the variance 2 N^2 / n and
    another lag N^2 / n. The channels are scaled so that each has N^2 / n.

    Parameters
    ----------
    lags : (..., L + 1) array
        Lags 0 to L.
    is_complex : bool
        Whether the stack is complex: 2 L + 1 channels, otherwise L + 1.
    """
    n_lags = lags.shape[-1] - 1
    if not is_complex:
        channels = lags.real.astype(np.float64)
        channels[..., 0] /= np.sqrt(2)
        return channels
    channels = np.empty((*lags.shape[:-1], 1 + 2 * n_lags))
    channels[..., 0] = lags[..., 0].real
    np.multiply(lags[..., 1:].real, np.sqrt(2), out=channels[..., 1 : 1 + n_lags])
    np.multiply(lags[..., 1:].imag, np.sqrt(2), out=channels[..., 1 + n_lags :])
    return channels


def to_lags(channels: NDArray[np.float64], is_complex: bool) -> NDArray[np.complex128]:
    """Return the lags of channels: the inverse of :func:`to_channels`."""
    if not is_complex:
        real = np.concatenate([channels[..., :1] * np.sqrt(2), channels[..., 1:]], axis=-1)
        return real.astype(np.complex128)
    cosine, sine = np.split(channels[..., 1:] / np.sqrt(2), 2, axis=-1)
    return np.concatenate([channels[..., :1] + 0j, cosine + 1j * sine], axis=-1)


N_FREQUENCIES = 32
"""Frequencies at which spectra of at most 9 lags are looked at: more than twice the number of lags. With 64 no map of 48
phantoms changed by more than 0.0002 of its correlation with the true blood power."""

_N_QUIET = N_FREQUENCIES // 2
"""Frequencies with the least blood and tissue."""

SURROUNDINGS_SIGMA, SURROUNDINGS_STEP = 6.0, 3
"""The spectrum of an average over this standard deviation in pixels shows where there is no blood. The average is made at
every third pixel. With 3 instead of 1 the noise of no pixel of 36 phantoms changed by more than 1 %, and the blood maps
correlated by 0.99999 or more."""

MEDIAN_OF_SQUARE = 0.455
"""Median of the square of a standard normal number."""


def median_of_chi_square(freedom: float) -> float:
    """Return the median of a chi-square variable over its mean (Wilson and Hilferty, PNAS 17(12), 1931)."""
    return (1 - 2 / (9 * max(freedom, 1.0))) ** 3


def noise_map(
    lags: Callable[[int, slice], Numbers],
    projection: ClutterProjection,
    grid: Neighbourhood,
    executor: Executor | None = None,
) -> NDArray[np.float64]:
    """Return the noise power before the clutter filter for each pixel.

    Noise is white over frames: its spectrum is N times the known share h of white noise that the filter keeps. In
    the average spectrum of a pixel's surroundings the half of the frequencies with the lowest power over h has the
    least blood and tissue (minimum statistics, as in Martin, IEEE Trans. Speech Audio Process. 9(5), 2001). The
    noise map is the wide median of the pixels' power over h in that half: wide, so that vessels do not count.

    Two biases are corrected. The frequencies are chosen in one half of the data and the power is measured in the other
    half, and vice versa: the lowest measured values would be too low, especially if noise is correlated in space. And the
    median is below the mean; the correction follows from the variation of the power between the halves.

    Parameters
    ----------
    lags : callable
        Returns the lags r_l, (n, L + 1), of one of two parts of the filtered data, 0 or 1, in a slice of the pixels. Their
        noise is independent: two halves of the frames, or means over two sets of blocks.
    projection : ClutterProjection
        The clutter filter.
    grid : Neighbourhood
        Shape of the image.
    executor : Executor, optional
        Works on both parts at the same time; by default one after the other.

    Returns
    -------
    (n_pixels,) float64 array
    """
    n_lags = projection.n_lags
    frequencies = np.arange(N_FREQUENCIES) / N_FREQUENCIES
    taper = (1 - np.arange(n_lags) / n_lags) * np.where(np.arange(n_lags) == 0, 1, 2)
    transform = (np.exp(-2j * np.pi * frequencies[:, None] * np.arange(n_lags)) * taper).T
    kept = (projection.white @ transform).real
    # The real spectrum of lags is a real product with their real and imaginary parts, which are in turn in memory
    in_turn = np.stack([transform.real, -transform.imag], axis=1).reshape(-1, N_FREQUENCIES)

    def parts(part: int, pixels: slice) -> NDArray[np.floating]:
        values = np.ascontiguousarray(lags(part, pixels))
        return values.view(values.real.dtype)

    def weights(part: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        # The frequencies with least power at the nodes; the weights of the lags that measure it, and the node of each pixel
        around, nodes = grid.average_at_nodes(partial(parts, part), SURROUNDINGS_SIGMA, SURROUNDINGS_STEP)
        spectrum = in_turn if around.shape[1] == len(in_turn) else transform.real
        power = (around @ spectrum) / kept
        last_quiet = np.partition(power, _N_QUIET - 1, axis=1)[:, _N_QUIET - 1, None]
        # Both frequencies of a pair that differs by rounding: a real stack has as much power at f and -f
        quiet = (power <= last_quiet + NEGLIGIBLE * np.abs(last_quiet)).astype(np.float64)
        return (quiet @ spectrum.T) / (quiet @ kept)[:, None], nodes

    def power_of(part: int) -> NDArray[np.float64]:
        of_lags, nodes = chosen[1 - part]
        power = np.empty(grid.n_pixels)
        for slab in grid.slabs():
            values, own = parts(part, slab.own), slab.own
            for rows in cached_slices(*values.shape):
                at = slice(own.start + rows.start, own.start + rows.stop)
                power[at] = np.vecdot(of_lags[nodes[at]], values[rows])
        return power

    mapped = map if executor is None else executor.map
    chosen = list(mapped(weights, (0, 1)))
    first, second = mapped(power_of, (0, 1))
    level = grid.wide_median((first + second) / 2)
    # The squared standard error of a pixel's power, relative to the power.
    difference = (first - second)[level > 0] / level[level > 0]
    variance = float(np.median(difference**2)) / (4 * MEDIAN_OF_SQUARE) if len(difference) else 0.0
    return level / median_of_chi_square(2 / max(variance, 1e-9))


CELL_SIGMA = 0.85
"""Standard deviation in pixels of the average over neighbours: 2 pixels of full width at half maximum."""

HALVES = (slice(1), slice(1, None))
"""Lag sums of each half of the frames."""


@dataclass(frozen=True)
class NoiseLevels:
    """Noise of a stack.

    Attributes
    ----------
    power : (n_pixels,) float64 array
        Power of the noise before the clutter filter.
    pixel, average : (n_pixels,) float64 arrays
        Noise variance of a channel of a pixel (see :func:`to_channels`), and of its average over neighbours.
    """

    power: NDArray[np.float64]
    pixel: NDArray[np.float64]
    average: NDArray[np.float64]


def measure_noise(
    lag_sums: LagSums, projection: ClutterProjection, grid: Neighbourhood, executor: Executor
) -> NoiseLevels:
    """Measure the power of the noise in the frequencies without blood, and its variance by two halves of the frames.

    The variances are medians over a wide window, so that vessels do not count. The difference of the halves holds
    noise that is correlated in space as it is.

    Parameters
    ----------
    lag_sums : LagSums
        Lagged products of the filtered stack.
    projection : ClutterProjection
        The clutter filter.
    grid : Neighbourhood
        Shape of the image.
    executor : Executor
        Measures both at the same time.
    """

    def of_half(half: int, pixels: slice) -> Numbers:
        return lag_sums.mean(HALVES[half], projection.n_frames, pixels)

    power = noise_map(of_half, projection, grid, executor)

    def energies(slab: Slab) -> NDArray[np.float64]:
        difference = to_channels(lag_sums.difference(projection.n_frames, slab.rows), lag_sums.is_complex)
        both = (difference, slab.grid.average(difference, CELL_SIGMA))
        return np.stack([np.vecdot(one[slab.inner, 1:], one[slab.inner, 1:]) for one in both])

    pixel, average = np.concatenate(list(executor.map(energies, grid.slabs(CELL_SIGMA))), axis=1)
    n_channels = 2 * (projection.n_lags - 1) if lag_sums.is_complex else projection.n_lags - 1
    middle = n_channels * median_of_chi_square(n_channels)
    pixel, average = executor.map(grid.wide_median, (pixel, average))
    return NoiseLevels(power, pixel / middle, average / middle)


def remaining_tissue(
    along: NDArray[np.float64], noise: NoiseLevels, grid: Neighbourhood
) -> NDArray[np.float64]:
    """Return the energy of remaining tissue in the averages over neighbours, (n_pixels,), its mean square.

    It is the median over a wide window at the depth of each pixel, less the noise.

    Parameters
    ----------
    along : (n_pixels,) array
        Squares of the averages over neighbours, after subtraction of the mean noise, along the channels of the tissue.
    noise : NoiseLevels
        The noise.
    grid : Neighbourhood
        Shape of the image.
    """
    return np.maximum(grid.wide_median(along) / MEDIAN_OF_SQUARE - noise.average, 0)
