"""A phantom: its anatomy drawn once, its frames made on demand."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.phantom.motion import TissueMotion, flow_time
from usdenoise.phantom.settings import PhantomSettings
from usdenoise.phantom.vessels import PULSATILITY, draw_vessels, fill, vessel_truth

TISSUE_A_CUBIC_WAVELENGTH = 0.2
CALIBRATION_FRAMES = 48
_ANATOMY, _NOISE = range(2)


@dataclass(frozen=True)
class Terms:
    """Consecutive frames of the phantom, (n, n_z, n_x[, n_y]) arrays, and the terms that add up to them.

    Attributes
    ----------
    iq, tissue, blood, noise : arrays
        complex64, or float32 for a real phantom; iq is the sum of the other three.
    """

    iq: NDArray[Any]
    tissue: NDArray[Any]
    blood: NDArray[Any]
    noise: NDArray[Any]


class Phantom:
    """A simulated acquisition with known truth. Blood has unit mean power in the vessels.

    Parameters
    ----------
    settings : PhantomSettings
        Size, scales and levels.
    executor : Executor
        Makes frames side by side.
    """

    def __init__(self, settings: PhantomSettings, executor: Executor) -> None:
        from usdenoise.phantom.splat import SIGMA_SLICE, SIGMA_X

        self.settings = settings
        self._executor = executor
        rng = np.random.default_rng([settings.seed, _ANATOMY])
        n_z, n_x, n_y = settings.grid
        self._sigma_y = SIGMA_X if settings.is_volume else SIGMA_SLICE
        self._motion = TissueMotion((n_z, n_x), rng)
        self._flow_phase = rng.uniform(0, 2 * np.pi)
        self._vessels = draw_vessels(settings, rng)
        self._blood = fill(self._vessels, rng)
        margin = 6.0
        across = 5.0 if settings.is_volume else 3.5 * self._sigma_y
        low = np.array([-margin, -margin, -across])
        high = np.array([n_z - 1 + margin, n_x - 1 + margin, n_y - 1 + across])
        number = int(np.prod(high - low) * TISSUE_A_CUBIC_WAVELENGTH)
        self._tissue_rest = rng.uniform(low, high, (number, 3))
        self._tissue_amplitude = (
            rng.standard_normal(number) + 1j * rng.standard_normal(number)
        ).astype(np.complex64)  # fmt: skip
        self.mask, self.velocity_mm_s = (
            truth if settings.is_volume else truth[..., 0] for truth in vessel_truth(self._vessels, settings)
        )

    def blocks(self, frames_a_block: int = 32) -> Iterator[Terms]:
        """All frames in order, in blocks."""
        n_frames = self.settings.n_frames
        for start in range(0, n_frames, frames_a_block):
            yield self.frames(np.arange(start, min(start + frames_a_block, n_frames)))

    def frames(self, numbers: NDArray[np.int64]) -> Terms:
        """Some frames by their numbers."""
        tissue_gain, blood_gain = self._gains
        tissue, blood = self._raw(numbers)
        noise_rms = 10 ** (-self.settings.blood_to_noise_db / 20)
        noise = np.stack([self._noise(int(number)) for number in numbers]) * np.float32(noise_rms)
        tissue *= tissue_gain
        blood *= blood_gain
        if self.settings.real:
            tissue, blood, noise = (self._modulated(term) for term in (tissue, blood, noise))
        return Terms(tissue + blood + noise, tissue, blood, noise)

    @cached_property
    def _gains(self) -> tuple[np.float32, np.float32]:
        n_frames = self.settings.n_frames
        numbers = np.unique(np.linspace(0, n_frames - 1, min(n_frames, CALIBRATION_FRAMES)).round())
        tissue, blood = self._raw(numbers.astype(np.int64))
        tissue_rms = np.sqrt(np.mean(np.abs(tissue) ** 2, dtype=np.float64))
        blood_rms = np.sqrt(np.mean(np.abs(blood[:, self.mask]) ** 2, dtype=np.float64))
        clutter = 10 ** (self.settings.clutter_to_blood_db / 20)
        return np.float32(clutter / tissue_rms), np.float32(1 / blood_rms)

    def _raw(self, numbers: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        pairs = list(self._executor.map(self._frame, [int(number) for number in numbers]))
        tissue, blood = (np.stack(term) for term in zip(*pairs, strict=True))
        return tissue, blood

    def _frame(self, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        from usdenoise.phantom.splat import blood_frame, tissue_frame

        seconds = number / self.settings.frame_rate_hz
        field = self._motion.displacement(seconds)
        origin, pitch = self._motion.origin, self._motion.pitch
        tissue = np.zeros(self.settings.grid, np.complex64)
        tissue_frame(self._tissue_rest, self._tissue_amplitude, field, origin, pitch, self._sigma_y, tissue)
        blood = np.zeros(self.settings.grid, np.complex64)
        scatterers = self._blood
        blood_frame(
            scatterers.origin,
            scatterers.direction,
            scatterers.start,
            scatterers.length,
            scatterers.speed,
            flow_time(seconds, PULSATILITY, self._flow_phase),
            field,
            origin,
            pitch,
            self._sigma_y,
            blood,
        )
        shape = self.settings.shape[:-1]
        return tissue.reshape(shape), blood.reshape(shape)

    def _noise(self, number: int) -> NDArray[Any]:
        rng = np.random.Generator(np.random.SFC64([self.settings.seed, _NOISE, number]))
        pairs = rng.standard_normal((*self.settings.shape[:-1], 2), np.float32) * np.float32(np.sqrt(0.5))
        noise: NDArray[Any] = pairs.view(np.complex64)[..., 0]
        return noise

    def _modulated(self, term: NDArray[Any]) -> NDArray[Any]:
        # At a pitch of a wavelength the carrier folds to nothing. A real phantom has it folded to a quarter
        # of a cycle a pixel, as in a scanner that samples its RF below the carrier.
        depth = np.arange(self.settings.shape[0]).reshape((-1,) + (1,) * (len(self.settings.shape) - 2))
        carrier = np.exp(2j * np.pi * (0.125 + 0.25 * depth)).astype(np.complex64)
        real: NDArray[Any] = np.sqrt(2).astype(np.float32) * (term * carrier).real
        return real
