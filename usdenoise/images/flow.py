"""What follows from a filtered stack: power Doppler and its decibels, directional power, axial velocity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.images.power_doppler import POWER_UNIT
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.acquisition import SOUND_SPEED_M_S, Acquisition


@dataclass(frozen=True)
class Product:
    """An image that follows from a filtered stack.

    Attributes
    ----------
    values : float32 array of the spatial shape
        The image.
    unit, formula : str
        What stands in the file's attributes.
    """

    values: NDArray[np.float32]
    unit: str
    formula: str


def directional_power(iq: NDArray[Any], axis: int = -1) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean power at positive and at negative Doppler frequencies.

    With S_k the discrete Fourier transform of s over its N frames, the two are sums of |S_k|^2 / N^2 over
    the positive and over the negative frequencies; what lies at 0, and at half the frame rate, is shared
    equally, so that they add up to the power Doppler.

    Parameters
    ----------
    iq : complex array
        Filtered stack.
    axis : int
        The time axis.

    Returns
    -------
    positive, negative : float32 arrays of the spatial shape
        In the squared units of the stack. Positive frequencies are motion towards the probe.

    Raises
    ------
    OptionError
        If the stack is real, whose two halves are equal by themselves.
    """
    pixels, shape = _pixels(iq, axis, "directional power")
    n_frames = pixels.shape[1]
    share = np.zeros(n_frames)
    frequencies = np.fft.fftfreq(n_frames)
    share[frequencies > 0] = 1.0
    share[0] = 0.5
    if n_frames % 2 == 0:
        share[n_frames // 2] = 0.5
    positive, negative = (np.empty(len(pixels)) for _ in range(2))
    for rows in row_blocks(len(pixels), 256):
        spectrum = np.abs(np.fft.fft(pixels[rows].astype(np.complex128), axis=1)) ** 2 / n_frames**2
        positive[rows], negative[rows] = spectrum @ share, spectrum @ (1 - share)
    return positive.reshape(shape).astype(np.float32), negative.reshape(shape).astype(np.float32)


def doppler_frequency(iq: NDArray[Any], axis: int = -1) -> NDArray[np.float32]:
    """Mean Doppler frequency in cycles a frame, arg(sum_t s(t+1) conj(s(t))) / (2 pi).

    The lag-one autocorrelation of Kasai et al., IEEE Trans. Sonics Ultrason. 32(3):458, 1985.

    Parameters
    ----------
    iq : complex array
        Filtered stack.
    axis : int
        The time axis.

    Returns
    -------
    float32 array of the spatial shape
        Within (-0.5, 0.5]; 0 where there is no signal.

    Raises
    ------
    OptionError
        If the stack is real.
    """
    pixels, shape = _pixels(iq, axis, "axial velocity")
    lagged = np.empty(len(pixels), np.complex128)
    for rows in row_blocks(len(pixels), 256):
        block = pixels[rows].astype(np.complex128)
        lagged[rows] = np.einsum("ij,ij->i", block[:, 1:], block[:, :-1].conj())
    return (np.angle(lagged) / (2 * np.pi)).reshape(shape).astype(np.float32)


def axial_velocity(acquisition: Acquisition) -> Product:
    """Axial velocity of a filtered stack, as far as its scales are known.

    v = c f / (2 f0), with f the mean Doppler frequency by :func:`doppler_frequency` times the frame rate, f0
    the centre frequency and c the speed of sound (1540 m/s where the acquisition does not say). Positive is
    towards the probe.

    Parameters
    ----------
    acquisition : Acquisition
        Filtered, complex.

    Returns
    -------
    Product
        In mm/s where the frame rate and the centre frequency are known, in Hz where only the frame rate is,
        otherwise in cycles a frame.

    Raises
    ------
    OptionError
        If the stack is real.
    """
    cycles = doppler_frequency(acquisition.iq, acquisition.axes.index("t"))
    kasai = "arg(sum_t s(t+1) conj(s(t))) / (2 pi)"
    rate, center = acquisition.frame_rate_hz, acquisition.center_frequency_hz
    if rate is None:
        return Product(cycles, "cycles/frame", kasai)
    if center is None:
        return Product(cycles * np.float32(rate), "Hz", f"{rate:g} Hz * {kasai}")
    speed = acquisition.sound_speed_m_s or SOUND_SPEED_M_S
    scale = 1e3 * speed * rate / (2 * center)
    formula = f"{speed:g} m/s * {rate:g} Hz / (2 * {center:g} Hz) * {kasai}"
    return Product((cycles * scale).astype(np.float32), "mm/s", formula)


def doppler_products(acquisition: Acquisition, names: Sequence[str]) -> dict[str, Product]:
    """The products of a filtered stack that follow from more than its power.

    Parameters
    ----------
    acquisition : Acquisition
        Filtered.
    names : sequence of str
        Of :data:`usdenoise.jobs.job_options.PRODUCTS`; "power" needs nothing here.

    Returns
    -------
    dict of Product
        "directional_power_positive" and "directional_power_negative", "axial_velocity".

    Raises
    ------
    OptionError
        If the stack is real.
    """
    made = {}
    if "directional" in names:
        halves = directional_power(acquisition.iq, acquisition.axes.index("t"))
        for sign, values in zip(("positive", "negative"), halves, strict=True):
            formula = f"sum of |S_k|^2 / N^2 over {sign} Doppler frequencies, 0 and Nyquist by half"
            made[f"directional_power_{sign}"] = Product(values, POWER_UNIT, formula)
    if "velocity" in names:
        made["axial_velocity"] = axial_velocity(acquisition)
    return made


def _pixels(iq: NDArray[Any], axis: int, what: str) -> tuple[NDArray[Any], tuple[int, ...]]:
    """The stack as one row a pixel, and the shape of its images."""
    if not np.iscomplexobj(iq):
        raise OptionError(
            f"{what} needs complex IQ, and this stack is real; leave it out of --products, or give the IQ"
        )
    frames_last = np.moveaxis(iq, axis, -1)
    return frames_last.reshape(-1, frames_last.shape[-1]), frames_last.shape[:-1]
