"""Images of a filtered stack: power Doppler, directional power, Doppler frequency and axial velocity."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import is_dask_array
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Array, Numbers, on_host, squared_magnitudes
from usdenoise.linalg.lag_sums import lag_sums
from usdenoise.linalg.tall_matrices import part_slices
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import SOUND_SPEED_M_S, GriddedStack
from usdenoise.stack.given_stack import time_axis_of

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
    stack: Acquisition | Numbers, axis: int | None = None, *, axes: str | None = None
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
        total += squared_magnitudes(frame.astype(np.result_type(frame, np.float64)))
    return (total / len(frames)).astype(np.float32)


def decibels(power: Numbers, factor: float = 10.0, reference: float | None = None) -> NDArray[np.float32]:
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
    if not peak > 0:
        return np.full(power.shape, -np.inf, np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (factor * np.log10(power.astype(np.float64) / peak)).astype(np.float32)


FLOW_PRODUCTS = frozenset({"directional", "signed", "velocity"})
"""Products that are made of the filtered frames."""

Move = Callable[[Numbers], Numbers]
"""What moves images, (..., spatial), to other places."""


@dataclass(frozen=True)
class FlowImage:
    """An image that follows from a filtered stack, with its unit and formula.

    Attributes
    ----------
    values : float32 array of the spatial shape
        The image, in `unit`.
    unit : str
        Unit of the values, as result files state it.
    formula : str
        Formula of the values, as result files state it.
    """

    values: NDArray[np.float32]
    unit: str
    formula: str


def directional_power(
    stack: Acquisition | Numbers,
    axis: int | None = None,
    *,
    axes: str | None = None,
    left_out: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean power at positive and at negative Doppler frequencies.

    With S_k the discrete Fourier transform of s over its N frames, each is a sum of |S_k|^2 / N^2: one over
    the positive, the other over the negative frequencies. Half of the power at frequency 0 and at half the
    frame rate goes to each, so that the two add up to the power Doppler.

    Parameters
    ----------
    stack : Acquisition or complex array
        Filtered stack. An array needs `axis` or `axes`.
    axis : int, optional
        Number of the time axis of an array.
    axes : str, optional
        One letter for each axis of an array, t for time; for example "tzx".
    left_out : (n_frames,) boolean array, optional
        Frames to exclude; by default none.

    Returns
    -------
    positive, negative : float32 arrays of the spatial shape
        Linear power, in the squared unit of the stack. Positive frequencies are motion towards the probe.

    Raises
    ------
    OptionError
        If the stack is real: its spectrum is the same at positive and negative frequencies. Also if the time axis
        of an array is not given.

    Examples
    --------
    One pixel moves towards the probe, and another one away from it with twice the amplitude:

    >>> import numpy as np
    >>> import usdenoise
    >>> time = np.arange(40)
    >>> iq = np.stack([np.exp(0.2j * np.pi * time), 2 * np.exp(-0.2j * np.pi * time)])
    >>> positive, negative = usdenoise.directional_power(iq, axis=1)
    >>> positive.round(3).tolist(), negative.round(3).tolist()
    ([1.0, 0.0], [0.0, 4.0])
    """
    return _directional_power(*time_axis_of(stack, axis, axes), left_out)


