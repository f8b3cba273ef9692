"""The blood map: blood power without the noise, and without what the clutter filter took of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.pipeline.blood.clutter_projection import ClutterProjection
from usdenoise.pipeline.blood.lags import LagSums
from usdenoise.pipeline.blood.neighbourhood import Neighbourhood
from usdenoise.pipeline.blood.noise_map import noise_map

CELL_SIGMA = 0.85
"""Standard deviation in pixels of the average over neighbours: 2 pixels of full width at half maximum."""

MEDIAN_OF_SQUARE = 0.455
"""Median of the square of a standard normal number."""

_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class BloodMap:
    """Blood and noise power of each pixel.

    Attributes
    ----------
    blood_power, noise_power : (n_pixels,) float64 arrays
        Powers before the clutter filter, in the squared unit of the stack.
    evidence : (n_pixels,) float64 array
        Share in [0, 1] of what is seen at a pixel that noise and leftover tissue do not explain.
    kept_share : (n_pixels,) float64 array
        Share of the blood's power that the clutter filter keeps at the pixel's Doppler spectrum, in [0, 1];
        meaningless without evidence of blood.
    reproducibility : float or None
        Correlation of the maps of two interleaved halves of the frames; None where one of them is constant.
    """

    blood_power: NDArray[np.float64]
    noise_power: NDArray[np.float64]
    evidence: NDArray[np.float64]
    kept_share: NDArray[np.float64]
    reproducibility: float | None


@dataclass(frozen=True)
class _Background:
    """What a pixel shows without blood.

    Attributes
    ----------
    pixel, average : (n_pixels,) float64 arrays
        Noise variance of a channel of a pixel, and of its average over neighbours.
    leftover : (n_pixels,) float64 array
        Mean square of the leftover tissue in the average, along `direction`.
    direction : (C,) float64 array
        Unit vector of the leftover tissue's channels, or zeros.
    """

    pixel: NDArray[np.float64]
    average: NDArray[np.float64]
    leftover: NDArray[np.float64]
    direction: NDArray[np.float64]

    def whiten(self, channels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return channels in which noise and leftover tissue have the variance of the noise in every direction."""
        shrink = np.sqrt(self.average / np.maximum(self.average + self.leftover, _TINY)) - 1
        along = channels @ self.direction
        whitened: NDArray[np.float64] = channels + (shrink * along)[:, None] * self.direction
        return whitened


def map_blood(lag_sums: LagSums, projection: ClutterProjection, grid: Neighbourhood) -> BloodMap:
    """Return the blood and the noise power of each pixel of a filtered stack.

    See docs/blood.md for the model and its measured figures.

    Parameters
    ----------
    lag_sums : LagSums
        Lagged products of the filtered stack.
    projection : ClutterProjection
        The clutter filter.
    grid : Neighbourhood
        Shape of the image; pixels in the order of the Casorati matrix.
    """
    is_complex = np.iscomplexobj(lag_sums.sums)
    n_frames = projection.n_frames
    lags = lag_sums.mean(slice(None), n_frames)
    noise = noise_map(lags, projection, grid)
    pixel = _channels(lags - noise[:, None] * projection.white, is_complex)
    difference = _channels(lag_sums.difference(n_frames), is_complex)
    average = grid.average(pixel, CELL_SIGMA)
    background = _background(average, difference, _leftover_direction(projection, is_complex), grid)
    estimate = _estimate(pixel, average, noise, background, projection, is_complex)
    halves = [
        _estimate(own, grid.average(own, CELL_SIGMA), noise, background, projection, is_complex)[0]
        for own in (
            _channels(lag_sums.mean(slice(half, half + 1), n_frames) - noise[:, None] * projection.white, is_complex)
            for half in (0, 1)
        )
    ]  # fmt: skip
    return BloodMap(estimate[0], noise, estimate[1], estimate[2], _correlation(*halves))


def _channels(lags: NDArray[np.complex128], is_complex: bool) -> NDArray[np.float64]:
    """Return lags as real channels, in which white noise has the same variance: lag 0, then the other lags."""
    if not is_complex:
        return np.concatenate([lags[..., :1].real / np.sqrt(2), lags[..., 1:].real], axis=-1)
    others = np.sqrt(2) * lags[..., 1:]
    return np.concatenate([lags[..., :1].real, others.real, others.imag], axis=-1)


def _lags(channels: NDArray[np.float64], is_complex: bool) -> NDArray[np.complex128]:
    """Return the lags of channels: the inverse of :func:`_channels`."""
    if not is_complex:
        return np.concatenate([channels[..., :1] * np.sqrt(2), channels[..., 1:]], axis=-1).astype(complex)
    real, imaginary = np.split(channels[..., 1:] / np.sqrt(2), 2, axis=-1)
    return np.concatenate([channels[..., :1] + 0j, real + 1j * imaginary], axis=-1)


