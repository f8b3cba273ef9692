"""What the phantom draws besides scatterers: motion, an activation, interference and noise."""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers
from usdenoise.options import PhantomSettings


class Stream(IntEnum):
    """Random streams: a generator is seeded with the phantom's seed and the number of its stream."""

    ANATOMY = 0
    NOISE = 1
    THIN_VESSELS = 2
    CAPILLARIES = 3
    INTERFERENCE = 4
    JITTER = 5


# Blocks at rest, and as many that are active after them.
BLOCKS_AT_REST = 5


def blood_rise(settings: PhantomSettings, block: int) -> NDArray[np.float32]:
    """Return the relative rise of the blood power in a block, of the spatial shape: in the left half of the image."""
    shape = settings.shape[:-1]
    sweep, pose = settings.sweep_and_pose(block)
    is_active = sweep // BLOCKS_AT_REST % 2 == 1 and pose % 2 == 0
    rise = np.zeros(shape, np.float32)
    rise[:, : shape[1] // 2] = is_active * settings.activation / 100
    return rise


def coupling(settings: PhantomSettings, number: int) -> float:
    """Return the factor of tissue and blood in a frame: in dB, one period of a sine over the session, and a step."""
    phase = 2 * np.pi * number / settings.n_frames
    step = settings.gain_step_db * (2 * number >= settings.n_frames)
    return float(10 ** ((settings.gain_drift_db / 2 * np.sin(phase) + step) / 20))


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

    nodes: Numbers
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
        nodes = np.linspace(GRID_LOW, GRID_HIGH, NODES)
        self._depth, self._lateral = np.meshgrid(nodes, nodes, indexing="ij")
        self._origin = (GRID_LOW * extent[0], GRID_LOW * extent[1])
        self._pitch = (GRID_LENGTH * extent[0] / (NODES - 1), GRID_LENGTH * extent[1] / (NODES - 1))
        self._phases = rng.uniform(0, 2 * np.pi, len(HARMONICS))
        self._breathing_phase = rng.uniform(0, 2 * np.pi)
        waves = rng.uniform(LEAST_WAVES, MOST_WAVES, (N_NON_RIGID, 2))
        self._waves = waves * rng.choice([-1, 1], (N_NON_RIGID, 2))
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
        harmonics = np.arange(1, len(HARMONICS) + 1)
        pulse = np.sin(2 * np.pi * HEART_RATE_HZ * delayed[..., None] * harmonics + self._phases) @ HARMONICS
        field += ((1.0 - CARDIAC_LOSS * self._depth) * pulse)[..., None] * CARDIAC
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


# The image moves along this direction (depth, lateral, elevation): mostly in depth, where a probe is pressed.
DIRECTION = np.array([0.8, 0.6, 0.0])
# A jerk lasts a tenth of the scan, in its middle, out and back.
JERK_SHARE = 0.1
# Interference is a tone along each line with a phase of its own, and this share of its power is white.
WHITE_SHARE = 0.2
# Cycles a pixel of the tone: an oscillator that is not locked to the scanner is anywhere in the band.
LOWEST_TONE, HIGHEST_TONE = 0.05, 0.45


def image_motion(settings: PhantomSettings, number: int) -> NDArray[np.float64]:
    """Return the displacement (z, x, y) of the whole image in one frame, in pixels.

    The jerk is a squared sine over a tenth of the scan, or over each chosen block of a session. The drift is linear over the
    scan, breathing a sine. The jump comes in the middle of a session, the jitter is constant within a block, and the motion
    that is locked to the activation is a squared sine from each onset. Jitter is independent in depth and lateral; all else
    moves along one direction.

    Parameters
    ----------
    settings : PhantomSettings
        Sizes of the motions.
    number : int
        Number of the frame, counted from 0.
    """
    last = settings.n_frames - 1
    phase = (number / last - 0.5) / JERK_SHARE + 0.5
    if settings.burst_blocks is not None:
        block, inside = divmod(number, settings.frames_a_block)
        phase = inside / (settings.frames_a_block - 1) if block in settings.burst_blocks else -1.0
    size = settings.drift_pixels * number / last
    if 0 <= phase <= 1:
        size += settings.jerk_pixels * math.sin(math.pi * phase) ** 2
    if settings.session is not None:
        size += settings.jump_pixels * (2 * number >= settings.n_frames)
    if settings.locked_motion is not None:
        pixels, duration = settings.locked_motion
        block = number // settings.frames_a_block
        onset = block - (block - BLOCKS_AT_REST) % (2 * BLOCKS_AT_REST)
        since = settings.seconds(number) - settings.seconds(onset * settings.frames_a_block)
        if onset >= 0 and 0 <= since <= duration:
            size += pixels * math.sin(math.pi * since / duration) ** 2
    if settings.breathing is not None:
        pixels, hertz = settings.breathing
        size += pixels * math.sin(2 * math.pi * hertz * settings.seconds(number))
    moved: NDArray[np.float64] = size * DIRECTION
    if settings.jitter_pixels:
        rng = np.random.default_rng([settings.seed, Stream.JITTER, number // settings.frames_a_block])
        moved[:2] += settings.jitter_pixels * rng.standard_normal(2)
    return moved


def block_motion(settings: PhantomSettings, block: int) -> NDArray[np.float64]:
    """Return the mean displacement (z, x, y) of the whole image in a block of a session, in pixels.

    The drift of the tissue that every session has is a part of it; heartbeat, breathing and bending are not.
    """
    length = settings.frames_a_block
    numbers = range(block * length, (block + 1) * length)
    moved = [image_motion(settings, number) + session_drift(settings.seconds(number)) for number in numbers]
    mean: NDArray[np.float64] = np.mean(moved, axis=0)
    return mean


def interference_frames(settings: PhantomSettings) -> NDArray[np.int64]:
    """Return the numbers of the frames with electrical interference, increasing.

    Parameters
    ----------
    settings : PhantomSettings
        How many frames have it, and the seed.
    """
    rng = np.random.default_rng([settings.seed, Stream.INTERFERENCE])
    return np.sort(rng.permutation(settings.n_frames)[: settings.bad_frames]).astype(np.int64)


def interference(settings: PhantomSettings, number: int) -> Numbers:
    """Return the interference of one frame, of unit mean power, complex64.

    Parameters
    ----------
    settings : PhantomSettings
        Size of the image, and the seed.
    number : int
        Number of the frame, counted from 0.
    """
    n_z, *lines = settings.shape[:-1]
    rng = np.random.default_rng([settings.seed, Stream.INTERFERENCE, number])
    tone = 2 * np.pi * rng.uniform(LOWEST_TONE, HIGHEST_TONE) * rng.choice([-1, 1])
    amplitude = rng.standard_normal((*lines, 2)) @ [1, 1j]
    depth = np.arange(n_z).reshape(-1, *[1] * len(lines))
    white = rng.standard_normal((n_z, *lines, 2)) @ [1, 1j]
    pattern = math.sqrt(1 - WHITE_SHARE) * np.exp(1j * tone * depth) * amplitude
    pattern = pattern + math.sqrt(WHITE_SHARE) * white
    unit: Numbers = (pattern / np.sqrt(np.mean(np.abs(pattern) ** 2))).astype(np.complex64)
    return unit


# exp(-(d / (2 s))^2) is below 1e-18 from 13 standard deviations on.
NOISE_REACH = 13


def depth_gain(settings: PhantomSettings, bottom_db: float) -> NDArray[np.float32]:
    """Return the amplitude gain of every row: 0 dB at the top, linear in dB down to the bottom.

    Parameters
    ----------
    settings : PhantomSettings
        Settings that give the size of the image.
    bottom_db : float
        Gain of the last row in dB (20 log10).

    Returns
    -------
    (n_z, 1) or (n_z, 1, 1) float32 array
        Factors for the amplitudes of a frame, which broadcast over the other axes.
    """
    decibels = np.linspace(0.0, bottom_db, settings.shape[0])
    gain: NDArray[np.float32] = (10 ** (decibels / 20)).astype(np.float32)
    return gain.reshape((-1,) + (1,) * (len(settings.shape) - 2))


class NoiseField:
    """Circular complex Gaussian noise, independent between frames.

    Its power is linear in dB along depth. The ratio of blood to noise is reached in the last row, where the loss of
    the blood by attenuation is largest too. Over space, the correlation of two pixels at the distance d is
    exp(-d^2 / (4 s^2)), as of white noise that a Gaussian of the standard deviation s has smoothed. Edges are
    periodic, so that all pixels of a row have the same power.

    Parameters
    ----------
    settings : PhantomSettings
        Size, levels and seed of the phantom.

    Attributes
    ----------
    power : (n_z, n_x) or (n_z, n_x, n_y) float32 array
        Expected power of the noise in each pixel.
    """

    def __init__(self, settings: PhantomSettings) -> None:
        self._settings = settings
        shape = settings.shape[:-1]
        bottom_db = -(settings.blood_to_noise_db + settings.attenuation_db)
        gain = depth_gain(settings, settings.noise_gain_db)
        self._amplitude = np.float32(10 ** (bottom_db / 20)) * (gain / gain[-1])
        self.power = np.ascontiguousarray(np.broadcast_to(self._amplitude**2, shape))
        self._filter: NDArray[np.float32] | None = None
        if settings.noise_correlation_pixels > 0:
            self._filter = np.ones(shape, np.float32)
            for axis in np.ix_(*(_axis_filter(n, settings.noise_correlation_pixels) for n in shape)):
                self._filter *= axis

    def frame(self, number: int) -> Numbers:
        """Return the noise of one frame, complex64.

        Parameters
        ----------
        number : int
            Number of the frame, counted from 0.
        """
        from scipy import fft

        rng = np.random.Generator(np.random.SFC64([self._settings.seed, Stream.NOISE, number]))
        shape = self._settings.shape[:-1]
        pairs = rng.standard_normal((*shape, 2), np.float32) * np.float32(np.sqrt(0.5))
        noise: NDArray[np.complexfloating] = pairs.view(np.complex64)[..., 0]
        if self._filter is not None:
            noise = fft.ifftn(fft.fftn(noise) * self._filter)
        noise *= self._amplitude
        return noise


def _axis_filter(n: int, sigma: float) -> NDArray[np.float64]:
    """Return the amplitude response, one value a DFT frequency, that gives white noise its correlation on an axis.

    It is the root of the DFT of the periodic autocorrelation, so that the correlation is right for a `sigma` below
    one pixel, too.
    """
    turns = math.ceil(NOISE_REACH * sigma / n) + 1
    distance = np.arange(-turns * n, (turns + 1) * n).reshape(-1, n)
    # A sigma of nearly nothing makes the distance infinite, and the correlation zero.
    with np.errstate(over="ignore"):
        autocorrelation = np.exp(-((distance / (2 * sigma)) ** 2)).sum(axis=0)
    spectrum = np.fft.fft(autocorrelation / autocorrelation[0]).real
    # Where the spectrum is zero, rounding can leave a little less.
    return np.sqrt(np.maximum(spectrum, 0.0))
