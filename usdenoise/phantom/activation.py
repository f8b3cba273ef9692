"""What changes from block to block of a session: an activation, and a gain that drifts."""

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.phantom_settings import PhantomSettings

# Blocks at rest, and as many that are active after them.
BLOCKS_AT_REST = 5


def blood_rise(settings: PhantomSettings, block: int) -> NDArray[np.float32]:
    """Return the relative rise of the blood power in a block, of the spatial shape: in the left half of the image."""
    shape = settings.shape[:-1]
    is_active = block // BLOCKS_AT_REST % 2 == 1
    rise = np.zeros(shape, np.float32)
    rise[:, : shape[1] // 2] = is_active * settings.activation / 100
    return rise


def coupling(settings: PhantomSettings, number: int) -> float:
    """Return the factor of tissue and blood in a frame: in dB, one period of a sine over the session, and a step."""
    phase = 2 * np.pi * number / settings.n_frames
    step = settings.gain_step_db * (2 * number >= settings.n_frames)
    return float(10 ** ((settings.gain_drift_db / 2 * np.sin(phase) + step) / 20))
