"""The low-rank estimate from a random sample of the entries."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion import starts as initialize
from usdenoise.completion.descent_methods import METHODS, Method
from usdenoise.completion.identifiability import check_rank
from usdenoise.completion.posterior import PRIOR_FLOOR, fit_rows, posterior_sweep
from usdenoise.completion.preconditioners import identity
from usdenoise.completion.problem import CompletionProblem, Factors
from usdenoise.completion.solve import Iteration, Solution, solve
from usdenoise.completion.stopping import StoppingRule
from usdenoise.errors import OptionError
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.noise_spectrum import noise_edge
from usdenoise.pipeline.options import DenoiseOptions
from usdenoise.pipeline.pixel_subset import PixelSubset
from usdenoise.stack.sampling import EntrySample

RIDGE = 0.5
_STARTS = {"spectral": initialize.spectral, "random": initialize.random, "small": initialize.small}


def complete(
    matrix: NDArray[Any],
    sample: EntrySample,
    subset: PixelSubset,
    rank: int,
    options: DenoiseOptions,
    executor: Executor,
    on_iteration: Callable[[Iteration], None] | None = None,
    factors: Factors | None = None,
) -> Solution:
    """Factors (U, V) of the matrix from its sampled entries, by the method of the options.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Finite everywhere; entries outside the sample are not used.
    sample : EntrySample
        The fitted and held-out entries.
    subset : PixelSubset
        The exact spectrum of a few pixels, for the start and the noise level.
    rank : int
        Number of components.
    options : DenoiseOptions
        Method, start, step, damping, ridge, iterations and patience.
    executor : Executor
        Maps over the row blocks.
    on_iteration : callable, optional
        Called with each line of the trace.
    factors : pair of arrays, optional
        A warm start in place of the options'.

    Raises
    ------
    OptionError
        If the sample cannot determine the rank.
    DivergedError
        If the iterate leaves the finite numbers.
    """
    check_rank(sample.shape, rank, sample)
    method = METHODS[options.method]
    problem = CompletionProblem(matrix, sample, executor)
    rng = np.random.default_rng([options.seed, 1])
    if factors is None:
        start, passes = _start(problem, subset, rank, options, rng)
    else:
        start, passes = initialize.warm(problem, rank, rng, factors), 0
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
        ridge=_ridge(problem, subset, options, start if factors is None else None),
        on_iteration=on_iteration,
    )
    return replace(solution, passes=solution.passes + passes)


def _start(
    problem: CompletionProblem,
    subset: PixelSubset,
    rank: int,
    options: DenoiseOptions,
    rng: np.random.Generator,
) -> tuple[Factors, int]:
    """First factors, and the passes over the sample that they took."""
    if options.init != "pixels":
        return _STARTS[options.init](problem, rank, rng), 0
    if rank > subset.right.shape[1]:
        raise OptionError(
            f"rank {rank} is above the {subset.right.shape[1]} components that the start from "
            f"{subset.n_pixels} pixels has; lower --rank or give --init spectral"
        )
    # In double precision as in single: steps that end below the noise would amplify rounding errors.
    rounding = np.finfo(np.float32).eps ** 2 * subset.singular_values[0] ** 2
    # The pixels drawn may all be zero.
    noise = max(subset.noise_rms**2, rounding, float(np.finfo(np.float32).tiny))
    right, variances = subset.right[:, :rank], np.maximum(subset.signal_variances(rank), PRIOR_FLOOR * noise)
    right, variances, guess, sweep = posterior_sweep(problem, right, variances, noise)
    rows, fit = fit_rows(problem, right, variances, noise, guess)
    # Balanced: both factors get the square root of the component's size.
    size = np.sqrt(np.maximum(np.linalg.norm(rows, axis=0), np.finfo(np.float32).tiny)).astype(
        rows.real.dtype
    )
    return (rows / size, right * size), round(sweep + fit)


def _ridge(
    problem: CompletionProblem, subset: PixelSubset, options: DenoiseOptions, start: Factors | None
) -> Callable[[int], float] | None:
    """Weight of the squared norms: from the size of the start down to the noise's, by the decay.

    Without a start it is the noise's at once.
    """
    automatic = 0.0 if options.init == "pixels" else RIDGE
    units = automatic if isinstance(options.ridge, str) else options.ridge
    if units == 0:
        return None
    edge = np.sqrt(problem.density) * noise_edge(subset.noise_rms, problem.shape)
    floor = units * edge / problem.sample.n_fitted
    if start is None:
        return lambda iteration: floor
    first = max(
        float(gram(start[1]).diagonal().real.max()) * problem.density / problem.sample.n_fitted, floor
    )
    decay = options.decay
    return lambda iteration: max(floor, 0.1 * first * decay**iteration)


def _alpha(
    problem: CompletionProblem, method: Method, options: DenoiseOptions, rng: np.random.Generator
) -> float:
    """Step for the gradient of the mean of squares, the paper's unit."""
    if options.alpha is not None:
        return options.alpha
    m, n = problem.shape
    alpha = (method.step_tau if options.step is None else options.step) * m * n / 2
    if method.preconditioner is identity:
        # Without a preconditioner the curvature is that of the other factor, the largest singular value.
        # Where all samples are zero any step will do.
        alpha /= initialize.largest_singular_value(problem, rng) or 1.0
    return alpha
