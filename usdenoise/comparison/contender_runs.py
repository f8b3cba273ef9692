"""How each contender filters a stack: one function a method, from a :class:`Work` to a :class:`Filtered`."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.clutter_projection import filter_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.band import Band, keep_band, remove_clutter
from usdenoise.clutter.blood_by_place import filter_by_place, map_blood
from usdenoise.comparison.randomized_svd import randomized_svd
from usdenoise.comparison.robust_pca import robust_pca
from usdenoise.comparison.soft_impute import soft_impute
from usdenoise.comparison.temporal_filters import highpass, polynomial
from usdenoise.completion.identifiability import check_rank, highest_rank
from usdenoise.completion.problem import CompletionProblem
from usdenoise.completion.solve import Iteration
from usdenoise.components.pixel_subset import draw_pixel_subset
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.noise_spectrum import noise_edge
from usdenoise.options.denoise_options import make_options
from usdenoise.recipe.denoise import denoise
from usdenoise.recipe.first_look import STORAGE
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.casorati import casorati
from usdenoise.stack.random_streams import RandomStream
from usdenoise.stack.rows import ArrayRows, check_entries
from usdenoise.stack.sampling import HELD_OUT_FRACTION, draw_entries


@dataclass(frozen=True)
class Work:
    """Input of one method: a stack, and the settings to filter it with.

    Attributes
    ----------
    stack : Acquisition
        The stack, with its axes in canonical order. The method may overwrite its memory.
    low, high : int or str
        Low and high cutoff, as in :class:`usdenoise.DenoiseOptions`.
    rank : int or "auto"
        Number of components to estimate.
    sampling : float or None
        Fraction of the entries to sample; None for a method that uses all entries.
    seed : int
        Seed of every random choice.
    precision : str
        "single" or "double".
    threads : int or None
        Number of threads; None for one a processor.
    parameters : mapping
        Parameters of the method: its defaults, overridden by those that the user set.
    """

    stack: Acquisition
    low: str | int
    high: str | int
    rank: str | int
    sampling: float | None
    seed: int
    precision: str
    threads: int | None
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Filtered:
    """Output of one method: the filtered stack, and figures of how it was computed.

    Attributes
    ----------
    matrix : (n_pixels, n_frames) array
        The filtered Casorati matrix.
    power : (n_pixels,) float64 array
        Mean power of each pixel over the frames.
    blood_power : (n_pixels,) float64 array
        Blood map of the filtered stack, with the same correction for every method. Methods with components have
        cutoffs by place in it, as `usdenoise run` has.
    rank, low : int or None
        Number of components estimated and removed; None for a method without components.
    held_out_rmse : float or None
        Root mean square error of the method's own low-rank estimate on the held-out entries, before any refit, in the
        units of the data; None where no entries were held out.
    iterations, passes : int or None
        Number of iterations and of evaluations of the sampled residual; None for a method that does not count them.
    note : str
        Why the method stopped, or which filter it applied.
    curve : tuple of (passes, seconds, held-out rms error)
        Convergence of an iterative method, one point an iteration. The time counts from the beginning of the method,
        the start of the iteration included.
    """

    matrix: NDArray[Any]
    power: NDArray[np.float64]
    blood_power: NDArray[np.float64]
    rank: int | None = None
    low: int | None = None
    held_out_rmse: float | None = None
    iterations: int | None = None
    passes: int | None = None
    note: str = ""
    curve: tuple[tuple[int, float, float], ...] = ()


def denoiser(preset: str | None, limit_rank: bool) -> Callable[[Work], Filtered]:
    """Return a contender's function that calls :func:`usdenoise.denoise`.

    Parameters
    ----------
    preset : str or None
        Preset of the options, which the work's settings and parameters override.
    limit_rank : bool
        Whether a rank that the sample cannot determine is lowered to the highest rank that it can.
    """

    def run(work: Work) -> Filtered:
        chosen = _denoise_options(work)
        if limit_rank and not isinstance(chosen["rank"], str):
            chosen["rank"] = min(chosen["rank"], _highest_rank(work))
        began = time.perf_counter()
        lines: list[tuple[Iteration, float]] = []
        result = denoise(
            work.stack,
            options=make_options(preset, **chosen),
            in_place=True,
            on_iteration=lambda line: lines.append((line, time.perf_counter() - began)),
        )
        matrix = casorati(result.acquisition)
        power, blood = (
            image.reshape(-1).astype(np.float64) for image in (result.power_doppler, result.blood_power)
        )
        low = result.options.low_cutoff
        filtered = Filtered(
            matrix, power, blood, int(result.options.rank), None if isinstance(low, str) else low
        )
        solution = result.solution
        if solution is None:
            return replace(filtered, note="every entry was used")
        return replace(
            filtered,
            held_out_rmse=result.held_out_rmse,
            iterations=solution.iterations,
            passes=solution.passes,
            note=solution.stop_reason.value,
            curve=_convergence(lines, solution.passes),
        )

    return run


def run_rsvd(work: Work) -> Filtered:
    """Filter by a randomized SVD."""
    rng = RandomStream.RANGE_FINDER.generator(work.seed)
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor)
        rank = min(_number(work.rank, "rank"), *matrix.shape)
        model = randomized_svd(matrix.values, rank, executor, rng, **work.parameters)
        passes = work.parameters["power_iterations"] + 1
        return _keep(work, matrix, model, note=f"{passes} passes over all entries")


def run_rpca(work: Work) -> Filtered:
    """Filter by the low-rank part of robust PCA."""
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor, missing=True)
        parts = robust_pca(matrix.values, executor, observed=matrix.observed, **work.parameters)
        note = f"mismatch {parts.mismatch:.1e}" + ("" if parts.converged else ", not converged")
        return _keep(work, matrix, parts.low_rank, iterations=parts.iterations, note=note)


def run_soft_impute(work: Work) -> Filtered:
    """Filter by a Soft-Impute estimate from a sample of the entries.

    The method's parameter `penalty` counts in noise edges of the sampled matrix: sqrt(p) times the largest singular
    value of a noise matrix, p being the sampling.
    """
    parameters = dict(work.parameters)
    began = time.perf_counter()
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor, missing=True)
        sample = draw_entries(matrix.shape, work.sampling or 1.0, work.seed, matrix.observed)
        rank = min(_number(work.rank, "rank"), _highest_rank(work))
        check_rank(matrix.shape, rank, sample.n_fitted)
        problem = CompletionProblem(matrix.values, sample, executor)
        units = parameters.pop("penalty")
        noise = draw_pixel_subset(matrix, RandomStream.PIXEL_SUBSET.generator(work.seed)).noise_rms
        penalty = units * np.sqrt(sample.density) * noise_edge(noise, sample.shape)
        curve: list[tuple[int, float, float]] = []

        def follow(line: Iteration) -> None:
            if line.held_out_rmse is not None:
                curve.append((1 + 2 * line.iteration, time.perf_counter() - began, line.held_out_rmse))

        rng = RandomStream.START.generator(work.seed)
        parts = soft_impute(problem, rank, penalty, rng, on_iteration=follow, **parameters)
        # On a random sample of fraction p the penalty lowers every singular value by penalty / p.
        shrunk = parts.low_rank
        model = LowRank(shrunk.left, shrunk.singular_values + penalty / sample.density, shrunk.right)
        return _keep(
            work,
            matrix,
            model,
            held_out_rmse=parts.held_out_rmse,
            iterations=parts.iterations,
            passes=parts.passes,
            note="converged" if parts.converged else "not converged",
            curve=tuple(curve),
        )


def run_highpass(work: Work) -> Filtered:
    """Filter every pixel by a Butterworth high-pass, with the cutoff in Hz or in cycles a frame."""
    hertz, rate = work.parameters["cutoff_hz"], work.stack.frame_rate_hz
    if hertz is not None and rate is None:
        raise OptionError("highpass.cutoff_hz needs the frame rate; give --frame-rate")
    cutoff = work.parameters["cutoff_a_frame"] if hertz is None else hertz / rate
    order = work.parameters["order"]
    unit = f"{cutoff:.3g} cycles a frame" if rate is None else f"{cutoff * rate:.4g} Hz"

    def apply(matrix: NDArray[Any], executor: Executor) -> None:
        highpass(matrix, cutoff, order, executor, out=matrix)

    return _filter_in_time(work, apply, f"order {order}, {unit}")


def run_polynomial(work: Work) -> Filtered:
    """Filter every pixel by polynomial regression, by default with low_cutoff terms: order low_cutoff - 1."""
    order = work.parameters["order"]
    if order is None:
        order = _number(work.low, "low_cutoff") - 1

    def apply(matrix: NDArray[Any], executor: Executor) -> None:
        polynomial(matrix, order, executor, out=matrix)

    return _filter_in_time(work, apply, f"order {order}")


def _filter_in_time(work: Work, apply: Callable[[NDArray[Any], Executor], None], note: str) -> Filtered:
    """Filter every pixel alone, and map the blood that is left.

    Parameters
    ----------
    work : Work
        The stack and the settings.
    apply : callable
        Filters the rows of a matrix in place.
    note : str
        Which filter it is.
    """
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor)
        kept = np.eye(matrix.n_frames)
        apply(kept, executor)
        apply(matrix.values, executor)
        grid, projection = _grid(work), filter_projection(kept)
        power, lags = matrix.measure(projection.n_lags)
        blood = map_blood(lags, projection, grid, executor, with_halves=False)
    return Filtered(matrix.values, power, blood.blood_power, note=note)


def _denoise_options(work: Work) -> dict[str, Any]:
    """Return the options of the denoiser that the work sets, its parameters last."""
    chosen: dict[str, Any] = {
        "rank": work.rank,
        "seed": work.seed,
        "precision": work.precision,
        "threads": work.threads,
        "low_cutoff": work.low,
        "high_cutoff": work.high,
    }
    if work.sampling is not None:
        chosen["sampling"] = work.sampling
    return {**chosen, **work.parameters}


def _convergence(
    lines: list[tuple[Iteration, float]], total_passes: int
) -> tuple[tuple[int, float, float], ...]:
    """Return (passes, seconds, held-out rms error) after each iteration, with passes that end at the total."""
    passes = total_passes - sum(1 + line.halvings for line, _ in lines)
    curve = []
    for line, seconds in lines:
        passes += 1 + line.halvings
        if line.held_out_rmse is not None:
            curve.append((passes, seconds, line.held_out_rmse))
    return tuple(curve)


def _highest_rank(work: Work) -> int:
    """Return the highest rank that the fitted entries determine."""
    stack = work.stack
    observed = sum(int(np.isfinite(block).sum()) for block in stack.iq)
    # The numbers of sampled and held-out entries are rounded, so one fitted entry fewer is on the safe side.
    fitted = int((1 - HELD_OUT_FRACTION) * observed * (work.sampling or 1.0)) - 1
    return max(1, highest_rank((stack.n_pixels, stack.n_frames), fitted))


def _matrix(work: Work, executor: Executor, missing: bool = False) -> ArrayRows:
    """Return the Casorati matrix of the stack.

    Parameters
    ----------
    work : Work
        Holds the stack and the precision.
    executor : Executor
        Maps over the row blocks.
    missing : bool
        Whether the method can fill unobserved entries; otherwise they raise an InputError.
    """
    dtype = STORAGE[work.precision, np.iscomplexobj(work.stack.iq)]
    rows, _ = check_entries(casorati(work.stack, dtype), executor)
    if rows.n_unobserved and not missing:
        raise InputError(
            f"this method needs every entry, and {rows.n_unobserved} are NaN or infinite; "
            "compare methods that fill unobserved entries, such as eta-decay and rpca"
        )
    return rows


def _number(value: str | int, what: str) -> int:
    if isinstance(value, str):
        raise OptionError(f"{what} must be a number for this method; give --{what.replace('_', '-')} N")
    return value


def _keep(
    work: Work,
    matrix: ArrayRows,
    model: LowRank,
    **more: Any,
) -> Filtered:
    """Keep the shared band of a low-rank estimate, in the memory of the matrix."""
    low = _number(work.low, "low_cutoff")
    high = model.rank if isinstance(work.high, str) else work.high
    band = Band(low, high, work.high == "none")
    grid = _grid(work)
    place = filter_by_place(matrix, model, low, grid)
    _, power, lags = remove_clutter(matrix, model, low, place.projection.n_lags, place.cutoffs)
    blood = map_blood(lags, place.projection, grid, matrix.executor, with_halves=False)
    _, power = keep_band(matrix, model, band, power)
    return Filtered(matrix.values, power, blood.blood_power, rank=model.rank, low=low, **more)


def _grid(work: Work) -> Neighbourhood:
    return Neighbourhood(work.stack.shape_in(canonical_axes(work.stack.spatial_axes)))