def _leftover_direction(projection: ClutterProjection, is_complex: bool) -> NDArray[np.float64]:
    direction = _channels(projection.leftover, is_complex)
    length = float(np.linalg.norm(direction))
    return direction / length if length > 0 else direction


def _background(
    average: NDArray[np.float64],
    difference: NDArray[np.float64],
    direction: NDArray[np.float64],
    grid: Neighbourhood,
) -> _Background:
    """Measure noise by the difference of two halves of the frames, and leftover tissue by what is at its depth."""
    freedom = difference.shape[1] - 1
    # The median of a chi-square variable over its mean (Wilson and Hilferty, PNAS 17(12), 1931).
    middle = (1 - 2 / (9 * freedom)) ** 3
    noise = [
        np.maximum(grid.wide_median(np.mean(values[:, 1:] ** 2, axis=1)) / middle, _TINY)
        for values in (difference, grid.average(difference, CELL_SIGMA))
    ]
    along = grid.wide_median((average @ direction) ** 2) / MEDIAN_OF_SQUARE
    return _Background(noise[0], noise[1], np.maximum(along - noise[1], 0), direction)


def _estimate(
    pixel: NDArray[np.float64],
    average: NDArray[np.float64],
    noise: NDArray[np.float64],
    background: _Background,
    projection: ClutterProjection,
    is_complex: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return blood power, evidence and kept share of each pixel."""
    cleaned, shares = _cleaned(average, background)
    power = projection.power_before(_lags(cleaned, is_complex))
    seen = background.whiten(cleaned)
    energy = np.sum(seen[:, 1:] ** 2, axis=1)
    part = (average.shape[1] - 1) / average.shape[1]
    evidence = _evidence(
        energy, background.average, part * np.sum(shares**2, axis=1), np.sum(shares**4, axis=1)
    )
    total = np.maximum(np.sum(seen**2, axis=1), _TINY)
    ratio = np.sum(background.whiten(pixel) * seen, axis=1) / total
    blood_to_noise = np.maximum(average[:, 0], 0) / np.maximum(noise, _TINY)
    variance = background.pixel * (1 + 2 * blood_to_noise) / total
    ratio = _shrunk(ratio, variance, evidence * np.maximum(power, 0) ** 2)
    blood = np.maximum(ratio * power * evidence, 0)
    after = np.maximum(cleaned[:, 0], 0)
    return blood, evidence, after / np.maximum(np.maximum(power, after), _TINY)


def _cleaned(
    average: NDArray[np.float64], background: _Background
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the averages with their channels shrunk to those that blood has, and the factors of the shrinking.

    The covariance of the channels over all pixels with evidence gives the directions in which blood differs from
    pixel to pixel and its share in each. A pixel's part in a direction is shrunk as a Wiener filter does it.
    """
    n_channels = average.shape[1]
    noise = background.average
    energy = np.sum(background.whiten(average)[:, 1:] ** 2, axis=1)
    evidence = np.maximum(energy - (n_channels - 1) * noise, 0) / np.maximum(energy, _TINY)
    weights = evidence / noise
    covariance = (average * weights[:, None]).T @ average - np.eye(n_channels) * float(weights @ noise)
    values, directions = np.linalg.eigh(covariance)
    shares = np.maximum(values, 0) / max(float(np.maximum(values, 0).sum()), _TINY)
    signal = np.maximum(np.sum(average**2, axis=1) - n_channels * noise, noise)[:, None] * shares
    factors = signal / (signal + noise[:, None])
    return ((average @ directions) * factors) @ directions.T, factors


def _evidence(
    energy: NDArray[np.float64],
    noise: NDArray[np.float64],
    expected: NDArray[np.float64],
    fourth: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the share of an energy that noise does not explain: what is above its mean plus one standard deviation.

    The step at 0 is rounded over one standard deviation, so that weak vessels keep their rank.
    """
    deviation = np.sqrt(2 * fourth) * noise
    excess = energy - expected * noise - deviation
    rounded = (excess + np.hypot(excess, deviation)) / 2
    return np.minimum(rounded / np.maximum(energy, _TINY), 1)


def _shrunk(
    ratio: NDArray[np.float64], variance: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the ratio of a pixel to its neighbours, shrunk to 1 where its noise is larger than its true spread."""
    weights = weights / (1 + variance) ** 2
    total = float(weights.sum())
    spread = max(float(weights @ ((ratio - 1) ** 2 - variance)) / total, 0.0) if total > 0 else 0.0
    return 1 + spread / np.maximum(spread + variance, _TINY) * (ratio - 1)


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale > 0 else None
