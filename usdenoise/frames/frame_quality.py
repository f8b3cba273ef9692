"""Quality control of the frames of a scan: the search for bad frames before the estimate, curves, and rhythms."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.estimate.pixel_subset import PixelSubset, draw_pixel_subset, least_rank
from usdenoise.frames.bad_frames import FrameSearch, FrameTreatment, find_bad_frames
from usdenoise.linalg.array_library import Numbers, squared_magnitudes
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.tall_matrices import TINY, cached_slices
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.sampling import MANY_PIXELS, PixelSample, RandomStream, spread_rows

CARPET_BANDS = 64
"""Bands of pixels of the carpet. A mean over 16 of 1024 pixels has a standard deviation of 1.1 dB in speckle."""


@dataclass(frozen=True)
class FrameCurves:
    """One value for each frame; powers are means over the sampled pixels, in the squared unit of the stack.

    All are NaN for a frame without an observed entry; in the carpet it is 0.

    Attributes
    ----------
    intensity : (n_frames,) float64 array
        Mean power.
    dvars : (n_frames,) float64 array
        Root mean square over the pixels of the difference from the previous frame (Power et al., NeuroImage 59(3),
        2012); NaN for the first frame, and after one without an observed entry.
    outside : (n_frames,) float64 array
        Mean power outside the clutter components, fitted to the frame.
    displacement : (n_frames, 2) float64 array
        Displacement of the tissue, as :meth:`usdenoise.frames.still_tissue.TissueMotion.displacement` has it; NaN where it
        is not known.
    carpet : (n_bands, n_frames) float32 array
        Power outside the clutter components in bands of neighbouring pixels, the shallowest first, over the median of
        the band; 0 in a band without power. (Carpet plots: Power, NeuroImage 154, 2017.)
    """

    intensity: NDArray[np.float64]
    dvars: NDArray[np.float64]
    outside: NDArray[np.float64]
    displacement: NDArray[np.float64]
    carpet: NDArray[np.float32]


def frame_curves(sample: PixelSample, clutter: Numbers, displacement: NDArray[np.float64]) -> FrameCurves:
    """Return the curves of a stack.

    Parameters
    ----------
    sample : PixelSample
        Some pixels of the stack, with their clutter, bad frames included.
    clutter : (n_pixels, k) array
        Spatial vectors of the clutter components in these pixels.
    displacement : (n_frames, 2) array
        Displacement of the tissue.
    """
    n_pixels, n_frames = sample.values.shape
    basis = np.linalg.qr(clutter)[0] if clutter.shape[1] else clutter
    observed = sample.observed_mask(slice(None))
    is_observed = np.ones(n_frames, bool) if observed is None else np.asarray(observed.any(axis=0))
    n_bands = min(CARPET_BANDS, n_pixels)
    edges = np.linspace(0, n_pixels, n_bands + 1).astype(np.int64)

    def measure(frames: slice) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        # A step to a frame starts at the previous frame, which may be in the previous block.
        first = max(frames.start - 1, 0)
        joined = sample.values[:, first : frames.stop]
        block, steps = joined[:, frames.start - first :], np.diff(joined, axis=1)
        outside = squared_magnitudes(block - basis @ (basis.conj().T @ block))
        return (
            squared_magnitudes(block).sum(axis=0, dtype=np.float64),
            squared_magnitudes(steps).sum(axis=0, dtype=np.float64),
            np.add.reduceat(outside, edges[:-1], axis=0, dtype=np.float64),
        )

    measured = sample.executor.map(measure, cached_slices(n_frames, n_pixels))
    intensity, steps, bands = (np.concatenate(part, axis=-1) for part in zip(*measured, strict=True))
    medians = np.median(bands, axis=1, keepdims=True)
    relative = np.divide(bands, medians, out=np.zeros_like(bands), where=medians > 0)
    dvars = np.where(is_observed[1:] & is_observed[:-1], np.sqrt(steps / n_pixels), np.nan)
    return FrameCurves(
        intensity=np.where(is_observed, intensity / n_pixels, np.nan),
        dvars=np.append(np.nan, dvars),
        outside=np.where(is_observed, bands.sum(axis=0) / n_pixels, np.nan),
        displacement=np.where(is_observed[:, None], displacement, np.nan),
        carpet=relative.astype(np.float32),
    )


@dataclass(frozen=True)
class FrameQuality(FrameSearch):
    """Bad frames, as a :class:`usdenoise.frames.bad_frames.FrameSearch` has them, and curves over all frames.

    Attributes
    ----------
    curves : FrameCurves
        One value for each frame.
    """

    curves: FrameCurves

    @property
    def is_bad(self) -> bool:
        """Whether too many frames are bad, so that none was excluded."""
        return self.treatment is FrameTreatment.TOO_MANY

    @property
    def n_left_out(self) -> int:
        """Number of excluded frames."""
        return int(np.count_nonzero(self.excluded))


@dataclass(frozen=True)
class CheckedFrames:
    """A pixel sample without its bad frames, and the quality control of the frames.

    Attributes
    ----------
    sample : PixelSample
        The sample, which excludes the bad frames.
    all_frames : PixelSample
        The same with all frames.
    search : FrameSearch
        The bad frames.
    subset : PixelSubset
        The exact spectrum of a few pixels in the other frames.
    """

    sample: PixelSample
    all_frames: PixelSample
    search: FrameSearch
    subset: PixelSubset

    def quality(self, model: LowRank, low: int, displacement: NDArray[np.float64]) -> FrameQuality:
        """Return the quality of the frames, with curves for which the components [0, low) of the sample are clutter."""
        pixels = spread_rows(self.all_frames.n_pixels, MANY_PIXELS)
        curves = frame_curves(self.all_frames.take(pixels), model.left[pixels, :low], displacement)
        return FrameQuality(**vars(self.search), curves=curves)

    def of(self, values: Numbers, options: DenoiseOptions) -> "CheckedFrames":
        """Return the same with other values of the pixels, (n_pixels, n_frames)."""
        all_frames = replace(self.all_frames, values=values)
        used = all_frames.without(self.search.excluded) if self.search.excluded.any() else all_frames
        rng = RandomStream.PIXEL_SUBSET.generator(options.seed)
        subset = draw_pixel_subset(used, rng).subset.trimmed(all_frames.n_pixels, least_rank(options))
        return replace(self, sample=used, all_frames=all_frames, subset=subset)


def check_frames(sample: PixelSample, options: DenoiseOptions) -> CheckedFrames:
    """Look for bad frames, and exclude them.

    Parameters
    ----------
    sample : PixelSample
        Pixels of the stack.
    options : DenoiseOptions
        `bad_frames` and the seed.

    Raises
    ------
    OptionError
        If a given bad frame is not in the stack.
    """
    search, drawn = find_bad_frames(sample, options.bad_frames, options.seed)
    subset = drawn.subset
    # In long stacks its values take as much as a hundred components.
    del drawn
    used = sample.without(search.excluded) if search.excluded.any() else sample
    return CheckedFrames(used, sample, search, subset.trimmed(sample.n_pixels, least_rank(options)))


RHYTHMS, CYCLES, PERIODIC = 2, 4, 0.6
"""Most rates that are looked for, fewest periods of each, and correlation of the velocity with the one a period later from
which it is periodic. A rate was found in 7, 19 and 3 of 1500 random displacements that were smoothed over 3, 8 and a
twentieth of their frames, and in no white noise or sum of it. The beats were found in 294 of 312 with breathing."""

FIRST_PEAK = 0.8
"""Part of the largest correlation that the one at the shortest period has: at its multiples it is as large."""


def rhythms(displacement: NDArray[np.float64], rate_hz: float) -> tuple[float, ...]:
    """Return the rates at which a displacement repeats itself, the strongest first.

    The velocity is correlated with itself some time later. So pulses have one rate, though their spectrum has many
    harmonics, and a drift has no rate. The second rate is found in what the first one leaves.

    Parameters
    ----------
    displacement : (n_frames,) array
        The displacement, in any unit; NaN where it is not known.
    rate_hz : float
        Frames per second.

    Returns
    -------
    tuple of float
        Rates in Hz, by default at most RHYTHMS of them; none if nothing repeats itself CYCLES times.

    Examples
    --------
    >>> times = np.arange(500) / 500
    >>> rhythms(np.sin(2 * np.pi * 8 * times), 500.0)
    (8.0,)
    """
    known = np.flatnonzero(np.isfinite(displacement))
    if len(known) < 2:
        return ()
    velocity = np.diff(np.interp(np.arange(len(displacement)), known, displacement[known]))
    velocity -= velocity.mean()
    found: list[float] = []
    while (period := _period(velocity)) is not None:
        found.append(float(f"{rate_hz / period:.3g}"))
        if len(found) == RHYTHMS:
            break
        # The sines and cosines of this rate and of its multiples
        phases = 2 * np.pi * np.outer(np.arange(len(velocity)) / period, np.arange(1, int(period / 2) + 1))
        waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
        velocity = velocity - waves @ np.linalg.lstsq(waves, velocity)[0]
    return tuple(found)


def _period(velocity: NDArray[np.float64]) -> float | None:
    """Return the period of a velocity in frames, to a fraction of one; None without one."""
    n = len(velocity)
    energy = np.append(0, np.cumsum(velocity**2))
    lags = np.arange(n // CYCLES + 2)
    products = np.array([velocity[lag:] @ velocity[: n - lag] for lag in lags])
    energies = (energy[n] - energy[lags]) * energy[n - lags]
    likeness = products / np.sqrt(np.maximum(energies, TINY))
    # Neighbours are alike in whatever is smooth
    (apart,) = np.nonzero(likeness < 0)
    if not len(apart) or energy[n] <= TINY:
        return None
    middle = likeness[1:-1]
    is_peak = (middle >= likeness[:-2]) & (middle > likeness[2:]) & (lags[1:-1] > apart[0])
    if not is_peak.any() or (largest := middle[is_peak].max()) < PERIODIC:
        return None
    peak = 1 + int(np.flatnonzero(is_peak & (middle >= FIRST_PEAK * largest))[0])
    before, here, after = likeness[peak - 1 : peak + 2]
    return float(peak + 0.5 * (before - after) / (before - 2 * here + after))
