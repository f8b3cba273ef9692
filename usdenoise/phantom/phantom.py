"""A phantom with an anatomy that is drawn once and frames that are made on demand."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.options import PhantomSettings
from usdenoise.phantom import motion_and_noise as motion
from usdenoise.phantom import scatterers

# The point-spread function of a slice fills (2 pi)^1.5 0.6 0.9 3.0 = 26 cubic wavelengths, of a volume 7.7: that is
# 5 scatterers, or 1.5. More would take longer, and their Gaussian amplitudes compensate in part: the mean over
# the standard deviation of the envelope is 1.7 in slices and 1.4 in volumes; fully developed speckle has 1.91.
TISSUE_A_CUBIC_WAVELENGTH = 0.2
# Frames, evenly spaced over the acquisition, on which the levels are set. The tests hold the levels to 0.7 dB;
# with all frames every frame would have to be made twice.
CALIBRATION_FRAMES = 48
# Tissue around the image, in wavelengths. The point-spread function reaches 4.05 wavelengths laterally and in the
# elevation of a volume, and heartbeat, breathing and bending displace tissue by less than 0.5. The drift adds up to
# 0.3 a second.
MARGIN, VOLUME_MARGIN = 6.0, 5.0
# Half the thickness of a slice in standard deviations: weights beyond are more than 53 dB down.
SLICE_MARGIN_SIGMAS = 3.5


@dataclass(frozen=True)
class Terms:
    """Frames of the phantom, and the three terms that add up to them.

    Attributes
    ----------
    iq, tissue, blood, noise : (n, n_z, n_x) or (n, n_z, n_x, n_y) arrays
        complex64, or float32 for a real phantom; iq is the sum of the other three. Blood is in the vessels
        and in the perfused region.
    """

    iq: Numbers
    tissue: Numbers
    blood: Numbers
    noise: Numbers


class Phantom:
    """A simulated acquisition with known truth.

    Blood has unit mean power in the vessels, before the attenuation and without thin vessels and capillaries. These
    add to the blood, and change neither tissue nor noise nor the other vessels.

    Parameters
    ----------
    settings : PhantomSettings
        Size, scales, levels and seed of the phantom.
    executor : Executor
        Executor whose workers make the frames of a block in parallel.

    Attributes
    ----------
    mask : (n_z, n_x) or (n_z, n_x, n_y) array of booleans
        Pixels whose centre is in a vessel at rest.
    velocity_mm_s : float32 array of the same shape
        Axial velocity of the blood of the vessels in the pixel, weighted by its expected power and averaged over the
        heartbeat, in mm/s, positive towards the probe; 0 outside the vessels.
    noise_power : float32 array of the same shape
        Expected power of the noise.
    bad_frames : (n,) int64 array
        Numbers of the frames with interference, which is a part of their noise term.
    capillary_mask : boolean array of the same shape, or None
        Pixels whose centre is in the perfused region; None if there are no capillaries.
    vessels : list of Vessel
        The vessels at rest, the thin ones last.
    scatterers : dict of BloodScatterers
        Scatterers of the "vessels", of the "thin" vessels and of the "capillaries", if there are any.
    """

    def __init__(self, settings: PhantomSettings, executor: Executor) -> None:
        self.settings = settings
        self._executor = executor
        rng = np.random.default_rng([settings.seed, motion.Stream.ANATOMY])
        n_z, n_x, n_y = settings.grid
        self._sigma_y = scatterers.SIGMA_X if settings.is_volume else scatterers.SIGMA_SLICE
        self._motion = motion.TissueMotion((n_z, n_x), rng, returns=settings.session is not None)
        self._flow_phase = rng.uniform(0, 2 * np.pi)
        self.vessels = scatterers.draw_vessels(settings, rng)
        self.scatterers = {"vessels": scatterers.fill(self.vessels, rng)}
        across = VOLUME_MARGIN if settings.is_volume else SLICE_MARGIN_SIGMAS * self._sigma_y
        low = np.array([-MARGIN, -MARGIN, -across])
        high = np.array([n_z - 1 + MARGIN, n_x - 1 + MARGIN, n_y - 1 + across])
        number = int(np.prod(high - low) * TISSUE_A_CUBIC_WAVELENGTH)
        at_rest = rng.uniform(low, high, (number, 3))
        amplitude = rng.standard_normal(number) + 1j * rng.standard_normal(number)
        self._tissue = at_rest, amplitude.astype(np.complex64)
        self._level_mask = scatterers.vessel_mask(self.vessels, settings)
        if settings.thin_vessels:
            stream, thin = motion.Stream.THIN_VESSELS, scatterers.draw_thin_vessels(settings, self.vessels)
            self.vessels += thin
            rng, first = np.random.default_rng([settings.seed, stream, 0]), stream << 32
            self.scatterers["thin"] = scatterers.fill(thin, rng, scatterers.THIN_DENSITY, first)
        mask = scatterers.vessel_mask(self.vessels, settings)
        velocity = scatterers.mean_velocity(self.vessels, settings, mask)
        self.mask, self.velocity_mm_s = (truth.reshape(settings.shape[:-1]) for truth in (mask, velocity))
        self._noise = motion.NoiseField(settings)
        self.noise_power = self._noise.power
        self.bad_frames = motion.interference_frames(settings)
        self.capillary_mask = None
        if settings.capillary_db is not None:
            region = scatterers.draw_capillaries(settings, across)
            self.capillary_mask, self.scatterers["capillaries"] = region

    def parts(self, block: int = 0, frames_a_part: int = 32) -> Iterator[Terms]:
        """Yield the frames of a block of the session in order, a few at a time.

        Parameters
        ----------
        block : int
            Number of the block, by default 0: the only one if it is not a session.
        frames_a_part : int
            Largest number of frames in memory at a time, by default 32. The frames do not depend on it.
        """
        first = block * self.settings.frames_a_block
        stop = first + self.settings.frames_a_block
        for start in range(first, stop, frames_a_part):
            yield self.frames(np.arange(start, min(start + frames_a_part, stop)))

    def frames(self, numbers: NDArray[np.int64]) -> Terms:
        """Return some frames and their terms.

        Parameters
        ----------
        numbers : (n,) array of int
            Numbers of the frames, counted from 0, in any order.
        """
        tissue_gain, blood_gain = self._gains
        tissue = self._drawn(numbers, "tissue") * tissue_gain
        blood = self._drawn(numbers, "vessels", "thin") * blood_gain
        noise = np.stack([self._noise.frame(int(number)) for number in numbers])
        if "capillaries" in self.scatterers:
            blood += self._drawn(numbers, "capillaries") * self._capillary_gain
        if self.settings.attenuation_db:
            loss = motion.depth_gain(self.settings, -self.settings.attenuation_db)
            tissue *= loss
            blood *= loss
        for row, frame in enumerate(numbers.tolist() if self.settings.session else ()):
            gain = np.float32(motion.coupling(self.settings, frame))
            rise = motion.blood_rise(self.settings, frame // self.settings.frames_a_block)
            tissue[row] *= gain
            blood[row] *= gain * np.sqrt(1 + rise)
        for index in np.flatnonzero(np.isin(numbers, self.bad_frames)):
            noise[index] += motion.interference(self.settings, int(numbers[index])) * self._interference_level
        if self.settings.real:
            # Two-way, the carrier has two cycles a wavelength, which pixels a wavelength apart sample as a constant. A
            # real phantom has a carrier of a quarter of a cycle a pixel, as in a scanner that samples its RF below
            # the carrier. The first eighth of a cycle gives I and Q equal weights in every pixel, and the factor
            # sqrt(2) keeps the mean power.
            depth = np.arange(self.settings.shape[0]).reshape((-1,) + (1,) * (tissue.ndim - 2))
            carrier = np.exp(2j * np.pi * (0.125 + 0.25 * depth)).astype(np.complex64)
            factor = np.sqrt(2).astype(np.float32)
            real = [factor * (term * carrier).real for term in (tissue, blood, noise)]
            return Terms(real[0] + real[1] + real[2], *real)
        return Terms(tissue + blood + noise, tissue, blood, noise)

    @property
    def _calibration(self) -> NDArray[np.int64]:
        n_frames = self.settings.n_frames
        numbers = np.unique(np.linspace(0, n_frames - 1, min(n_frames, CALIBRATION_FRAMES)).round())
        return numbers.astype(np.int64)

    @cached_property
    def _gains(self) -> tuple[np.float32, np.float32]:
        tissue = self._drawn(self._calibration, "tissue")
        blood = self._drawn(self._calibration, "vessels")
        clutter = 10 ** (self.settings.clutter_to_blood_db / 20)
        blood_rms = _rms_of(blood[:, self._level_mask.reshape(self.mask.shape)])
        return np.float32(clutter / _rms_of(tissue)), np.float32(1 / blood_rms)

    @cached_property
    def _interference_level(self) -> np.float32:
        tissue_gain, blood_gain = self._gains
        tissue = self._drawn(self._calibration, "tissue") * tissue_gain
        blood = self._drawn(self._calibration, "vessels", "thin") * blood_gain
        return np.float32(self.settings.bad_frame_level * _rms_of(tissue + blood))

    @cached_property
    def _capillary_gain(self) -> np.float32:
        frames = self._drawn(self._calibration, "capillaries")
        level = 10 ** ((self.settings.capillary_db or 0.0) / 20)
        return np.float32(level / _rms_of(frames[:, self.capillary_mask]))

    def _drawn(self, numbers: NDArray[np.int64], *kinds: str) -> Numbers:
        """Return frames of the tissue, or of some kinds of blood scatterers, if there are any of them."""

        def frame(number: int) -> Numbers:
            seconds = self.settings.seconds(number)
            field = self._motion.displacement(seconds, motion.image_motion(self.settings, number))
            image = np.zeros(self.settings.grid, np.complex64)
            if "tissue" in kinds:
                scatterers.tissue_frame(*self._tissue, field, self._sigma_y, image)
            for part in (part for kind, part in self.scatterers.items() if kind in kinds):
                flow_seconds = motion.flow_time(seconds, part.pulsatility, self._flow_phase)
                scatterers.blood_frame(part, flow_seconds, field, self._sigma_y, image)
            return image.reshape(self.settings.shape[:-1])

        return np.stack(list(self._executor.map(frame, [int(number) for number in numbers])))


def _rms_of(values: Numbers) -> float:
    return float(np.sqrt(np.mean(np.abs(values) ** 2, dtype=np.float64)))
