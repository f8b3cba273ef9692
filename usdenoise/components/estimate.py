"""Estimate the leading components: from a random sample of the entries, or by the SVD of the whole stack."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.identifiability import check_rank_fits, highest_rank
from usdenoise.completion.problem import CompletionProblem, Factors
from usdenoise.completion.solve import Iteration, Solution
from usdenoise.components.fit_sample import fit_sample
from usdenoise.components.pixel_subset import PixelSubset, sufficient_subset
from usdenoise.components.refit import Prior, Refit, refit
from usdenoise.components.sampled_pixels import automatic_rank, draw_sampled_pixels
from usdenoise.components.svd import truncated_svd
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.declaration import flag
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.random_streams import RandomStream
from usdenoise.stack.rows import ArrayRows, Rows
from usdenoise.stack.sampling import draw_entries
from usdenoise.system.memory import release_freed_memory

FIRST_REFIT_PIXELS, COARSE_PIXELS = 2000, 6000
"""Pixels, at least, of the refit before the one on all pixels, and of the coarse fit. 2000 pixels rotate the subspace
most of the way for a tenth of the price; with 6000 the automatic cutoff keeps its quality
(tests/benchmarks/quality.py --full)."""

COMPONENTS_BEYOND_CUTOFF = 8
"""Components above the low cutoff that are fitted to all pixels, so that the last one below it is exact."""


@dataclass(frozen=True)
class Estimate:
    """The leading components of a stack.

    Attributes
    ----------
    model : LowRank
        The components, fitted to every `stride`-th pixel.
    stride : int
        1 where the components are fitted to all pixels. More for a coarse fit, which is made where the filter does
        not need all components in all pixels.
    noise_rms : float
        Noise level: estimated rms of the noise in an entry, in the units of the data.
    n_sampled : int
        Number of entries that were fitted or held out.
    samples_per_pixel : float or None
        Sampled entries of an average sampled pixel; None for the SVD of the whole stack.
    solution : Solution or None
        The result of the iterative method; None for the SVD.
    gained_energy : float or None
        What the last refit gained (see :class:`usdenoise.components.refit.Refit`); None without a refit.
    """

    model: LowRank
    stride: int
    noise_rms: float
    n_sampled: int
    samples_per_pixel: float | None
    solution: Solution | None
    gained_energy: float | None = None

    @property
    def held_out_rmse(self) -> float | None:
        """Error of the sample's own factors on the held-out entries; None without such entries or a sample."""
        return None if self.solution is None else self.solution.held_out_rmse

    def pixels(self, rows: Rows) -> Rows:
        """Return the rows to which the model is fitted."""
        return rows.every(self.stride)


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
    n_observed = rows.n_pixels * rows.n_used_frames - rows.n_unobserved
    if options.method != "svd" and options.init == "pixels":
        automatic = isinstance(options.rank, str)
        subset = sufficient_subset(rows, subset, _given_rank(options), automatic, options.seed)
    only_clutter = options.refit == "all" and not _needs_all(rows, options, all_components)
    rank = _rank(options, subset, rows.used_shape, n_observed, only_clutter)
    if options.method == "svd":
        check_rank_fits(rows.used_shape, rank)
        _check_complete(rows)
        model = truncated_svd(rows.take(slice(None)).values, rank, rows.executor)
        return Estimate(model, 1, subset.noise_rms, n_observed, None, None)
    sampled, start = _sampled_pixels(rows, rank, options, start)
    sample = draw_entries(sampled.shape, options.sampling, options.seed, sampled.sampled_bits())
    # The sample determines fewer components than all entries do.
    rank = _rank(options, subset, sampled.used_shape, sample.n_fitted, only_clutter)
    problem = CompletionProblem(sampled.values, sample, rows.executor)
    solution = _zero_in(rows, fit_sample(problem, subset, rank, options, start, on_iteration))
    n_sampled, n_pixels, noise_rms = sample.n_fitted + sample.n_held_out, sampled.n_pixels, subset.noise_rms
    # These hold copies of the sampled pixels; the refit needs their memory.
    del problem, sample, sampled, start, subset
    release_freed_memory()
    if options.refit == "none":
        model = LowRank.from_factors(*solution.factors)
        return Estimate(model, 1, noise_rms, n_sampled, n_sampled / n_pixels, solution)
    stride = _coarse_stride(rows, rank, options, all_components)
    fitted = _refitted(rows, stride, LowRank.from_factors(*solution.factors), noise_rms, options)
    return Estimate(
        fitted.model, stride, noise_rms, n_sampled, n_sampled / n_pixels, solution, fitted.gained_energy
    )


@dataclass(frozen=True)
class Components:
    """The components of a filter.

    Attributes
    ----------
    model : LowRank
        Those that the filter needs, fitted to all pixels.
    singular_values : (rank,) float64 array
        Singular values of all components that were estimated.
    gained_energy : float or None
        What the last refit gained; None without a refit.
    """

    model: LowRank
    singular_values: NDArray[np.float64]
    gained_energy: float | None


