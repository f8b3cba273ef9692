"""Clutter filters from the literature that `usdenoise compare` runs beside the methods of :func:`usdenoise.denoise`."""

import math

import numpy as np

from usdenoise.errors import DivergedError
from usdenoise.estimate.estimate import truncated_svd
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.tall_matrices import eigenvectors, frame_gram, normal_product, orthonormal, row_parts
from usdenoise.stack.sampling import spread_rows

_SPECTRUM_PIXELS = 2000
"""Pixels whose mean spectra show where the clutter ends."""

_HIGHEST_CUTOFF = 0.45
"""Highest cutoff that :func:`end_of_clutter` returns, in cycles per frame: below half the frame rate."""


def end_of_clutter(matrix: Numbers, low: int) -> float:
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


def highpass(matrix: Numbers, executor: Executor, cutoff: float) -> None:
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

    for _ in executor.map(filtered, row_parts(matrix.shape)):
        pass


def polynomial(matrix: Numbers, executor: Executor, order: int) -> None:
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
        np.subtract(matrix[rows], (matrix[rows] @ basis) @ basis.T, out=matrix[rows])

    for _ in executor.map(filtered, row_parts(matrix.shape)):
        pass


TEST_COLUMNS = 20
"""Number of columns of the test matrix beyond the rank."""

POWER_ITERATIONS = 6
"""Number of products with M^H M. Each one reads the matrix once."""


def randomized_svd(matrix: Numbers, rank: int, executor: Executor, rng: np.random.Generator) -> LowRank:
    """Return the leading singular triplets of a matrix, by a randomized range finder with power iterations.

    The result approximates the L of the given rank that minimises |M - L|_F [1]_. The range finder works on the frames:
    from a Gaussian Q with rank + 20 columns, every power iteration sets

        Q <- orth(M^H M Q),

    and the result has the singular triplets of (M Q) Q^H. The basis is made orthonormal in every power iteration
    (algorithm 4.4). Without this step rounding would lose the components whose singular values are below eps times
    the largest one.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    rank : int
        Number of components to return.
    executor : Executor
        Maps over the row blocks.
    rng : numpy.random.Generator
        Draws the Gaussian test matrix, which is complex where the matrix is.

    Returns
    -------
    LowRank

    References
    ----------
    .. [1] N. Halko, P. G. Martinsson and J. A. Tropp, "Finding structure with randomness", SIAM Review 53(2), 2011.
    """
    n_frames = matrix.shape[1]
    columns = min(rank + TEST_COLUMNS, *matrix.shape)
    test = rng.standard_normal((n_frames, columns))
    if np.iscomplexobj(matrix):
        test = test + 1j * rng.standard_normal((n_frames, columns))
    blocks = row_parts(matrix.shape)
    right = orthonormal(test).astype(matrix.dtype)
    for _ in range(POWER_ITERATIONS):
        product = normal_product(lambda rows: matrix[rows], blocks, right, executor)
        right = orthonormal(product).astype(matrix.dtype)
    left = np.concatenate(list(executor.map(lambda rows: matrix[rows] @ right, blocks)))
    return LowRank.from_factors(left, right).truncated(rank)


FIRST_PENALTY, HIGHEST_PENALTY = 1.25, 1.25e7
"""First and highest penalty, times the largest singular value of the matrix, as in the published code of Lin, Chen
and Ma."""

GROWTH = 1.6
"""Factor by which the penalty grows in each iteration."""

LEAST_DIVISOR = 1e-30
"""Smallest divisor."""

NOT_FINITE = "an iterate of robust PCA is not finite; use double precision"


MISMATCH = 1e-6
"""Mismatch |M - L - S| / |M| at which the iteration ends."""

MOST_ITERATIONS = 100


