"""Settings of a phantom: its size, its scales, and the levels of its three terms."""

import math
from dataclasses import dataclass

from usdenoise.errors import OptionError

# The widest vessel has a diameter of at least 4 pixels: a smaller image would be mostly vessel.
LEAST_PIXELS = 8
# An amplitude ratio of 1e10: amplitudes and powers stay well within single precision.
MOST_DB = 200


@dataclass(frozen=True)
class PhantomSettings:
    """Settings of a simulated acquisition.

    Attributes
    ----------
    shape : (n_z, n_x, n_frames) or (n_z, n_x, n_y, n_frames)
        Number of pixels in depth, lateral and, for a volume, elevation, and number of frames; by default
        (128, 96, 400).
    frame_rate_hz : float
        Frame rate in Hz, by default 1000. The speed of the blood scales with it, so that no vessel aliases.
    center_frequency_hz : float
        Transmit centre frequency in Hz, by default 15 MHz. Pixels are one wavelength apart in every direction.
    clutter_to_blood_db : float
        Ratio of the mean tissue power over all pixels to the mean blood power in the vessels, in dB (10 log10),
        by default 40.
    blood_to_noise_db : float
        Ratio of the mean blood power in the vessels to the noise power, in dB (10 log10), by default 6. Infinity
        leaves the noise out.
    seed : int
        Seed of anatomy and noise, by default 0. The same seed gives the same phantom.
    real : bool
        Whether pixels are beamformed RF (float32) instead of complex IQ (complex64); by default they are IQ.
    sound_speed_m_s : float
        Speed of sound in m/s, by default 1540, the usual value for soft tissue.

    Raises
    ------
    OptionError
        If the shape is not 3 or 4 positive numbers with at least 8 x 8 pixels and 2 frames, if the frame rate
        or the centre frequency is not positive, or if a level is beyond 200 dB.
    """

    shape: tuple[int, ...] = (128, 96, 400)
    frame_rate_hz: float = 1000.0
    center_frequency_hz: float = 15e6
    clutter_to_blood_db: float = 40.0
    blood_to_noise_db: float = 6.0
    seed: int = 0
    real: bool = False
    sound_speed_m_s: float = 1540.0

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