def _directional_power(
    iq: Numbers, time: int, left_out: NDArray[np.bool_] | None, move: Move | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    n_frames = iq.shape[time]
    n_used = n_frames - (0 if left_out is None else int(np.count_nonzero(left_out)))
    share = np.zeros(n_frames)
    share[np.fft.fftfreq(n_frames) > 0] = 1.0
    share[0] = 0.5
    if n_frames % 2 == 0:
        share[n_frames // 2] = 0.5

    def halves(pixels: NDArray[np.complex128]) -> NDArray[np.float64]:
        spectrum = np.abs(np.fft.fft(pixels, axis=1)) ** 2 / (n_frames * n_used)
        return np.stack([spectrum @ share, spectrum @ (1 - share)])

    powers = _by_pixel(halves, iq, time, "directional power", left_out)
    positive, negative = (powers if move is None else move(powers)).astype(np.float32)
    return positive, negative


def doppler_frequency(
    iq: Array, time: int, left_out: NDArray[np.bool_] | None = None, move: Move | None = None
) -> NDArray[np.float32]:
    """Return the mean Doppler frequency of each pixel in cycles per frame, within (-0.5, 0.5]; 0 without a signal.

    This is the phase of the lag-one autocorrelation, arg(sum_t s(t+1) conj(s(t))) / (2 pi) (Kasai et al., IEEE Trans. Sonics
    Ultrason. 32(3):458, 1985). For a Dask array it is a Dask array, too.
    """

    def lag_one(pixels: NDArray[np.complex128]) -> Numbers:
        return lag_sums(pixels, 2, n_halves=1)[0, :, 1]

    if is_dask_array(iq) and np.iscomplexobj(iq):
        frames = np.moveaxis(iq, time, -1)
        if left_out is not None:
            frames = np.where(left_out, 0, frames)
        lagged = (frames[..., 1:] * frames[..., :-1].conj()).sum(axis=-1, dtype=np.complex128)
    else:
        lagged = _by_pixel(lag_one, iq, time, "axial velocity", left_out)
        lagged = lagged if move is None else move(lagged)
    cycles: NDArray[np.float32] = (np.angle(lagged) / (2 * np.pi)).astype(np.float32)
    return cycles


def axial_velocity(acquisition: Acquisition, left_out: NDArray[np.bool_] | None = None) -> FlowImage:
    """Return the axial velocity v = c f / (2 f0) of a filtered stack, or its Doppler frequency f.

    f is :func:`doppler_frequency` times the frame rate, f0 the centre frequency and c the speed of sound
    (1540 m/s if the acquisition does not give one). Positive values are motion towards the probe.

    Parameters
    ----------
    acquisition : Acquisition
        Filtered stack, complex.
    left_out : (n_frames,) boolean array, optional
        Frames to exclude; by default none.

    Returns
    -------
    FlowImage
        Velocity in mm/s if the frame rate and the centre frequency are known. Otherwise the Doppler
        frequency: in Hz if the frame rate is known, in cycles per frame if it is not.

    Raises
    ------
    OptionError
        If the stack is real.

    Examples
    --------
    A Doppler frequency of 200 Hz at 15.4 MHz is a velocity of 1540 m/s x 200 Hz / (2 x 15.4 MHz) = 10 mm/s:

    >>> import numpy as np
    >>> import usdenoise
    >>> iq = np.exp(2j * np.pi * 0.2 * np.arange(50)) * np.ones((2, 3, 1))
    >>> scales = {"frame_rate_hz": 1000.0, "center_frequency_hz": 15.4e6}
    >>> velocity = usdenoise.axial_velocity(usdenoise.Acquisition(iq, "zxt", **scales))
    >>> velocity.values.round(3).tolist(), velocity.unit
    ([[10.0, 10.0, 10.0], [10.0, 10.0, 10.0]], 'mm/s')
    """
    cycles = doppler_frequency(*time_axis_of(acquisition, None, None), left_out)
    return _velocity_image(cycles, acquisition)


def aliasing_limit(stack: GriddedStack) -> float:
    """Return the velocity, or Doppler frequency, of half a cycle per frame: larger ones alias."""
    return float(_velocity_image(np.full(1, 0.5, np.float32), stack).values[0])


def _velocity_image(cycles: NDArray[np.float32], stack: GriddedStack) -> FlowImage:
    """Return Doppler frequencies in cycles a frame in the unit that the scales of a stack allow."""
    kasai = "arg(sum_t s(t+1) conj(s(t))) / (2 pi)"
    rate, center = stack.frame_rate_hz, stack.center_frequency_hz
    if rate is None:
        return FlowImage(cycles, "cycles/frame", kasai)
    if center is None:
        return FlowImage(cycles * np.float32(rate), "Hz", f"{rate:g} Hz * {kasai}")
    speed = stack.sound_speed_m_s or SOUND_SPEED_M_S
    scale = 1e3 * speed * rate / (2 * center)
    formula = f"{speed:g} m/s * {rate:g} Hz / (2 * {center:g} Hz) * {kasai}"
    return FlowImage((cycles * scale).astype(np.float32), "mm/s", formula)


def signed_power(acquisition: Acquisition, left_out: NDArray[np.bool_] | None = None) -> FlowImage:
    """Return the power Doppler with the sign of the mean Doppler frequency.

    Parameters
    ----------
    acquisition : Acquisition
        Filtered stack, complex.
    left_out : (n_frames,) boolean array, optional
        Frames to exclude; by default none.

    Returns
    -------
    FlowImage
        mean_t |s(t)|^2, positive where the mean motion is towards the probe and negative where it is away from it.

    Raises
    ------
    OptionError
        If the stack is real.

    Examples
    --------
    >>> import numpy as np
    >>> import usdenoise
    >>> away = np.exp(-0.2j * np.pi * np.arange(50)) * np.ones((2, 3, 1))
    >>> signed = usdenoise.signed_power(usdenoise.Acquisition(away, "zxt"))
    >>> signed.values.round(3).tolist()
    [[-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]]
    """
    return flow_images(on_host(acquisition.iq), acquisition, ("signed",), left_out)["signed_power"]


def flow_images(
    iq: Numbers,
    stack: GriddedStack,
    names: Sequence[str],
    left_out: NDArray[np.bool_] | None = None,
    move: Move | None = None,
) -> dict[str, FlowImage]:
    """Return the flow images in `names`.

    Parameters
    ----------
    iq : array
        Filtered stack, complex if any flow image is requested.
    stack : GriddedStack
        Its axes and scales.
    names : sequence of str
        "directional", "signed" and "velocity" add images; other names, such as "power", add none.
    left_out : (n_frames,) boolean array, optional
        Frames to exclude; by default none.
    move : callable, optional
        Maps images, (..., spatial), of what adds up over the frames, powers and products of neighbouring frames, before
        signs and angles are taken; by default they stay.

    Returns
    -------
    dict of FlowImage
        For "directional": "directional_power_positive" and "directional_power_negative". For "signed":
        "signed_power". For "velocity": "axial_velocity".

    Raises
    ------
    OptionError
        If a flow image is requested and the stack is real.
    """
    images, time = {}, stack.axes.index("t")
    if "directional" in names:
        halves = _directional_power(iq, time, left_out, move)
        for direction, values in zip(("positive", "negative"), halves, strict=True):
            formula = f"sum of |S_k|^2 / N^2 over {direction} Doppler frequencies, 0 and Nyquist by half"
            images[f"directional_power_{direction}"] = FlowImage(values, POWER_UNIT, formula)
    if "signed" in names:
        formula = f"({POWER_FORMULA}) sign(arg(sum_t s(t+1) conj(s(t))))"
        positive, negative = _directional_power(iq, time, left_out, move)
        sign = np.sign(doppler_frequency(iq, time, left_out, move))
        images["signed_power"] = FlowImage((positive + negative) * sign, POWER_UNIT, formula)
    if "velocity" in names:
        images["axial_velocity"] = _velocity_image(doppler_frequency(iq, time, left_out, move), stack)
    return images


def _by_pixel(
    function: Callable[[NDArray[np.complex128]], Numbers],
    iq: Array,
    axis: int,
    quantity: str,
    left_out: NDArray[np.bool_] | None,
) -> Numbers:
    """Return the values of `function` for every pixel of a complex stack, the spatial axes last.

    Parameters
    ----------
    function : callable
        Maps some pixels, an (n, n_frames) array in double precision, to an array whose last axis has
        length n.
    iq : complex array
        Filtered stack.
    axis : int
        Time axis of `iq`.
    quantity : str
        Name of the values, for the error message.
    left_out : (n_frames,) boolean array or None
        Frames that the function sees as zeros.
    """
    if not np.iscomplexobj(iq):
        raise OptionError(
            f"{quantity} requires complex IQ, and this stack is real",
            remedy="remove it from {products}, or give the IQ",
        )
    # All frames of some lines of the image at a time: the whole stack may be in a file, and is never copied.
    frames_last = np.moveaxis(np.asarray(iq), axis, -1)
    shape, values = frames_last.shape, []
    for lines in part_slices(len(frames_last), math.prod(shape[1:])):
        pixels = frames_last[lines].reshape(-1, shape[-1]).astype(np.complex128)
        if left_out is not None:
            pixels[:, left_out] = 0
        values.append(function(pixels))
    together = np.concatenate(values, axis=-1)
    return together.reshape(*together.shape[:-1], *shape[:-1])
