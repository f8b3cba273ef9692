"""The clutter of one scan: a cutoff that leaves little tissue, and per-pixel cutoffs, from a map of every second pixel."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import BloodMap, map_blood
from usdenoise.blood.clutter_projection import MOST_LAGS, ClutterProjection, clutter_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import leaked_tissue, share_above_noise, shows_blood, weak_speckle
from usdenoise.clutter.local_cutoffs import Lattice, LocalCutoffs, local_cutoffs
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank, interpolated
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.estimate_clutter import (
    ClutterEstimate,
    first_without_leak,
    raised_cutoffs,
    with_components,
    with_cutoff,
)
from usdenoise.pipeline.filter_chunk import filter_chunk
from usdenoise.pipeline.measures import COMPILED_ENTRIES, Clutter
from usdenoise.pipeline.recording import Recording

MOST_SCAN_LEAK = 0.4
"""Largest share of leaked tissue in the power above the noise with which the automatic cutoff of a scan is not raised. On 70
stacks with 24 to 64 pixels a side, 600 to 2400 frames and tissue of 50 to 65 dB, eleven are raised, and the correlation of
power Doppler changes by -0.01 to +0.28. With 0.3 it changes by -0.17 to +0.87 in 33 of 71 (benchmarks/RECORDS.md)."""

WHITE = (5.0, 6.0)
"""A temporal vector is white up to L + 5 sqrt(L) + 6 for the statistic of L lags, which has the mean L: white noise
exceeds it in one vector of a million."""

LAG_FRAMES = 24
"""Frames in which three lags are measured. With fewer frames, noise and slow motion cannot be distinguished."""

EVEN = 6.0
"""Largest kurtosis of a temporal vector of complex noise, which has 2, and of real noise, which has 3, times 3/2. For one
that is concentrated in some of the frames it is larger by all frames over those."""


def scan_clutter(
    recording: Recording, found: ClutterEstimate, options: DenoiseOptions, executor: Executor
) -> tuple[ClutterEstimate, Clutter]:
    """Return the estimate of a scan with a cutoff that leaves little tissue, and its clutter with per-pixel cutoffs.

    Parameters
    ----------
    recording : Recording
        The chunks of the scan.
    found : ClutterEstimate
        Its estimate.
    options : DenoiseOptions
        Options of the estimate.
    executor : Executor
        Maps over the chunks.
    """
    lattice = Lattice(found.grid, found.lattice_places)
    values = lattice.coarse.at_signal(found.inspection.lattice)
    frames = slice(*found.lattice_frames)

    def first_map() -> LatticeMap:
        return lattice_map(lattice, values, frames, found.model, found.band.low, found.excluded, executor)

    mapped, is_automatic = first_map(), options.low_cutoff == "auto" and options.refit == "all"
    while is_automatic and found.is_raisable and mapped.low:
        cutoff = _raised_cutoff(recording, found, mapped, executor)
        if cutoff == found.band.low:
            break
        found = with_cutoff(recording, executor, found, cutoff, "because tissue remained")
        # With less tissue the noise is better known.
        mapped = first_map()
    projection, cutoffs = choose_local_cutoffs(mapped, found.model, found.band.low, found.excluded)
    return found, replace(
        components_only(found, options),
        projection=projection,
        further=None if cutoffs is None else (cutoffs.first, found.grid.everywhere(cutoffs.further)),
        speckle=weak_speckle(found.grid.everywhere(found.model.left), found.band.low),
        power=found.power,
    )


def components_only(found: ClutterEstimate, options: DenoiseOptions) -> Clutter:
    """Return the clutter of an estimate, by which its components are measured without lags."""
    model = interpolated(found.model, found.excluded)
    return Clutter(
        left=found.grid.everywhere(model.left),
        low=found.band.low,
        high=min(found.band.high, model.rank),
        keeps_residual=found.band.keeps_residual,
        grid=found.grid,
        model=model_coefficients(model),
        is_given=options.refit == "none" and options.method != "svd",
        has_gaps=found.has_gaps,
        noise_rms=found.estimate.noise_rms,
        is_compiled=len(found.excluded) * found.grid.mask.size >= COMPILED_ENTRIES,
    )


def model_coefficients(model: LowRank) -> NDArray[Any]:
    """Return the coefficients of the components in each frame, (n_frames, r)."""
    a: NDArray[Any] = model.right.conj() * model.singular_values.astype(model.right.real.dtype)
    return a


@dataclass(frozen=True)
class LatticeMap:
    """The first blood map of a scan, of some of its pixels in consecutive frames.

    Attributes
    ----------
    lattice : Lattice
        The pixels.
    frames : slice
        The frames.
    low : int
        Number of components that were removed: those below the global cutoff without noise components at their end.
    blood : BloodMap or None
        The map; None if no component was removed.
    power, white : (n_lattice,) float64 array, float
        Mean power after this filter, and share of white noise that it keeps.
    """

    lattice: Lattice
    frames: slice
    low: int
    blood: BloodMap | None
    power: NDArray[np.float64]
    white: float


def lattice_map(
    lattice: Lattice,
    values: NDArray[Any],
    frames: slice,
    model: LowRank,
    low: int,
    excluded: NDArray[np.bool_],
    executor: Executor,
) -> LatticeMap:
    """Return the blood map of a lattice of pixels without the components below a global cutoff.

    Parameters
    ----------
    lattice : Lattice
        The pixels.
    values : (n_lattice, n) array
        Their values, which may hold NaN.
    frames : slice
        The n frames.
    model : LowRank
        Components of the scan.
    low : int
        The global cutoff.
    excluded : (n_frames,) boolean array
        Excluded frames of the scan.
    executor : Executor
        Makes the map.
    """
    low, n, grid = without_noise(model.right[:, :low]), values.shape[1], Neighbourhood.whole((len(values),))
    if low == 0:
        return LatticeMap(lattice, frames, 0, None, np.zeros(len(values)), 1.0)
    projection = clutter_projection(model.right[frames, :low], used=~excluded[frames])
    clutter = Clutter(
        left=model.left[lattice.pixels, :low],
        low=low,
        high=low,
        projection=projection,
        grid=grid,
        model=model_coefficients(model)[frames, :low],
        is_given=True,
        has_gaps=not np.isfinite(values).all(),
    )
    lag_sums = filter_chunk(values.T, clutter, excluded[frames], place=(0, n)).lag_sums(grid.mask)
    blood = map_blood(lag_sums, projection, lattice.coarse, executor.local, with_halves=False)
    power = lag_sums.mean(slice(None), n)[:, 0].real
    return LatticeMap(lattice, frames, low, blood, power, float(projection.white[0].real))


def _raised_cutoff(
    recording: Recording, found: ClutterEstimate, mapped: LatticeMap, executor: Executor
) -> int:
    """Return the cutoff of an estimate, raised while tissue leaks.

    The residual power of a pixel falls with each component k by s_k^2 |u_k|^2 sum_t |v_k(t)|^2 / n.
    """
    highest, lattice, first = len(found.singular_values), mapped.lattice, mapped.low
    n_used = max(int(np.count_nonzero(~found.excluded[mapped.frames])), 1)
    assert mapped.blood is not None
    noise_power = mapped.blood.noise_power

    def tried() -> Iterator[tuple[int, float]]:
        model = found.model
        for cutoff in raised_cutoffs(found.band.low, highest):
            if cutoff > model.rank:
                model = with_components(recording, executor, found, highest).model
            # Share of white noise that each further component takes, and its power in each pixel
            v, u = model.right[mapped.frames, first:cutoff], model.left[lattice.pixels, :cutoff]
            shares = np.sum(np.abs(v) ** 2, axis=0, dtype=np.float64) / n_used
            squares = np.abs(u[:, first:].astype(np.complex128)) ** 2
            power = mapped.power - squares @ (shares * model.singular_values[first:cutoff] ** 2)
            noise = noise_power * max(mapped.white - shares.sum(), 0.0)
            speckle = weak_speckle(u, cutoff)
            leak = leaked_tissue((power - noise)[:, None], speckle, lattice.coarse)[:, 0]
            yield cutoff, share_above_noise(leak, power, noise)

    return first_without_leak(tried(), MOST_SCAN_LEAK)


def choose_local_cutoffs(
    mapped: LatticeMap, model: LowRank, low: int, excluded: NDArray[np.bool_]
) -> tuple[ClutterProjection, LocalCutoffs | None]:
    """Choose per-pixel cutoffs, from a blood map of every second pixel with the global cutoff.

    Parameters
    ----------
    mapped : LatticeMap
        This map.
    model : LowRank
        Components of the scan.
    low : int
        The global cutoff.
    excluded : (n_frames,) boolean array
        Excluded frames.

    Returns
    -------
    projection : ClutterProjection
        The effect on autocorrelations over time of the filter with which a blood map is made.
    cutoffs : LocalCutoffs or None
        The per-pixel cutoffs of that filter; None if it removes the components below the global cutoff in all pixels.
    """
    lattice, clutter, used = mapped.lattice, mapped.low, ~excluded
    projection = clutter_projection(model.right[:, :clutter], used=used)
    nowhere = LocalCutoffs(low, clutter, np.zeros((lattice.grid.n_pixels, low - clutter), np.float32))
    cutoffs = None if clutter == low else nowhere
    n_used = int(np.count_nonzero(used))
    clutter_power = float(np.sum(model.singular_values**2)) / (lattice.grid.n_pixels * n_used)
    if mapped.blood is None or not shows_blood(mapped.blood, n_used, clutter_power):
        return projection, cutoffs
    first = replace(
        mapped.blood,
        blood_power=lattice.interpolated(mapped.blood.blood_power),
        noise_power=lattice.interpolated(mapped.blood.noise_power),
    )
    cutoffs = local_cutoffs(model, clutter, first, lattice.grid).up_to(low)
    per_pixel = clutter_projection(
        model.right[:, : cutoffs.stop],
        blood_shares=cutoffs.removed_power_share(first.blood_power),
        image_shares=cutoffs.removed_power_share(np.ones(lattice.grid.n_pixels)),
        used=used,
    )
    return per_pixel, cutoffs


def without_noise(right: NDArray[Any]) -> int:
    """Return the number of leading components without the noise components at the end.

    Where more components are removed than clutter has, the last ones are the strongest directions of the noise. They
    hold more of it than the share that they have of the frames, the more so where noise is correlated in space or grows
    with depth. A component counts as noise where its temporal vector is white by its autocorrelation (Ljung and Box,
    Biometrika 65(2), 1978) and is not concentrated in some frames, as interference is.

    Parameters
    ----------
    right : (n_frames, k) array
        Temporal singular vectors.
    """
    n = len(right)
    if n < LAG_FRAMES:
        return int(right.shape[1])
    lags = np.arange(1, min(MOST_LAGS, n // 8) + 1)
    spectra = np.abs(np.fft.fft(right.astype(np.complex128), 2 * n, axis=0)) ** 2
    autocorrelation = np.fft.ifft(spectra, axis=0)[lags]
    statistic = n * np.sum(np.abs(autocorrelation) ** 2, axis=0)
    kurtosis = n * np.sum(np.abs(right) ** 4, axis=0)
    # The variance of a real statistic is twice the variance of a complex one.
    times = 1 if np.iscomplexobj(right) else 2
    most = len(lags) + WHITE[0] * np.sqrt(times * len(lags)) + WHITE[1] * times
    # In few frames noise may have as much as a component with half of the largest autocorrelation: that is none.
    most = min(most, n * float(np.sum((1 - lags / n) ** 2)) / 4)
    is_noise = (statistic <= most) & (kurtosis <= EVEN * (1 + times) / 2)
    return int(np.flatnonzero(~is_noise)[-1]) + 1 if not is_noise.all() else 0
