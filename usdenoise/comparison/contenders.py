"""The methods that are compared, as a table: name, citation, defaults, and how each is run."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.descent_methods import METHODS
from usdenoise.completion.identifiability import check_rank, highest_rank
from usdenoise.completion.problem import CompletionProblem
from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError
from usdenoise.filters.randomized_svd import randomized_svd
from usdenoise.filters.robust_pca import robust_pca
from usdenoise.filters.soft_impute import soft_impute
from usdenoise.filters.temporal_filters import highpass, polynomial
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.noise_spectrum import noise_edge
from usdenoise.linalg.row_blocks import block_rows, row_squared_norms
from usdenoise.pipeline.band import Band, keep_band
from usdenoise.pipeline.denoise import STORAGE, denoise
from usdenoise.pipeline.options import DenoiseOptions, make_options
from usdenoise.pipeline.pixel_subset import draw_pixel_subset
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import CasoratiMatrix, casorati, check_entries
from usdenoise.stack.random_streams import RandomStream
from usdenoise.stack.sampling import HELD_OUT_FRACTION, draw_entries

PAPER_TAU = 0.32
"""The paper's alpha 1e7 at its 26000 x 2400, in units that fit every size."""


@dataclass(frozen=True)
class Work:
    """What one method is given.

    Attributes
    ----------
    stack : Acquisition
        Axes in canonical order; its memory may be overwritten.
    low, high : int or str
        The band as in :class:`usdenoise.DenoiseOptions`.
    rank : int or "auto"
        Components to estimate.
    sampling : float or None
        Fraction of the entries; None for a method that uses all.
    seed : int
        Of every random choice.
    precision : str
        "single" or "double".
    threads : int or None
        As in :class:`usdenoise.DenoiseOptions`.
    parameters : mapping
        The method's own defaults, with what the user set over them.
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
    """What one method gave.

    Attributes
    ----------
    matrix : (n_pixels, n_frames) array
        The filtered Casorati matrix.
    power : (n_pixels,) float64 array
        Mean power over frames.
    rank, low : int or None
        Components estimated and removed; None where a method has none.
    held_out_rmse : float or None
        Of the method's own low-rank estimate, before any refit; None where nothing was held out.
    iterations, passes : int or None
        Of an iterative method.
    note : str
        Why it stopped, or what it did.
    curve : tuple of (passes, seconds, held-out rms)
        How an iterative method came there, its start included.
    """

    matrix: NDArray[Any]
    power: NDArray[np.float64]
    rank: int | None = None
    low: int | None = None
    held_out_rmse: float | None = None
    iterations: int | None = None
    passes: int | None = None
    note: str = ""
    curve: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Attributes
    ----------
    name : str
        As on the command line.
    summary, citation : str
        One line each.
    run : callable
        From a :class:`Work` to a :class:`Filtered`.
    sampled : bool
        Whether it uses a sample of the entries; otherwise all of them.
    defaults : mapping
        Its parameters and their values.
    further : frozenset of str
        Parameters that can be set beside those of `defaults`.
    """

    name: str
    summary: str
    citation: str
    run: Callable[[Work], Filtered]
    sampled: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    further: frozenset[str] = frozenset()


_SHARED = {"method", "sampling", "seed", "low_cutoff", "high_cutoff", "precision", "threads"}
_OPTIONS = frozenset(entry.name for entry in fields(DenoiseOptions)) - _SHARED


