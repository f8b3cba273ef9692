"""Fit low-rank factors to the sampled entries, by the method that the options name."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from usdenoise.completion import starts
from usdenoise.completion.descent_methods import METHODS, Method
from usdenoise.completion.identifiability import check_rank
from usdenoise.completion.posterior import PRIOR_FLOOR, fit_rows, posterior_sweep
from usdenoise.completion.preconditioners import identity
from usdenoise.completion.problem import CompletionProblem, Factors
from usdenoise.completion.solve import Iteration, Solution, solve
from usdenoise.completion.stopping import StoppingRule
from usdenoise.components.pixel_subset import PixelSubset
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.noise_spectrum import noise_edge
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.random_streams import RandomStream

RIDGE = 0.5
"""Automatic ridge in units of the sampled noise edge: half of the penalty at which nuclear-norm completion removes
pure noise. The start "pixels" has a prior for each component, and needs none."""

_FIRST_RIDGE = 0.1
"""The ridge starts at this share of the largest singular value of the start, in units of the sampled entries."""

_STARTS: Mapping[str, Callable[[CompletionProblem, int, np.random.Generator], Factors]] = MappingProxyType(
    {"spectral": starts.spectral, "random": starts.random, "small": starts.small}
)


def fit_sample(
    problem: CompletionProblem,
    subset: PixelSubset,
    rank: int,
    options: DenoiseOptions,
    given: Factors | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Solution:
    """Return factors (U, V) of a matrix from its sampled entries.

    Minimise f(U, V) = 1/|O| sum over the sample |(U V^H)_ij - M_ij|^2 + ridge (|U|^2 + |V|^2) by
    :func:`usdenoise.completion.solve.solve`.

    Parameters
    ----------
    problem : CompletionProblem
        The matrix, its sample and the executor.
    subset : PixelSubset
        The exact spectrum of a few pixels, for the start and the noise level.
    rank : int
        Number of components.
    options : DenoiseOptions
        Method, start, step, damping, ridge, iterations and patience.
    given : pair of arrays, optional
        A warm start, which replaces that of the options.
    on_iteration : callable, optional
        Called with each line of the trace.

    Raises
    ------
    OptionError
        If the sample does not determine the rank.
    DivergedError
        If the iterate leaves the finite numbers.
    """
    check_rank(problem.shape, rank, problem.sample.n_fitted)
    method = METHODS[options.method]
    rng = RandomStream.START.generator(options.seed)
    if given is None:
        start, passes = _start(problem, subset, rank, options, rng)
        ridge = _ridge(problem, subset, options, start)
    else:
        start, passes = starts.warm(problem, rank, rng, given), 0
        ridge = _ridge(problem, subset, options, None)
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
        ridge=ridge,
        on_iteration=on_iteration,
    )
    solution.check_finite()
    return replace(solution, passes=solution.passes + passes)


def _start(
    problem: CompletionProblem,
    subset: PixelSubset,
    rank: int,
    options: DenoiseOptions,
    rng: np.random.Generator,
) -> tuple[Factors, int]:
    """Return the first factors, and the number of passes over the sample that they took."""
    if options.init != "pixels":
        return _STARTS[options.init](problem, rank, rng), 0
    # The noise is at least the rounding of float32, also in double precision: steps below it would amplify rounding.
    rounding = np.finfo(np.float32).eps ** 2 * subset.singular_values[0] ** 2
    # The noise level is 0 where all pixels of the subset are zero.
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
    """Return the weight of the squared norms: it decays from the size of the start to that of the noise.

    A warm start (None) has no decay: its ridge is the final one, which is 0 for the start "pixels".
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
    return lambda iteration: max(floor, _FIRST_RIDGE * first * decay**iteration)


def _alpha(
    problem: CompletionProblem, method: Method, options: DenoiseOptions, rng: np.random.Generator
) -> float:
    """Return the step for the gradient of the mean of squares, the paper's alpha."""
    if options.alpha is not None:
        return options.alpha
    m, n = problem.shape
    alpha = (method.step_tau if options.step is None else options.step) * m * n / 2
    if method.preconditioner is identity:
        # Without a preconditioner the curvature is that of the other factor, the largest singular value. It is 0
        # where all samples are zero, and then any step will do.
        alpha /= starts.largest_singular_value(problem, rng) or 1.0
    return alpha
