"""Clutter filters that look at one pixel at a time: high-pass and polynomial regression."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import block_rows


def highpass(matrix: NDArray[Any], cutoff: float, order: int, executor: Executor, out: NDArray[Any]) -> None:
    """Zero-phase Butterworth high-pass filter along time, forwards and backwards.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Finite everywhere. May be `out`.
    cutoff : float
        In cycles a frame, in (0, 0.5); the frequency in Hz over the frame rate. The two passes attenuate
        it by 6 dB.
    order : int
        Of the filter that is applied twice.
    executor : Executor
        Maps over the row blocks.
    out : (n_pixels, n_frames) array
        Receives the result.

    Raises
    ------
    OptionError
        If the cutoff is not below half the frame rate, the order is not positive, or there are too few
        frames for the filter to start on.
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
    # As long as sosfiltfilt pads each end by itself.
    padding = 3 * (2 * len(sections) + 1 - min((sections[:, 2] == 0).sum(), (sections[:, 5] == 0).sum()))
    if matrix.shape[1] <= padding:
        raise OptionError(
            f"a high-pass filter of order {order} needs more than {padding} frames, not {matrix.shape[1]}; "
            "lower highpass.order"
        )

    def filtered(rows: slice) -> None:
        out[rows] = sosfiltfilt(sections, matrix[rows], axis=1)

    for _ in executor.map(filtered, block_rows(matrix.shape)):
        pass


def polynomial(matrix: NDArray[Any], order: int, executor: Executor, out: NDArray[Any]) -> None:
    """Regression wall filter: what a polynomial of the frame number explains is taken off every pixel.

    An orthonormal basis makes the regression exact for any order (Torp, IEEE Trans. Ultrason. Ferroelectr.
    Freq. Control 44(2), 1997).

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Finite everywhere. May be `out`.
    order : int
        Degree of the polynomial; 0 removes the mean, -1 nothing.
    executor : Executor
        Maps over the row blocks.
    out : (n_pixels, n_frames) array
        Receives the result.

    Raises
    ------
    OptionError
        If the order is below -1 or does not leave a frame.
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
        np.subtract(block, (block @ basis) @ basis.T, out=out[rows])

    for _ in executor.map(filtered, block_rows(matrix.shape)):
        pass