def _denoiser(preset: str | None, limit_rank: bool) -> Callable[[Work], Filtered]:
    """A contender that is one setting of the library's own denoiser."""

    def run(work: Work) -> Filtered:
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
        chosen |= work.parameters
        if limit_rank and not isinstance(chosen["rank"], str):
            chosen["rank"] = min(chosen["rank"], _most(work))
        began = time.perf_counter()
        lines: list[tuple[Iteration, float]] = []
        result = denoise(
            work.stack,
            options=make_options(preset, **chosen),
            in_place=True,
            on_iteration=lambda line: lines.append((line, time.perf_counter() - began)),
        )
        matrix = casorati(result.acquisition)
        power = result.power_doppler.reshape(-1).astype(np.float64)
        low = result.options.low_cutoff
        filtered = Filtered(matrix, power, int(result.options.rank), None if isinstance(low, str) else low)
        solution = result.solution
        if solution is None:
            return replace(filtered, note="every entry was used")
        passes = solution.passes - sum(1 + line.halvings for line, _ in lines)
        curve = []
        for line, seconds in lines:
            passes += 1 + line.halvings
            if line.held_out_rmse is not None:
                curve.append((passes, seconds, line.held_out_rmse))
        return replace(
            filtered,
            held_out_rmse=result.held_out_rmse,
            iterations=solution.iterations,
            passes=solution.passes,
            note=solution.stop_reason.value,
            curve=tuple(curve),
        )

    return run


def _most(work: Work) -> int:
    """The highest rank that the sample determines."""
    stack = work.stack
    observed = sum(int(np.isfinite(block).sum()) for block in stack.iq)
    fitted = int((1 - HELD_OUT_FRACTION) * observed * (work.sampling or 1.0)) - 1
    return max(1, highest_rank((stack.n_pixels, stack.n_frames), fitted))


def _matrix(work: Work, executor: Executor, missing: bool = False) -> CasoratiMatrix:
    """Return the Casorati matrix; with unobserved entries only where they may be missing."""
    dtype = STORAGE[work.precision, np.iscomplexobj(work.stack.iq)]
    entries = check_entries(casorati(work.stack, dtype), executor)
    if entries.n_unobserved and not missing:
        raise InputError(f"it needs every entry, and {entries.n_unobserved} are NaN or infinite")
    return entries.matrix


def _number(value: str | int, what: str) -> int:
    if isinstance(value, str):
        raise OptionError(f"{what} must be a number for this method; give --{what.replace('_', '-')} N")
    return value


def _keep(
    work: Work,
    matrix: CasoratiMatrix,
    model: LowRank,
    **more: Any,
) -> Filtered:
    """The band of a low-rank estimate, the same for every method that has one."""
    low = _number(work.low, "low_cutoff")
    high = model.rank if isinstance(work.high, str) else work.high
    power = keep_band(matrix, model, Band(low, high, work.high == "none"), out=matrix.values)
    return Filtered(matrix.values, power, rank=model.rank, low=low, **more)


def _rsvd(work: Work) -> Filtered:
    rng = RandomStream.RANGE_FINDER.generator(work.seed)
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor)
        rank = min(_number(work.rank, "rank"), *matrix.shape)
        model = randomized_svd(matrix.values, rank, executor, rng, **work.parameters)
        passes = work.parameters["power_iterations"] + 1
        return _keep(work, matrix, model, note=f"{passes} passes over all entries")


def _rpca(work: Work) -> Filtered:
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor, missing=True)
        parts = robust_pca(matrix.values, executor, observed=matrix.observed, **work.parameters)
        note = f"mismatch {parts.mismatch:.1e}" + ("" if parts.converged else ", not converged")
        return _keep(work, matrix, parts.low_rank, iterations=parts.iterations, note=note)


def _soft_impute(work: Work) -> Filtered:
    parameters = dict(work.parameters)
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor, missing=True)
        began = time.perf_counter()
        sample = draw_entries(matrix.shape, work.sampling or 1.0, work.seed, matrix.observed)
        rank = min(_number(work.rank, "rank"), _most(work))
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
        # On a random sample the penalty takes penalty / p from every singular value.
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


def _highpass(work: Work) -> Filtered:
    hertz, rate = work.parameters["cutoff_hz"], work.stack.frame_rate_hz
    if hertz is not None and rate is None:
        raise OptionError("highpass.cutoff_hz needs the frame rate; give --frame-rate")
    cutoff = work.parameters["cutoff_a_frame"] if hertz is None else hertz / rate
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor).values
        highpass(matrix, cutoff, work.parameters["order"], executor, out=matrix)
    unit = f"{cutoff:.3g} cycles a frame" if rate is None else f"{cutoff * rate:.4g} Hz"
    return Filtered(matrix, _power(matrix), note=f"order {work.parameters['order']}, {unit}")


