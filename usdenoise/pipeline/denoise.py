"""The library call: a stack in, the filtered stack and everything known about it out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.identifiability import check_rank_fits
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration, Solution
from usdenoise.errors import InputError, OptionError
from usdenoise.filters.svd import truncated_svd
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.pipeline.band import keep_band
from usdenoise.pipeline.clutter_cutoff import CutoffChoice, choose_low_cutoff
from usdenoise.pipeline.estimate import complete
from usdenoise.pipeline.fit_quality import Judgement, judge
from usdenoise.pipeline.options import DenoiseOptions, make_options
from usdenoise.pipeline.pixel_subset import PixelSubset, automatic_rank, draw_panel, draw_pixels
from usdenoise.pipeline.refit import refit
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import blank_unobserved, casorati, from_casorati, image_from_pixels
from usdenoise.stack.sampling import EntrySample, draw_entries
from usdenoise.system.memory import release_freed_memory

STORAGE = {("single", False): np.float32, ("single", True): np.complex64}
STORAGE |= {("double", False): np.float64, ("double", True): np.complex128}

TURN_PIXELS, LOOK_PIXELS = 2000, 6000
BEYOND_CUTOFF = 8

SCALES = (1e-12, 1e14)
"""Largest magnitudes of a stack whose power, summed over a stack, and 60 dB below it, float32 holds."""


@dataclass(frozen=True)
class _Panel:
    """The pixels that the samples are drawn from."""

    matrix: NDArray[Any]
    observed: NDArray[np.uint8] | None
    start: Factors | None


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
        The singular triplets that were estimated. Of a large stack whose residual is kept, those up to
        BEYOND_CUTOFF above the low cutoff, unless all were asked for.
    singular_values : (rank,) float64 array
        Of all components. Those that the model does not have are estimated from every few pixels.
    options : DenoiseOptions
        As used, with numbers in the place of what was automatic.
    solution : Solution or None
        What the iterative method ended with; None for the SVD.
    cutoff : CutoffChoice or None
        How the low cutoff was chosen; None where it was given.
    judgement : Judgement
        The held-out error against what is possible, and the verdict.
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
    singular_values: NDArray[np.float64]
    options: DenoiseOptions
    solution: Solution | None
    cutoff: CutoffChoice | None
    judgement: Judgement
    noise_floor: float
    observed: NDArray[np.uint8] | None
    n_unobserved: int
    n_sampled: int
    timings_s: dict[str, float]

    @property
    def held_out_rmse(self) -> float | None:
        """Error of the samples' own factors on the held-out entries, None for the SVD."""
        return _held_out(self.solution)


