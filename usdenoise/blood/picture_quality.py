"""Quality of a blood map: blood over noise, tissue that the filter left, the correlation of two halves."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import BloodMap
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import NEGLIGIBLE, TINY, weighted_squares

WEAK_PARTS = (0.4, 0.65, 0.9)
"""Components, as parts of the cutoff, that show where tissue leaks through the filter: weak ones, which are like the
tissue in the residual, without the last ones, which hold blood. They are cut in two halves."""

WIDE = 4.0
"""Standard deviation in pixels of the average from which tissue and its leak differ alike."""

LEAST_KNOWN_SHARE = 0.3
"""Least share of the speckle of tissue that is taken to be known from the speckle of other components."""

QUIET_LEAK = 0.8
"""Part of the estimated leak that the pixels with least power have at least: they are also those with less than estimated.
On six sessions at their own cutoff their power above the noise was 1.12 to 2.2 times the leak, with 1.25 times as many
components 0.82 and 0.84 times, with 1.5 times as many 0.22 and 0.30 times."""

LEAST_ABOVE = 0.05
"""Power above the noise, over the noise, below which the share of tissue in it is taken to be 0."""


def weak_speckle(left: Numbers, low: int) -> NDArray[np.float64]:
    """Return the sums of |u_k|^2 over two halves of the weak clutter components, (2, n_pixels).

    Parameters
    ----------
    left : (n_pixels, k) array
        Orthonormal spatial components, k at least `low`.
    low : int
        The low cutoff.
    """
    edges = [round(part * low) for part in WEAK_PARTS]
    components = np.arange(left.shape[1])
    halves = [(first <= components) & (components < last) for first, last in pairwise(edges)]
    return np.ascontiguousarray(weighted_squares(left, np.stack(halves, axis=1)).T)


def removed_energy(left: Numbers, singular_values: NDArray[np.float64], low: int) -> NDArray[np.float64]:
    """Return the energy of the removed components in each pixel, (n_pixels,).

    Parameters
    ----------
    left : (n_pixels, k) array
        Orthonormal spatial components, k at least `low`.
    singular_values : (k,) array
        Singular values.
    low : int
        The low cutoff.
    """
    weights = np.zeros(left.shape[1])
    weights[:low] = singular_values[:low] ** 2
    return weighted_squares(left, weights)


def leaked_tissue(
    lags: Numbers,
    noise_lags: tuple[NDArray[np.float64], Numbers],
    speckle: NDArray[np.float64],
    grid: Neighbourhood,
) -> tuple[NDArray[np.float64], Numbers]:
    """Return the lags of leaked tissue: an image of tissue, (n_signal,), and a factor for each lag, (L,).

    Blood is uncorrelated with the speckle of tissue. A regression of the products on the speckle of weak clutter
    components gives the factors. Both are high-pass filtered in space. Leaked tissue is beyond these components, and less
    like them than they are among themselves. The first half of them predicts a part of the second; the unpredicted part of
    the leak is taken to be wide in the image. The half of the pixels with least power has this leak, too.

    Parameters
    ----------
    lags : (n_signal, L) array
        Lagged products after the filter.
    noise_lags : (n_signal,) and (L,) arrays
        Power of the noise before the filter, and lags of noise with unit power after it.
    speckle : (2, n_signal) array
        Speckle of the tissue, from :func:`weak_speckle`.
    grid : Neighbourhood
        Shape of the image, and the pixels that have a signal.
    """
    (first, second), (noise, white) = speckle, noise_lags
    power = lags[:, 0].real - noise * white[0].real
    nothing = np.zeros(len(lags)), np.zeros(lags.shape[1], lags.dtype)
    if not (first.any() and second.any()):
        return nothing
    tissue = first + second
    wide_first, wide_second, wide = grid.average(np.stack([first, second, power], axis=1), WIDE).T
    around = wide_first + wide_second
    energy = grid.average((power - wide) ** 2, WIDE)
    weights = 1 / np.maximum(energy, max(1e-6 * float(energy.max()), TINY))

    def shares(on: NDArray[np.float64]) -> NDArray[np.float64]:
        # The slope of values on an image is their sum with these weights
        along = weights * on
        total = float(along @ on)
        return along / (total if total > TINY else np.inf)

    # What is spread from a pixel takes the averages of all lags off
    of_tissue = shares(tissue - around)
    narrow = of_tissue - grid.spread(of_tissue, WIDE)
    factors = narrow @ lags - (narrow @ noise) * white
    likeness = float(shares(first - wide_first) @ (second - wide_second))
    likeness *= float(first.mean() / second.mean())
    if factors[0].real <= 0:
        return nothing
    image = tissue + (1 / np.clip(likeness, LEAST_KNOWN_SHARE, 1) - 1) * around
    # If too many components are removed, the weak ones are blood. It is not everywhere, and leaked tissue is.
    quiet = power <= np.median(power)
    quiet_power, quiet_leak = float(power[quiet].sum()), float(image[quiet].sum() * factors[0].real)
    most = max(quiet_power, 0.0) / max(QUIET_LEAK * quiet_leak, TINY)
    return image * min(most, 1.0), factors.astype(lags.dtype)


def share_above_noise(
    leak: NDArray[np.float64], power: NDArray[np.float64], noise: NDArray[np.float64]
) -> float:
    """Return the share of leaked tissue in the power above the noise; 0 if there is nearly nothing above the noise.

    Parameters
    ----------
    leak, power, noise : (n_signal,) arrays
        Leaked tissue, all power after the filter, and the noise in it.
    """
    above = float(np.sum(power - noise))
    return float(leak.sum()) / above if above > LEAST_ABOVE * noise.sum() else 0.0


FLOOR_QUANTILE, ABOVE_FLOOR = 0.2, 2.0
"""Quantile of the power at a depth, or in a line, that is its floor, and power over the floor from which it stands out."""


def missing_share(
    power: NDArray[np.float64], blood_power: NDArray[np.float64], floor: NDArray[np.float64]
) -> float:
    """Return the share of the power above its own floor that a blood map does not contain; 0 if nothing stands out.

    The floor does not depend on how the map was made.

    Parameters
    ----------
    power : (n_signal,) array
        Power after the clutter filter.
    blood_power : (n_signal,) array
        The blood map.
    floor : (n_signal,) array
        The floor, :meth:`usdenoise.blood.neighbourhood.Neighbourhood.floor` of the power at FLOOR_QUANTILE.
    """
    above = np.where(power > ABOVE_FLOOR * floor, power - floor, 0)
    return float(np.clip(above - blood_power, 0, None).sum()) / max(float(above.sum()), TINY)


def quiet_correlation(lags: Numbers, white: Numbers, floor: NDArray[np.float64]) -> float:
    """Return how neighbouring frames correlate where least power is left, minus the correlation of white noise there.

    It is about 0 where this is noise that is white over frames. It is large if slow flow is everywhere, or if frames were
    averaged over time: then noise looks like slow flow.

    Parameters
    ----------
    lags : (n_signal, L) array
        Lags of the filtered frames, noise included.
    white : (L,) array
        Lags of white noise after the filter.
    floor : (n_signal,) array
        As in :func:`missing_share`.
    """
    power = lags[:, 0].real
    quiet = (power > 0) & (power <= floor)
    if not quiet.any():
        return 0.0
    return float(np.median(lags[quiet, 1].real / power[quiet]) - white[1].real / white[0].real)


def speckle_likeness(
    blood_power: NDArray[np.float64], tissue: NDArray[np.float64], grid: Neighbourhood
) -> float:
    """Return the correlation of a blood map with the speckle of the tissue; blood has none, and leaked tissue has.

    Both images are high-pass filtered in space, and divided by their local standard deviation.

    Parameters
    ----------
    blood_power : (n_signal,) array
        The blood map.
    tissue : (n_signal,) array
        Energy of the removed components in each pixel.
    grid : Neighbourhood
        Shape of the image, and the pixels that have a signal.
    """
    images = np.stack([blood_power, tissue], axis=1)
    images = images / np.maximum(images.max(axis=0), TINY)
    narrow = images - grid.average(images, WIDE)
    spread = np.sqrt(grid.average(narrow**2, WIDE))
    relative = np.divide(narrow, spread, out=np.zeros_like(narrow), where=spread > NEGLIGIBLE)
    return float(np.mean(relative[:, 0] * relative[:, 1]))


MOST_QUIET_CORRELATION = 0.4
"""Correlation of neighbouring frames where least power is left, from which this is not noise, or no white noise, which has
0. benchmarks/RECORDS.md has it for stacks of two simulators, as they are and averaged over frames."""

LEAST_EVIDENCE = 0.5
"""Evidence from which a pixel counts as a vessel: noise explains less of what it shows than blood does."""

BRIGHT_DB, BRIGHT_PERCENT = 10.0, 99.0
"""A vessel's blood power is at most 10 dB below the 99th percentile of the map: weaker ones are not part of the metrics."""

