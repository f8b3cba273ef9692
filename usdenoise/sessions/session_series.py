"""The series of a session, from the lags of its filtered blocks.

The products of a block become its spectrum over 2 L bands. Over the session each pixel has a mean spectrum and its
variance from block to block; blood is the sum over the bands with the weights that suit both. It is linear in the data of a
block, so that a step of the blood reads as that step, and the noise of the series is the noise of the data.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_background import TINY
from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.clutter_projection import removed_by
from usdenoise.blood.leaked_tissue import WIDE, leaked_tissue, share_above_noise
from usdenoise.blood.noise_map import noise_map
from usdenoise.blood.picture_quality import PictureQuality, judge_picture
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.sessions.session_clutter import SessionClutter

SMOOTHING = 1.0
"""Standard deviation in pixels of the averages of mean and variance. 1.5 and .7 found as many pixels, within 2 %."""

LEAST_KEPT = 0.15
"""Least share of white noise after the filter by which a band is divided: with less, noise would be blown up."""

MODEL_BLOCKS = 10
"""Number of blocks at which the variance of a spectrum has the weight of the speckle variance, (S + N)^2."""

LEAK_CHANGE = 0.5
"""Relative standard deviation of the leak from block to block. On two sessions with tissue 45 and 50 dB over blood a step
of 10 % of blood over the noise read 9.4 and 9.5 with 0, 9.5 with 0.5 and 9.7 to 10.0 with 3; activated pixels with t > 3
were 8 % fewer with 0.5 and 35 to 50 % fewer with 3."""

QUIET_SHARE = 0.2
"""Blood and leaked tissue over the noise up to which a band of a pixel shows how strong the noise of a block is."""

MOST_RESCALED = 1.5
"""Most by which the weights are scaled up so that their sum is the blood map. In noise the map is smaller than their sum."""


@dataclass(frozen=True)
class BlockMap:
    """The blood map of one block, and of the series if no other block counts.

    Attributes
    ----------
    blood_power, noise_power : (n_signal,) float64 arrays
        Blood and noise power.
    quality : PictureQuality
        Its metrics.
    """

    blood_power: NDArray[np.float64]
    noise_power: NDArray[np.float64]
    quality: PictureQuality

    @classmethod
    def of_halves(cls, halves: LagSums, clutter: SessionClutter, n_frames: int) -> Self:
        """Return the map of the lags of a filtered block by halves of its frames."""
        with ThreadExecutor(1) as executor:
            half_maps = map_blood(halves, clutter.projection, clutter.grid, executor)
        return cls(
            half_maps.blood_power, half_maps.noise_power, judge_picture(half_maps, n_frames, clutter.power)
        )


@dataclass(frozen=True)
class SeriesModel:
    """What turns the lags of a block into its blood power, and the blood map of the mean of the blocks.

    Attributes
    ----------
    weights : (n_signal, L) array
        Weights of the lags: the transformed weights of the bands.
    offset : (n_signal,) array
        Constant that is added to the weighted sum.
    mean_blood_power, noise_power : (n_signal,) float64 arrays
        Blood map of the mean of the good blocks, and its noise.
    quality : PictureQuality
        Figures of this map.
    of_noise : (n_signal,) float64 array
        Contribution of the noise of the mean to the weighted sum.
    quiet : (n_signal, L) array
        Weights of the lags that sum up the bands in which nearly all is noise.
    of_quiet : (n_signal,) array
        Contribution of the mean of the blocks to this sum.
    """

    weights: NDArray[np.inexact]
    offset: NDArray[np.float64]
    mean_blood_power: NDArray[np.float64]
    noise_power: NDArray[np.float64]
    quality: PictureQuality
    of_noise: NDArray[np.float64]
    quiet: NDArray[np.inexact]
    of_quiet: NDArray[np.float64]

    def blood_power(self, lags: NDArray[np.inexact], noise_level: float = 1.0) -> NDArray[np.float64]:
        """Return the blood power of a block without the noise, (n_signal,), from its lags, (n_signal, L).

        It is linear in the data of the block, and may be negative. Its noise power is `noise_level` times the mean's.
        """
        power: NDArray[np.float64] = np.vecdot(self.weights, lags).real + self.offset
        return power + (1 - noise_level) * self.of_noise

    def noise_level(self, lags: NDArray[np.inexact], observed: NDArray[np.floating]) -> float:
        """Return the noise power of a block over the mean of the blocks, from the pixels that were observed."""
        is_known = observed > 0
        usual = float(self.of_quiet[is_known].sum())
        return float(np.vecdot(self.quiet, lags).real[is_known].sum()) / usual if usual > TINY else 1.0


@dataclass(frozen=True)
class SessionSeries:
    """The blood of a session.

    Attributes
    ----------
    blood_power : (n_blocks, n_signal) float32 array
        Blood power of each block; NaN without data.
    model : SeriesModel
        Its weights, and the mean.
    noise_levels : (n_blocks,) float64 array
        Noise power of each block over the noise power of the mean.
    """

    blood_power: NDArray[np.float32]
    model: SeriesModel
    noise_levels: NDArray[np.float64]


class Spectra:
    """Spectra of blocks, from their lags.

    Parameters
    ----------
    clutter : SessionClutter
        What was filtered.
    removed : (4 n,) float64 array, optional
        Share of white noise that the temporal components of a block remove besides, from
        :func:`usdenoise.blood.clutter_projection.removed_by`; by default nothing.
    """

    def __init__(self, clutter: SessionClutter, removed: NDArray[np.float64] | None = None) -> None:
        n_lags = clutter.projection.n_lags
        lags = np.arange(n_lags)
        taper = np.cos(np.pi * lags / (2 * n_lags)) ** 2
        # Negative lags are the conjugates of the positive ones.
        taper *= np.where(lags == 0, 1, 2)
        bands = np.arange(2 * n_lags) / (2 * n_lags)
        self._transform = (np.exp(-2j * np.pi * np.outer(bands, lags)) * taper).T
        self._share = clutter.kept_share
        white = clutter.projection.white if removed is None else clutter.projection.white_followed_by(removed)
        self.white_lags = white if clutter.is_complex else white.real
        """Lagged products of white noise of unit power."""
        self._divisor = np.maximum((self.white_lags @ self._transform).real, LEAST_KEPT)
        # The real spectrum of lags is a real product with their real and imaginary parts, in a quarter of the time.
        self._of_parts = self._transform.real / self._divisor
        if clutter.is_complex:
            parts = np.stack([self._transform.real, -self._transform.imag], axis=1) / self._divisor
            self._of_parts = parts.reshape(2 * n_lags, -1)

    def corrected(self, lags: NDArray[np.inexact]) -> NDArray[np.inexact]:
        """Return lags, (n_signal, L), as if the filter took the same share of noise in all pixels."""
        return lags / self._share[:, None]

    def of(self, lags: NDArray[np.inexact]) -> NDArray[np.float64]:
        """Return the spectra, (n_signal, 2 L), of corrected lags; their mean over the bands is the power."""
        parts: Any = lags.view(np.float64) if np.iscomplexobj(lags) else lags
        spectra: NDArray[np.float64] = parts @ self._of_parts
        return spectra

    def weights_of_lags(self, weights: NDArray[np.float64]) -> NDArray[np.inexact]:
        """Return a, (n_signal, L), so that Re sum_l conj(a_l) r_l of lags r is the weighted sum of the bands."""
        lag_weights: NDArray[Any] = ((weights / self._divisor) @ self._transform.T.conj()) / self._share[
            :, None
        ]
        return lag_weights if np.iscomplexobj(self.white_lags) else lag_weights.real


def session_series(
    array_of: Callable[[int, str], NDArray[Any]],
    excluded: NDArray[np.bool_],
    has_data: NDArray[np.bool_],
    clutter: SessionClutter,
    executor: Executor,
    alone: BlockMap | None = None,
    is_scaled: NDArray[np.bool_] | None = None,
) -> SessionSeries:
    """Make the series of a session.

    With the mean spectrum S of the blood at a pixel, and the variance of its bands from block to block, the weights
    W = S / var find a change of the blood best where bands are independent. Bands in which tissue leaks at times vary
    more than their blood is worth, and count little; bands in which it leaks together count less (:func:`band_weights`). The
    variance comes from differences of neighbouring blocks, so that slow changes and the activation do not count. W is
    scaled up so that the mean of the weighted sum, averaged over the neighbourhood, is not below the blood map of the mean
    of the blocks. The mean of the series is this map; with one good block it is the blood map of that block.

    Parameters
    ----------
    array_of : callable
        Returns an array of a block by its number and name: "lags", (n_signal, L), twice for each block, "temporal", or
        "observed", (n_signal,).
    excluded : (n_blocks,) boolean array
        Blocks that do not count in means and variances: bad ones, and blocks that have frames in common
        with one that counts.
    has_data : (n_blocks,) boolean array
        Blocks that have lags.
    clutter : SessionClutter
        What was filtered.
    executor : Executor
        Maps over the blocks.
    alone : BlockMap, optional
        The map of the block that counts, if it is the only one.
    is_scaled : (n_blocks,) boolean array, optional
        Blocks that were divided by a gain, and so have a noise power of their own; by default none.
    """
    sums = BlockSums()
    counting, known = (np.flatnonzero(which).tolist() for which in (~excluded, has_data))
    for block_power in executor.map(
        lambda number: BlockSpectrum.of(
            array_of(number, "lags"), clutter, array_of(number, "temporal"), array_of(number, "observed")
        ),
        counting,
    ):
        sums.add(block_power)
    model = series_model(sums, clutter, alone)
    blood_power = np.full((len(excluded), len(model.noise_power)), np.nan, np.float32)
    levels = np.ones(len(excluded))

    def mapped(number: int) -> tuple[NDArray[np.float64], float]:
        lags, observed = array_of(number, "lags"), array_of(number, "observed")
        level = model.noise_level(lags, observed) if is_scaled is not None and is_scaled[number] else 1.0
        return np.where(observed > 0, model.blood_power(lags, level), np.nan), level

    for number, (power, level) in zip(known, executor.map(mapped, known), strict=True):
        blood_power[number], levels[number] = power, level
    return SessionSeries(blood_power, model, levels)


@dataclass(frozen=True)
class BlockSpectrum:
    """The spectrum of one block.

    Attributes
    ----------
    observed : (n_signal, 1) float64 array
        Number of frames in which each pixel was observed: the weight of the block there.
    lags : (n_signal, L) array
        Corrected lags.
    bands : (n_signal, 2 L) array
        Power in each band over the power of white noise after the filter of this block.
    removed : (4 n,) float64 array
        Share of white noise that the temporal components of this block remove.
    """

    observed: NDArray[np.float64]
    lags: NDArray[np.inexact]
    bands: NDArray[np.float64]
    removed: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        lags: NDArray[np.inexact],
        clutter: SessionClutter,
        temporal: NDArray[np.inexact],
        observed: NDArray[np.floating],
    ) -> Self:
        """Return the spectrum of a block.

        Parameters
        ----------
        lags, temporal, observed
            As :class:`usdenoise.sessions.block_filter.FilteredBlock` has them.
        clutter : SessionClutter
            What was filtered.
        """
        removed = removed_by(temporal, clutter.projection.n_frames)
        spectra = Spectra(clutter, removed)
        corrected = spectra.corrected(lags)
        return cls(observed.astype(np.float64)[:, None], corrected, spectra.of(corrected), removed)


@dataclass
class BlockSums:
    """Sums over the good blocks so far, from which the weights of a series come. Blocks are added in the order of time.

    In each pixel, the weight of a block is the number of frames in which the pixel was observed.

    Attributes
    ----------
    n_blocks : int
        Number of blocks.
    halves : tuple of (n_signal, L) arrays
        Sums of the corrected lags over blocks 0, 2, 4, ..., and over blocks 1, 3, 5, ...; 0 without any.
    frames : tuple of (n_signal, 1) arrays
        Number of frames in each of the halves.
    squares : (n_signal, 2 L) array
        Sum over pairs of neighbouring blocks of the squared difference of their spectra, divided by 1 / n + 1 / m for n and
        m observed frames; 0 without any.
    pairs : (n_signal, 1) array
        Number of these differences.
    last : BlockSpectrum or None
        Spectrum of the last block.
    removed : (4 n,) array
        Sum of the shares of white noise that the temporal components of the blocks remove; 0 without any.
    """

    n_blocks: int = 0
    halves: tuple[Any, Any] = (0.0, 0.0)
    frames: tuple[Any, Any] = (0.0, 0.0)
    squares: Any = 0.0
    pairs: Any = 0.0
    last: BlockSpectrum | None = None
    removed: Any = 0.0

    @property
    def frames_a_block(self) -> float:
        """Mean number of frames of a block, over the pixels."""
        return float(np.mean(self.frames[0] + self.frames[1])) / self.n_blocks

    def add(self, block: BlockSpectrum) -> None:
        """Add the spectrum of a block."""
        weighted = block.observed * block.lags
        if self.n_blocks % 2:
            self.halves = (self.halves[0], self.halves[1] + weighted)
            self.frames = (self.frames[0], self.frames[1] + block.observed)
        else:
            self.halves = (self.halves[0] + weighted, self.halves[1])
            self.frames = (self.frames[0] + block.observed, self.frames[1])
        if self.last is not None:
            both = self.last.observed + block.observed
            weight = self.last.observed * block.observed / np.maximum(both, 1)
            self.squares = self.squares + weight * (block.bands - self.last.bands) ** 2
            self.pairs = self.pairs + (weight > 0)
        self.last = block
        self.removed = self.removed + block.removed
        self.n_blocks += 1

    def moved(self, move: Callable[[Any], Any]) -> "BlockSums":
        """Return the sums in other pixels; `move` returns values of these from values here, 0 where there are none."""
        last = self.last
        if last is not None:
            last = replace(last, observed=move(last.observed), lags=move(last.lags), bands=move(last.bands))
        return replace(
            self,
            halves=(move(self.halves[0]), move(self.halves[1])),
            frames=(move(self.frames[0]), move(self.frames[1])),
            squares=move(self.squares),
            pairs=move(self.pairs),
            last=last,
        )

    def means(self) -> list[NDArray[Any]]:
        """Return the mean lags of each half, or of both halves in pixels that were not observed in it."""
        whole = sum(self.halves) / np.maximum(sum(self.frames), 1)
        return [
            np.where(frames > 0, half / np.maximum(frames, 1), whole)
            for half, frames in zip(self.halves, self.frames, strict=True)
        ]

    def filtered(self, clutter: SessionClutter) -> SessionClutter:
        """Return the clutter with the mean effect of the temporal components too."""
        return replace(clutter, projection=clutter.projection.followed_by(self.removed / self.n_blocks))


def series_model(sums: BlockSums, clutter: SessionClutter, alone: BlockMap | None = None) -> SeriesModel:
    """Return what turns the lags of a block into its blood power; see :func:`session_series`.

    Parameters
    ----------
    sums : BlockSums
        Sums over at least one good block.
    clutter : SessionClutter
        What was filtered.
    alone : BlockMap, optional
        The map of the block, if it is the only one.
    """
    clutter = sums.filtered(clutter)
    spectra, grid, projection = Spectra(clutter), clutter.grid, clutter.projection
    mean_lags, noise, leak = _mean_noise_leak(sums, clutter, alone)
    leaked, share = spectra.of(leak), _share(mean_lags, noise, leak, clutter)
    mean = spectra.of(mean_lags)
    above = mean - spectra.of(noise[:, None] * spectra.white_lags) - leaked
    blood = np.maximum(grid.average(above, SMOOTHING), 0)
    variance = (blood + noise[:, None]) ** 2
    if alone is not None:
        mean_power, quality = alone.blood_power, alone.quality
    else:
        pairs = grid.average(sums.pairs, SMOOTHING)
        measured = grid.average(sums.squares, SMOOTHING) / (np.maximum(pairs, TINY) * sums.frames_a_block)
        # Identical blocks, such as copies of a file, have no variance.
        usual = float(np.median(measured / np.maximum(variance, TINY))) or 1.0
        variance = (pairs * measured + MODEL_BLOCKS * usual * variance) / (pairs + MODEL_BLOCKS)
        fade = 1 - np.arange(projection.n_lags) / projection.n_frames
        lag_sums = LagSums(
            np.stack([half - frames * leak for half, frames in zip(sums.halves, sums.frames, strict=True)]),
            np.stack([frames * fade for frames in sums.frames]),
        )
        with ThreadExecutor(1) as executor:
            blood_map = map_blood(lag_sums, projection, grid, executor)
        mean_power, noise = blood_map.blood_power, blood_map.noise_power
        n_frames = round(sums.frames_a_block * sums.n_blocks)
        quality = judge_picture(blood_map, n_frames, clutter.power, share)
    weights = band_weights(blood, variance, leaked)
    # The map compensates for blood that the filter removed and the bands do not have.
    shown, known = (grid.average(power[:, None], WIDE) for power in (mean_power, np.vecdot(weights, above)))
    weights *= np.clip(shown / np.maximum(known, TINY), 1, MOST_RESCALED)
    of_lags = spectra.weights_of_lags(weights)
    noise_lags = (noise * clutter.kept_share)[:, None] * spectra.white_lags
    quiet = _quiet_bands(blood + leaked, noise)
    return SeriesModel(
        weights=of_lags,
        offset=mean_power - np.vecdot(weights, mean),
        mean_blood_power=mean_power,
        noise_power=noise,
        quality=quality,
        of_noise=np.vecdot(of_lags, noise_lags).real,
        quiet=spectra.weights_of_lags(quiet),
        of_quiet=np.vecdot(quiet, mean),
    )


def _quiet_bands(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights, (n_signal, 2 L), of the bands of noise alone: one over the noise, 0 in the other bands."""
    floor = max(1e-3 * float(noise.max()), TINY)
    return np.where(signal < QUIET_SHARE * noise[:, None], 1 / np.maximum(noise, floor)[:, None], 0)


