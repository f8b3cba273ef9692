"""The library call: a stack in, the filtered stack and everything known about it out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.acquisition import Acquisition
from usdenoise.casorati import blank_unobserved, casorati, from_casorati, image_from_pixels
from usdenoise.completion.executor import ThreadExecutor
from usdenoise.completion.solve import Iteration, Solution
from usdenoise.errors import InputError, OptionError
from usdenoise.filters.band import keep_band
from usdenoise.filters.completion import complete
from usdenoise.filters.lowrank import LowRank
from usdenoise.filters.pixels import draw_pixels
from usdenoise.filters.refit import refit
from usdenoise.filters.svd import truncated_svd
from usdenoise.options import DenoiseOptions, make_options
from usdenoise.sampling import EntrySample, draw_entries

STORAGE = {("single", False): np.float32, ("single", True): np.complex64}
STORAGE |= {("double", False): np.float64, ("double", True): np.complex128}


@dataclass(frozen=True)
class DenoiseResult:
    """A filtered acquisition and how it came about.

    Attributes
    ----------
    acquisition : Acquisition
        The filtered stack, in the axis order of the input.
    power_doppler : float32 array
        Mean power over frames, spatial axes in the order of the input.
    model : LowRank
        The singular triplets that were estimated.
    options : DenoiseOptions
        As used.
    solution : Solution or None
        What the iterative method ended with; None for the SVD.
    noise_floor : float
        Estimated rms of the noise in an entry, in the units of the data.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the finite entries of the Casorati matrix; None when all were.
    n_unobserved : int
        Entries that were NaN or infinite.
    n_sampled : int
        Entries that were fitted or held out.
    timings_s : dict
        Seconds for "solve" and "filter".
    """

    acquisition: Acquisition
    power_doppler: NDArray[np.float32]
    model: LowRank
    options: DenoiseOptions
    solution: Solution | None
    noise_floor: float
    observed: NDArray[np.uint8] | None
    n_unobserved: int
    n_sampled: int
    timings_s: dict[str, float]

    @property
    def held_out_rmse(self) -> float | None:
        """Error of the samples' own factors on the held-out entries, None for the SVD."""
        return None if self.solution is None else self.solution.trace[-1].held_out_rmse


def denoise(
    acquisition: Acquisition | NDArray[Any],
    *,
    axes: str | None = None,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    in_place: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
    **given: Any,
) -> DenoiseResult:
    """Estimate the leading components of a stack from a sample of its entries, and keep a band of them.

    NaN and infinite entries are unobserved: they are never used, and the low-rank model fills them.

    Parameters
    ----------
    acquisition : Acquisition or array
        The stack; with an array give `axes`.
    axes : str, optional
        Axis letters of an array, for example "tzx".
    preset : str, optional
        "paper" for the settings of the paper.
    options : DenoiseOptions, optional
        All options at once, in place of a preset and single ones.
    in_place : bool
        Let the result take the memory of the input.
    on_iteration : callable, optional
        Called with each line of the trace as it is made.
    **given
        Fields of :class:`usdenoise.DenoiseOptions`.

    Returns
    -------
    DenoiseResult

    Raises
    ------
    InputError
        If the array cannot be a stack, or is zero or unobserved everywhere.
    OptionError
        If the options contradict each other or the stack.
    DivergedError
        If the solver leaves the finite numbers.
    """
    if not isinstance(acquisition, Acquisition):
        if axes is None:
            raise OptionError("an array does not say what its axes are; give axes, for example axes='tzx'")
        acquisition = Acquisition(np.asarray(acquisition), axes)
    chosen = make_options(preset, **given) if options is None else options
    dtype = STORAGE[chosen.precision, np.iscomplexobj(acquisition.iq)]
    matrix = casorati(acquisition, dtype)
    if not in_place and np.may_share_memory(matrix, acquisition.iq):
        matrix = matrix.copy()
    observed, n_unobserved = blank_unobserved(matrix)
    with ThreadExecutor(chosen.threads) as executor:
        if n_unobserved == matrix.size:
            raise InputError(f"'{acquisition.name}' has no finite entry; check how the file was written")
        if not matrix.any():
            raise InputError(f"'{acquisition.name}' is zero everywhere; check --dataset and --frames")
        began = time.perf_counter()
        sample: EntrySample | None = None
        solution: Solution | None = None
        if chosen.method == "svd":
            _check_complete(chosen, matrix.shape, n_unobserved)
            model = truncated_svd(matrix, chosen.rank, executor)
        else:
            sample = draw_entries(matrix.shape, chosen.sampling, chosen.seed, observed)
            solution = complete(matrix, sample, chosen, executor, on_iteration)
            model = LowRank.from_factors(*solution.factors)
            if chosen.refit == "all":
                model = refit(matrix, model.right, executor, observed)
        floor = draw_pixels(matrix, observed, np.random.default_rng([chosen.seed, 2])).noise_rms
        solved = time.perf_counter()
        high = None if chosen.high_cutoff == "none" else _high(chosen)
        power = keep_band(matrix, model, chosen.low_cutoff, high, executor, observed, out=matrix)
    filtered = replace(acquisition, iq=from_casorati(matrix, acquisition))
    return DenoiseResult(
        filtered,
        image_from_pixels(power, acquisition).astype(np.float32),
        model,
        chosen,
        solution,
        floor,
        observed,
        n_unobserved,
        matrix.size - n_unobserved if sample is None else sample.n_fitted + sample.n_held_out,
        {"solve": solved - began, "filter": time.perf_counter() - solved},
    )


def _high(options: DenoiseOptions) -> int:
    return options.rank if isinstance(options.high_cutoff, str) else options.high_cutoff


def _check_complete(options: DenoiseOptions, shape: tuple[int, int], n_unobserved: int) -> None:
    if options.rank > min(shape):
        raise OptionError(
            f"rank {options.rank} is above min(n_pixels, n_frames) = {min(shape)}; "
            "lower --rank or widen --frames"
        )
    if n_unobserved:
        raise InputError(
            f"the SVD needs every entry, and {n_unobserved} are NaN or infinite; use --method eta-decay"
        )
