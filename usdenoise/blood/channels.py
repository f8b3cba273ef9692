"""Lags of an autocorrelation as real channels in which white noise has the same variance."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

PIXELS_A_BLOCK = 2048
"""Pixels whose lags, channels or spectra are worked on together: an array of them is at most a megabyte, which the caches
hold."""


def to_channels(lags: NDArray[Any], is_complex: bool) -> NDArray[np.float64]:
    """Return the lags as real channels: lag 0 first, then the other lags.

    With white noise of power N over n frames, lag 0 has the variance N^2 / n where the stack is complex, and the
    real and imaginary part of another lag half of it. Where the stack is real, lag 0 has the variance 2 N^2 / n and
    another lag N^2 / n. The channels are scaled so that each has N^2 / n.

    Parameters
    ----------
    lags : (..., L + 1) array
        Lags 0 to L.
    is_complex : bool
        Whether the stack is complex: 2 L + 1 channels, otherwise L + 1.
    """
    n_lags = lags.shape[-1] - 1
    if not is_complex:
        channels = lags.real.astype(np.float64)
        channels[..., 0] /= np.sqrt(2)
        return channels
    channels = np.empty((*lags.shape[:-1], 1 + 2 * n_lags))
    channels[..., 0] = lags[..., 0].real
    np.multiply(lags[..., 1:].real, np.sqrt(2), out=channels[..., 1 : 1 + n_lags])
    np.multiply(lags[..., 1:].imag, np.sqrt(2), out=channels[..., 1 + n_lags :])
    return channels


def to_lags(channels: NDArray[np.float64], is_complex: bool) -> NDArray[np.complex128]:
    """Return the lags of channels: the inverse of :func:`to_channels`."""
    if not is_complex:
        real = np.concatenate([channels[..., :1] * np.sqrt(2), channels[..., 1:]], axis=-1)
        return real.astype(np.complex128)
    cosine, sine = np.split(channels[..., 1:] / np.sqrt(2), 2, axis=-1)
    return np.concatenate([channels[..., :1] + 0j, cosine + 1j * sine], axis=-1)
