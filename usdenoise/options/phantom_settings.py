"""Settings of a phantom: its size, its scales, the levels of its three terms, and what disturbs real scans."""

import math
from dataclasses import dataclass

from usdenoise.errors import OptionError
from usdenoise.options.declaration import Group, Options, option
from usdenoise.options.kinds import FRAME_NUMBERS, NUMBER, SCALES, WHOLE, positive_numbers

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
# A gain that drifts by more is no drift.
MOST_GAIN_DRIFT_DB = 20
# Blood that is gone, or eleven times as strong.
MOST_ACTIVATION = 1000
# Noise that is correlated over more pixels is one value a frame in all but the largest images.
MOST_CORRELATION = 100

# The scatterers of more would take hours and gigabytes.
MOST_VESSELS = 1000
# 8 TB.
MOST_ENTRIES = 10**12

OF_SESSIONS = ("block_interval_s", "activation", "burst_blocks", "gain_drift_db")
"""Settings that need a session."""


@dataclass(frozen=True)
class PhantomSettings(Options, group=Group.PHANTOM):
    """Settings of a simulated acquisition. Pixels are one wavelength apart in every direction.

    Raises
    ------
    OptionError
        If a value is of another kind or outside its range, or there are more bad frames than frames.
    """

    shape: tuple[int, ...] = option(
        (128, 96, 400),
        "Pixels in depth, width (and elevation), and frames.",
        kind=positive_numbers("ZxX[xY]xT", "x", WHOLE, range(3, 5)),
        shown="128x96x400",
    )
    frame_rate_hz: float = option(1000.0, "Frames per second.", metavar="HZ", least=SCALES[0], most=SCALES[1])
    """Unless `max_speed_mm_s` is given, the speed of the blood in vessels scales with it, so that no vessel aliases."""
    center_frequency_hz: float = option(
        15e6,
        "Centre frequency of the pulse. The pixel pitch is its wavelength.",
        metavar="HZ",
        # The pixel pitch of a frequency below would be more than a metre.
        least=1e3,
        most=SCALES[1],
        shown="15e6",
    )
    clutter_to_blood_db: float = option(
        40.0,
        "Mean power of tissue over that of blood. Raise it for a harder phantom.",
        metavar="DB",
        least=-MOST_DB,
        most=MOST_DB,
    )
    """In dB (10 log10), of the tissue over all pixels and the blood in the vessels, both without the attenuation."""
    blood_to_noise_db: float = option(
        6.0,
        "Mean power of blood over that of noise at the bottom of the image; inf leaves the noise out.",
        metavar="DB",
    )
    """In dB (10 log10). Blood is with the attenuation at the bottom: the ratio at the top is larger by
    `noise_gain_db + attenuation_db`."""
    seed: int = option(0, "Seed of the phantom. The same seed gives the same phantom.", least=0)
    real: bool = option(False, "Simulate real RF instead of complex IQ.")
    sound_speed_m_s: float = 1540.0
    """Speed of sound in m/s, by default the usual value for soft tissue. It has no flag."""
    noise_gain_db: float = option(
        0.0,
        "How much stronger the noise is at the bottom than at the top, as after a time-gain compensation.",
        group=Group.RARE,
        metavar="DB",
        least=0,
        most=MOST_GAIN_DB,
    )
    """20 log10 of amplitudes, linear in dB over the depth."""
    noise_correlation_pixels: float = option(
        0.0,
        "Standard deviation of the Gaussian that smooths the noise in space. Its power stays the same.",
        group=Group.RARE,
        metavar="PIXELS",
        least=0,
        most=MOST_CORRELATION,
    )
    """Two pixels at the distance d are then correlated at exp(-d^2 / (4 s^2)). In a real phantom this is the
    correlation of the complex noise that is modulated."""
    attenuation_db: float = option(
        0.0,
        "Loss of tissue and blood from the top of the image to the bottom, linear in dB.",
        group=Group.RARE,
        metavar="DB",
        least=0,
        most=MOST_GAIN_DB,
    )
    max_speed_mm_s: float | None = option(
        None,
        "Speed on the axis of the fastest vessel in mm/s. Flow may then alias. By default speeds scale with "
        "the frame rate so that none does.",
        group=Group.RARE,
        metavar="MM_S",
        least=SCALES[0],
        most=SCALES[1],
    )
    """Averaged over the heartbeat; the peak of the pulse is 30 % faster. The speeds of all vessels are scaled to it.
    Axial velocities alias beyond wavelength_mm * frame_rate_hz / 4: 6.4 mm/s at 250 Hz and 15 MHz."""
    thin_vessels: int = option(
        0,
        "Number of additional vessels that are 1 to 2 pixels wide.",
        group=Group.RARE,
        least=0,
        most=MOST_VESSELS,
    )
    """Levels refer to the other vessels alone, and a thin vessel has their scatterers a volume. Its pixels are darker,
    as it fills only a part of the point-spread function."""
    capillary_db: float | None = option(
        None,
        "Add a region with slow flow in all directions (0.5 to 2 mm/s); DB is its blood power over that of "
        "the vessels. By default there is none.",
        group=Group.RARE,
        metavar="DB",
        least=-MOST_DB,
        most=MOST_DB,
    )
    bad_frames: int = option(
        0, "Number of frames with electrical interference, at random times.", group=Group.RARE, least=0
    )
    bad_frame_level: float = option(
        3.0,
        "Rms of the interference over that of tissue and blood.",
        group=Group.RARE,
        positive=True,
        most=MOST_LEVEL,
    )
    jerk_pixels: float = option(
        0.0,
        "Largest displacement of the image by a jerk, out and back in a tenth of the scan.",
        group=Group.RARE,
        metavar="PIXELS",
        least=-MOST_MOTION,
        most=MOST_MOTION,
    )
    drift_pixels: float = option(
        0.0,
        "Displacement of the image from the first frame to the last.",
        group=Group.RARE,
        metavar="PIXELS",
        least=-MOST_MOTION,
        most=MOST_MOTION,
    )
    breathing: tuple[float, float] | None = option(
        None,
        "Amplitude and rate of a periodic displacement of the image. By default there is none.",
        group=Group.RARE,
        kind=positive_numbers("PIXELS@HZ", "@", NUMBER, range(2, 3), SCALES),
    )

    session: int | None = option(
        None,
        "Simulate so many blocks of the frames of --shape: one file each in the folder OUT, or one long file if OUT ends "
        "in .h5. By default it is a single acquisition.",
        group=Group.SESSION,
        metavar="BLOCKS",
        least=1,
    )
    """Tissue then drifts back and forth, so that the vessels stay in the image however long the session is."""
    block_interval_s: float | None = option(
        None,
        "Time from the beginning of a block to that of the next. By default there is no time between blocks.",
        group=Group.SESSION,
        metavar="S",
        positive=True,
    )
    activation: float = option(
        0.0,
        "Rise of the blood power in the left half of the image, in five of every ten blocks.",
        group=Group.SESSION,
        metavar="PERCENT",
        least=-100,
        most=MOST_ACTIVATION,
    )
    """The first five blocks are at rest."""
    burst_blocks: tuple[int, ...] | None = option(
        None,
        "Blocks in which the image moves out and back by the pixels of --jerk, for example 7,19. By default none does.",
        group=Group.SESSION,
        kind=FRAME_NUMBERS,
        metavar="LIST",
    )
    gain_drift_db: float = option(
        0.0,
        "Rise and fall of tissue and blood over the session, from the lowest to the highest gain.",
        group=Group.SESSION,
        metavar="DB",
        least=0,
        most=MOST_GAIN_DRIFT_DB,
    )

    def check(self) -> None:
        """Check what depends on the number of pixels and frames, and the two numbers without a range."""
        if min(self.shape[:2]) < LEAST_PIXELS or self.n_frames < 2 or math.prod(self.shape) > MOST_ENTRIES:
            raise OptionError(
                f"a phantom of shape {'x'.join(map(str, self.shape))} cannot be made; give --shape at least 8 x 8 pixels "
                f"and 2 frames, and {MOST_ENTRIES:.0e} entries at most, for example 128x96x400"
            )
        if not (self.blood_to_noise_db == math.inf or abs(self.blood_to_noise_db) <= MOST_DB):
            raise OptionError(
                f"a level of {self.blood_to_noise_db:g} dB cannot be made; give --blood-to-noise within {MOST_DB} dB, or inf"
            )
        if self.bad_frames > self.n_frames:
            raise OptionError(
                f"{self.bad_frames} bad frames of {self.n_frames} cannot be made; give --bad-frames from 0 to "
                f"{self.n_frames}"
            )
        if self.breathing is not None and self.breathing[0] > MOST_MOTION:
            raise OptionError(
                f"a breathing of {self.breathing[0]:g} pixels cannot be made; give --breathing within {MOST_MOTION} "
                "pixels"
            )

        self._check_session()

    def _check_session(self) -> None:
        given = [name for name in OF_SESSIONS if getattr(self, name)]
        if self.session is None and given:
            raise OptionError(
                f"{self.declared[given[0]].flag} is for a session of several blocks; give --session"
            )
        if self.block_interval_s is not None and self.block_interval_s < self.block_duration_s * (1 - 1e-9):
            raise OptionError(
                f"blocks of {self.block_duration_s:g} s cannot begin every {self.block_interval_s:g} s; raise "
                "--block-interval"
            )
        if self.burst_blocks is not None and max(self.burst_blocks) >= self.n_blocks:
            raise OptionError(
                f"block {max(self.burst_blocks)} is not among the blocks 0 to {self.n_blocks - 1}; change --burst-blocks"
            )
        if self.burst_blocks is not None and self.jerk_pixels == 0:
            raise OptionError(
                "--burst-blocks moves the image by --jerk, which is 0; give --jerk pixels, for example 2"
            )

    @property
    def n_blocks(self) -> int:
        """Number of blocks; 1 where it is no session."""
        return self.session or 1

    @property
    def frames_a_block(self) -> int:
        """Number of frames of a block."""
        return self.shape[-1]

    @property
    def block_duration_s(self) -> float:
        """Duration of a block."""
        return self.frames_a_block / self.frame_rate_hz

    def seconds(self, number: int) -> float:
        """Return the time of a frame since the first one."""
        block, inside = divmod(number, self.frames_a_block)
        return block * (self.block_interval_s or self.block_duration_s) + inside / self.frame_rate_hz

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
        """Number of frames, of all blocks together."""
        return self.frames_a_block * self.n_blocks
