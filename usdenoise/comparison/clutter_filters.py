"""The clutter filters that are compared, as a table: name, citation, and the function that runs each.

To add a clutter filter, write it in `usdenoise.baselines`, write a function that calls it from :class:`Pixels` to
:class:`Filtered`, and give it a row.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.baselines import highpass, polynomial, randomized_svd, robust_pca
from usdenoise.baselines.temporal_filters import end_of_clutter
from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.clutter_projection import filter_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.band import Band
from usdenoise.completion.descent_methods import METHODS
from usdenoise.completion.solve import Iteration
from usdenoise.components.rank import least_rank
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions, make_options
from usdenoise.recipe.checked_rows import checked_rows
from usdenoise.recipe.denoise import denoise
from usdenoise.recipe.filter_rows import filter_rows
from usdenoise.recipe.live_pixels import live_pixels
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.casorati import casorati, image_from_pixels
from usdenoise.stack.random_streams import RandomStream
from usdenoise.stack.rows import ArrayRows

SHARED = ("rank", "sampling", "low_cutoff", "high_cutoff", "seed", "precision", "threads")
"""Options of the denoiser that all compared filters share."""

PAPER_TAU = 0.32
"""The paper's step as tau = 2 alpha / (n_pixels n_frames), with its alpha 1e7 and its stack of 26000 x 2400. Unlike
alpha, tau fits stacks of every size."""


@dataclass(frozen=True)
class Filtered:
    """Output of one clutter filter: the filtered stack, its images, and numbers on how it was computed.

    Attributes
    ----------
    matrix : (n_pixels, n_frames) array
        The filtered Casorati matrix.
    power : array
        Power Doppler of the filtered stack, spatial axes in the order of the input.
    blood_power : array
        Its blood map, with the same correction for every filter. Filters with components have
        a local cutoff in it, as `usdenoise run` has.
    rank, low_cutoff : int or None
        Number of components estimated and removed; None for a filter without components.
    held_out_rmse : float or None
        Root mean square error of the filter's own low-rank estimate on the held-out entries, before any refit, in the
        units of the data; None if no entries were held out.
    iterations, passes : int or None
        Number of iterations and of evaluations of the sampled residual; None for a filter that does not count them.
    note : str
        Why the filter stopped, or which filter it is.
    curve : tuple of (passes, seconds, held-out rms error)
        Convergence of an iterative filter, one point per iteration. The time counts from the beginning of the filter,
        the start of the iteration included.
    """

    matrix: NDArray[Any]
    power: NDArray[Any]
    blood_power: NDArray[Any]
    rank: int | None = None
    low_cutoff: int | None = None
    held_out_rmse: float | None = None
    iterations: int | None = None
    passes: int | None = None
    note: str = ""
    curve: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True)
class ClutterFilter:
    """One row of the table.

    Attributes
    ----------
    name : str
        Name on the command line.
    citation : str
        Its source in one line.
    run : callable
        Filters a stack, which stays unchanged, with the shared options.
    chooses_rank : bool
        Whether it has its own rule for an automatic rank; otherwise it uses the rank of the full SVD.
    """

    name: str
    citation: str
    run: Callable[[Acquisition, DenoiseOptions], Filtered]
    chooses_rank: bool = True


def run_denoise(
    stack: Acquisition, options: DenoiseOptions, preset: str | None = None, **changed: Any
) -> Filtered:
    """Filter by :func:`usdenoise.denoise`.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    options : DenoiseOptions
        The shared options.
    preset : str, optional
        Preset of all other options.
    **changed
        Options that differ from both.
    """
    shared = {name: getattr(options, name) for name in SHARED}
    began = time.perf_counter()
    lines: list[tuple[Iteration, float]] = []
    result = denoise(
        stack,
        options=make_options(preset, **shared, **changed),
        on_iteration=lambda line: lines.append((line, time.perf_counter() - began)),
    )
    solution, low = result.solution, result.options.low_cutoff
    filtered = Filtered(
        matrix=casorati(result.acquisition),
        power=result.power_doppler,
        blood_power=result.blood_power,
        rank=len(result.singular_values),
        low_cutoff=None if isinstance(low, str) else low,
        note="every entry was used",
    )
    if solution is None:
        return filtered
    return replace(
        filtered,
        held_out_rmse=result.held_out_rmse,
        iterations=solution.iterations,
        passes=solution.passes,
        note=solution.stop_reason.value,
        curve=_convergence(lines, solution.passes),
    )


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


@dataclass(frozen=True)
class Pixels:
    """The pixels of a stack that have a signal: input of a baseline, which may overwrite it.

    Attributes
    ----------
    rows : ArrayRows
        Their rows of the Casorati matrix.
    grid : Neighbourhood
        The image that they are part of.
    options : DenoiseOptions
        The shared options.
    executor : Executor
        Maps over the rows.
    frame_rate_hz : float or None
        Frame rate, if known.
    """

    rows: ArrayRows
    grid: Neighbourhood
    options: DenoiseOptions
    executor: Executor
    frame_rate_hz: float | None

    def number(self, name: str) -> int:
        """Return an option that must be a number for this filter."""
        value: str | int = getattr(self.options, name)
        if isinstance(value, str):
            raise OptionError("must be a number for this method", option=name)
        return value


def run_baseline(
    stack: Acquisition,
    options: DenoiseOptions,
    baseline: Callable[[Pixels], Filtered],
    fills_missing: bool = False,
) -> Filtered:
    """Filter a copy of a stack by a baseline.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    options : DenoiseOptions
        The shared options.
    baseline : callable
        The filter.
    fills_missing : bool
        Whether the filter can fill missing entries; otherwise they raise an InputError.
    """
    with ThreadExecutor(options.threads) as executor:
        rows, energy = checked_rows(stack, options, executor, in_place=False)
        assert isinstance(rows, ArrayRows)
        live = live_pixels(rows, energy, least_rank(options))
        rows = rows if live is None else rows.keep(live)
        if rows.n_unobserved and not fills_missing:
            raise InputError(
                f"this method needs every entry, and {rows.n_unobserved} are NaN or infinite; "
                "compare methods that fill missing entries, such as eta-decay and rpca"
            )
        grid = Neighbourhood(stack.shape_in(canonical_axes(stack.spatial_axes)), live)
        filtered = baseline(Pixels(rows, grid, options, executor, stack.frame_rate_hz))

    def image(values: NDArray[Any]) -> NDArray[Any]:
        return image_from_pixels(grid.everywhere(values), stack).astype(np.float32)

    return replace(
        filtered,
        matrix=grid.everywhere(filtered.matrix),
        power=image(filtered.power),
        blood_power=image(filtered.blood_power),
    )


def _rsvd(pixels: Pixels) -> Filtered:
    rng = RandomStream.RANGE_FINDER.generator(pixels.options.seed)
    rank = min(pixels.number("rank"), *pixels.rows.shape)
    model = randomized_svd(pixels.rows.values, rank, pixels.executor, rng)
    return replace(_keep_band(pixels, model), note="7 passes over all entries")


def _rpca(pixels: Pixels) -> Filtered:
    found = robust_pca(pixels.rows.values, pixels.executor, observed=pixels.rows.observed)
    note = f"mismatch {found.mismatch:.1e}" + ("" if found.converged else ", not converged")
    return replace(_keep_band(pixels, found.low_rank), iterations=found.iterations, note=note)


def _keep_band(pixels: Pixels, model: LowRank) -> Filtered:
    """Keep the shared band of some components, as `usdenoise run` does."""
    low, high = pixels.number("low_cutoff"), pixels.options.high_cutoff
    band = Band(low, model.rank if isinstance(high, str) else high, high == "none")
    done = filter_rows(pixels.rows, model, band, pixels.grid, with_halves=False)
    return Filtered(
        matrix=pixels.rows.values,
        power=done.power,
        blood_power=done.blood.blood_power,
        rank=model.rank,
        low_cutoff=low,
    )


def _highpass(pixels: Pixels) -> Filtered:
    cutoff, rate = end_of_clutter(pixels.rows.values, pixels.number("low_cutoff")), pixels.frame_rate_hz
    shown = f"{cutoff:.3g} cycles per frame" if rate is None else f"{cutoff * rate:.4g} Hz"
    filtered = _filter_in_time(pixels, partial(highpass, cutoff=cutoff))
    return replace(filtered, note=f"order 4, {shown}, where the clutter ends")


def _polynomial(pixels: Pixels) -> Filtered:
    order = pixels.number("low_cutoff") - 1
    return replace(_filter_in_time(pixels, partial(polynomial, order=order)), note=f"order {order}")


def _filter_in_time(pixels: Pixels, apply: Callable[[NDArray[Any], Executor], None]) -> Filtered:
    """Filter every pixel by `apply`, which filters the rows of a matrix in place, and map the remaining blood."""
    response = np.eye(pixels.rows.n_frames)
    apply(response, pixels.executor)
    apply(pixels.rows.values, pixels.executor)
    projection = filter_projection(response)
    power, lags = pixels.rows.measure(projection.n_lags)
    blood = map_blood(lags, projection, pixels.grid, pixels.executor, with_halves=False)
    return Filtered(matrix=pixels.rows.values, power=power, blood_power=blood.blood_power)


def _descent(name: str, method: str, step: float) -> ClutterFilter:
    """Return a descent method from the paper's start and with its settings, apart from the step."""
    run = partial(run_denoise, preset="paper", method=method, step=step)
    return ClutterFilter(name, METHODS[method].citation, run)