def band_weights(
    blood: NDArray[np.float64], variance: NDArray[np.float64], leaked: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weights W of the bands that find a change of the blood best.

    They are C^-1 S with the covariance C = diag(variance) + c^2 L L^T from block to block: bands change on their own, but
    for the leak L, which changes in all of them alike (inverse of Sherman and Morrison, Ann. Math. Stat. 21, 1950).

    Parameters
    ----------
    blood, variance, leaked : (n_signal, 2 L) arrays
        Mean spectrum S of the blood, variance of the bands from block to block, and mean spectrum of the leak.

    Returns
    -------
    (n_signal, 2 L) float64 array
        For which sum W S is the mean of S.
    """
    variance = np.maximum(variance, TINY)
    of_leak = LEAK_CHANGE**2 * leaked / variance
    share = np.vecdot(of_leak, blood) / (1 + np.vecdot(of_leak, leaked))
    weights: NDArray[np.float64] = (blood - share[:, None] * leaked) / variance
    weights *= (blood.mean(axis=1) / np.maximum(np.vecdot(weights, blood), TINY))[:, None]
    return weights


def leak_share(sums: BlockSums, clutter: SessionClutter) -> float:
    """Return the share of leaked tissue in the power above the noise; 0 where there is nearly nothing above the noise.

    Parameters
    ----------
    sums : BlockSums
        Sums over two blocks or more.
    clutter : SessionClutter
        What was filtered.
    """
    clutter = sums.filtered(clutter)
    mean_lags, noise, leak = _mean_noise_leak(sums, clutter)
    return _share(mean_lags, noise, leak, clutter)


def _share(
    mean_lags: NDArray[Any], noise: NDArray[np.float64], leak: NDArray[Any], clutter: SessionClutter
) -> float:
    white = Spectra(clutter).white_lags[0].real
    return share_above_noise(leak[:, 0].real, mean_lags[:, 0].real, noise * white)


def _mean_noise_leak(
    sums: BlockSums, clutter: SessionClutter, alone: BlockMap | None = None
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    """Return the mean lags, the noise power, and the part of the products that tissue left.

    If there is only one block, its own noise is used.
    """
    noise_power = None if alone is None else alone.noise_power
    noise = (
        noise_map(np.stack(sums.means()), clutter.projection, clutter.grid)
        if noise_power is None
        else noise_power
    )
    mean_lags = sum(sums.halves) / np.maximum(sum(sums.frames), 1)
    blood_and_leak = mean_lags - noise[:, None] * Spectra(clutter).white_lags
    speckle = np.stack([clutter.at_signal_pixels(half) for half in clutter.leaking])
    return mean_lags, noise, leaked_tissue(blood_and_leak, speckle, clutter.grid)
