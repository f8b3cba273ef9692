"""The clutter filters that are compared.

To add one, write it in `usdenoise.baselines`, write a function that returns its :class:`Filtered`, and give it a row in
`BASELINES` and a source in `CLUTTER_FILTERS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from usdenoise.baselines import end_of_clutter, highpass, polynomial, randomized_svd, robust_pca
from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import clutter_projection, filter_projection
from usdenoise.completion.descent_methods import METHODS
from usdenoise.errors import InputError, OptionError
from usdenoise.estimate.pixel_subset import least_rank
from usdenoise.linalg.array_library import to_host
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.tall_matrices import row_squared_norms
from usdenoise.options import DenoiseOptions
from usdenoise.options.denoise_options import SharedKeywords, make_options
from usdenoise.pipeline.denoise import denoise
from usdenoise.pipeline.filter_chunk import filter_chunks
from usdenoise.pipeline.fit_result import model_coefficients
from usdenoise.pipeline.inspection import find_signal_pixels
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import ArrayFrames, working_type
from usdenoise.pipeline.series import signal_image
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.sampling import PixelSample, RandomStream

SHARED = tuple(SharedKeywords.__annotations__)
"""Options of the denoiser that all compared filters share."""

PAPER_TAU = 0.32
"""The paper's step as tau = 2 alpha / (n_pixels n_frames), with its alpha 1e7 and its stack of 26000 x 2400. Unlike
alpha, tau fits stacks of every size."""


Matrix = NDArray[np.inexact]
"""The Casorati matrix of a stack, (n_pixels, n_frames), real or complex."""

Image = NDArray[np.floating]
"""An image, or its values in the pixels with a signal."""


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
        Its blood map, with the same correction for every filter.
    rank, low_cutoff : int or None
        Number of components estimated and removed; None for a filter without components.
    held_out_rmse : float or None
        Root mean square error of the filter's own low-rank estimate on the held-out entries, before any refit, in the
        units of the data; None if no entries were held out.
    iterations, passes : int or None
        Number of iterations and of evaluations of the sampled residual; None for a filter that does not count them.
    note : str
        Why the filter stopped, or which filter it is.
    """

    matrix: Matrix
    power: Image
    blood_power: Image
    rank: int | None = None
    low_cutoff: int | None = None
    held_out_rmse: float | None = None
    iterations: int | None = None
    passes: int | None = None
    note: str = ""


def run_filter(name: str, stack: Acquisition, options: DenoiseOptions) -> Filtered:
    """Filter a stack, which stays unchanged, by one of :data:`CLUTTER_FILTERS` with the shared options."""
    if name in BASELINES:
        return _run_baseline(BASELINES[name], stack, options)
    shared = {option: getattr(options, option) for option in SHARED}
    result = denoise(stack, options=make_options(**{**shared, **_DENOISE[name]}))
    solution, low = result.solution, result.options.low_cutoff
    tissue = "tissue held still, " if result.options.tissue == "still" else ""
    return Filtered(
        matrix=result.acquisition.frames.T,
        power=result.power_doppler,
        blood_power=result.blood_power,
        rank=len(result.singular_values),
        low_cutoff=None if isinstance(low, str) else low,
        held_out_rmse=result.held_out_rmse,
        iterations=solution.iterations if solution else None,
        passes=solution.passes if solution else None,
        note=tissue + (solution.stop_reason.value if solution else "every entry was used"),
    )


Baseline = Callable[[Matrix, Neighbourhood, DenoiseOptions, Executor], Filtered]
"""A filter of the pixels with a signal, (n_pixels, n_frames). It may overwrite their rows."""


def _run_baseline(baseline: Baseline, stack: Acquisition, options: DenoiseOptions) -> Filtered:
    dtype = working_type(stack, options.precision)
    matrix = np.array(to_host(ArrayFrames(stack.iq, stack.axes, dtype, stack.name).read()).T, order="C")
    with ThreadExecutor(options.threads) as executor:
        sample = PixelSample.of(matrix, np.arange(len(matrix)), executor)
        if n_missing := matrix.size - sample.n_used:
            raise InputError(
                f"this method requires every entry, and {n_missing} are NaN or infinite; "
                "compare methods that fill missing entries, such as eta-decay"
            )
        mask = find_signal_pixels(sample, row_squared_norms(matrix), least_rank(options), sample.fast_power)
        grid = Neighbourhood(mask.reshape(stack.pixel_shape))
        filtered = baseline(grid.at_signal(matrix), grid, options, executor)
    image = partial(signal_image, stack.geometry, grid)
    power, blood = image(filtered.power), image(filtered.blood_power)
    return replace(filtered, matrix=grid.everywhere(filtered.matrix), power=power, blood_power=blood)


def _required_number(options: DenoiseOptions, name: str) -> int:
    """Return an option that must be a number for a baseline."""
    value: str | int = getattr(options, name)
    if isinstance(value, str):
        raise OptionError("must be a number for this method", option=name)
    return value


