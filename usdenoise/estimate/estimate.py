"""Estimate the leading components of a pixel sample: from a random sample of its entries, or by its SVD.

The estimate is a chain of three: a start from a subset of pixels (pixel_subset.py), the completion of sampled entries, and
the refit to all entries of the sample (both in sample_fit.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from usdenoise.completion.descent_methods import check_rank_fits
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration, Solution
from usdenoise.errors import InputError
from usdenoise.estimate.pixel_subset import PixelSubset, choose_rank, least_rank, sufficient_subset
from usdenoise.estimate.sample_fit import Prior, extend, fit_sample
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.tall_matrices import eigenvectors, frame_gram, row_parts
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.sampling import PixelSample
from usdenoise.system.resources import release_freed_memory


def truncated_svd(matrix: Numbers, rank: int, executor: Executor) -> LowRank:
    """Return the leading singular triplets of a matrix.

    They give the L of the given rank that minimises |M - L|_F, as the clutter filter of Demene et al. uses it. The
    temporal singular vectors are the leading eigenvectors of the Gram matrix M^H M. A Gram matrix squares the dynamic
    range, so it is formed in double precision: singular values are accurate down to 140 dB below the largest one. The
    singular vectors stay in double precision, also for a matrix in single precision: tissue 55 dB above the blood that is
    subtracted by vectors in single precision leaves errors of 2e-4 of the blood.
    A matrix with fewer pixels than frames is factorised directly.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    rank : int
        Number of components to return.
    executor : Executor
        Maps over parts of the rows.
    """
    wide = np.result_type(matrix.dtype, np.float64)
    if matrix.shape[0] < matrix.shape[1]:
        left, singular, right_h = np.linalg.svd(matrix.astype(wide), full_matrices=False)
        return LowRank(left[:, :rank], singular[:rank], np.ascontiguousarray(right_h[:rank].conj().T))

    total = frame_gram(matrix, executor, wide)
    n = len(total)
    right = eigenvectors(total, subset_by_index=[n - rank, n - 1])
    parts = executor.map(lambda rows: matrix[rows] @ right, row_parts(matrix.shape))
    return LowRank.from_factors(np.concatenate(list(parts)), right)


LARGE_SAMPLE = 1 << 24
"""Bytes of a sample from which freed memory is returned to the system before more is taken, which costs time."""


@dataclass(frozen=True)
class Estimate:
    """The leading components of a pixel sample.

    Attributes
    ----------
    model : LowRank
        The components, fitted to the sample.
    noise_rms : float
        Noise level: estimated rms of the noise in an entry, in the units of the data.
    n_subset_pixels : int
        Number of pixels whose exact singular vectors gave the noise level, and the start "pixels".
    n_sampled : int
        Number of entries that were fitted or held out.
    samples_per_pixel : float or None
        Sampled entries of an average sampled pixel; None for the SVD of the whole stack.
    solution : Solution or None
        The result of the iterative method; None for the SVD.
    gained_energy : float or None
        What the last refit gained (see :func:`usdenoise.estimate.sample_fit.refit`); None without a refit.
    prior : Prior or None
        Prior of the coefficients of a pixel with unobserved entries; None without a refit.
    """

    model: LowRank
    noise_rms: float
    n_subset_pixels: int
    n_sampled: int
    samples_per_pixel: float | None
    solution: Solution | None
    gained_energy: float | None = None
    prior: Prior | None = None

    @property
    def held_out_rmse(self) -> float | None:
        """Error of the sample's own factors on the held-out entries; None without such entries or a sample."""
        return None if self.solution is None else self.solution.held_out_rmse


def estimate_components(
    rows: PixelSample,
    subset: PixelSubset,
    options: DenoiseOptions,
    only_clutter: bool,
    start: Factors | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Estimate:
    """Estimate the leading components of a pixel sample.

    Parameters
    ----------
    rows : PixelSample
        The data.
    subset : PixelSubset
        The exact spectrum of a few pixels.
    options : DenoiseOptions
        Method, rank, sampling and the options of the estimator.
    only_clutter : bool
        Whether components far beyond the clutter are excluded from an automatic rank.
    start : pair of arrays, optional
        A warm start: factors U (n_pixels, r) and V (n_frames, r), r at most the rank.
    on_iteration : callable, optional
        Called with each line of the trace.

    Raises
    ------
    InputError
        If the SVD is requested and entries are unobserved.
    OptionError
        If the rank does not fit the stack or its sample.
    DivergedError
        If the solver leaves the finite numbers.
    """
    is_large = rows.values.nbytes >= LARGE_SAMPLE
    if is_large:
        release_freed_memory()
    if options.method == "svd":
        return _full_svd(rows, subset, options, only_clutter)
    if options.init == "pixels":
        automatic = isinstance(options.rank, str)
        subset = sufficient_subset(rows, subset, least_rank(options), automatic, options.seed)
    solution, n_sampled, per_pixel = fit_sample(rows, subset, options, only_clutter, start, on_iteration)
    model, noise_rms, n_subset = LowRank.from_factors(*solution.factors), subset.noise_rms, subset.n_pixels
    if options.refit == "none":
        return Estimate(model, noise_rms, n_subset, n_sampled, per_pixel, solution)
    # The copies of the sampled pixels are gone; the refit needs their memory.
    if is_large:
        release_freed_memory()
    model, gained, prior = extend(rows, model, noise_rms)
    return Estimate(model, noise_rms, n_subset, n_sampled, per_pixel, solution, gained, prior)


def _full_svd(
    rows: PixelSample, subset: PixelSubset, options: DenoiseOptions, only_clutter: bool
) -> Estimate:
    shape, n_observed = rows.used_shape, rows.n_used
    rank = choose_rank(options, subset, shape, n_observed, only_clutter)
    check_rank_fits(shape, rank)
    if n_missing := math.prod(shape) - n_observed:
        raise InputError(
            f"the SVD needs every entry, and {n_missing} are NaN or infinite", remedy="use {method} eta-decay"
        )
    model = truncated_svd(rows.values, rank, rows.executor)
    return Estimate(model, subset.noise_rms, subset.n_pixels, n_observed, None, None)
