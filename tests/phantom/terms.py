"""Terms of the blocks of a session, and their power and correlation."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.matrices import SERIAL
from usdenoise.phantom import Phantom, PhantomSettings, Terms

SESSION = PhantomSettings((32, 28, 6), frame_rate_hz=500.0, seed=3, session=20)
"""Twenty blocks of six frames."""


@cache
def phantom_of(settings: PhantomSettings) -> Phantom:
    """A phantom, which is made once."""
    return Phantom(settings, SERIAL)


def block_terms(settings: PhantomSettings, block: int) -> Terms:
    """The frames of a block of a session."""
    first = block * settings.frames_a_block
    return phantom_of(settings).frames(np.arange(first, first + settings.frames_a_block))


def mean_power(term: NDArray[Any]) -> NDArray[np.float64]:
    """The power of each pixel, its mean over the frames."""
    return np.mean(np.abs(term.astype(np.complex128)) ** 2, axis=0)


def correlation(first: NDArray[Any], second: NDArray[Any]) -> Any:
    """The complex correlation coefficient over all values."""
    first, second = first.astype(np.complex128), second.astype(np.complex128)
    norm = np.sqrt(np.mean(np.abs(first) ** 2) * np.mean(np.abs(second) ** 2))
    return np.mean(np.conj(first) * second) / norm
