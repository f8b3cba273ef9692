"""Estimate the leading components: from a random sample of the entries, or by the SVD of the whole stack.

The estimate is a chain of three: a start from a subset of pixels (pixel_subset.py), the completion of sampled entries
(sample_fit.py), and the extension to all pixels (extension.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.identifiability import check_rank_fits
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration, Solution
from usdenoise.errors import InputError
from usdenoise.estimate.extension import extend, extend_coarse, pixels_to_fit
from usdenoise.estimate.pixel_subset import PixelSubset, sufficient_subset
from usdenoise.estimate.rank import choose_rank, least_rank
from usdenoise.estimate.sample_fit import fit_sample
from usdenoise.estimate.svd import truncated_svd
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.rows import Rows
from usdenoise.system.memory import release_freed_memory


@dataclass(frozen=True)
class Estimate:
    """The leading components of a stack.

    Attributes
    ----------
    model : LowRank
        The components, fitted to `pixels`.
    singular_values : (rank,) float64 array
        Singular values of all components that were estimated, also of those that the model does not have.
    pixels : Rows
        The rows to which the components are fitted: all rows, or some of them for a coarse fit, which is made where the
        filter does not need all components in all pixels.
    noise_rms : float
        Noise level: estimated rms of the noise in an entry, in the units of the data.
    n_sampled : int
        Number of entries that were fitted or held out.
    samples_per_pixel : float or None
        Sampled entries of an average sampled pixel; None for the SVD of the whole stack.
    solution : Solution or None
        The result of the iterative method; None for the SVD.
    gained_energy : float or None
        What the last refit gained (see :func:`usdenoise.estimate.extension.refit`); None without a refit.
    """

    model: LowRank
    singular_values: NDArray[np.float64]
    pixels: Rows
    noise_rms: float
    n_sampled: int
    samples_per_pixel: float | None
    solution: Solution | None
    gained_energy: float | None = None

    @property
    def held_out_rmse(self) -> float | None:
        """Error of the sample's own factors on the held-out entries; None without such entries or a sample."""
        return None if self.solution is None else self.solution.held_out_rmse


def estimate_components(
    rows: Rows,
    subset: PixelSubset,
    options: DenoiseOptions,
    start: Factors | None = None,
    all_components: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Estimate:
    """Estimate the leading components of a stack.

    Parameters
    ----------
    rows : Rows
        The data.
    subset : PixelSubset
        The exact spectrum of a few pixels.
    options : DenoiseOptions
        Method, rank, sampling and the options of the estimator.
    start : pair of arrays, optional
        A warm start: factors U (n_pixels, r) and V (n_frames, r), r at most the rank.
    all_components : bool
        Whether all components are fitted to all pixels, also those that the filter does not need there.
    on_iteration : callable, optional
        Called with each line of the trace.

    Raises
    ------
    InputError
        If the SVD is asked for and entries are unobserved.
    OptionError
        If the rank does not fit the stack or its sample.
    DivergedError
        If the solver leaves the finite numbers.
    """
    release_freed_memory()
    # Where the residual is kept, the components above the low cutoff do not change the result, unless they fill
    # unobserved entries.
    needs_all = all_components or not rows.is_complete or options.high_cutoff != "none"
    only_clutter = options.refit == "all" and not needs_all
    if options.method == "svd":
        return _full_svd(rows, subset, options, only_clutter)
    if options.init == "pixels":
        automatic = isinstance(options.rank, str)
        subset = sufficient_subset(rows, subset, least_rank(options), automatic, options.seed)
    solution, n_sampled, per_pixel = fit_sample(rows, subset, options, only_clutter, start, on_iteration)
    model, noise_rms = LowRank.from_factors(*solution.factors), subset.noise_rms
    if options.refit == "none":
        return Estimate(model, model.singular_values, rows, noise_rms, n_sampled, per_pixel, solution)
    # The copies of the sampled pixels are gone; the refit needs their memory.
    release_freed_memory()
    pixels = rows if needs_all else pixels_to_fit(rows, model.rank, options.low_cutoff)
    model, gained = extend(rows, model, noise_rms, pixels, isinstance(options.low_cutoff, str))
    return Estimate(model, model.singular_values, pixels, noise_rms, n_sampled, per_pixel, solution, gained)


def _full_svd(rows: Rows, subset: PixelSubset, options: DenoiseOptions, only_clutter: bool) -> Estimate:
    shape, n_observed = rows.used_shape, rows.n_used
    rank = choose_rank(options, subset, shape, n_observed, only_clutter)
    check_rank_fits(shape, rank)
    if n_missing := math.prod(shape) - n_observed:
        raise InputError(
            f"the SVD needs every entry, and {n_missing} are NaN or infinite", remedy="use {method} eta-decay"
        )
    model = truncated_svd(rows.take(slice(None)).values, rank, rows.executor)
    return Estimate(model, model.singular_values, rows, subset.noise_rms, n_observed, None, None)


def fit_all_pixels(rows: Rows, estimate: Estimate, low: int) -> Estimate:
    """Return an estimate whose components, those that a filter needs, are fitted to all pixels.

    Parameters
    ----------
    rows : Rows
        The data.
    estimate : Estimate
        The components. Where they are fitted to all pixels already, they are the result.
    low : int
        Low cutoff: the components [0, low) are needed exactly. After a coarse fit the model has those and a few more
        (see :func:`usdenoise.estimate.extension.extend_coarse`).
    """
    if estimate.pixels is rows:
        return estimate
    model, singular_values, gained = extend_coarse(rows, estimate.model, low)
    return replace(estimate, model=model, singular_values=singular_values, pixels=rows, gained_energy=gained)