def _rsvd(matrix: Matrix, grid: Neighbourhood, options: DenoiseOptions, executor: Executor) -> Filtered:
    rng = RandomStream.RANGE_FINDER.generator(options.seed)
    rank = min(_required_number(options, "rank"), *matrix.shape)
    return keep_band(matrix, grid, options, executor, randomized_svd(matrix, rank, executor, rng))


def _rpca(matrix: Matrix, grid: Neighbourhood, options: DenoiseOptions, executor: Executor) -> Filtered:
    low_rank, iterations, mismatch = robust_pca(matrix, executor)
    filtered = keep_band(matrix, grid, options, executor, low_rank)
    return replace(filtered, iterations=iterations, note=f"mismatch {mismatch:.1e}")


def keep_band(
    matrix: Matrix, grid: Neighbourhood, options: DenoiseOptions, executor: Executor, model: LowRank
) -> Filtered:
    """Keep the shared band of some components, as `usdenoise run` does."""
    low, high = _required_number(options, "low_cutoff"), options.high_cutoff
    n_pixels, n_frames = matrix.shape
    projection = clutter_projection(model.right[:, :low])
    clutter = Clutter(
        left=model.left,
        low=low,
        high=model.rank if isinstance(high, str) else high,
        keeps_residual=high == "none",
        projection=projection,
        grid=Neighbourhood.whole((n_pixels,)),
        model=model_coefficients(model),
        is_given=True,
    )
    frames = ArrayFrames(matrix, "zt", matrix.dtype, "matrix")
    measures = filter_chunks(frames.chunks(), clutter, np.zeros(n_frames, bool), executor, matrix.T)
    maps = map_blood(measures.lag_sums(clutter.grid.mask), projection, grid, executor, with_halves=False)
    power = measures.kept_power / n_frames
    return Filtered(matrix=matrix, power=power, blood_power=maps.blood_power, rank=model.rank, low_cutoff=low)


def _highpass(matrix: Matrix, grid: Neighbourhood, options: DenoiseOptions, executor: Executor) -> Filtered:
    cutoff = end_of_clutter(matrix, _required_number(options, "low_cutoff"))
    note = f"order 4, {cutoff:.3g} cycles per frame, where the clutter ends"
    return _filter_in_time(matrix, grid, executor, partial(highpass, cutoff=cutoff), note)


def _polynomial(matrix: Matrix, grid: Neighbourhood, options: DenoiseOptions, executor: Executor) -> Filtered:
    order = _required_number(options, "low_cutoff") - 1
    return _filter_in_time(matrix, grid, executor, partial(polynomial, order=order), f"order {order}")


TimeFilter = Callable[[Matrix, Executor], None]
"""Filters the rows of a matrix in place."""


def _filter_in_time(
    matrix: Matrix, grid: Neighbourhood, executor: Executor, apply: TimeFilter, note: str
) -> Filtered:
    """Filter every pixel by `apply`, and map the remaining blood."""
    n_frames = matrix.shape[1]
    response = np.eye(n_frames)
    apply(response, executor)
    apply(matrix, executor)
    projection = filter_projection(response)
    lags = LagSums.of_matrix(matrix, projection.n_lags)
    blood = map_blood(lags, projection, grid, executor, with_halves=False)
    power = row_squared_norms(matrix) / n_frames
    return Filtered(matrix=matrix, power=power, blood_power=blood.blood_power, note=note)


BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {"rsvd": _rsvd, "highpass": _highpass, "polynomial": _polynomial, "rpca": _rpca}
)
"""Filters outside :func:`usdenoise.denoise`. They need the rank and the cutoff as numbers."""

_DENOISE: Mapping[str, Mapping[str, object]] = {
    **{name: {"preset": "paper", "method": name, "step": row.step_tau} for name, row in METHODS.items()},
    "eta-decay": {},
    "paper": {"preset": "paper", "step": PAPER_TAU},
    "svd": {"method": "svd", "tissue": "recorded"},
}
"""Options of :func:`usdenoise.denoise` for its methods. Other descents than the default have the paper's start and
settings, apart from the step."""

OWN_CUTOFF = ("eta-decay",)
"""Filters that choose an automatic cutoff themselves, as their tissue is held still."""

CLUTTER_FILTERS: Mapping[str, str] = MappingProxyType(
    {
        **{name: row.citation for name, row in METHODS.items()},
        "paper": METHODS["eta-decay"].citation,
        "svd": "Demene et al., IEEE Trans. Med. Imaging 34(11), 2015",
        "rsvd": "Halko, Martinsson and Tropp, SIAM Review 53(2), 2011",
        "highpass": "Bjaerum, Torp and Kristoffersen, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 49(2), 2002",
        "polynomial": "Torp, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 44(2), 1997",
        "rpca": "Candes, Li, Ma and Wright, J. ACM 58(3), 2011",
    }
)
"""Name of each filter that can be compared -> its source."""

USUAL_FILTERS = ("eta-decay", "svd", "rsvd", "highpass")
"""Filters that are compared by default: a user would choose between them. All other filters serve studies of methods."""
