"""Experiments on three losses, each at the true rank without noise and at twice the rank with noise."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from usdenoise.experiments.claims import as_soon, ends_near_best, floor_level, reaches, reaches_floor, sooner
from usdenoise.experiments.instances import (
    SIZE,
    Instance,
    draw_one_bit,
    draw_phase,
    draw_sensing,
    noise_floor,
)
from usdenoise.experiments.record import ExperimentResult
from usdenoise.experiments.setup import Setup
from usdenoise.experiments.trials import eta_decay, gradient_descent, panel, precgd, scaledgd_lambda

VARIANCE, PROXY, LAMBDA = 1e-6, 1e-5, 1e-2
NOISE_CHOICE = (
    "the noise level 1e-6 is taken as a variance: the true sigma is 1e-3, a hundred times the proxy"
)
START_CHOICE = (
    "the paper does not give the start: it is the factor of M* plus 0.1 Gaussian, as in sensing-lambda"
)
RIVALS_CHOICE = (
    "without noise PrecGD has the proxy 0, and ScaledGD(lambda) has lambda 0, which makes it ScaledGD"
)


def sensing(setup: Setup) -> ExperimentResult:
    """Repeat experiment 4: Gaussian sensing of a matrix with condition number 1 from 80 measurements."""
    measurements, step = 80, 0.1
    draw = partial(draw_sensing, scales=(1.0, 1.0), measurements=measurements)
    return _two_settings(
        setup,
        "Gaussian sensing of a well-conditioned matrix",
        draw,
        ranks=(2, 4),
        true_norm=math.sqrt(2),
        measurements=measurements,
        floor_measurements=measurements,
        step=step,
        iterations=500,
        decay=0.1,
        choices=(
            "the measurement matrices have independent standard Gaussian entries",
            "f is the mean of the squared residuals",
        ),
    )


def one_bit(setup: Setup) -> ExperimentResult:
    """Repeat experiment 7: one-bit sensing of all entries by the logistic likelihood.

    The fractions of ones are exact, as after infinitely many draws. The loss is the sum over the entries, not
    their mean, for which a step of 1 would take thousands of iterations. The smallest possible value is
    subtracted from the negative log-likelihood: the dampings are made of sqrt(f), so f must be 0 at a perfect
    fit.
    """
    return _two_settings(
        setup,
        "One-bit sensing",
        partial(draw_one_bit, scales=(1.0, 1.0)),
        ranks=(2, 4),
        true_norm=math.sqrt(2),
        measurements=SIZE * SIZE,
        # Every entry is observed once, alone: all of them together count as one dense Gaussian measurement.
        floor_measurements=1,
        step=1.0,
        iterations=200,
        decay=0.4,
        choices=(
            "the fractions of ones are exact: they are the logistic function of M*, or of M* plus noise",
            "the loss is the sum over the entries; for their mean a step of 1 would be a hundred times shorter",
            "the smallest possible value is subtracted from the loss: the dampings sqrt(f) need a loss of 0 at a "
            "perfect fit",
            "the condition number of M* is 1",
        ),
    )


def phase(setup: Setup) -> ExperimentResult:
    """Repeat experiment 8: phase retrieval of a complex vector from 80 measurements."""
    measurements = 80
    return _two_settings(
        setup,
        "Phase retrieval",
        partial(draw_phase, measurements=measurements),
        ranks=(1, 2),
        true_norm=1.0,
        measurements=measurements,
        floor_measurements=measurements,
        step=0.02,
        iterations=1000,
        decay=0.1,
        choices=(
            "z has unit norm, and the vectors a_i have circular Gaussian entries of unit variance",
            "f is the mean of the squared residuals",
        ),
    )


def _two_settings(
    setup: Setup,
    title: str,
    draw: Callable[..., Instance],
    *,
    ranks: tuple[int, int],
    true_norm: float,
    measurements: int,
    floor_measurements: int,
    step: float,
    iterations: int,
    decay: float,
    choices: tuple[str, ...],
) -> ExperimentResult:
    exact, over = ranks
    sigma = math.sqrt(VARIANCE)
    common: dict[str, Any] = {"seeds": setup.seeds, "step": step, "iterations": iterations}
    first = panel(
        f"rank {exact}, noiseless",
        lambda rng: draw(rng, rank=exact, sigma=0.0),
        [eta_decay(decay), precgd(0.0), scaledgd_lambda(0.0), gradient_descent()],
        **common,
    )
    second = panel(
        f"rank {over}, noise 1e-3",
        lambda rng: draw(rng, rank=over, sigma=sigma),
        [eta_decay(decay), precgd(PROXY), scaledgd_lambda(LAMBDA), gradient_descent()],
        floor=noise_floor(sigma, over, floor_measurements, true_norm),
        **common,
    )
    rivals = [curve.label for curve in second.curves[1:]]
    claims = (
        reaches(first, "eta-decay", 1e-10, iterations),
        as_soon(first, "eta-decay", scaledgd_lambda(0.0).label, 1e-10, 1.5),
        as_soon(first, "eta-decay", "GD", 1e-10, 1.5),
        reaches_floor(second, "eta-decay", iterations / 5),
        ends_near_best(second, "eta-decay", rivals, "of the others", 1.1),
        *(
            sooner(second, "eta-decay", rival, floor_level(second), 2, "twice the noise floor")
            for rival in rivals
        ),
    )
    return ExperimentResult(
        title,
        {
            "size": SIZE,
            "search_ranks": ranks,
            "measurements": measurements,
            "step": step,
            "iterations": iterations,
            "decay": decay,
            "noise_variance": VARIANCE,
            "proxy": PROXY,
            "lambda": {first.title: 0.0, second.title: LAMBDA},
            "true_norm": true_norm,
        },
        (*choices, NOISE_CHOICE, START_CHOICE, RIVALS_CHOICE),
        setup.seeds,
        (first, second),
        claims,
    )
