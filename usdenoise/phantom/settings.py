"""What a phantom is made to: its size, its scales, and the levels of its three terms."""

import math
from dataclasses import dataclass

from usdenoise.errors import OptionError


@dataclass(frozen=True)
class PhantomSettings:
    """Settings of a simulated acquisition.

    Attributes
    ----------
    shape : (n_z, n_x, n_frames) or (n_z, n_x, n_y, n_frames)
        Pixels in depth, lateral (and elevation), and frames.
    frame_rate_hz : float
        Frames a second.
    center_frequency_hz : float
        Transmit centre frequency; the pixel pitch is one wavelength in every direction.
    clutter_to_blood_db : float
        Mean tissue power over all pixels over mean blood power in the vessels, 10 log10.
    blood_to_noise_db : float
        Mean blood power in the vessels over noise power, 10 log10. Infinity leaves the noise out.
    seed : int
        Same seed, same phantom.
    real : bool
        Beamformed RF at the pixels (float32) in place of complex IQ (complex64).
    sound_speed_m_s : float
        Speed of sound.

    Raises
    ------
    OptionError
        If the shape is not 3 or 4 positive numbers with at least 8 x 8 pixels and 2 frames, or a rate is
        not positive.
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
            or min(self.shape[:2]) < 8
            or self.shape[-1] < 2
            or min(self.shape) < 1
        ):
            raise OptionError(
                f"a phantom of shape {'x'.join(map(str, self.shape))} cannot be made; give --shape as "
                "ZxXxT or ZxXxYxT with at least 8 x 8 pixels and 2 frames, for example 128x96x400"
            )
        for name, value in (
            ("frame rate", self.frame_rate_hz),
            ("centre frequency", self.center_frequency_hz),
        ):
            if not 0 < value < math.inf:
                raise OptionError(f"the {name} {value:g} Hz must be positive")
        clutter, noise = self.clutter_to_blood_db, self.blood_to_noise_db
        if not abs(clutter) <= 200 or not (noise == math.inf or abs(noise) <= 200):
            raise OptionError(
                f"levels of {clutter:g} and {noise:g} dB cannot be made; give --clutter-to-blood and "
                "--blood-to-noise within 200 dB"
            )

    @property
    def wavelength_mm(self) -> float:
        """Wavelength, which is the pixel pitch too, in mm."""
        return self.sound_speed_m_s / self.center_frequency_hz * 1e3

    @property
    def grid(self) -> tuple[int, int, int]:
        """(n_z, n_x, n_y), with n_y = 1 for a 2-D image."""
        n_z, n_x = self.shape[:2]
        return n_z, n_x, self.shape[2] if len(self.shape) == 4 else 1

    @property
    def is_volume(self) -> bool:
        """Whether the frames are volumes."""
        return len(self.shape) == 4

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.shape[-1]