LEAST_ERRORS = 20.0
"""Blood over its error above which the 99th percentile must be. It was 0.9 to 14.3 in noise that is white or correlated
between pixels, flat or growing with depth, 1.4 to 20.6 in 26 of 28 stacks of tissue and noise alone of the second generator
(48 and 60 where the cutoff left tissue), and 33 or more in its 56 stacks with blood (benchmarks/RECORDS.md)."""


ROUNDING_POWER = (16 * float(np.finfo(np.float32).eps)) ** 2
"""Power, relative to the stack's, below which the brightest pixels are rounding errors of single precision: -114 dB.
The filter of constant stacks left up to 2.2e-13 of their power with the OpenBLAS kernels for Haswell, Zen and SkylakeX."""

_FAINT = 0.01
"""Blood power, relative to the 99th percentile, below which a pixel shows no blood: -20 dB."""


NOISE_ERROR = 0.25
"""Blood over the noise that an error of the noise map by 1 dB would show. In the mean of a session the noise itself has
averaged out, so more blood than this is blood: in sessions of 60 blocks with blood 3 dB below the noise, 87 to 92 % of the
active vessel pixels have it, and 5 % have more blood than noise."""


@dataclass(frozen=True)
class PictureQuality:
    """Figures of a blood map; None if no blood was found.

    Attributes
    ----------
    vessel_share : float
        Share of the pixels that show a vessel; 0 where no blood was found.
    noise_share : float
        Share of the pixels that are not vessels and have more noise than blood power.
    blood_to_noise_db : float or None
        10 log10 of the median ratio of blood to noise power over the pixels of vessels; None also where
        there is no noise.
    lost_share : float or None
        Share of the blood power in the map, over the pixels of vessels, that is added for what the clutter filter removed,
        as estimated from the Doppler spectrum that is left. Slow and transverse flow that was removed whole is not in it.
    reproducibility : float or None
        Correlation of the blood maps of two interleaved halves of the frames; None if one is constant.
    errors : float
        Blood power over its error, of the brightest pixels.
    tissue_share : float or None
        Share of leaked tissue in the power above the noise after the filter; None (the default) if it is not known.
    noisy_share : float
        Share of noise in the power that stands out from its surroundings; by default 0.
    missing_share : float
        Share of the power above its own floor that the blood map does not contain, from :func:`missing_share`; by default 0.
    speckle_likeness : float
        Correlation of the blood map with the speckle of the tissue, from :func:`speckle_likeness`; by default 0.
    quiet_correlation : float
        Correlation of neighbouring frames where least power is left, from :func:`quiet_correlation`; by default 0.
    steadiness : float or None
        Correlation of the blood in the first and in the second half of the frames; None (the default) if it is not known.
    """

    vessel_share: float
    noise_share: float
    blood_to_noise_db: float | None
    lost_share: float | None
    reproducibility: float | None
    errors: float
    tissue_share: float | None = None
    noisy_share: float = 0.0
    missing_share: float = 0.0
    speckle_likeness: float = 0.0
    quiet_correlation: float = 0.0
    steadiness: float | None = None

    @property
    def sentence(self) -> str:
        """The figures in words."""
        if self.lost_share is None:
            return f"no blood found above the noise; noise dominates in {100 * self.noise_share:.0f} % of the image"
        level, ratio = "", self.blood_to_noise_db
        if ratio is not None:
            level = f", {abs(ratio):.0f} dB {'over' if ratio >= 0 else 'below'} noise in them"
        vessels, added = round(100 * self.vessel_share), round(100 * self.lost_share)
        parts = [
            f"vessels in {vessels} % of the image{level}",
            # Both are shares of the image, and are rounded.
            f"outside them noise dominates in {min(round(100 * self.noise_share), 100 - vessels)} %",
        ]
        if added:
            parts.append(
                f"{added} % of the blood power in the map is estimated, not measured: the clutter filter removed it"
            )
        if self.reproducibility is not None:
            parts.append(
                f"the blood maps of two halves of the frames correlate by {self.reproducibility:.2f}"
            )
        return "; ".join(parts)


