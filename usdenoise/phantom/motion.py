"""How the tissue of the phantom moves, in wavelengths: a smooth field on a coarse grid for any time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

NODES = 25
HEART_RATE_HZ = 6.0
BREATHING_RATE_HZ = 1.3
HARMONICS = np.array([1.0, 0.45, 0.2, 0.08])

# Peak displacements in wavelengths. Brain tissue of an anaesthetised rodent moves by some micrometres with
# the heart and some tens with breathing; a wavelength is 100 um at 15 MHz.
CARDIAC = np.array([0.06, 0.02, 0.06])
BREATHING = np.array([0.10, 0.04, 0.15])
NON_RIGID = np.array([0.015, 0.010, 0.03])
DRIFT_A_SECOND = np.array([0.05, 0.03, 0.30])
N_NON_RIGID = 4


class TissueMotion:
    """Displacement of the tissue: pulsatile with a delay over depth, breathing, drift and bending modes.

    Parameters
    ----------
    extent : (float, float)
        Size of the image in depth and lateral, in wavelengths.
    rng : numpy.random.Generator
        Draws phases, wave numbers and the rates of the bending modes.
    """

    def __init__(self, extent: tuple[float, float], rng: np.random.Generator) -> None:
        self._depth, self._lateral = np.meshgrid(
            np.linspace(-0.1, 1.1, NODES), np.linspace(-0.1, 1.1, NODES), indexing="ij"
        )
        self.origin = (-0.1 * extent[0], -0.1 * extent[1])
        self.pitch = (1.2 * extent[0] / (NODES - 1), 1.2 * extent[1] / (NODES - 1))
        self._phases = rng.uniform(0, 2 * np.pi, len(HARMONICS))
        self._breathing_phase = rng.uniform(0, 2 * np.pi)
        self._waves = rng.uniform(0.6, 1.6, (N_NON_RIGID, 2)) * rng.choice([-1, 1], (N_NON_RIGID, 2))
        self._wave_phases = rng.uniform(0, 2 * np.pi, N_NON_RIGID)
        self._wave_rates_hz = HEART_RATE_HZ * rng.uniform(0.4, 1.6, N_NON_RIGID)
        self._wave_directions = rng.standard_normal((N_NON_RIGID, 3))

    def displacement(self, seconds: float) -> NDArray[Any]:
        """Displacement (z, x, y) at the nodes of the grid, (nodes, nodes, 3) array in wavelengths."""
        field = np.zeros((NODES, NODES, 3))
        # The pulse wave arrives later and weaker at depth.
        delayed = seconds - 0.015 * self._depth
        field += ((1.0 - 0.6 * self._depth) * _pulse(delayed, self._phases))[..., None] * CARDIAC
        breath = np.sin(2 * np.pi * BREATHING_RATE_HZ * seconds + self._breathing_phase)
        field += ((1.0 - 0.3 * self._depth) * breath)[..., None] * BREATHING
        field += DRIFT_A_SECOND * seconds
        for wave, phase, rate, direction in zip(
            self._waves, self._wave_phases, self._wave_rates_hz, self._wave_directions, strict=True
        ):
            shape = np.sin(np.pi * (wave[0] * self._depth + wave[1] * self._lateral) + phase)
            field += (shape * np.sin(2 * np.pi * rate * seconds + phase))[..., None] * (direction * NON_RIGID)
        return field


def _pulse(seconds: NDArray[Any], phases: NDArray[Any]) -> NDArray[Any]:
    angles = 2 * np.pi * HEART_RATE_HZ * seconds[..., None] * np.arange(1, len(HARMONICS) + 1) + phases
    pulse: NDArray[Any] = np.sin(angles) @ HARMONICS
    return pulse


def flow_time(seconds: float, pulsatility: float, phase: float) -> float:
    """Integral over time of a flow that pulsates as 1 + pulsatility sin(heart beat), in seconds."""
    omega = 2 * np.pi * HEART_RATE_HZ
    return float(seconds + pulsatility * (np.cos(phase) - np.cos(omega * seconds + phase)) / omega)