def denoise(
    acquisition: Acquisition | NDArray[Any],
    *,
    axes: str | None = None,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    start: Factors | None = None,
    in_place: bool = False,
    all_components: bool = False,
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
    start : pair of arrays, optional
        Factors U (n_pixels, r) and V (n_frames, r) to start from, of an earlier or a similar stack, r at
        most the rank; U V^H is the estimate.
    in_place : bool
        Let the result take the memory of the input.
    all_components : bool
        Whether the model has to hold all components, and not only those that the filter needs.
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
    with ThreadExecutor(chosen.threads) as executor:
        began = time.perf_counter()
        seen = blank_unobserved(matrix, executor.map)
        observed, n_unobserved = seen.bits, seen.n_missing
        if n_unobserved == matrix.size:
            raise InputError(f"'{acquisition.name}' has no finite entry; check how the file was written")
        _check_scale(matrix, seen.energy, acquisition.name)
        subset = draw_pixels(matrix, observed, np.random.default_rng([chosen.seed, 2]), executor)
        release_freed_memory()
        noise_rms = subset.noise_rms
        sample: EntrySample | None = None
        solution: Solution | None = None
        seen_in = slice(None)
        n_sampled = matrix.size - n_unobserved
        rank = _rank(chosen, subset, matrix.shape, n_sampled)
        if chosen.method == "svd":
            check_rank_fits(matrix.shape, rank)
            _check_complete(n_unobserved)
            model = truncated_svd(matrix, rank, executor)
        else:
            panel = _panel(matrix, observed, rank, chosen, start)
            sample = draw_entries(panel.matrix.shape, chosen.sampling, chosen.seed, panel.observed)
            n_sampled = sample.n_fitted + sample.n_held_out
            # No more than these samples determine.
            rank = _rank(chosen, subset, panel.matrix.shape, sample.n_fitted)
            solution = complete(
                panel.matrix, sample, subset, rank, chosen, executor, on_iteration, panel.start
            )
            # Copies of some pixels, which nobody needs any more.
            del panel, subset
            release_freed_memory()
            if chosen.refit != "all":
                model = LowRank.from_factors(*solution.factors)
            else:
                if observed is None and not all_components:
                    seen_in = _look(len(matrix), rank, chosen)
                model = _refitted(
                    matrix, seen_in, orthonormal(solution.factors[1]), executor, observed, chosen
                )
        cutoff: CutoffChoice | None = None
        low = chosen.low_cutoff
        high = _high(chosen, rank)
        if isinstance(low, str):
            highest = rank if high is None else high - 1
            cutoff = choose_low_cutoff(model, matrix[seen_in], observed, noise_rms, highest)
            low = cutoff.low
        used = replace(chosen, rank=rank, low_cutoff=low)
        singular_values = model.singular_values
        if seen_in != slice(None):
            rest = singular_values[low + BEYOND_CUTOFF :] * np.sqrt(len(matrix) / len(model.left))
            right = model.right[:, : low + BEYOND_CUTOFF]
            del model
            model = refit(matrix, right, executor, None)
            smallest = model.singular_values[-1]
            singular_values = np.append(model.singular_values, np.minimum(rest, smallest))
        solved = time.perf_counter()
        power = keep_band(matrix, model, low, high, executor, observed, out=matrix)
    if high is None and observed is None and chosen.refit == "all":
        # Next to tissue 60 dB above it the rest would be lost in rounding errors.
        left_over = power.sum() * matrix.shape[1] - np.sum(singular_values[low:] ** 2)
    else:
        left_over = seen.energy.sum() - np.sum(singular_values**2)
    judgement = judge(
        held_out_rmse=_held_out(solution),
        residual_energy=float(left_over),
        shape=matrix.shape,
        rank=rank,
        samples_a_pixel=None if sample is None else n_sampled / sample.shape[0],
        refitted=chosen.refit == "all",
    )
    filtered = replace(acquisition, iq=from_casorati(matrix, acquisition))
    return DenoiseResult(
        filtered,
        image_from_pixels(power, acquisition).astype(np.float32),
        model,
        singular_values,
        used,
        solution,
        cutoff,
        judgement,
        noise_rms,
        observed,
        n_unobserved,
        n_sampled,
        {"solve": solved - began, "filter": time.perf_counter() - solved},
    )


def _check_scale(matrix: NDArray[Any], energy: NDArray[np.float64], name: str) -> None:
    most = float(energy.max())
    # The largest magnitude lies between the root of this and the root of its mean over the parts of a row.
    if SCALES[0] ** 2 <= most / (2 * matrix.shape[1]) and most <= SCALES[1] ** 2:
        return
    parts = matrix.view(matrix.real.dtype)
    largest = max(float(parts.max()), -float(parts.min()))
    if largest == 0:
        raise InputError(f"'{name}' is zero everywhere; check --dataset and --frames")
    if not SCALES[0] <= largest <= SCALES[1]:
        raise InputError(
            f"the largest magnitude in '{name}' is {largest:.3g}, and its power has to fit in single precision; "
            f"scale the stack to between {SCALES[0]:g} and {SCALES[1]:g}"
        )


def _panel(
    matrix: NDArray[Any],
    observed: NDArray[np.uint8] | None,
    rank: int,
    options: DenoiseOptions,
    start: Factors | None,
) -> _Panel:
    """All pixels where the sample's own factors are the result, enough of them where a refit follows."""
    rows = None
    if options.refit == "all":
        rng = np.random.default_rng([options.seed, 4])
        rows = draw_panel(len(matrix), rank, options.sampling, observed, rng)
    if rows is None:
        return _Panel(matrix, observed, start)
    if start is not None and len(start[0]) == len(matrix):
        start = (start[0][rows], start[1])
    return _Panel(matrix[rows], None if observed is None else observed[rows], start)


def _refitted(
    matrix: NDArray[Any],
    seen_in: slice,
    right: NDArray[Any],
    executor: ThreadExecutor,
    observed: NDArray[np.uint8] | None,
    options: DenoiseOptions,
) -> LowRank:
    """The components of some pixels, from the temporal subspace of a sample."""
    if observed is None and seen_in == slice(None):
        # Most of the way to where the step over all pixels ends, for a fraction of its price.
        right = refit(matrix[_every(len(matrix), TURN_PIXELS)], right, executor, None).right
    # What is weak is sharpened where the cut is to be seen, or a few pixels stand for all.
    twice = isinstance(options.low_cutoff, str) or seen_in != slice(None)
    return refit(matrix[seen_in], right, executor, observed, twice)


def _look(n_pixels: int, rank: int, options: DenoiseOptions) -> slice:
    """The pixels in which all components are seen, to choose the cutoff and to judge.

    Where the residual is kept, the components above the cutoff change nothing: they are fitted to every few
    pixels only, and those below it, with some beyond that keep the last of them exact, to all.
    """
    low = options.low_cutoff
    needed = options.high_cutoff != "none" or (not isinstance(low, str) and rank <= low + BEYOND_CUTOFF)
    return slice(None) if needed else _every(n_pixels, LOOK_PIXELS)


def _every(n_pixels: int, wanted: int) -> slice:
    """Every few pixels, so that they are at least as many as wanted and fewer than twice that, or all."""
    stride = n_pixels // wanted
    return slice(None) if stride < 2 else slice(None, None, stride)


def _rank(options: DenoiseOptions, subset: PixelSubset, shape: tuple[int, int], n_fitted: int) -> int:
    """The rank asked for, or the automatic one, with room for the cutoffs that were given."""
    if not isinstance(options.rank, str):
        return options.rank
    wanted = [automatic_rank(subset, shape, n_fitted)]
    if not isinstance(options.low_cutoff, str):
        wanted.append(options.low_cutoff + 1)
    if not isinstance(options.high_cutoff, str):
        wanted.append(options.high_cutoff)
    return max(wanted)


def _high(options: DenoiseOptions, rank: int) -> int | None:
    """End of the band as a number, None where the residual is kept."""
    if isinstance(options.high_cutoff, str):
        return rank if options.high_cutoff == "rank" else None
    return options.high_cutoff


def _held_out(solution: Solution | None) -> float | None:
    return None if solution is None else solution.held_out_rmse


def _check_complete(n_unobserved: int) -> None:
    if n_unobserved:
        raise InputError(
            f"the SVD needs every entry, and {n_unobserved} are NaN or infinite; use --method eta-decay"
        )
