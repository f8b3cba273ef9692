"""The series of a recording: the one accumulator of filtered blocks, for a scan, a finished session and a live one.

The lags of a block become its spectrum over 2 L bands. Over a session each pixel has a mean spectrum and its
variance from block to block; blood is the sum over the bands with the weights that suit both. It is linear in the data of a
block, so that a step of the blood reads as that step, and the noise of the series is the noise of the data. With one block,
the maps are the maps of a scan, from halves of its frames.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import CELL_SIGMA, HALVES, ClutterProjection, at_frequencies, noise_map, removed_by
from usdenoise.blood.picture_quality import (
    FLOOR_QUANTILE,
    WIDE,
    PictureQuality,
    judge_picture,
    leaked_tissue,
    missing_share,
    quiet_correlation,
    share_above_noise,
    speckle_likeness,
)
from usdenoise.clutter.bad_pixels import COHERENT, share_of_noise
from usdenoise.linalg.array_library import Inexact, Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.linalg.tall_matrices import TINY, correlation_of
from usdenoise.pipeline.measures import Clutter, Measures
from usdenoise.stack.geometry import Geometry

LEAST_KEPT = 0.15
"""Least share of white noise after the filter by which a band is divided: with less, noise would be blown up."""

MODEL_BLOCKS = 10
"""Number of blocks at which the variance of a spectrum has the weight of the speckle variance, (S + N)^2."""

QUIET_SHARE = 0.2
"""Blood and leaked tissue over the noise up to which a band of a pixel shows how strong the noise of a block is."""

DEPTH_PARTS = 8
"""Part of the depth over which the noise of a block is summed where it changes with depth: one over this number."""

MOST_RESCALED = 1.5
"""Most by which the weights are scaled up so that their sum is the blood map. In noise the map is smaller than their sum."""


NOTHING = np.zeros(())
"""A sum over no blocks."""


@dataclass(frozen=True)
class BlockLags:
    """What a series adds up of a block, in its signal pixels.

    Attributes
    ----------
    lags : (n_signal, L) array
        Lags of the filtered block, from :meth:`usdenoise.linalg.lag_sums.LagSums.mean`, as if its filter took the same share
        of noise in all pixels: the clutters of two blocks may differ.
    observed : (n_signal,) array
        Number of frames in which each pixel was observed, without excluded frames.
    temporal : (n, q) array
        Temporal components that were removed after the spatial ones, orthonormal columns.
    has_own_noise : bool
        Whether the block was shifted or divided by a gain, and so has a noise power of its own; by default not.
    has_own_depths : bool
        Whether this gain changes with depth, and so may the ratio of the noise to the noise of the mean; by default not.
    sums : LagSums or None
        The lags by halves of the frames; None (the default) if they were not kept.
    halves : (2, n_signal) array or None
        Mean power of the residual over the first and over the second half of the frames of a scan; None (the default) if it
        is not known.
    """

    lags: Numbers
    observed: NDArray[np.floating]
    temporal: Numbers
    has_own_noise: bool = False
    has_own_depths: bool = False
    sums: LagSums | None = None
    halves: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, measures: Measures, clutter: Clutter) -> "BlockLags":
        """Return the part of the measures of a whole block that a series adds up."""
        grid, sums = clutter.grid, measures.lag_sums(clutter.grid.mask)
        lags = sums.mean(slice(None), measures.n_frames) / clutter.kept_share[:, None]
        observed = np.broadcast_to(sums.counts[:, :, 0].sum(axis=0), grid.n_pixels)
        halves, n_first = None, measures.n_first
        if measures.first_power is not None and 0 < n_first < measures.n_used_frames:
            first, whole = grid.at_signal(measures.first_power), grid.at_signal(measures.power)
            halves = np.stack([first / n_first, (whole - first) / (measures.n_used_frames - n_first)])
        return cls(lags, observed, measures.temporal, sums=sums, halves=halves)


@dataclass(frozen=True)
class SeriesMaps:
    """The blood map of the mean of the blocks.

    Attributes
    ----------
    blood_power, noise_power : (n_signal,) float64 arrays
        Blood and noise power.
    quality : PictureQuality
        Its metrics.
    mean : _Mean or None
        What the map of many blocks was made of; None for one block.
    """

    blood_power: NDArray[np.float64]
    noise_power: NDArray[np.float64]
    quality: PictureQuality
    mean: "_Mean | None" = None


@dataclass(frozen=True)
class _Mean:
    """Mean lags, (n_signal, L), their noise power, (n_signal,), and image and factors of the leaked tissue in them."""

    lags: Numbers
    noise: NDArray[np.float64]
    leak: tuple[NDArray[np.float64], Numbers]

    @property
    def leaked_power(self) -> NDArray[np.float64]:
        """Power of leaked tissue, (n_signal,)."""
        image, factors = self.leak
        return image * float(factors[0].real)


@dataclass(frozen=True)
class SeriesModel:
    """What turns the lags of a block into its blood power, and the blood map of the mean of the blocks.

    Attributes
    ----------
    weights : (n_signal, L) array
        Weights of the lags: the transformed weights of the bands.
    offset : (n_signal,) array
        Constant that is added to the weighted sum.
    maps : SeriesMaps
        Blood map of the mean of the good blocks.
    of_noise : (n_signal,) float64 array
        Contribution of the noise of the mean to the weighted sum.
    quiet : (n_signal, L) array
        Weights of the lags that sum up the bands in which nearly all is noise.
    of_quiet : (n_signal,) array
        Contribution of the mean of the blocks to this sum.
    rows : (n_signal,) array of int
        Pixel of each of them along z.
    """

    weights: Numbers
    offset: NDArray[np.float64]
    maps: SeriesMaps
    of_noise: NDArray[np.float64]
    quiet: Numbers
    of_quiet: NDArray[np.float64]
    rows: NDArray[np.intp]

    def blood_power(self, block: BlockLags) -> tuple[NDArray[np.float64], float | NDArray[np.float64]]:
        """Return the blood power of a block without the noise, (n_signal,), and its noise power over the mean's.

        The blood power is linear in the data of the block, and may be negative. It is NaN in pixels that were not observed.
        Noise that came after a change of the gain was divided by a gain that it did not have. So the noise power over the
        mean's is a number, or (n_signal,) if this gain changes with depth.
        """
        is_known: NDArray[np.bool_] = block.observed > 0
        level: float | NDArray[np.float64] = 1.0
        usual = float(self.of_quiet[is_known].sum())
        if block.has_own_noise and usual > TINY:
            own = np.vecdot(self.quiet, block.lags).real
            level = float(own[is_known].sum()) / usual
            if block.has_own_depths:
                window = np.ones(2 * (int(self.rows.max()) // (2 * DEPTH_PARTS)) + 1)
                sums = [
                    np.convolve(np.bincount(self.rows, np.where(is_known, of_pixel, 0)), window, "same")
                    for of_pixel in (own, self.of_quiet)
                ]
                # Depths with few quiet bands are like the others
                few = sums[1].mean() / 10
                level = ((sums[0] + few * level) / (sums[1] + few))[self.rows]
        power = np.vecdot(self.weights, block.lags).real + self.offset + (1 - level) * self.of_noise
        return np.where(is_known, power, np.nan), level


class Spectra:
    """Spectra of blocks, from their lags.

    Parameters
    ----------
    clutter : Clutter
        What was filtered.
    removed : (4 n,) float64 array, optional
        Share of white noise that the temporal components of a block remove besides, from
        :func:`usdenoise.blood.noise.removed_by`; by default nothing.
    """

    def __init__(self, clutter: Clutter, removed: NDArray[np.float64] | None = None) -> None:
        projection, n_lags = _projection_of(clutter), clutter.n_lags
        lags = np.arange(n_lags)
        taper = np.cos(np.pi * lags / (2 * n_lags)) ** 2
        # Negative lags are the conjugates of the positive ones.
        taper *= np.where(lags == 0, 1, 2)
        bands = np.arange(2 * n_lags) / (2 * n_lags)
        self._transform = (np.exp(-2j * np.pi * np.outer(bands, lags)) * taper).T
        white = projection.white if removed is None else projection.white_followed_by(removed)
        self.white_lags = white if clutter.is_complex else white.real
        """Expected lagged products of white noise with unit power."""
        self._divisor = np.maximum((self.white_lags @ self._transform).real, LEAST_KEPT)
        # The real spectrum of lags is a real product with their real and imaginary parts, in a quarter of the time.
        self._of_parts = self._transform.real / self._divisor
        if clutter.is_complex:
            parts = np.stack([self._transform.real, -self._transform.imag], axis=1) / self._divisor
            self._of_parts = parts.reshape(2 * n_lags, -1)

    def of(self, lags: Numbers) -> NDArray[np.float64]:
        """Return the spectra, (n_signal, 2 L), of lags; their mean over the bands is the power."""
        parts = lags.view(np.float64)
        spectra: NDArray[np.float64] = parts @ self._of_parts
        return spectra

    def weights_of_lags(self, weights: NDArray[np.float64]) -> Numbers:
        """Return a, (n_signal, L), so that Re sum_l conj(a_l) r_l of lags r is the weighted sum of the bands."""
        lag_weights: Numbers = (weights / self._divisor) @ self._transform.T.conj()
        return lag_weights if np.iscomplexobj(self.white_lags) else lag_weights.real


def _projection_of(clutter: Clutter) -> ClutterProjection:
    assert clutter.projection is not None
    return clutter.projection


@dataclass(frozen=True)
class Series:
    """Sums over the good blocks so far, from which maps and weights come. Blocks are added in the order of time.

    In each pixel, the weight of a block is the number of frames in which the pixel was observed.

    Attributes
    ----------
    n_blocks : int
        Number of blocks.
    halves : tuple of (n_signal, L) arrays
        Sums of the lags over blocks 0, 2, 4, ..., and over blocks 1, 3, 5, ...; 0 without any.
    frames : tuple of (n_signal, 1) arrays
        Number of frames in each of the halves.
    squares : (n_signal, 2 L) array
        Sum over pairs of neighbouring blocks of the squared difference of their spectra, divided by 1 / n + 1 / m for n and
        m observed frames; 0 without any.
    pairs : (n_signal, 1) array
        Number of these differences.
    bands : (n_signal, 2 L) array
        Power in each band of the last block, over the power of white noise after its filter.
    removed : (4 n,) array
        Sum of the shares of white noise that the temporal components of the blocks remove; 0 without any.
    last : BlockLags or None
        The last block.
    clutter : Clutter or None
        Clutter of the first block as long as it is not in the sums, which a single block does not need; None otherwise.
    """

    n_blocks: int = 0
    halves: tuple[Numbers, Numbers] = (NOTHING, NOTHING)
    frames: tuple[NDArray[np.float64], NDArray[np.float64]] = (NOTHING, NOTHING)
    squares: NDArray[np.float64] = field(default_factory=lambda: NOTHING)
    pairs: NDArray[np.float64] = field(default_factory=lambda: NOTHING)
    bands: NDArray[np.float64] = field(default_factory=lambda: NOTHING)
    removed: NDArray[np.float64] = field(default_factory=lambda: NOTHING)
    last: BlockLags | None = None
    clutter: Clutter | None = None

    @property
    def frames_a_block(self) -> float:
        """Mean number of frames of a block, over the pixels."""
        return float(np.mean(self.frames[0] + self.frames[1])) / self.n_blocks

    def added(self, block: BlockLags, clutter: Clutter) -> "Series":
        """Return the series with one more block, which was filtered with this clutter."""
        if self.last is None:
            return Series(n_blocks=1, last=block, clutter=clutter)
        return self._with_first()._summed(block, clutter, self.n_blocks)

    def _with_first(self) -> "Series":
        """Return the series with the first block in the sums."""
        if self.last is None or self.clutter is None:
            return self
        return self._summed(self.last, self.clutter, 0)

    def _summed(self, block: BlockLags, clutter: Clutter, number: int) -> "Series":
        """Return the series with the sums of one more block, which has a number from 0 on."""
        removed = removed_by(block.temporal, _projection_of(clutter).n_frames)
        spectra, observed = Spectra(clutter, removed), block.observed.astype(np.float64)[:, None]
        # Stored lags have single precision
        lags = block.lags.astype(np.result_type(block.lags, np.float64))
        bands, squares, pairs = spectra.of(lags), self.squares, self.pairs
        if number and self.last is not None:
            before = self.last.observed.astype(np.float64)[:, None]
            weight = before * observed / np.maximum(before + observed, 1)
            squares, pairs = squares + weight * (bands - self.bands) ** 2, pairs + (weight > 0)
        halves, frames = list(self.halves), list(self.frames)
        halves[number % 2] = halves[number % 2] + observed * lags
        frames[number % 2] = frames[number % 2] + observed
        return replace(
            self,
            n_blocks=number + 1,
            halves=(halves[0], halves[1]),
            frames=(frames[0], frames[1]),
            squares=squares,
            pairs=pairs,
            bands=bands,
            removed=removed + (at_frequencies(self.removed, len(removed)) if number else 0),
            # The halves of its frames are for the map of a single block.
            last=replace(block, sums=None, halves=None) if number else block,
            clutter=None,
        )

    def moved(self, clutter: Clutter, before: Clutter) -> "Series":
        """Return the series in the pixels of another clutter than before, 0 where there are none."""

        def move(values: NDArray[Inexact]) -> NDArray[Inexact]:
            # The first block has no differences.
            return clutter.grid.at_signal(before.grid.everywhere(values)) if values.ndim else values

        summed, last = self._with_first(), self.last
        if last is not None:
            sums = last.sums
            if sums is not None:
                counts = sums.counts if sums.counts.shape[1] == 1 else np.stack(list(map(move, sums.counts)))
                sums = LagSums(np.stack(list(map(move, sums.sums))), counts)
            last = replace(last, lags=move(last.lags), observed=move(last.observed), sums=sums)
        return replace(
            summed,
            halves=(move(summed.halves[0]), move(summed.halves[1])),
            frames=(move(summed.frames[0]), move(summed.frames[1])),
            squares=move(summed.squares),
            pairs=move(summed.pairs),
            bands=move(summed.bands),
            last=last,
        )

    def filtered_by(self, clutter: Clutter) -> Clutter:
        """Return the clutter with the mean effect of the temporal components too."""
        removed = self.removed / self.n_blocks
        if self.n_blocks == 1 and self.last is not None:
            removed = removed_by(self.last.temporal, _projection_of(clutter).n_frames)
        if not np.any(removed):
            return clutter
        return replace(clutter, projection=_projection_of(clutter).followed_by(removed))

    def maps(self, clutter: Clutter, executor: Executor) -> SeriesMaps:
        """Return the blood map of the mean: of one block from halves of its frames, of many from even and odd blocks.

        Parameters
        ----------
        clutter : Clutter
            What was filtered.
        executor : Executor
            Makes the maps of all blocks and of both halves side by side.
        """
        clutter = self.filtered_by(clutter)
        projection, sums = _projection_of(clutter), self._halves(clutter)
        mean = self._mean(clutter, sums, executor)
        # Blood is what remains without the leaked tissue
        blood = map_blood(replace(sums, leak=mean.leak), projection, clutter.grid, executor)
        power, is_single = mean.lags[:, 0].real, False
        steadiness = None
        if self.n_blocks == 1 and self.last is not None:
            is_single = True
            if self.last.halves is not None:
                # The power of the first and the second half of the frames, where there is blood
                steadiness = correlation_of(*(blood.evidence * (self.last.halves - blood.noise_power)))
        share = share_above_noise(mean.leaked_power, power, mean.noise * projection.white[0].real)
        quality = judge_picture(blood, clutter.power, share)
        floor = clutter.grid.floor(power, FLOOR_QUANTILE)
        quality = replace(
            quality,
            # Neighbouring frames are uncorrelated in noise
            noisy_share=share_of_noise(power, np.abs(mean.lags[:, 1]) < COHERENT * power, clutter.grid),
            missing_share=missing_share(power, blood.blood_power, floor),
            speckle_likeness=speckle_likeness(
                blood.blood_power, clutter.grid.at_signal(clutter.tissue), clutter.grid
            ),
            quiet_correlation=quiet_correlation(mean.lags, projection.white, floor),
            steadiness=steadiness,
        )
        return SeriesMaps(blood.blood_power, blood.noise_power, quality, None if is_single else mean)

    def _halves(self, clutter: Clutter) -> LagSums:
        """Return the lag sums of the halves: of the frames of a single block, or of even and odd blocks."""
        if self.last is not None and self.n_blocks == 1 and self.last.sums is not None:
            return self.last.sums
        projection = _projection_of(clutter)
        fade = 1 - np.arange(projection.n_lags) / projection.n_frames
        halves, frames = self.halves, self.frames
        if self.last is not None and self.n_blocks == 1:
            observed = self.last.observed.astype(np.float64)[:, None]
            halves, frames = (observed * self.last.lags,) * 2, (observed,) * 2
        return LagSums(np.stack(halves), np.stack([of_half * fade for of_half in frames]))

    def _mean(
        self,
        clutter: Clutter,
        sums: LagSums,
        executor: Executor | None = None,
        noise: NDArray[np.float64] | None = None,
    ) -> _Mean:
        """Return the mean of the blocks, from the sums of both halves; its noise is by default from them, too."""
        n_frames = _projection_of(clutter).n_frames
        lags = sums.mean(slice(None), n_frames)

        def of_half(half: int, pixels: slice) -> Numbers:
            mean = sums.mean(HALVES[half], n_frames, pixels)
            counts = sums.counts_of(pixels)[half]
            # A pixel that only one half has counts in both.
            return mean if counts.all() else np.where(counts > 0, mean, lags[pixels])

        if noise is None:
            noise = noise_map(of_half, _projection_of(clutter), clutter.grid, executor)
        speckle = np.stack([clutter.grid.at_signal(half) for half in clutter.speckle])
        return _Mean(
            lags, noise, leaked_tissue(lags, (noise, Spectra(clutter).white_lags), speckle, clutter.grid)
        )

    def model(self, clutter: Clutter, executor: Executor, maps: SeriesMaps | None = None) -> "SeriesModel":
        """Return what turns the lags of a block into its blood power.

        With the mean spectrum S of the blood at a pixel, and the variance of its bands from block to block, the weights W =
        S / var find a change of the blood best where bands are independent. Bands in which tissue leaks at times vary more
        than their blood is worth, and count little. The variance comes from differences of neighbouring blocks, so that
        slow changes and the activation do not count. W is scaled up so that the mean of the weighted sum, averaged over the
        neighbourhood, is not below the blood map of the mean of the blocks. The mean of the series is this map; with one
        good block it is the blood map of that block.

        Parameters
        ----------
        clutter, executor
            As for :meth:`maps`.
        maps : SeriesMaps, optional
            Maps of a single block; by default from :meth:`maps`.
        """
        maps, clutter = maps or self.maps(clutter, executor), self.filtered_by(clutter)
        spectra, grid = Spectra(clutter), clutter.grid
        of_mean = maps.mean or self._mean(clutter, self._halves(clutter), noise=maps.noise_power)
        image, factors = of_mean.leak
        noise, mean = of_mean.noise, spectra.of(of_mean.lags)
        leaked = image[:, None] * spectra.of(factors[None])
        above = mean - spectra.of(noise[:, None] * spectra.white_lags) - leaked
        blood = np.maximum(grid.average(above, CELL_SIGMA), 0)
        variance = (blood + noise[:, None]) ** 2
        if self.n_blocks > 1:
            pairs = grid.average(self.pairs, CELL_SIGMA)
            measured = grid.average(self.squares, CELL_SIGMA)
            measured /= np.maximum(pairs, TINY) * self.frames_a_block
            # Identical blocks, such as copies of a file, have no variance.
            usual = float(np.median(measured / np.maximum(variance, TINY))) or 1.0
            variance = (pairs * measured + MODEL_BLOCKS * usual * variance) / (pairs + MODEL_BLOCKS)
        weights = band_weights(blood, variance)
        # The map compensates for blood that the filter removed and the bands do not have.
        shown, known = (
            grid.average(power[:, None], WIDE) for power in (maps.blood_power, np.vecdot(weights, above))
        )
        known = np.maximum(known, TINY)
        weights *= np.clip(shown, known, MOST_RESCALED * known) / known
        of_lags, noise = spectra.weights_of_lags(weights), maps.noise_power
        noise_lags = noise[:, None] * spectra.white_lags
        quiet = _quiet_bands(blood + leaked, noise)
        return SeriesModel(
            weights=of_lags,
            offset=maps.blood_power - np.vecdot(weights, mean),
            maps=maps,
            of_noise=np.vecdot(of_lags, noise_lags).real,
            quiet=spectra.weights_of_lags(quiet),
            of_quiet=np.vecdot(quiet, mean),
            rows=np.nonzero(grid.mask)[0],
        )


def signal_image(
    geometry: Geometry, grid: Neighbourhood, values: NDArray[np.floating]
) -> NDArray[np.float32]:
    """Return values of the signal pixels as an image with the spatial axes of a stack, 0 in masked pixels."""
    return np.ascontiguousarray(geometry.image(grid.everywhere(values)), np.float32)


def _quiet_bands(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights, (n_signal, 2 L), of the bands of noise alone: one over the noise, 0 in the other bands."""
    floor = max(1e-3 * float(noise.max()), TINY)
    return np.where(signal < QUIET_SHARE * noise[:, None], 1 / np.maximum(noise, floor)[:, None], 0)


def band_weights(blood: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights W = S / v of the bands that find a change of the blood best where they change on their own.

    Parameters
    ----------
    blood, variance : (n_signal, 2 L) arrays
        Mean spectrum S of the blood, and variance v of the bands from block to block.

    Returns
    -------
    (n_signal, 2 L) float64 array
        For which sum W S is the mean of S.
    """
    weights: NDArray[np.float64] = blood / np.maximum(variance, TINY)
    weights *= (blood.mean(axis=1) / np.maximum(np.vecdot(weights, blood), TINY))[:, None]
    return weights
