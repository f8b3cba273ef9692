"""The filters of the comparison that are runs of :func:`usdenoise.denoise`."""

import time
from functools import partial

import numpy as np

from usdenoise.comparison.work import Filtered, Work
from usdenoise.completion.solve import Iteration
from usdenoise.options.denoise_options import make_options
from usdenoise.recipe.denoise import denoise
from usdenoise.stack.casorati import casorati


def run_denoise(work: Work, preset: str | None = None) -> Filtered:
    """Filter by :func:`usdenoise.denoise`.

    Parameters
    ----------
    work : Work
        Input of the filter.
    preset : str, optional
        Preset of the options, which the work's settings and parameters override; by default none. With a preset, a rank
        that the sample cannot determine is lowered to the highest rank that it can.
    """
    chosen = {**work.settings.options, "sampling": work.sampling, **work.parameters}
    if preset is not None and not isinstance(chosen["rank"], str):
        chosen["rank"] = min(chosen["rank"], work.highest_rank)
    began = time.perf_counter()
    lines: list[tuple[Iteration, float]] = []
    result = denoise(
        work.stack,
        options=make_options(preset, **chosen),
        in_place=True,
        on_iteration=lambda line: lines.append((line, time.perf_counter() - began)),
    )
    rank, low, solution = result.options.rank, result.options.low_cutoff, result.solution
    return Filtered(
        casorati(result.acquisition),
        np.asarray(result.power_doppler, np.float64).reshape(-1),
        np.asarray(result.blood_power, np.float64).reshape(-1),
        int(rank),
        None if isinstance(low, str) else low,
        held_out_rmse=result.held_out_rmse,
        iterations=None if solution is None else solution.iterations,
        passes=None if solution is None else solution.passes,
        note="every entry was used" if solution is None else solution.stop_reason.value,
        curve=() if solution is None else _convergence(lines, solution.passes),
    )


run_paper = partial(run_denoise, preset="paper")


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
