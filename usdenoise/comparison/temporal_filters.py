"""Clutter filters that treat each pixel alone: high-pass and polynomial regression."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.clutter_projection import filter_projection
from usdenoise.comparison.work import Filtered, Work, filtered_image
from usdenoise.errors import OptionError
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.stack.sampling import spread_rows

_SPECTRUM_PIXELS = 2000
"""Pixels whose mean spectra show where the clutter ends."""

_HIGHEST_CUTOFF = 0.45
"""Highest cutoff of a high-pass that is taken from the data, in cycles a frame: below half the frame rate."""


def run_highpass(work: Work) -> Filtered:
    """Filter every pixel by a Butterworth high-pass, with the cutoff in Hz or in cycles a frame."""
    hertz, rate = work.parameters["cutoff_hz"], work.stack.frame_rate_hz
    if hertz is not None and rate is None:
        raise OptionError("highpass.cutoff_hz needs the frame rate; give --frame-rate")
    cutoff = work.parameters["cutoff_a_frame"] if hertz is None else hertz / rate
    source = ""
    if cutoff is None:
        cutoff, source = end_of_clutter(work.stack.iq, work.number("low_cutoff")), ", where the clutter ends"
    order = work.parameters["order"]
    unit = f"{cutoff:.3g} cycles a frame" if rate is None else f"{cutoff * rate:.4g} Hz"
    return _filter_in_time(
        work, partial(highpass, cutoff=cutoff, order=order), f"order {order}, {unit}{source}"
    )


def end_of_clutter(stack: NDArray[Any], low: int) -> float:
    """Return the lowest frequency from which on clutter has less power than the rest of a stack, in cycles a frame.

    Clutter are the `low` leading components of a part of the pixels; the spectra are means over them.

    Parameters
    ----------
    stack : array, frames last
        The stack.
    low : int
        Number of clutter components. Without any, the result is the lowest frequency that the frames resolve.
    """
    n_frames = stack.shape[-1]
    matrix = stack.reshape(-1, n_frames)
    rows = np.nan_to_num(matrix[spread_rows(len(matrix), _SPECTRUM_PIXELS)].astype(np.complex128))
    vectors = np.linalg.eigh(rows.conj().T @ rows)[1][:, max(n_frames - low, 0) :]
    clutter = (rows @ vectors) @ vectors.conj().T
    window = np.hanning(n_frames + 2)[1:-1]
    of_clutter, of_rest = (
        np.mean(np.abs(np.fft.fft(part * window)) ** 2, axis=0) for part in (clutter, rows - clutter)
    )
    above = np.abs(np.fft.fftfreq(n_frames))[of_clutter > of_rest]
    return float(min(above.max(initial=0) + 1 / n_frames, _HIGHEST_CUTOFF))


def run_polynomial(work: Work) -> Filtered:
    """Filter every pixel by polynomial regression, by default with low_cutoff terms: order low_cutoff - 1."""
    order = work.parameters["order"]
    if order is None:
        order = work.number("low_cutoff") - 1
    return _filter_in_time(work, partial(polynomial, order=order), f"order {order}")


def _filter_in_time(work: Work, apply: Callable[[NDArray[Any], Executor], None], note: str) -> Filtered:
    """Filter every pixel by `apply`, which filters the rows of a matrix in place, and map the blood that is left."""
    with ThreadExecutor(work.settings.threads) as executor:
        rows, grid = work.rows(executor)
        response = np.eye(rows.n_frames)
        apply(response, executor)
        apply(rows.values, executor)
        projection = filter_projection(response)
        power, lags = rows.measure(projection.n_lags)
        blood = map_blood(lags, projection, grid, executor, with_halves=False)
    return filtered_image(grid, rows.values, power, blood.blood_power, note=note)


def highpass(matrix: NDArray[Any], executor: Executor, cutoff: float, order: int) -> None:
    """Filter every pixel along time by a zero-phase Butterworth high-pass, in place.

    The filter runs forwards and then backwards, so that it shifts no phase (the clutter filters of Bjaerum, Torp and
    Kristoffersen, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 49(2), 2002).

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The Casorati matrix, finite everywhere.
    executor : Executor
        Maps over the row blocks.
    cutoff : float
        Cutoff frequency in cycles a frame, in (0, 0.5): the frequency in Hz divided by the frame rate. The two passes
        together attenuate it by 6 dB.
    order : int
        Order of the filter, which is applied twice.

    Raises
    ------
    OptionError
        If the cutoff is outside (0, 0.5), the order is below 1, or the stack has too few frames to pad the ends of
        the filter.
    """
    from scipy.signal import butter, sosfiltfilt

    if not 0 < cutoff < 0.5:
        raise OptionError(
            f"the high-pass cutoff is {cutoff:.3g} of the frame rate and must be in (0, 0.5); "
            "lower highpass.cutoff_hz or check the frame rate"
        )
    if order < 1:
        raise OptionError(f"the high-pass order {order} must be at least 1; change highpass.order")
    sections = butter(order, cutoff, "highpass", fs=1.0, output="sos")
    # Frames that sosfiltfilt adds at each end by default. It needs more frames than that.
    padding = 3 * (2 * len(sections) + 1 - min((sections[:, 2] == 0).sum(), (sections[:, 5] == 0).sum()))
    if matrix.shape[1] <= padding:
        raise OptionError(
            f"a high-pass filter of order {order} needs more than {padding} frames, not {matrix.shape[1]}; "
            "lower highpass.order"
        )

    def filtered(rows: slice) -> None:
        matrix[rows] = sosfiltfilt(sections, matrix[rows], axis=1)

    for _ in executor.map(filtered, block_rows(matrix.shape)):
        pass


def polynomial(matrix: NDArray[Any], executor: Executor, order: int) -> None:
    """Subtract from every pixel, in place, the polynomial of the frame number that fits it best (regression wall filter).

    The fit minimises |x - B c|^2 over c for each pixel x, B being an orthonormal basis of the polynomials, so the result
    is x - B B^T x (Torp, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 44(2), 1997). The orthonormal basis makes
    the regression exact for any order.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The Casorati matrix, finite everywhere.
    executor : Executor
        Maps over the row blocks.
    order : int
        Degree of the polynomial. 0 removes the mean and -1 removes nothing.

    Raises
    ------
    OptionError
        If the order is below -1 or above n_frames - 2, where no signal would be left.
    """
    n_frames = matrix.shape[1]
    if not -1 <= order < n_frames - 1:
        raise OptionError(
            f"polynomial order {order} must be in [-1, {n_frames - 2}] with {n_frames} frames; "
            "change polynomial.order"
        )
    legendre = np.polynomial.legendre.legvander(np.linspace(-1, 1, n_frames), max(order, 0))
    basis = np.linalg.qr(legendre)[0][:, : order + 1].astype(matrix.dtype)

    def filtered(rows: slice) -> None:
        block = matrix[rows]
        block -= (block @ basis) @ basis.T

    for _ in executor.map(filtered, block_rows(matrix.shape)):
        pass
