"""Settings of a phantom: its size, its scales, and the levels of its three terms."""

import math
from dataclasses import dataclass
from enum import IntEnum

from usdenoise.errors import OptionError

# The widest vessel has a diameter of at least 4 pixels: a smaller image would be mostly vessel.
LEAST_PIXELS = 8
# An amplitude ratio of 1e10: amplitudes and powers stay well within single precision.
MOST_DB = 200
# Gains of real scans are 20 to 60 dB. With both at their limit, the noise is still within single precision.
MOST_GAIN_DB = 100
# Beyond 60 dB over tissue, single precision would lose the tissue.
MOST_LEVEL = 1000
# Scatterers are drawn within 6 wavelengths around the image, and tissue moves by itself.
MOST_MOTION = 5
# Noise that is correlated over more pixels is one value a frame in all but the largest images.
MOST_CORRELATION = 100


class Stream(IntEnum):
    """Random streams: a generator is seeded with the phantom's seed and the number of its stream."""

    ANATOMY = 0
    NOISE = 1
    THIN_VESSELS = 2
    CAPILLARIES = 3
    INTERFERENCE = 4


@dataclass(frozen=True)
class PhantomSettings:
    """Settings of a simulated acquisition.

    Attributes
    ----------
    shape : (n_z, n_x, n_frames) or (n_z, n_x, n_y, n_frames)
        Number of pixels in depth, lateral and, for a volume, elevation, and number of frames; by default
        (128, 96, 400).
    frame_rate_hz : float
        Frame rate in Hz, by default 1000. Unless `max_speed_mm_s` is given, the speed of the blood in vessels scales
        with it, so that no vessel aliases.
    center_frequency_hz : float
        Transmit centre frequency in Hz, by default 15 MHz. Pixels are one wavelength apart in every direction.
    clutter_to_blood_db : float
        Ratio of the mean tissue power over all pixels to the mean blood power in the vessels, in dB (10 log10),
        by default 40. Both are without the attenuation.
    blood_to_noise_db : float
        Ratio of the mean blood power in the vessels to the noise power at the bottom of the image, in dB
        (10 log10), by default 6. Blood is with the attenuation at the bottom: the ratio at the top is larger by
        `noise_gain_db + attenuation_db`. Infinity leaves the noise out.
    seed : int
        Seed of anatomy and noise, by default 0. The same seed gives the same phantom.
    real : bool
        Whether pixels are beamformed RF (float32) instead of complex IQ (complex64); by default they are IQ.
    sound_speed_m_s : float
        Speed of sound in m/s, by default 1540, the usual value for soft tissue.
    noise_gain_db : float
        By how much the noise is stronger at the bottom of the image than at the top, in dB (20 log10 of amplitudes),
        linear in dB, by default 0. This is what a time-gain compensation does to noise.
    noise_correlation_pixels : float
        Standard deviation, in pixels, of the Gaussian that smooths the white noise of each frame in space, by
        default 0. Two pixels at the distance d are then correlated at exp(-d^2 / (4 s^2)); the power of the noise
        does not change. In a real phantom this is the correlation of the complex noise that is modulated.
    attenuation_db : float
        Loss of tissue and blood from the top of the image to the bottom, in dB, linear in dB, by default 0.
    max_speed_mm_s : float, optional
        Speed of the blood on the axis of the fastest vessel, averaged over the heartbeat, in mm/s; the peak of the
        pulse is 30 % faster. The speeds of all vessels are scaled to it. Axial velocities alias beyond
        wavelength_mm * frame_rate_hz / 4: 6.4 mm/s at 250 Hz and 15 MHz. By default the speeds follow the frame rate.
    thin_vessels : int
        Number of additional vessels with a diameter of 1 to 2 pixels (wavelengths), by default 0. Levels refer to
        the other vessels alone, and a thin vessel has their scatterers a volume. Its pixels are darker, as it fills
        only a part of the point-spread function.
    capillary_db : float, optional
        Mean blood power of capillaries in a perfused region, relative to the mean blood power in the vessels, in dB
        (10 log10). Their scatterers move at 0.5 to 2 mm/s in all directions. By default there are none.
    bad_frames : int
        Number of frames with electrical interference, at random times, by default 0.
    bad_frame_level : float
        Rms of the interference over the rms of tissue and blood together, by default 3.
    jerk_pixels, drift_pixels : float
        Displacements of the whole image: largest one of a jerk that lasts a tenth of the scan, and that of a drift
        from the first frame to the last; by default 0.
    breathing : (float, float), optional
        Amplitude in pixels and rate in Hz of a sinusoidal displacement of the whole image; by default none.

    Raises
    ------
    OptionError
        If the shape is not 3 or 4 positive numbers with at least 8 x 8 pixels and 2 frames, if the frame rate,
        the centre frequency or the fastest speed is not positive, if a level is beyond 200 dB, if the noise gain or
        the attenuation is not within 0 to 100 dB, if the correlation is not within 0 to 100 pixels, if the number
        of thin vessels is negative, if there are more bad frames than frames, if their level is not within 0 to 1000,
        or if a displacement is not within 5 pixels.
    """

    shape: tuple[int, ...] = (128, 96, 400)
    frame_rate_hz: float = 1000.0
    center_frequency_hz: float = 15e6
    clutter_to_blood_db: float = 40.0
    blood_to_noise_db: float = 6.0
    seed: int = 0
    real: bool = False
    sound_speed_m_s: float = 1540.0
    noise_gain_db: float = 0.0
    noise_correlation_pixels: float = 0.0
    attenuation_db: float = 0.0
    max_speed_mm_s: float | None = None
    thin_vessels: int = 0
    capillary_db: float | None = None
    bad_frames: int = 0
    bad_frame_level: float = 3.0
    jerk_pixels: float = 0.0
    drift_pixels: float = 0.0
    breathing: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if (
            len(self.shape) not in (3, 4)
            or min(self.shape[:2]) < LEAST_PIXELS
            or self.shape[-1] < 2
            or min(self.shape) < 1
        ):
            raise OptionError(
                f"a phantom of shape {'x'.join(map(str, self.shape))} cannot be made; give --shape as "
                "ZxXxT or ZxXxYxT with at least 8 x 8 pixels and 2 frames, for example 128x96x400"
            )
        for name, option, value in (
            ("frame rate", "--frame-rate", self.frame_rate_hz),
            ("centre frequency", "--center-frequency", self.center_frequency_hz),
        ):
            if not 0 < value < math.inf:
                raise OptionError(f"the {name} {value:g} Hz must be positive and finite; change {option}")
        clutter, noise = self.clutter_to_blood_db, self.blood_to_noise_db
        if not abs(clutter) <= MOST_DB or not (noise == math.inf or abs(noise) <= MOST_DB):
            raise OptionError(
                f"levels of {clutter:g} and {noise:g} dB cannot be made; give --clutter-to-blood and "
                "--blood-to-noise within 200 dB"
            )
        self._check_realism()
        self._check_disturbances()

    def _check_disturbances(self) -> None:
        if not 0 <= self.bad_frames <= self.n_frames:
            raise OptionError(
                f"{self.bad_frames} bad frames of {self.n_frames} cannot be made; give --bad-frames from 0 to "
                f"{self.n_frames}"
            )
        if not 0 < self.bad_frame_level <= MOST_LEVEL:
            raise OptionError(
                f"interference of {self.bad_frame_level:g} times the rms cannot be made; give --bad-frame-level above 0 "
                f"and up to {MOST_LEVEL}"
            )
        for name, option, value in (
            ("jerk", "--jerk", self.jerk_pixels),
            ("drift", "--drift", self.drift_pixels),
            ("breathing", "--breathing", 0.0 if self.breathing is None else self.breathing[0]),
        ):
            if not abs(value) <= MOST_MOTION:
                raise OptionError(
                    f"a {name} of {value:g} pixels cannot be made; give {option} within {MOST_MOTION} pixels"
                )

    def _check_realism(self) -> None:
        for name, option, value, most, unit in (
            ("noise gain", "--noise-gain", self.noise_gain_db, MOST_GAIN_DB, "dB"),
            ("attenuation", "--attenuation", self.attenuation_db, MOST_GAIN_DB, "dB"),
            (
                "noise correlation",
                "--noise-correlation",
                self.noise_correlation_pixels,
                MOST_CORRELATION,
                "pixels",
            ),
        ):
            if not 0 <= value <= most:
                raise OptionError(
                    f"the {name} {value:g} {unit} cannot be made; give {option} from 0 to {most} {unit}"
                )
        speed, capillary = self.max_speed_mm_s, self.capillary_db
        if speed is not None and not 0 < speed < math.inf:
            raise OptionError(
                f"the fastest speed {speed:g} mm/s must be positive and finite; change --max-speed"
            )
        if capillary is not None and not abs(capillary) <= MOST_DB:
            raise OptionError(
                f"capillaries of {capillary:g} dB cannot be made; give --capillary within {MOST_DB} dB"
            )
        if self.thin_vessels < 0:
            raise OptionError(
                f"{self.thin_vessels} thin vessels cannot be drawn; give --thin-vessels as 0 or more"
            )

    @property
    def wavelength_mm(self) -> float:
        """Wavelength in mm, which is also the distance between pixels."""
        return self.sound_speed_m_s / self.center_frequency_hz * 1e3

    @property
    def grid(self) -> tuple[int, int, int]:
        """Number of pixels (n_z, n_x, n_y), with n_y = 1 for a 2-D image."""
        n_z, n_x = self.shape[:2]
        return n_z, n_x, self.shape[2] if len(self.shape) == 4 else 1

    @property
    def is_volume(self) -> bool:
        """Whether each frame is a volume."""
        return len(self.shape) == 4

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.shape[-1]
