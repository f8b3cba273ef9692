"""Power Doppler and its decibels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def power_doppler(iq: NDArray[Any], axis: int = -1) -> NDArray[np.float32]:
    """Mean power over frames, mean_t |s(t)|^2.

    Parameters
    ----------
    iq : complex or real array
        Filtered stack.
    axis : int
        The time axis; the last one by default.

    Returns
    -------
    float32 array of the spatial shape
        In the squared units of the stack.
    """
    frames = np.moveaxis(iq, axis, 0)
    total = np.zeros(frames.shape[1:], np.float64)
    for frame in frames:
        total += frame.real.astype(np.float64) ** 2
        if np.iscomplexobj(frame):
            total += frame.imag.astype(np.float64) ** 2
    return (total / len(frames)).astype(np.float32)


def decibels(
    power: NDArray[Any], factor: float = 10.0, reference: float | None = None
) -> NDArray[np.float32]:
    """`factor` log10 of a power over its maximum, or over another power.

    Parameters
    ----------
    power : array of non-negative numbers
        Power Doppler.
    factor : float
        10 for decibels of power; 20 reproduces the figures of Zhang, Chiu and Zhang (AISTATS 2024), whose
        formula takes 20 log10 of the power.
    reference : float, optional
        The power that is 0 dB; by default the maximum.

    Returns
    -------
    float32 array of the same shape
        0 at the reference, minus infinity where the power is 0. All minus infinity where the reference is 0.
    """
    peak = float(power.max()) if reference is None else reference
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = factor * np.log10(power.astype(np.float64) / peak) if peak > 0 else None
    if scaled is None:
        return np.full(power.shape, -np.inf, np.float32)
    return scaled.astype(np.float32)


POWER_UNIT = "square of the stack's unit"


POWER_FORMULA = "mean over frames of |s|^2"
