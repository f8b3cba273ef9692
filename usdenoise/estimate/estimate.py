"""Estimate the leading components of a pixel sample: from a random sample of its entries, or by its SVD.

The estimate is a chain of three: a start from a subset of pixels (pixel_subset.py), the completion of sampled entries by the
method that the options name, and the refit to all observed entries. The temporal singular vectors are common to all pixels,
so the vectors of a few pixels are a start for all pixels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.descent_methods import (
    METHODS,
    Method,
    Penalty,
    StoppingRule,
    check_rank,
    check_rank_fits,
    component_products,
    identity,
    norm_penalty,
)
from usdenoise.completion.problem import (
    CompletionProblem,
    Factors,
    fit_rows,
    largest_singular_value,
    random_start,
    small_start,
    spectral_start,
    start_from,
)
from usdenoise.completion.solve import Iteration, Solution, solve
from usdenoise.errors import InputError
from usdenoise.estimate.pixel_subset import PixelSubset, choose_rank, least_rank, sufficient_subset
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank, noise_edge
from usdenoise.linalg.tall_matrices import (
    HELD_ENTRIES,
    eigenvectors,
    frame_gram,
    gram,
    rotated,
    row_parts,
    tall_qr,
)
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.sampling import FEW_PIXELS, MANY_PIXELS, PixelSample, RandomStream, draw_entries
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
    if matrix.shape[0] < matrix.shape[1]:
        wide = matrix.astype(np.result_type(matrix.dtype, np.float64))
        left, singular, right_h = np.linalg.svd(wide, full_matrices=False)
        return LowRank(left[:, :rank], singular[:rank], np.ascontiguousarray(right_h[:rank].conj().T))

    total = frame_gram(matrix, executor)
    n = len(total)
    right = eigenvectors(total, subset_by_index=[n - rank, n - 1])
    parts = executor.map(lambda rows: matrix[rows] @ right, row_parts(matrix.shape))
    return LowRank.from_factors(np.concatenate(list(parts)), right)


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
        What the last refit gained (see :func:`usdenoise.estimate.estimate.refit`); None without a refit.
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
    prior: "Prior | None" = None

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
    # Before more memory is taken, what was freed is returned to the system, which costs time
    is_large = rows.values.size >= HELD_ENTRIES // 2
    if is_large:
        release_freed_memory()
    if options.method == "svd":
        n_observed = rows.n_used
        rank = choose_rank(options, subset, rows.used_shape, n_observed, only_clutter)
        check_rank_fits(rows.used_shape, rank)
        if n_missing := math.prod(rows.used_shape) - n_observed:
            raise InputError(
                f"the SVD needs every entry, and {n_missing} are NaN or infinite",
                remedy="use {method} eta-decay",
            )
        model = truncated_svd(rows.values, rank, rows.executor)
        return Estimate(model, subset.noise_rms, subset.n_pixels, n_observed, None, None)
    if options.init == "pixels":
        automatic = isinstance(options.rank, str)
        subset = sufficient_subset(rows, subset, least_rank(options), automatic, options.seed)
    solution, n_sampled, per_pixel = fit_sample(rows, subset, options, only_clutter, start, on_iteration)
    model, noise_rms = LowRank.from_factors(*solution.factors), subset.noise_rms
    found = Estimate(model, noise_rms, subset.n_pixels, n_sampled, per_pixel, solution)
    if options.refit == "none":
        return found
    # The copies of the sampled pixels are gone; the refit needs their memory.
    if is_large:
        release_freed_memory()
    right, prior = model.right, Prior(model.singular_values**2 / len(model.left), noise_rms**2)
    if rows.is_complete:
        # Most of the rotation, for a fraction of the price of a step over all pixels.
        right = refit(rows.spread(2 * MANY_PIXELS), right, prior)[0].right
    # The components near the cutoff must be separated.
    model, gained, prior = refit(rows, right, prior, rotate_again=True)
    return replace(found, model=model, gained_energy=gained, prior=prior)


PRIOR_FLOOR = 1e-3
"""Smallest prior variance of a component, in units of the noise variance."""


@dataclass(frozen=True)
class Prior:
    """Prior of the coefficients of a pixel: independent Gaussian components, next to white noise.

    Attributes
    ----------
    variances : (r,) float64 array
        Variance of each component.
    noise_variance : float
        Variance of the noise in an entry.
    """

    variances: NDArray[np.float64]
    noise_variance: float

    @property
    def ridge(self) -> NDArray[np.float64]:
        """Weight of each squared coefficient next to the squared errors: noise variance over variance."""
        floor = max(PRIOR_FLOOR * self.noise_variance, float(np.finfo(np.float64).tiny))
        return self.noise_variance / np.maximum(self.variances, floor)


def refit(
    rows: PixelSample, right: Numbers, prior: Prior, rotate_again: bool = False
) -> tuple[LowRank, float, Prior]:
    """Return the singular triplets of a matrix near an approximate temporal subspace.

    One step of subspace iteration: U is fitted to the data for the known V, then V for that U. The errors of a V
    from few samples are directions near the noise level; the step shrinks them by the square of the ratio of
    singular values. Where every entry is observed, this is one pass over the data, and yields the triplets of
    the data projected on the span of U (Rayleigh-Ritz). Otherwise U is fitted once more, for the new V, with the
    variances of these triplets as the prior.

    Parameters
    ----------
    rows : PixelSample
        The data. The model U V^H replaces unobserved entries.
    right : (n_frames, r) array
        Orthonormal columns V that approximately span the temporal subspace.
    prior : Prior
        Of the coefficients for the columns V, where entries are unobserved: gaps in time make the columns depend on
        each other, and least squares alone would fill the gaps with amplified noise.
    rotate_again : bool
        Whether U is fitted once more, for the new V, and the triplets are rotated to be singular ones for that U.
        That separates weak components near the cutoff, which are mixed by the noise. It changes how components are
        separated, not the subspace. Without effect where entries are unobserved.

    Returns
    -------
    model : LowRank
        r components.
    gained_energy : float
        Energy that they hold more than the best fit with the temporal subspace from before the step: what the step
        mended. A further step would gain less.
    prior : Prior
        Of the coefficients for the columns of the model.
    """
    left, squares, moments = rows.fit_and_moments(right, prior.ridge)
    before = float(np.trace(squares).real)
    white = _whitening(squares)
    # In long stacks the moments take tens of megabytes.
    basis, triangle = tall_qr(np.conjugate(moments, out=moments).T, in_place=True)
    rotation, singular, turn = np.linalg.svd((triangle @ white).conj().T)
    better = rotated(basis, turn.conj().T, rows.dtype)
    del moments, basis
    prior = replace(prior, variances=singular**2 / rows.n_pixels - prior.noise_variance)
    if not rows.is_complete:
        model = LowRank.from_factors(rows.fit(better, prior.ridge)[0], better)
        return model, max(float(np.sum(model.singular_values**2)) - before, 0.0), prior
    gained = max(float(np.sum(singular**2)) - before, 0.0)
    if rotate_again:
        left, squares = rows.fit(better)
        white = _whitening(squares)
        rotation, singular, turn = np.linalg.svd(white.conj().T @ squares)
        better = rotated(better, turn.conj().T, rows.dtype)
    return LowRank(left @ (white @ rotation).astype(rows.dtype), singular, better), gained, prior


def _whitening(squares: Numbers) -> Numbers:
    """Return W with W^H G W = I for a Gram matrix G; directions that are zero within rounding become zero."""
    size = np.sqrt(np.maximum(squares.diagonal().real, 0))
    # A component that is not there is not scaled up: its rounding errors would overflow in single precision.
    scale = np.divide(1, size, out=np.zeros_like(size), where=size > np.finfo(np.float64).eps * size.max())
    values, vectors = np.linalg.eigh(squares * np.outer(scale, scale))
    # The scaled columns have length one, so small eigenvalues mean that columns depend on each other.
    with np.errstate(divide="ignore"):
        inverse = np.where(values > len(values) * np.finfo(np.float32).eps, 1 / np.sqrt(np.abs(values)), 0.0)
    return np.asarray(vectors * inverse * scale[:, None])


RIDGE = 0.5
"""Automatic ridge in units of the sampled noise edge: half of the penalty at which nuclear-norm completion removes
pure noise. The start "pixels" has a prior for each component instead."""

_FIRST_RIDGE = 0.1
"""The ridge starts at this share of the largest singular value of the start, in units of the sampled entries."""

_STARTS = {"spectral": spectral_start, "random": random_start, "small": small_start}
"""Starts that are drawn at random."""

SAMPLES_PER_FRAME_AND_COMPONENT = 6
"""Samples of each frame, of which there are FEW_PIXELS at least. benchmarks/quality.py set it: the refit of such a sample
gives the full SVD's picture to 0.998 or better (docs/evidence.md)."""


