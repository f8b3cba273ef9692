"""Settings of a phantom: its size, its scales, the levels of its three terms, and what disturbs real scans."""

import math
from dataclasses import dataclass
from functools import partial

from usdenoise.errors import OptionError
from usdenoise.options import kinds
from usdenoise.options.declaration import Group, Options, option

# The widest vessel has a diameter of at least 4 pixels: a smaller image would be mostly vessel.
LEAST_PIXELS = 8
# An amplitude ratio of 1e10: amplitudes and powers stay well within single precision.
MOST_DB = 200
# Gains of real scans are 20 to 60 dB. With both at their limit, the noise is still within single precision.
MOST_DEPTH_GAIN_DB = 100
# Scatterers are drawn within 6 wavelengths around the image, and tissue moves by itself.
MOST_MOTION = 5
# A larger change of the gain is not a drift.
MOST_GAIN_DRIFT_DB = 20

# 8 TB.
MOST_ENTRIES = 10**12

OF_SESSIONS = (
    "block_interval_s",
    "activation",
    "burst_blocks",
    "locked_motion",
    "gain_drift_db",
    "gain_step_db",
    "jump_pixels",
    "jitter_pixels",
    "poses",
)
"""Settings that need a session."""


_key = partial(option, group=Group.PHANTOM_KEYS)


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
        kind=kinds.positive_numbers("ZxX[xY]xT", "x", kinds.WHOLE, range(3, 5)),
        shown="128x96x400",
    )
    frame_rate_hz: float = option(1000.0, "Frames per second.", metavar="HZ", bounds=kinds.SCALES)
    """Unless `max_speed_mm_s` is given, the speed of the blood in vessels scales with it, so that no vessel aliases."""
    center_frequency_hz: float = _key(
        15e6,
        "Centre frequency of the pulse. The pixel pitch is its wavelength.",
        # The pixel pitch of a lower centre frequency would be more than a metre.
        bounds=(1e3, kinds.SCALES[1]),
        shown="15e6",
    )
    clutter_to_blood_db: float = option(
        40.0,
        "Ratio of the mean powers of tissue and blood. Raise it for a harder phantom.",
        metavar="DB",
        bounds=(-MOST_DB, MOST_DB),
    )
    """In dB (10 log10), of the tissue over all pixels and the blood in the vessels, both without the attenuation."""
    blood_to_noise_db: float = option(
        6.0,
        "Ratio of the mean powers of blood and noise at the bottom of the image; inf omits the noise.",
        metavar="DB",
    )
    """In dB (10 log10). Blood is with the attenuation at the bottom: the ratio at the top is larger by
    `noise_gain_db + attenuation_db`."""
    seed: int = option(0, "Seed of the phantom. The same seed gives the same phantom.", bounds=(0, None))
    real: bool = _key(False, "Simulate real RF instead of complex IQ.")
    sound_speed_m_s: float = _key(
        1540.0, "Speed of sound, by default the usual value for soft tissue.", bounds=kinds.SCALES
    )
    noise_gain_db: float = option(
        0.0,
        "How much stronger the noise is at the bottom than at the top, as after a time-gain compensation.",
        metavar="DB",
        bounds=(0, MOST_DEPTH_GAIN_DB),
    )
    """20 log10 of amplitudes, linear in dB over the depth."""
    noise_correlation_pixels: float = _key(
        0.0,
        "Standard deviation of the Gaussian that smooths the noise in space. Its power stays the same.",
        # Noise that is correlated over more pixels is one value a frame in all but the largest images.
        bounds=(0, 100),
    )
    """Two pixels at the distance d are then correlated at exp(-d^2 / (4 s^2)). In a real phantom this is the
    correlation of the complex noise that is modulated."""
    attenuation_db: float = _key(
        0.0,
        "Loss of tissue and blood from the top of the image to the bottom, linear in dB.",
        bounds=(0, MOST_DEPTH_GAIN_DB),
    )
    max_speed_mm_s: float | None = _key(
        None,
        "Speed on the axis of the fastest vessel in mm/s. Flow may then alias. By default speeds scale with "
        "the frame rate so that none does.",
        bounds=kinds.SCALES,
    )
    """Averaged over the heartbeat; the peak of the pulse is 30 % faster. The speeds of all vessels are scaled to it.
    Axial velocities alias beyond wavelength_mm * frame_rate_hz / 4: 6.4 mm/s at 250 Hz and 15 MHz."""
    thin_vessels: int = _key(
        # The scatterers of more would take hours and gigabytes.
        0,
        "Number of additional vessels that are 1 to 2 pixels wide.",
        bounds=(0, 1000),
    )
    """Levels refer to the other vessels alone, and a thin vessel has their scatterers a volume. Its pixels are darker,
    as it fills only a part of the point-spread function."""
    capillary_db: float | None = _key(
        None,
        "Add a region with slow flow in all directions (0.5 to 2 mm/s), and its blood power relative to the "
        "vessels. By default there is none.",
        bounds=(-MOST_DB, MOST_DB),
    )
    bad_frames: int = _key(
        0, "Number of frames with electrical interference, at random times.", bounds=(0, None)
    )
    bad_frame_level: float = _key(
        3.0,
        "Rms of the interference over the rms of tissue and blood.",
        # Beyond 60 dB over tissue, single precision would lose the tissue.
        bounds=(None, 1000),
        positive=True,
    )
    jerk_pixels: float = _key(
        0.0,
        "Largest displacement of the image by a jerk, out and back in a tenth of the scan.",
        bounds=(-MOST_MOTION, MOST_MOTION),
    )
    drift_pixels: float = _key(
        0.0, "Displacement of the image from the first frame to the last.", bounds=(-MOST_MOTION, MOST_MOTION)
    )
    breathing: tuple[float, float] | None = _key(
        None,
        "Amplitude and rate of a periodic displacement of the image. By default there is none.",
        kind=kinds.positive_numbers("PIXELS@HZ", "@", kinds.NUMBER, range(2, 3), kinds.SCALES),
    )

    session: int | None = option(
        None,
        "Number of blocks of the frames of {shape}: one file each in the folder OUT, or one long file if OUT ends in .h5. "
        "By default it is a single acquisition.",
        group=Group.SESSION,
        metavar="BLOCKS",
        bounds=(1, None),
    )
    """Tissue then drifts back and forth, so that the vessels stay in the image however long the session is."""
    block_interval_s: float | None = _key(
        None,
        "Time from the beginning of a block to the next one. By default blocks follow without a gap.",
        positive=True,
    )
    activation: float = _key(
        0.0,
        "Rise of the blood power in the left half of the image, in five of every ten blocks.",
        # Blood that is gone, or eleven times as strong.
        bounds=(-100, 1000),
        metavar="PERCENT",
    )
    """The first five blocks are at rest."""
    burst_blocks: tuple[int, ...] | None = _key(
        None,
        "Blocks in which the image moves out and back by {jerk_pixels}, for example 7,19. By default none does.",
        kind=kinds.FRAME_NUMBERS,
        metavar="LIST",
    )
    locked_motion: tuple[float, float] | None = _key(
        None,
        "Displacement of the image out and back within this many seconds from each onset of the activation. By default "
        "there is none.",
        kind=kinds.positive_numbers("PIXELS@S", "@", kinds.NUMBER, range(2, 3), kinds.SCALES),
    )
    """The activation itself may be 0."""
    gain_drift_db: float = _key(
        0.0,
        "Rise and fall of tissue and blood over the session, from the lowest to the highest gain.",
        bounds=(0, MOST_GAIN_DRIFT_DB),
    )

    gain_step_db: float = _key(
        0.0,
        "Change of the gain of tissue and blood in the middle of the session.",
        bounds=(-MOST_GAIN_DRIFT_DB, MOST_GAIN_DRIFT_DB),
    )
    jump_pixels: float = _key(
        0.0,
        "Displacement of the image from the middle of the session on.",
        bounds=(-MOST_MOTION, MOST_MOTION),
    )
    jitter_pixels: float = _key(
        0.0,
        "Standard deviation, in depth and lateral, of the displacement of the image in each block.",
        bounds=(0, MOST_MOTION),
    )

    poses: int | None = _key(
        None,
        "Positions of the probe, which the blocks show in turn. The activation is in every second one. By default there is "
        "one.",
        bounds=(2, 100),
    )
    """The blood then rises in five of every ten sweeps over the positions."""

    terms: bool = _key(False, "Store tissue, blood and noise too, each as a stack.")

    def check(self) -> None:
        """Check what depends on several settings, and the two numbers without a range."""
        self._require(
            min(self.shape[:2]) >= LEAST_PIXELS
            and self.n_frames > 1
            and math.prod(self.shape) <= MOST_ENTRIES,
            "shape",
            f"must have at least {LEAST_PIXELS} x {LEAST_PIXELS} pixels and 2 frames, and at most {MOST_ENTRIES:.0e} "
            "entries",
        )
        self._require(
            self.blood_to_noise_db == math.inf or abs(self.blood_to_noise_db) <= MOST_DB,
            "blood_to_noise_db",
            f"must be within {MOST_DB} dB, or inf",
        )
        self._require(
            self.bad_frames <= self.n_frames, "bad_frames", f"must be at most {self.n_frames}, all frames"
        )
        for name in ("breathing", "locked_motion"):
            amplitude, _ = getattr(self, name) or (0.0, 0.0)
            self._require(
                amplitude <= MOST_MOTION, name, f"must have an amplitude of at most {MOST_MOTION} pixels"
            )
        if self.session is None:
            self.refuse(OF_SESSIONS, "requires a session", "add {session}")
        self._require(
            (self.block_interval_s or math.inf) >= self.block_duration_s * (1 - 1e-9),
            "block_interval_s",
            f"must be at least {self.block_duration_s:g} s, the duration of a block",
        )
        if self.burst_blocks is not None:
            last = self.n_blocks - 1
            self._require(max(self.burst_blocks) <= last, "burst_blocks", f"must be blocks from 0 to {last}")
            self._require(
                self.jerk_pixels != 0, "burst_blocks", "moves the image by 0 pixels", "give {jerk_pixels}"
            )

    def _require(self, is_valid: bool, name: str, problem: str, remedy: str | None = None) -> None:
        if not is_valid:
            raise OptionError(problem, option=name, remedy=remedy)

    @property
    def n_blocks(self) -> int:
        """Number of blocks; 1 if it is not a session."""
        return self.session or 1

    def sweep_and_pose(self, block: int) -> tuple[int, int]:
        """Return the number of the sweep over the positions, and of the position, of a block."""
        return divmod(block, self.poses or 1)

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
