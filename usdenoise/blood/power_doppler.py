"""Power Doppler, and its decibels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.data_array_reading import time_axis_of

POWER_UNIT = "square of the stack's unit"
"""Unit of power Doppler, as result files state it."""

POWER_FORMULA = "mean over frames of |s|^2"
"""Formula of power Doppler, as result files state it."""

POWER_IMAGES = {
    name: {"unit": POWER_UNIT, "formula": formula}
    for name, formula in {
        "power_doppler": POWER_FORMULA,
        "blood_power": "power of the blood before the clutter filter, without the noise; see docs/how-it-works.md",
        "noise_power": "power of the noise, white over frames, before the clutter filter; see docs/how-it-works.md",
    }.items()
}
"""Unit and formula of the power images that every result has, as result files state them."""


def power_doppler(
    stack: Acquisition | NDArray[Any], axis: int | None = None, *, axes: str | None = None
) -> NDArray[np.float32]:
    """Return the power Doppler image: the mean power over frames, mean_t |s(t)|^2.

    The sum is taken in double precision.

    Parameters
    ----------
    stack : Acquisition, or complex or real array
        Filtered stack. An array needs `axis` or `axes`.
    axis : int, optional
        Number of the time axis of an array.
    axes : str, optional
        One letter for each axis of an array, t for time; for example "tzx".

    Returns
    -------
    float32 array of the spatial shape
        Linear power, in the squared unit of the stack.

    Raises
    ------
    OptionError
        If the time axis of an array is not given.
    InputError
        If `axes` does not fit the array.

    Examples
    --------
    Two pixels and two frames:

    >>> import numpy as np
    >>> import usdenoise
    >>> iq = np.array([[3 + 4j, 0], [0, 2j]])
    >>> usdenoise.power_doppler(iq, axis=-1).tolist()
    [12.5, 2.0]
    """
    values, time = time_axis_of(stack, axis, axes)
    frames = np.moveaxis(np.asarray(values), time, 0)
    total = np.zeros(frames.shape[1:], np.float64)
    for frame in frames:
        total += frame.real.astype(np.float64) ** 2
        if np.iscomplexobj(frame):
            total += frame.imag.astype(np.float64) ** 2
    return (total / len(frames)).astype(np.float32)


def decibels(
    power: NDArray[Any], factor: float = 10.0, reference: float | None = None
) -> NDArray[np.float32]:
    """Return a power in decibels, `factor` log10(power / reference).

    Parameters
    ----------
    power : array of non-negative numbers
        Linear power Doppler.
    factor : float
        10, the default, gives decibels of power. 20 reproduces the figures of Zhang, Chiu and Zhang (AISTATS
        2024), whose formula takes 20 log10 of the power.
    reference : float, optional
        Power that is 0 dB, in the unit of `power`; by default its maximum.

    Returns
    -------
    float32 array of the same shape
        0 at the reference and minus infinity where the power is 0. If the reference is 0, minus infinity
        everywhere.
    """
    peak = float(power.max()) if reference is None else reference
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = factor * np.log10(power.astype(np.float64) / peak) if peak > 0 else None
    if scaled is None:
        return np.full(power.shape, -np.inf, np.float32)
    return scaled.astype(np.float32)