def fit_all_pixels(rows: Rows, estimate: Estimate, low: int) -> Components:
    """Return the components that a filter needs, fitted to all pixels, and the singular values of all components.

    Parameters
    ----------
    rows : Rows
        The data.
    estimate : Estimate
        The components. Where they are fitted to all pixels already, they are the result.
    low : int
        Low cutoff: the components [0, low) are needed exactly.

    Returns
    -------
    Components
        After a coarse fit the model has those below low + COMPONENTS_BEYOND_CUTOFF. The singular values of the others
        are scaled up from the coarse fit.
    """
    coarse = estimate.model
    if estimate.stride == 1:
        return Components(coarse, coarse.singular_values, estimate.gained_energy)
    needed = low + COMPONENTS_BEYOND_CUTOFF
    fitted = refit(rows, coarse.right[:, :needed])
    model = fitted.model
    rest = coarse.singular_values[needed:] * np.sqrt(rows.n_pixels / len(coarse.left))
    smallest = model.singular_values[-1]
    singular_values = np.append(model.singular_values, np.minimum(rest, smallest))
    return Components(model, singular_values, fitted.gained_energy)


def _zero_in(rows: Rows, solution: Solution) -> Solution:
    """Return a solution with zeros in the excluded frames, where a start may have left other values."""
    if rows.excluded is not None:
        solution.factors[1][rows.excluded] = 0
    return solution


def _given_rank(options: DenoiseOptions) -> int:
    """Return the components that the given rank and cutoffs need; 0 where all are automatic."""
    low, *others = options.low_cutoff, options.high_cutoff, options.rank
    numbers = [number for number in others if not isinstance(number, str)]
    return max([*numbers, 0 if isinstance(low, str) else low + 1, 0])


def _rank(
    options: DenoiseOptions,
    subset: PixelSubset,
    shape: tuple[int, int],
    n_samples: int,
    only_clutter: bool,
) -> int:
    """Return the given rank, or the automatic one, raised to what the given cutoffs need."""
    if not isinstance(options.rank, str):
        return options.rank
    automatic = automatic_rank(subset, shape, n_samples, only_clutter)
    needed = {
        "low_cutoff": 0 if isinstance(options.low_cutoff, str) else options.low_cutoff + 1,
        "high_cutoff": 0 if isinstance(options.high_cutoff, str) else options.high_cutoff,
    }
    name = max(needed, key=lambda cutoff: needed[cutoff])
    if needed[name] <= automatic:
        return automatic
    possible = min(shape) if options.method == "svd" else highest_rank(shape, n_samples)
    if needed[name] > possible:
        raise OptionError(
            f"{name} {getattr(options, name)} needs rank {needed[name]}, and {n_samples} samples of {shape[0]} pixels "
            f"x {shape[1]} frames determine at most rank {possible}; lower {flag(name)} or raise --sampling"
        )
    return needed[name]


def _sampled_pixels(
    rows: Rows, rank: int, options: DenoiseOptions, start: Factors | None
) -> tuple[ArrayRows, Factors | None]:
    """Return the sampled pixels, and a warm start in them: all pixels unless a refit follows."""
    if start is not None and rows.excluded is not None and len(start[1]) == rows.n_frames:
        start = (start[0], np.where(rows.excluded[:, None], 0, start[1]))
    if options.refit == "none":
        return rows.take(slice(None)), start
    rng = RandomStream.SAMPLED_PIXELS.generator(options.seed)
    sampled = draw_sampled_pixels(rows, rank, options.sampling, rng)
    if sampled is None:
        return rows.take(slice(None)), start
    if start is not None and len(start[0]) == rows.n_pixels:
        start = (start[0][sampled], start[1])
    return rows.take(sampled), start


def _needs_all(rows: Rows, options: DenoiseOptions, all_components: bool) -> bool:
    """Return whether the components above the low cutoff are needed in all pixels.

    Where the residual is kept, they do not change the result, unless they fill unobserved entries.
    """
    return all_components or not rows.is_complete or options.high_cutoff != "none"


def _coarse_stride(rows: Rows, rank: int, options: DenoiseOptions, all_components: bool) -> int:
    """Return the stride of the coarse fit, 1 where all components are needed in all pixels.

    Otherwise they are fitted to every few pixels, to choose the cutoff and to judge the fit.
    """
    low = options.low_cutoff
    few_beyond = not isinstance(low, str) and rank <= low + COMPONENTS_BEYOND_CUTOFF
    if few_beyond or _needs_all(rows, options, all_components):
        return 1
    return _stride(rows, COARSE_PIXELS)


def _refitted(rows: Rows, stride: int, sampled: LowRank, noise_rms: float, options: DenoiseOptions) -> Refit:
    """Return the components of every `stride`-th pixel, from those of the sampled pixels."""
    right = sampled.right
    prior = Prior(sampled.singular_values**2 / len(sampled.left), noise_rms**2)
    if rows.is_complete and stride == 1:
        # Most of the rotation, for a fraction of the price of a step over all pixels.
        first = rows.every(_stride(rows, FIRST_REFIT_PIXELS))
        right = refit(first, right).model.right
    # The components near the cutoff have to be told apart where it is chosen, or where few pixels represent all.
    rotate_again = isinstance(options.low_cutoff, str) or stride > 1
    return refit(rows.every(stride), right, rotate_again, prior)


def _stride(rows: Rows, n_wanted: int) -> int:
    """Return the largest stride that leaves `n_wanted` pixels or more, at least 1."""
    return max(rows.n_pixels // n_wanted, 1)


def _check_complete(rows: Rows) -> None:
    if not rows.is_complete:
        raise InputError(
            f"the SVD needs every entry, and {rows.n_unobserved} are NaN or infinite; use --method eta-decay"
        )