def fit_sample(
    rows: PixelSample,
    subset: PixelSubset,
    options: DenoiseOptions,
    only_clutter: bool,
    warm_start: Factors | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> tuple[Solution, int, float]:
    """Sample entries of a random subset of the pixels, and return factors U, V that complete them.

    Minimise f(U, V) = 1/|O| sum over the sample |(U V^H)_ij - M_ij|^2 plus a penalty by
    :func:`usdenoise.completion.solve.solve`. The penalty is the prior of each component for the start "pixels", and
    ridge (|U|^2 + |V|^2) for other starts, or if a ridge is given.

    Parameters
    ----------
    rows : PixelSample
        The data.
    subset : PixelSubset
        The exact spectrum of a few pixels, for the rank, the start and the noise level.
    options : DenoiseOptions
        Method, rank, sampling, start, step, damping, ridge, iterations and patience.
    only_clutter : bool
        Whether components far beyond the clutter are excluded from an automatic rank.
    warm_start : pair of arrays, optional
        A warm start, which replaces the start of the options: U (n_pixels, r) and V (n_frames, r), r at most the rank.
    on_iteration : callable, optional
        Called with each line of the trace.

    Returns
    -------
    solution : Solution
        The factors, in the sampled pixels: all pixels where no refit follows.
    n_sampled : int
        Number of entries that were fitted or held out.
    samples_per_pixel : float
        Sampled entries of an average sampled pixel.

    Raises
    ------
    OptionError
        If the sample does not determine the rank.
    DivergedError
        If the iterate leaves the finite numbers.
    """
    if warm_start is not None and len(warm_start[1]) == rows.n_frames:
        warm_start = warm_start[0], np.where(rows.excluded[:, None], 0, warm_start[1])
    pixels: slice | NDArray[np.intp] = slice(None)
    if options.refit == "all":
        highest = choose_rank(options, subset, rows.used_shape, rows.n_used, only_clutter)
        pixels = draw_sampled_pixels(
            rows, highest, options.sampling, RandomStream.SAMPLED_PIXELS.generator(options.seed)
        )
    if warm_start is not None and len(warm_start[0]) == rows.n_pixels:
        warm_start = warm_start[0][pixels], warm_start[1]
    sampled = rows.take(pixels)
    sample = draw_entries(sampled.shape, options.sampling, options.seed, sampled.sampled_bits())
    # The sample determines fewer components than all entries do.
    rank = choose_rank(options, subset, sampled.used_shape, sample.n_fitted, only_clutter)
    check_rank((sampled.n_pixels, subset.n_used_frames), rank, sample.n_fitted)
    problem = CompletionProblem(sampled.values, sample, rows.executor)
    method, rng, passes = METHODS[options.method], RandomStream.START.generator(options.seed), 0.0
    if warm_start is None:
        # The noise is at least the rounding of float32, also in double precision: steps below it would amplify rounding.
        rounding = np.finfo(np.float32).eps ** 2 * subset.singular_values[0] ** 2
        # The noise level is 0 where all pixels of the subset are zero.
        noise = max(subset.noise_rms**2, rounding, float(np.finfo(np.float32).tiny))
        prior = Prior(subset.signal_variances(rank), noise)
        if options.init == "pixels":
            right = subset.right[:, :rank]
            left, passes = fit_rows(problem, right, prior.ridge, noise)
            # Balanced: both factors get the square root of the component's size.
            size = np.sqrt(np.maximum(np.linalg.norm(left, axis=0), np.finfo(np.float32).tiny))
            size = size.astype(left.real.dtype)
            start: Factors = (left / size, right * size)
        else:
            start = _STARTS[options.init](problem, rank, rng)
        penalty = _penalty(problem, subset, options, start, prior)
    else:
        start = start_from(problem, rank, rng, warm_start)
        penalty = _penalty(problem, subset, options)
    damping = options.damping
    if damping is None:
        damping = method.default_damping(subset.noise_rms, problem.shape)
    solution = solve(
        problem,
        start,
        preconditioner=method.preconditioner,
        damping=method.make_damping(damping, options.decay),
        step=_alpha(problem, method, options, rng),
        stopping=StoppingRule(options.iterations, options.patience or None),
        penalty=penalty,
        on_iteration=on_iteration,
    )
    solution.check_finite()
    # A start may have left other values there.
    solution.factors[1][rows.excluded] = 0
    n_sampled = sample.n_fitted + sample.n_held_out
    return replace(solution, passes=solution.passes + round(passes)), n_sampled, n_sampled / sampled.n_pixels


def draw_sampled_pixels(
    rows: PixelSample, rank: int, sampling: float, rng: np.random.Generator
) -> slice | NDArray[np.intp]:
    """Draw the pixels whose entries are sampled, spread over the image.

    The temporal singular vectors are common to all pixels. Entries are sampled from a random subset of the pixels, so
    that each frame has at least max(256, 6 rank) samples. Then a refit to all entries makes the vectors exact.

    Parameters
    ----------
    rows : PixelSample
        The data. Pixels without an observed entry are not drawn.
    rank : int
        Number of components.
    sampling : float
        Fraction of these pixels' entries that will be sampled.
    rng : numpy.random.Generator
        Chooses the pixels.

    Returns
    -------
    array of row numbers, increasing, or slice
        The slice of all rows where all pixels are needed.
    """
    count = math.ceil(max(FEW_PIXELS, SAMPLES_PER_FRAME_AND_COMPONENT * rank) / sampling)
    observed = rows.observed
    alive = np.arange(rows.n_pixels) if observed is None else np.flatnonzero(observed.any(axis=1))
    return slice(None) if len(alive) <= count else np.sort(rng.permutation(alive)[:count])


def _penalty(
    problem: CompletionProblem,
    subset: PixelSubset,
    options: DenoiseOptions,
    start: Factors | None = None,
    prior: Prior | None = None,
) -> Penalty | None:
    """Return the penalty on the factors: the penalty of the prior, or a ridge that decays from the size of the start.

    A warm start (None) has no prior, and no decay: its ridge is the final one.
    """
    n_fitted, density = problem.sample.n_fitted, problem.sample.density
    if options.ridge == "auto" and options.init == "pixels":
        return None if prior is None else component_products(prior.ridge / n_fitted)
    units = RIDGE if isinstance(options.ridge, str) else options.ridge
    if units == 0:
        return None
    floor = units * np.sqrt(density) * noise_edge(subset.noise_rms, problem.shape) / n_fitted
    if start is None:
        return norm_penalty(lambda iteration: floor)
    largest = float(gram(start[1]).diagonal().real.max())
    first = _FIRST_RIDGE * max(largest * density / n_fitted, floor)
    return norm_penalty(lambda iteration: max(floor, first * options.decay**iteration))


def _alpha(
    problem: CompletionProblem, method: Method, options: DenoiseOptions, rng: np.random.Generator
) -> float:
    """Return the step for the gradient of the mean of squares, the paper's alpha."""
    if options.alpha is not None:
        return options.alpha
    m, n = problem.shape
    alpha = (method.step_tau if options.step is None else options.step) * m * n / 2
    if method.preconditioner is identity:
        # Without a preconditioner this is the curvature of the other factor, the largest singular value. It is 0
        # where all samples are zero, and then any step will do.
        alpha /= largest_singular_value(problem, rng) or 1.0
    return alpha
