"""The clutter filters that are compared, as a table: name, citation, defaults, and the function that runs each.

To add a clutter filter, write a function from :class:`usdenoise.comparison.work.Work` to
:class:`usdenoise.comparison.work.Filtered` and give it a row. A filter with components returns
:func:`usdenoise.comparison.work.keep_shared_band` of them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from usdenoise.comparison.randomized_svd import run_rsvd
from usdenoise.comparison.robust_pca import run_rpca
from usdenoise.comparison.soft_impute import run_soft_impute
from usdenoise.comparison.temporal_filters import run_highpass, run_polynomial
from usdenoise.comparison.work import Filtered, Work
from usdenoise.completion.descent_methods import METHODS
from usdenoise.completion.solve import Iteration
from usdenoise.options.denoise_options import DenoiseOptions, make_options
from usdenoise.recipe.denoise import denoise
from usdenoise.stack.casorati import casorati

PAPER_TAU = 0.32
"""The paper's step as tau = 2 alpha / (n_pixels n_frames), with its alpha 1e7 and its stack of 26000 x 2400. Unlike
alpha, tau fits stacks of every size."""


@dataclass(frozen=True)
class Contender:
    """One method of the comparison.

    Attributes
    ----------
    name : str
        Name of the method on the command line.
    summary, citation : str
        One line on the method, and the paper that it comes from.
    run : callable
        Filters the stack of a :class:`Work` and returns a :class:`Filtered`.
    sampled : bool
        Whether the method uses a sample of the entries; otherwise it uses all of them.
    chooses_rank : bool
        Whether the method has a rule of its own for an automatic rank; otherwise it takes that of the full SVD.
    defaults : mapping
        Parameters of the method and their default values.
    further : frozenset of str
        Names of parameters that can also be set and have no default here.
    """

    name: str
    summary: str
    citation: str
    run: Callable[[Work], Filtered]
    sampled: bool = False
    chooses_rank: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    further: frozenset[str] = frozenset()


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


run_paper = partial(run_denoise, preset="paper")

_SHARED = {"method", "sampling", "seed", "low_cutoff", "high_cutoff", "precision", "threads"}
_OPTIONS = frozenset(entry.name for entry in fields(DenoiseOptions)) - _SHARED


def _descent(name: str, method: str, **defaults: Any) -> Contender:
    """Return a descent method of METHODS with the paper's preset, apart from its step and `defaults`."""
    row = METHODS[method]
    start = "a small random start" if defaults.get("init") == "small" else "a spectral start"
    return Contender(
        name,
        f"{row.summary}; from {start}, fitted to the sampled entries alone",
        row.citation,
        run_paper,
        sampled=True,
        defaults={"method": method, "step": row.step_tau, **defaults},
        further=_OPTIONS,
    )


_TABLE = (
    Contender(
        "eta-decay",
        "the default of usdenoise run",
        METHODS["eta-decay"].citation,
        run_denoise,
        sampled=True,
        chooses_rank=True,
        further=_OPTIONS,
    ),
    Contender(
        "paper",
        "usdenoise run --preset paper, with the step as tau and the shared band",
        METHODS["eta-decay"].citation,
        run_paper,
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
        run_denoise,
        chooses_rank=True,
        defaults={"method": "svd"},
    ),
    Contender(
        "rsvd",
        "randomized SVD with power iterations",
        "Halko, Martinsson and Tropp, SIAM Review 53(2), 2011",
        run_rsvd,
        defaults={"oversampling": 20, "power_iterations": 6},
    ),
    Contender(
        "highpass",
        "zero-phase Butterworth high-pass filter of every pixel",
        "Bjaerum, Torp and Kristoffersen, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 49(2), 2002",
        run_highpass,
        defaults={"cutoff_hz": None, "cutoff_a_frame": None, "order": 4},
    ),
    Contender(
        "polynomial",
        "regression wall filter; by default it removes low_cutoff polynomial terms",
        "Torp, IEEE Trans. Ultrason. Ferroelectr. Freq. Control 44(2), 1997",
        run_polynomial,
        defaults={"order": None},
    ),
    Contender(
        "rpca",
        "principal component pursuit by inexact augmented Lagrange multipliers",
        "Candes, Li, Ma and Wright, J. ACM 58(3), 2011",
        run_rpca,
        defaults={"weight": None, "tolerance": 1e-6, "iterations": 100},
    ),
    Contender(
        "softimpute",
        "nuclear-norm completion by alternating ridge regressions; penalty in noise edges",
        "Hastie, Mazumder, Lee and Zadeh, J. Mach. Learn. Res. 16, 2015",
        run_soft_impute,
        sampled=True,
        defaults={"penalty": 1.0, "iterations": 100, "tolerance": 1e-5},
    ),
)

USUAL = ("eta-decay", "svd", "rsvd", "highpass")
"""Methods that are compared by default: those that a user would choose between. The others are for studies of methods."""

CONTENDERS = MappingProxyType({contender.name: contender for contender in _TABLE})
