"""Methods run on random problems over seeds, through the one loop."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.descent_methods import METHODS
from usdenoise.completion.solve import Iteration, solve
from usdenoise.completion.stopping import StoppingRule, StopReason
from usdenoise.experiments.instances import Instance
from usdenoise.experiments.problems import AgainstTruth
from usdenoise.experiments.record import Curve, Panel
from usdenoise.linalg.executor import ThreadExecutor

SECONDS_POINTS = 201
LOST = 1e9
"""What an error above it counts as."""


@dataclass(frozen=True)
class Variant:
    """A method with its parameters.

    Attributes
    ----------
    label : str
        Its name in the figure.
    method : str
        A row of METHODS.
    damping : float or None
        As in :class:`usdenoise.DenoiseOptions`: lambda, or the proxy sigma_hat; None for eta-decay, whose
        first damping is sqrt(f) at the start.
    decay : float
        Beta.
    start : str
        A start of the instance.
    """

    label: str
    method: str
    damping: float | None = None
    decay: float = 1.0
    start: str = "near"


def eta_decay(decay: float, start: str = "near") -> Variant:
    """The method of the paper."""
    return Variant("eta-decay", "eta-decay", decay=decay, start=start)


def scaledgd_lambda(damping: float, start: str = "near") -> Variant:
    """ScaledGD(lambda); with a lambda of 0 it is ScaledGD."""
    return Variant(f"ScaledGD({damping:g})", "scaledgd-lambda", damping, start=start)


def precgd(sigma_hat: float) -> Variant:
    """PrecGD with a proxy of the noise level."""
    return Variant(f"PrecGD, proxy {sigma_hat:g}", "precgd", sigma_hat)


def gradient_descent(start: str = "near") -> Variant:
    """Plain gradient descent."""
    return Variant("GD", "gd", start=start)


@dataclass(frozen=True)
class Descent:
    """One run: relative errors and seconds after each iteration, the start first."""

    errors: NDArray[np.float64]
    seconds: NDArray[np.float64]
    raised: int
    halvings: int
    stop_reason: str


def descend(
    instance: Instance, variant: Variant, step: float, iterations: int, undo: bool = False
) -> Descent:
    """Run one method on one problem; the seconds include its start.

    Parameters
    ----------
    instance : Instance
        The problem.
    variant : Variant
        The method.
    step : float
        Step length for the gradient of the problem's value.
    iterations : int
        Steps of the run.
    undo : bool
        Whether a step that raises the objective is undone and halved, as `run` does.
    """
    method = METHODS[variant.method]
    began = time.perf_counter()
    start = instance.starts[variant.start]()
    started = time.perf_counter() - began
    # An overflow makes an iterate infinite, which ends the loop.
    with np.errstate(over="ignore", invalid="ignore"):
        solution = solve(
            AgainstTruth(instance.problem, instance.truth),
            start,
            preconditioner=method.preconditioner,
            damping=method.make_damping(variant.damping, variant.decay),
            step=step,
            stopping=StoppingRule(iterations),
            undo=undo,
        )
    trace, diverged = solution.trace, solution.stop_reason is StopReason.DIVERGED
    # From the root mean square over the entries to the relative Frobenius error.
    scale = math.sqrt(instance.truth.size) / float(np.linalg.norm(instance.truth))
    errors = np.array([scale * _error(line) for line in trace])
    if diverged:
        errors = np.append(errors, LOST)
    objectives = np.array([line.objective for line in trace])
    return Descent(
        np.minimum(errors, LOST),
        np.array([started + line.seconds for line in trace] + [math.inf] * diverged),
        int(np.sum(np.diff(objectives) > 0)),
        sum(line.halvings for line in trace),
        solution.stop_reason.value,
    )


def panel(
    title: str,
    draw: Callable[[np.random.Generator], Instance],
    variants: Sequence[Variant],
    *,
    seeds: Sequence[int],
    step: float,
    iterations: int,
    floor: float | None = None,
    seconds: float | None = None,
    undo: bool = False,
) -> Panel:
    """Run methods on the same random problems.

    Parameters
    ----------
    title : str
        The setting.
    draw : callable
        Makes a problem from a generator.
    variants : sequence of Variant
        The methods.
    seeds : sequence of int
        One problem each.
    step : float
        Step length for the gradient of the problem's value.
    iterations : int
        Steps of each run.
    floor : float, optional
        The error that the noise leaves.
    seconds : float, optional
        Draw errors against wall time up to this many seconds, not against iterations.
    undo : bool
        Whether steps that raise the objective are undone and halved, as `run` does; in the paper the step
        is fixed.
    """

    def runs(seed: int) -> list[Descent]:
        instance = draw(np.random.default_rng(seed))
        return [descend(instance, variant, step, iterations, undo) for variant in variants]

    # On such small matrices a second thread of BLAS only costs time.
    with ThreadExecutor(1) as executor:
        by_seed = list(executor.map(runs, seeds))
    return Panel(
        title,
        tuple(
            _curve(variant.label, descents, iterations, seconds)
            for variant, descents in zip(variants, zip(*by_seed, strict=True), strict=True)
        ),
        floor,
    )


def _curve(label: str, descents: Sequence[Descent], iterations: int, seconds: float | None) -> Curve:
    if seconds is None:
        x = np.arange(iterations + 1, dtype=np.float64)
        # A run that ended early, because no step lowered the objective any further, stays where it is.
        errors = [np.pad(one.errors, (0, len(x) - len(one.errors)), mode="edge") for one in descents]
    else:
        x = np.linspace(0, seconds, SECONDS_POINTS)
        errors = [_at(one, x) for one in descents]
    return Curve(
        label,
        x,
        np.array(errors),
        tuple(one.raised for one in descents),
        tuple(one.halvings for one in descents),
        tuple(one.stop_reason for one in descents),
    )


def _at(descent: Descent, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Errors at some times; until there is a start the estimate is zero, and its relative error 1."""
    last = np.searchsorted(descent.seconds, seconds, side="right") - 1
    return np.where(last < 0, 1.0, descent.errors[last])


def _error(line: Iteration) -> float:
    assert line.held_out_rmse is not None
    return line.held_out_rmse
