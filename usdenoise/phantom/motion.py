"""Motion of the phantom's tissue: a smooth displacement field, in wavelengths, on a coarse grid."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# A bending mode has at most 0.8 cycles across the image, and so at least 25 nodes a cycle along each axis:
# bilinear interpolation between the nodes is wrong by at most 1.6 % of the mode.
NODES = 25
# Scatterers outside the image move into it, so the grid covers a tenth of the image more on every side.
GRID_LOW, GRID_HIGH, GRID_LENGTH = -0.1, 1.1, 1.2

# 360 beats and 78 breaths a minute. A rat has 250 to 400 and 66 to 114 (Merck Veterinary Manual, 9th edition).
HEART_RATE_HZ = 6.0
BREATHING_RATE_HZ = 1.3
# A pulse is periodic but no sine: harmonics of the heart rate with falling amplitudes.
HARMONICS = np.array([1.0, 0.45, 0.2, 0.08])

# Displacements (depth, lateral, elevation) in wavelengths, before the harmonics are summed; the drift is per
# second. Brain tissue of an anaesthetised rodent moves by
# some micrometres with the heart and some tens with breathing; a wavelength is 100 um at 15 MHz. Motion in
# elevation exchanges the scatterers of the slice, and so decorrelates tissue most. On 64 x 48 pixels and 400
# frames the 11th, 21st and 31st singular values of tissue are 49, 67 and 88 dB below the first (seed 2); the
# tests check the 11th and the 31st.
CARDIAC = np.array([0.06, 0.02, 0.06])
BREATHING = np.array([0.10, 0.04, 0.15])
NON_RIGID = np.array([0.015, 0.010, 0.03])
DRIFT_A_SECOND = np.array([0.05, 0.03, 0.30])
# In a session the drift goes back and forth: by one wavelength in elevation, a third of the slice's standard deviation.
SESSION_DRIFT_PERIOD_S = 20.0

# Bending modes with their own wave numbers and rates: tissue that moved as one body would have fewer components.
N_NON_RIGID = 4
# Half cycles of a mode across the image along one axis: about one bend, no ripples.
LEAST_WAVES, MOST_WAVES = 0.6, 1.6
# Rates of the modes, as multiples of the heart rate: slower and faster than the heart, so not all periodic with it.
SLOWEST_MODE, FASTEST_MODE = 0.4, 1.6

# At the bottom of the image the pulse wave arrives later than at the top, and pulse and breathing are weaker.
PULSE_DELAY_S = 0.015
CARDIAC_LOSS, BREATHING_LOSS = 0.6, 0.3


class DisplacementField(NamedTuple):
    """Displacement of the tissue in one frame, as the compiled kernels take it.

    Attributes
    ----------
    nodes : (NODES, NODES, 3) array
        Displacements (z, x, y) in wavelengths, indexed by the node in depth and the node in lateral.
    origin, pitch : (float, float)
        Position (z, x) of the first node, and distance of the nodes in z and x, in wavelengths.
    """

    nodes: NDArray[Any]
    origin: tuple[float, float]
    pitch: tuple[float, float]


class TissueMotion:
    """Displacement of the tissue by the heartbeat, breathing, a drift and bending modes.

    The heartbeat arrives later and weaker at depth. Beyond the grid the displacement is the same as at its edge.

    Parameters
    ----------
    extent : (float, float)
        Size of the image in depth and lateral, in wavelengths.
    rng : numpy.random.Generator
        Source of the phases, and of the wave numbers, rates and directions of the bending modes.
    returns : bool
        Whether the drift goes back and forth, as in a session; by default it goes on.
    """

    def __init__(self, extent: tuple[float, float], rng: np.random.Generator, returns: bool = False) -> None:
        self._returns = returns
        self._depth, self._lateral = np.meshgrid(
            np.linspace(GRID_LOW, GRID_HIGH, NODES), np.linspace(GRID_LOW, GRID_HIGH, NODES), indexing="ij"
        )
        self._origin = (GRID_LOW * extent[0], GRID_LOW * extent[1])
        self._pitch = (GRID_LENGTH * extent[0] / (NODES - 1), GRID_LENGTH * extent[1] / (NODES - 1))
        self._phases = rng.uniform(0, 2 * np.pi, len(HARMONICS))
        self._breathing_phase = rng.uniform(0, 2 * np.pi)
        self._waves = rng.uniform(LEAST_WAVES, MOST_WAVES, (N_NON_RIGID, 2)) * rng.choice(
            [-1, 1], (N_NON_RIGID, 2)
        )
        self._wave_phases = rng.uniform(0, 2 * np.pi, N_NON_RIGID)
        self._wave_rates_hz = HEART_RATE_HZ * rng.uniform(SLOWEST_MODE, FASTEST_MODE, N_NON_RIGID)
        self._wave_directions = rng.standard_normal((N_NON_RIGID, 3))

    def displacement(self, seconds: float, image_motion: NDArray[np.float64]) -> DisplacementField:
        """Return the displacement at one time.

        Parameters
        ----------
        seconds : float
            Time since the first frame, in seconds.
        image_motion : (3,) array
            Displacement (z, x, y) of the whole image at that time, which is added, in wavelengths.
        """
        field = np.zeros((NODES, NODES, 3))
        delayed = seconds - PULSE_DELAY_S * self._depth
        field += ((1.0 - CARDIAC_LOSS * self._depth) * _pulse(delayed, self._phases))[..., None] * CARDIAC
        breath = np.sin(2 * np.pi * BREATHING_RATE_HZ * seconds + self._breathing_phase)
        field += ((1.0 - BREATHING_LOSS * self._depth) * breath)[..., None] * BREATHING
        field += session_drift(seconds) if self._returns else DRIFT_A_SECOND * seconds
        for wave, phase, rate, direction in zip(
            self._waves, self._wave_phases, self._wave_rates_hz, self._wave_directions, strict=True
        ):
            shape = np.sin(np.pi * (wave[0] * self._depth + wave[1] * self._lateral) + phase)
            field += (shape * np.sin(2 * np.pi * rate * seconds + phase))[..., None] * (direction * NON_RIGID)
        return DisplacementField(field + image_motion, self._origin, self._pitch)


def session_drift(seconds: float) -> NDArray[np.float64]:
    """Return the displacement (z, x, y) of all tissue by the drift of a session, back and forth, in wavelengths."""
    cycle = 2 * np.pi / SESSION_DRIFT_PERIOD_S
    drift: NDArray[np.float64] = DRIFT_A_SECOND * np.sin(cycle * seconds) / cycle
    return drift


def _pulse(seconds: NDArray[Any], phases: NDArray[Any]) -> NDArray[Any]:
    angles = 2 * np.pi * HEART_RATE_HZ * seconds[..., None] * np.arange(1, len(HARMONICS) + 1) + phases
    pulse: NDArray[Any] = np.sin(angles) @ HARMONICS
    return pulse


def flow_time(seconds: float, pulsatility: float, phase: float) -> float:
    """Return the integral of the relative flow 1 + a sin(omega t + phase) from 0 to a time, in seconds.

    A scatterer with the mean speed v has moved by v times this integral: v (t + a (cos(phase) -
    cos(omega t + phase)) / omega), with omega the angular heart rate.

    Parameters
    ----------
    seconds : float
        Time t since the first frame, in seconds.
    pulsatility : float
        Amplitude a of the pulsation relative to the mean flow; below 1 the flow never reverses.
    phase : float
        Phase of the pulsation at time 0, in radians.
    """
    omega = 2 * np.pi * HEART_RATE_HZ
    return float(seconds + pulsatility * (np.cos(phase) - np.cos(omega * seconds + phase)) / omega)
