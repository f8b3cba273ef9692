"""Clutter filters along time, the same for every pixel: high-pass and polynomial regression."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.stack.sampling import spread_rows

_SPECTRUM_PIXELS = 2000
"""Pixels whose mean spectra show where the clutter ends."""

_HIGHEST_CUTOFF = 0.45
"""Highest cutoff that :func:`end_of_clutter` returns, in cycles per frame: below half the frame rate."""


def end_of_clutter(matrix: NDArray[Any], low: int) -> float:
    """Return the frequency above which clutter has less power than the residual, in cycles per frame.

    Clutter is the projection onto the leading components of a subset of the pixels. The spectra are means over these
    pixels.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The Casorati matrix.
    low : int
        Number of clutter components. Without any, the result is the lowest frequency that the frames resolve.
    """
    n_frames = matrix.shape[1]
    rows = np.nan_to_num(matrix[spread_rows(len(matrix), _SPECTRUM_PIXELS)].astype(np.complex128))
    vectors = np.linalg.eigh(rows.conj().T @ rows)[1][:, max(n_frames - low, 0) :]
    clutter = (rows @ vectors) @ vectors.conj().T
    window = np.hanning(n_frames + 2)[1:-1]
    of_clutter, of_residual = (
        np.mean(np.abs(np.fft.fft(part * window)) ** 2, axis=0) for part in (clutter, rows - clutter)
    )
    above = np.abs(np.fft.fftfreq(n_frames))[of_clutter > of_residual]
    return float(min(above.max(initial=0) + 1 / n_frames, _HIGHEST_CUTOFF))


def highpass(matrix: NDArray[Any], executor: Executor, cutoff: float) -> None:
    """Filter every pixel along time by a zero-phase Butterworth high-pass of order 4, in place.

    The filter runs forwards and then backwards, so that it shifts no phase [1]_.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The Casorati matrix, finite everywhere, with at least 16 frames.
    executor : Executor
        Maps over the row blocks.
    cutoff : float
        Cutoff frequency in cycles per frame, in (0, 0.5): the frequency in Hz divided by the frame rate. The two passes
        together attenuate it by 6 dB.

    References
    ----------
    .. [1] S. Bjaerum, H. Torp and K. Kristoffersen, "Clutter filter design for ultrasound color flow imaging", IEEE
       Trans. Ultrason. Ferroelectr. Freq. Control 49(2), 2002.
    """
    from scipy.signal import butter, sosfiltfilt

    sections = butter(4, cutoff, "highpass", fs=1.0, output="sos")

    def filtered(rows: slice) -> None:
        matrix[rows] = sosfiltfilt(sections, matrix[rows], axis=1)

    for _ in executor.map(filtered, block_rows(matrix.shape)):
        pass


def polynomial(matrix: NDArray[Any], executor: Executor, order: int) -> None:
    """Subtract the least-squares polynomial over time from every pixel, in place (regression wall filter).

    The fit minimises |x - B c|^2 over c for each pixel x, B being an orthonormal basis of the polynomials, so the result
    is x - B B^T x [1]_. The orthonormal basis makes the regression exact for any order.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The Casorati matrix, finite everywhere.
    executor : Executor
        Maps over the row blocks.
    order : int
        Degree of the polynomial, at most n_frames - 2. 0 removes the mean and -1 removes nothing.

    References
    ----------
    .. [1] H. Torp, "Clutter rejection filters in color flow imaging: a theoretical approach", IEEE Trans. Ultrason.
       Ferroelectr. Freq. Control 44(2), 1997.
    """
    n_frames = matrix.shape[1]
    legendre = np.polynomial.legendre.legvander(np.linspace(-1, 1, n_frames), max(order, 0))
    basis = np.linalg.qr(legendre)[0][:, : order + 1].astype(matrix.dtype)

    def filtered(rows: slice) -> None:
        block = matrix[rows]
        block -= (block @ basis) @ basis.T

    for _ in executor.map(filtered, block_rows(matrix.shape)):
        pass