def _baseline(
    name: str, baseline: Callable[[Pixels], Filtered], citation: str, fills_missing: bool = False
) -> ClutterFilter:
    run = partial(run_baseline, baseline=baseline, fills_missing=fills_missing)
    return ClutterFilter(name, citation, run, chooses_rank=False)


_TABLE = (
    ClutterFilter("eta-decay", METHODS["eta-decay"].citation, run_denoise),
    _descent("paper", "eta-decay", PAPER_TAU),
    *(_descent(name, name, METHODS[name].step_tau) for name in METHODS if name != "eta-decay"),
    ClutterFilter(
        "svd",
        "Demene et al., IEEE Trans. Med. Imaging 34(11), 2015",
        partial(run_denoise, method="svd"),
    ),
    _baseline("rsvd", _rsvd, "Halko, Martinsson and Tropp, SIAM Review 53(2), 2011"),
    _baseline(
        "highpass",
        _highpass,
        "Bjaerum, Torp and Kristoffersen, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 49(2), 2002",
    ),
    _baseline(
        "polynomial", _polynomial, "Torp, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 44(2), 1997"
    ),
    _baseline("rpca", _rpca, "Candes, Li, Ma and Wright, J. ACM 58(3), 2011", fills_missing=True),
)

USUAL = ("eta-decay", "svd", "rsvd", "highpass")
"""Filters that are compared by default: those that a user would choose between. The others serve studies of methods."""

CLUTTER_FILTERS = MappingProxyType({row.name: row for row in _TABLE})