def robust_pca(matrix: Numbers, executor: Executor) -> tuple[LowRank, int, float]:
    """Split a matrix into a low-rank and a sparse part, by principal component pursuit.

    It minimises |L|_* + weight |S|_1 subject to L + S = M, with weight = 1 / sqrt(max(n_pixels, n_frames)) [1]_, by inexact
    augmented Lagrange multipliers [2]_. With the dual Y and the penalty mu, one iteration is

        S <- shrink(M - L + Y / mu, weight / mu)
        L <- threshold(M - S + Y / mu, 1 / mu)
        Y <- Y + mu (M - L - S)
        mu <- min(1.6 mu, highest).

    Here shrink(x, t) = x max(1 - t / |x|, 0) reduces the modulus of each entry by t and keeps its phase, and
    `threshold` does the same to the singular values.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    executor : Executor
        Maps over the row blocks.

    Returns
    -------
    low_rank : LowRank
        The low-rank part L, with the components that remain after the last threshold of the singular values.
    iterations : int
        Number of iterations.
    mismatch : float
        Relative Frobenius norm |M - L - S| / |M| after the last iteration.

    Raises
    ------
    DivergedError
        If an iterate is not finite.

    References
    ----------
    .. [1] E. J. Candes, X. Li, Y. Ma and J. Wright, "Robust principal component analysis?", J. ACM 58(3), 2011.
    .. [2] Z. Lin, M. Chen and Y. Ma, "The augmented Lagrange multiplier method for exact recovery of corrupted low-rank
       matrices", arXiv:1009.5055, 2010.
    """
    weight = 1 / math.sqrt(max(matrix.shape))
    norm = float(np.linalg.norm(matrix))
    if not math.isfinite(norm):
        raise DivergedError(NOT_FINITE)
    largest = float(truncated_svd(matrix, 1, executor).singular_values[0])
    # With this scale Y is feasible for the dual problem, as Lin, Chen and Ma start.
    dual = matrix / matrix.real.dtype.type(max(largest, np.abs(matrix).max() / weight))
    low = np.zeros_like(matrix)
    model = LowRank(matrix[:, :0], np.zeros(0), np.zeros((matrix.shape[1], 0), matrix.dtype))
    penalty, mismatch, number = FIRST_PENALTY / largest, math.inf, 0
    while number < MOST_ITERATIONS and mismatch > MISMATCH:
        sparse = shrunk(matrix - low + dual / penalty, weight / penalty)
        model = threshold_singular_values(matrix - sparse + dual / penalty, 1 / penalty, executor)
        left, right_h = model.band(0, model.rank)
        low = left @ right_h
        gap = matrix - low - sparse
        dual += penalty * gap
        mismatch = float(np.linalg.norm(gap)) / norm
        if not math.isfinite(mismatch):
            raise DivergedError(NOT_FINITE)
        number += 1
        penalty = min(GROWTH * penalty, HIGHEST_PENALTY / largest)
    return model, number, mismatch


def shrunk(values: Numbers, threshold: float) -> Numbers:
    """Return values whose moduli are reduced by `threshold`, to 0 at least, with their phases."""
    moduli = np.abs(values)
    return values * (np.maximum(moduli - threshold, 0) / np.maximum(moduli, LEAST_DIVISOR))


def threshold_singular_values(matrix: Numbers, threshold: float, executor: Executor) -> LowRank:
    """Subtract `threshold` from the singular values of a matrix, and keep the components above it.

    This is the proximal map of the nuclear norm: the L that minimises |L - M|_F^2 / 2 + threshold |L|_*. The
    components are eigenvectors of the Gram matrix of the frames.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    threshold : float
        Amount to subtract, in the units of the data.
    executor : Executor
        Maps over the row blocks.

    Raises
    ------
    DivergedError
        If the Gram matrix of the frames is not finite.
    """
    gram = frame_gram(matrix, executor)
    if not np.isfinite(gram).all():
        raise DivergedError(NOT_FINITE)
    vectors = eigenvectors(gram, subset_by_value=(threshold**2, np.inf))
    right = np.ascontiguousarray(vectors, dtype=matrix.dtype)
    left = np.concatenate(list(executor.map(lambda rows: matrix[rows] @ right, row_parts(matrix.shape))))
    singular = np.linalg.norm(left.astype(np.result_type(left.dtype, np.float64)), axis=0)
    kept = singular > threshold
    left = left[:, kept] / singular[kept].astype(left.real.dtype)
    return LowRank(left, singular[kept] - threshold, right[:, kept])