def blood_pixels(
    blood_power: NDArray[np.floating], noise_power: NDArray[np.floating], least: float = 1.0
) -> NDArray[np.bool_]:
    """Return where an image shows blood: more than `least` times the noise, and at most 20 dB below the bright vessels.

    Parameters
    ----------
    blood_power, noise_power : arrays of one shape
        Linear powers before the clutter filter.
    least : float
        Least blood over the noise: by default 1, for an image. In a mean over a session, NOISE_ERROR.
    """
    bright: NDArray[np.bool_] = blood_power > _FAINT * np.percentile(blood_power, 99)
    return bright & (blood_power > least * noise_power)


def judge_picture(blood: BloodMap, stack_power: float, tissue_share: float | None = None) -> PictureQuality:
    """Return the metrics of a blood map.

    Parameters
    ----------
    blood : BloodMap
        The map.
    stack_power : float
        Mean power of the entries of the stack before the clutter filter.
    tissue_share : float, optional
        As in :class:`PictureQuality`.
    """
    power, noise = blood.blood_power, blood.noise_power
    brightest = float(np.percentile(power, BRIGHT_PERCENT))
    errors = float(np.percentile(power / blood.error, BRIGHT_PERCENT))
    vessel = (power >= 10 ** (-BRIGHT_DB / 10) * brightest) & (blood.evidence > LEAST_EVIDENCE) & (power > 0)
    found = PictureQuality(
        vessel_share=float(vessel.mean()),
        noise_share=float(((noise > power) & ~vessel).mean()),
        blood_to_noise_db=None,
        lost_share=None,
        reproducibility=blood.reproducibility,
        tissue_share=tissue_share,
        errors=errors,
    )
    # Noise alone, or rounding errors, could give such a map
    if errors <= LEAST_ERRORS or brightest <= ROUNDING_POWER * stack_power or not vessel.any():
        return replace(found, vessel_share=0.0, noise_share=float((noise > power).mean()))
    noisy = vessel & (noise > NEGLIGIBLE * power)
    level = 10 * float(np.log10(np.median(power[noisy] / noise[noisy]))) if noisy.any() else None
    lost = 1 - float((power * blood.kept_share)[vessel].sum()) / float(power[vessel].sum())
    return replace(found, blood_to_noise_db=level, lost_share=lost)
