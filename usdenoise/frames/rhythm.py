"""Rates at which the tissue moves to and fro, such as heart and breathing."""

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.tall_matrices import TINY

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
