"""What goes wrong in a scan: frames with interference, and motion of the whole image under the probe."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.phantom_settings import PhantomSettings
from usdenoise.phantom.motion import session_drift
from usdenoise.phantom.term_streams import Stream

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
    scan, breathing a sine. The jump comes in the middle of a session, and the jitter is constant within a block.
    Jitter is independent in depth and lateral; all else moves along one direction.

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
    moved = [
        image_motion(settings, number) + session_drift(settings.seconds(number))
        for number in range(block * length, (block + 1) * length)
    ]
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


def interference(settings: PhantomSettings, number: int) -> NDArray[Any]:
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
    unit: NDArray[Any] = (pattern / np.sqrt(np.mean(np.abs(pattern) ** 2))).astype(np.complex64)
    return unit