def _polynomial(work: Work) -> Filtered:
    order = work.parameters["order"]
    if order is None:
        order = _number(work.low, "low_cutoff") - 1
    with ThreadExecutor(work.threads) as executor:
        matrix = _matrix(work, executor).values
        polynomial(matrix, order, executor, out=matrix)
    return Filtered(matrix, _power(matrix), note=f"order {order}")


def _power(matrix: NDArray[Any]) -> NDArray[np.float64]:
    parts = [row_squared_norms(matrix[rows]) for rows in block_rows(matrix.shape)]
    return np.asarray(np.concatenate(parts) / matrix.shape[1])


def _descent(name: str, method: str, **defaults: Any) -> Contender:
    """A row of METHODS from a start and for iterations of its own, otherwise as in the paper."""
    row = METHODS[method]
    start = "a small random start" if defaults.get("init") == "small" else "a spectral start"
    return Contender(
        name,
        f"{row.summary}; from {start}, sample alone",
        row.citation,
        _denoiser("paper", limit_rank=True),
        sampled=True,
        defaults={"method": method, "step": row.step_tau, **defaults},
        further=_OPTIONS,
    )


_TABLE = (
    Contender(
        "eta-decay",
        "the default of usdenoise run",
        METHODS["eta-decay"].citation,
        _denoiser(None, limit_rank=False),
        sampled=True,
        further=_OPTIONS,
    ),
    Contender(
        "paper",
        "usdenoise run --preset paper, its step in units that fit every size, the shared band",
        METHODS["eta-decay"].citation,
        _denoiser("paper", limit_rank=True),
        sampled=True,
        defaults={"rank": 100, "step": PAPER_TAU},
        further=_OPTIONS,
    ),
    _descent("precgd", "precgd"),
    _descent("scaledgd", "scaledgd"),
    _descent("scaledgd-lambda", "scaledgd-lambda"),
    _descent("gd", "gd"),
    _descent("scaledgd-lambda-small", "scaledgd-lambda", init="small", iterations=100),
    _descent("gd-small", "gd", init="small", iterations=100),
    Contender(
        "svd",
        "truncated SVD of the whole stack",
        "Demene et al., IEEE Trans. Med. Imaging 34(11), 2015",
        _denoiser(None, limit_rank=False),
        defaults={"method": "svd"},
    ),
    Contender(
        "rsvd",
        "randomized SVD with power iterations",
        "Halko, Martinsson and Tropp, SIAM Review 53(2), 2011",
        _rsvd,
        defaults={"oversampling": 20, "power_iterations": 6},
    ),
    Contender(
        "highpass",
        "zero-phase Butterworth high-pass filter of every pixel",
        "Bjaerum, Torp and Kristoffersen, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 49(2), 2002",
        _highpass,
        defaults={"cutoff_hz": None, "cutoff_a_frame": 0.05, "order": 4},
    ),
    Contender(
        "polynomial",
        "regression wall filter that removes as many regressors as the others remove components",
        "Torp, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 44(2), 1997",
        _polynomial,
        defaults={"order": None},
    ),
    Contender(
        "rpca",
        "principal component pursuit by inexact augmented Lagrange multipliers",
        "Candes, Li, Ma and Wright, J. ACM 58(3), 2011",
        _rpca,
        defaults={"weight": None, "tolerance": 1e-6, "iterations": 100},
    ),
    Contender(
        "softimpute",
        "nuclear-norm completion by alternating ridge regressions; penalty in units of the noise's edge",
        "Hastie, Mazumder, Lee and Zadeh, J. Mach. Learn. Res. 16, 2015",
        _soft_impute,
        sampled=True,
        defaults={"penalty": 1.0, "iterations": 100, "tolerance": 1e-5},
    ),
)

CONTENDERS = MappingProxyType({contender.name: contender for contender in _TABLE})
