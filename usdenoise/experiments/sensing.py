"""Experiments on Gaussian sensing of an ill-conditioned matrix of rank 2 at search rank 8."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from usdenoise.experiments.claims import (
    ends_above,
    ends_near,
    ends_near_best,
    floor_level,
    reaches,
    reaches_floor,
    sooner,
    within_of_parameter,
)
from usdenoise.experiments.instances import SIZE, draw_sensing, noise_floor
from usdenoise.experiments.record import ExperimentResult, Panel
from usdenoise.experiments.setup import Setup
from usdenoise.experiments.trials import Variant, eta_decay, gradient_descent, panel, precgd, scaledgd_lambda

SCALES = (1.0, 1e-2)
RANK = 8
MEASUREMENTS = 2 * SIZE * RANK
STEP = 0.1
SIGMA = 1e-6
DECAY, NOISY_DECAY = 0.85, 0.5
LAMBDAS = (1e-2, 1e-4, 1e-6, 1e-9)
NOISY, UNDONE = "noise 1e-6", "rising steps undone"
SLOW = Variant(f"eta-decay, beta {DECAY:g}", "eta-decay", decay=DECAY)
SLOW_CHOICE = f"with noise beta is {NOISY_DECAY:g}; the curves with beta {DECAY:g} are added here"

MEASUREMENT_CHOICE = (
    f"{MEASUREMENTS} matrices of 10 x 10 cannot be linearly independent: instead, the entries of the measurement "
    "matrices are independent and standard Gaussian"
)
NOISE_CHOICE = "the noise level 1e-6 is taken as a standard deviation"
OBJECTIVE_CHOICE = (
    "f is the mean of the squared residuals, and the step 0.1 multiplies the gradient of this f"
)


def against_scaledgd_lambda(setup: Setup) -> ExperimentResult:
    """Repeat experiment 1: eta-decay against ScaledGD(lambda), without noise and with sigma = 1e-6.

    The measurement matrices are independent Gaussian ones, since 160 matrices of 10 x 10 cannot be linearly
    independent. The noise level is taken as a standard deviation. The paper does not give the number of
    iterations. Both settings are repeated with the steps of `run`, which undoes and halves a step that raises the
    objective.
    """
    iterations = 300
    rivals = [scaledgd_lambda(value) for value in LAMBDAS]
    clean_variants = [eta_decay(DECAY), *rivals]
    noisy_variants = [eta_decay(NOISY_DECAY), SLOW, *rivals]
    clean = _panel(setup, "noiseless", 0.0, clean_variants, iterations)
    noisy = _panel(setup, NOISY, SIGMA, noisy_variants, iterations)
    clean_undone = _panel(setup, f"noiseless, {UNDONE}", 0.0, clean_variants, iterations, undo=True)
    noisy_undone = _panel(setup, f"{NOISY}, {UNDONE}", SIGMA, noisy_variants, iterations, undo=True)
    labels = [rival.label for rival in rivals]
    claims = [reaches(clean, "eta-decay", 1e-10, iterations)]
    claims += [
        within_of_parameter(clean, label, value, 10) for label, value in zip(labels, LAMBDAS, strict=True)
    ]
    claims += [ends_near_best(clean, "eta-decay", labels, "ScaledGD(lambda)", 0.1)]
    claims += [reaches_floor(noisy, "eta-decay", 100)]
    claims += [ends_above(noisy, label, "eta-decay", 10) for label in labels[:2]]
    claims += [ends_near_best(noisy, "eta-decay", labels, "ScaledGD(lambda)", 1.1)]
    claims += [reaches_floor(noisy, SLOW.label, 100)]
    claims += [reaches_floor(noisy_undone, label, 100) for label in ("eta-decay", SLOW.label)]
    claims += [ends_near_best(noisy_undone, SLOW.label, labels, "ScaledGD(lambda)", 1.1)]
    return _result(
        setup,
        "Gaussian sensing against ScaledGD(lambda)",
        {"iterations": iterations, "lambdas": LAMBDAS},
        (
            MEASUREMENT_CHOICE,
            NOISE_CHOICE,
            OBJECTIVE_CHOICE,
            SLOW_CHOICE,
            "the step is fixed, as in the paper; in the panels 'rising steps undone' a step that raises f is "
            "undone and halved, as `run` does",
            f"a run has {iterations} iterations",
        ),
        (clean, noisy, clean_undone, noisy_undone),
        claims,
    )


def against_precgd(setup: Setup) -> ExperimentResult:
    """Repeat experiment 2: eta-decay against PrecGD with right and wrong proxies of the noise level.

    The paper does not give the proxies. Without noise they are 0, 1e-6, 1e-4 and 1e-2; with noise they are 0.1, 1,
    10, 100 and 10^4 times the true sigma. The rest is as in experiment 1.
    """
    iterations = 300
    clean_proxies, noisy_proxies = (0.0, 1e-6, 1e-4, 1e-2), (1e-7, 1e-6, 1e-5, 1e-4, 1e-2)
    clean_rivals = [precgd(proxy) for proxy in clean_proxies]
    noisy_rivals = [precgd(proxy) for proxy in noisy_proxies]
    clean = _panel(setup, "noiseless", 0.0, [eta_decay(DECAY), *clean_rivals], iterations)
    noisy = _panel(setup, NOISY, SIGMA, [eta_decay(NOISY_DECAY), SLOW, *noisy_rivals], iterations)
    exact, right = precgd(0.0).label, precgd(SIGMA).label
    labels = [rival.label for rival in noisy_rivals]
    claims = [reaches(clean, label, 1e-10, iterations) for label in ("eta-decay", exact)]
    claims += [ends_above(clean, rival.label, exact, 10) for rival in clean_rivals[1:]]
    claims += [reaches_floor(noisy, label, 100) for label in ("eta-decay", SLOW.label, right)]
    claims += [ends_near_best(noisy, label, labels, "PrecGD", 1.1) for label in ("eta-decay", SLOW.label)]
    claims += [
        ends_above(noisy, precgd(proxy).label, right, factor)
        for proxy, factor in ((1e-7, 2), (1e-5, 2), (1e-4, 10), (1e-2, 10))
    ]
    return _result(
        setup,
        "Gaussian sensing against PrecGD with right and wrong proxies of the noise",
        {"iterations": iterations, "proxies": {"noiseless": clean_proxies, NOISY: noisy_proxies}},
        (
            MEASUREMENT_CHOICE,
            NOISE_CHOICE,
            OBJECTIVE_CHOICE,
            SLOW_CHOICE,
            "the paper does not give the proxies: with noise they are 0.1, 1, 10, 100 and 10^4 times the true sigma",
            f"a run has {iterations} iterations",
        ),
        (clean, noisy),
        claims,
    )


def from_small_start(setup: Setup) -> ExperimentResult:
    """Repeat experiment 3: eta-decay against ScaledGD(lambda) and gradient descent from a small start.

    Eta-decay begins near the truth, and for a further curve at the small start of the others. The rest is as in
    experiment 1.
    """
    iterations = 500
    small = Variant("eta-decay, small start", "eta-decay", decay=DECAY, start="small")
    noisy_small = replace(small, decay=NOISY_DECAY)
    rivals = [scaledgd_lambda(value, "small") for value in LAMBDAS[:2]] + [gradient_descent("small")]
    clean = _panel(setup, "noiseless", 0.0, [eta_decay(DECAY), small, *rivals], iterations)
    noisy = _panel(setup, NOISY, SIGMA, [eta_decay(NOISY_DECAY), SLOW, noisy_small, *rivals], iterations)
    claims = []
    for setting in (clean, noisy):
        claims += [ends_above(setting, rival.label, "eta-decay", 10) for rival in rivals]
        claims += [sooner(setting, "eta-decay", rivals[1].label, 1e-3, 2)]
    claims += [
        ends_near(clean, small.label, "eta-decay", 10),
        reaches_floor(noisy, small.label, iterations),
    ]
    claims += [
        sooner(noisy, label, rivals[1].label, floor_level(noisy), 2, "twice the noise floor")
        for label in ("eta-decay", SLOW.label)
    ]
    return _result(
        setup,
        "Gaussian sensing against ScaledGD(lambda) and gradient descent from a small start",
        {"iterations": iterations, "lambdas": LAMBDAS[:2], "small_start": 1e-12},
        (
            MEASUREMENT_CHOICE,
            NOISE_CHOICE,
            OBJECTIVE_CHOICE,
            SLOW_CHOICE,
            "ScaledGD(lambda) and gradient descent begin at the small start; eta-decay begins near the truth, "
            "and for a further curve at the small start",
            f"a run has {iterations} iterations",
        ),
        (clean, noisy),
        claims,
    )


def high_noise(setup: Setup) -> ExperimentResult:
    """Repeat experiment 5: noise of variance 0.1, and PrecGD with proxies from a third to three times its sigma.

    The paper does not give condition number, measurements and start: they are those of experiment 1.
    """
    variance, step, decay, iterations = 0.1, 0.01, 0.97, 500
    proxies = (1.0, 0.7, 0.5, 0.1)
    setting = _panel(
        setup,
        "noise variance 0.1",
        math.sqrt(variance),
        [eta_decay(decay), *(precgd(proxy) for proxy in proxies)],
        iterations,
        step=step,
    )
    labels = [precgd(proxy).label for proxy in proxies]
    # The start is already below twice the noise floor, so the claim is on the floor.
    claims = [reaches(setting, "eta-decay", floor_level(setting) / 2, 100, "the noise floor")]
    claims += [ends_near_best(setting, "eta-decay", labels, "PrecGD", 1.1)]
    claims += [ends_above(setting, label, "eta-decay", 1.1) for label in labels]
    return _result(
        setup,
        "Gaussian sensing with high noise",
        {
            "iterations": iterations,
            "step": step,
            "decay": decay,
            "sigma": math.sqrt(variance),
            "proxies": proxies,
        },
        (
            "the paper does not give condition number, measurements and start: they are those of sensing-lambda",
            MEASUREMENT_CHOICE,
            "the noise level 0.1 is taken as a variance: the true sigma is 0.316",
        ),
        (setting,),
        claims,
    )


def wall_time(setup: Setup) -> ExperimentResult:
    """Repeat experiment 6: error against wall time, eta-decay from its spectral start against small starts.

    The paper does not give condition number, measurements and noise: they are those of experiment 1 with noise.
    Times include the computation of the start and of the error.
    """
    seconds, damping = 0.5, 1e-2
    iterations = 8000
    rivals = [scaledgd_lambda(damping, "small"), gradient_descent("small")]
    setting = _panel(
        setup,
        NOISY,
        SIGMA,
        [eta_decay(NOISY_DECAY, "spectral"), *rivals],
        iterations,
        seconds=seconds,
    )
    level = floor_level(setting)
    claims = [reaches_floor(setting, "eta-decay", seconds, "s")]
    claims += [
        sooner(setting, "eta-decay", rival.label, level, 2, "twice the noise floor") for rival in rivals
    ]
    claims += [ends_above(setting, rival.label, "eta-decay", 10) for rival in rivals]
    return _result(
        setup,
        "Gaussian sensing: error against wall time, spectral start included",
        {
            "iterations": iterations,
            "seconds": seconds,
            "decay": NOISY_DECAY,
            "lambda": damping,
            "small_start": 1e-12,
        },
        (
            "the paper does not give condition number, measurements and noise: they are those of sensing-lambda "
            "with noise",
            MEASUREMENT_CHOICE,
            "eta-decay begins at the spectral start, ScaledGD(lambda) and gradient descent at the small one; until "
            "a run has computed its start, its error is drawn as 1",
            f"a run has at most {iterations} iterations, and the figure shows its first {seconds:g} s",
        ),
        (setting,),
        claims,
        x_label="seconds",
    )


def _panel(
    setup: Setup,
    title: str,
    sigma: float,
    variants: Sequence[Variant],
    iterations: int,
    *,
    step: float = STEP,
    seconds: float | None = None,
    undo: bool = False,
) -> Panel:
    norm = float(np.linalg.norm(SCALES))
    return panel(
        title,
        partial(draw_sensing, scales=SCALES, rank=RANK, measurements=MEASUREMENTS, sigma=sigma),
        variants,
        seeds=setup.seeds,
        step=step,
        iterations=iterations,
        floor=noise_floor(sigma, RANK, MEASUREMENTS, norm) if sigma else None,
        seconds=seconds,
        undo=undo,
    )


def _result(
    setup: Setup,
    title: str,
    parameters: dict[str, Any],
    choices: tuple[str, ...],
    panels: tuple[Panel, ...],
    claims: Sequence[Any],
    x_label: str = "iteration",
) -> ExperimentResult:
    common = {
        "size": SIZE,
        "scales": SCALES,
        "search_rank": RANK,
        "measurements": MEASUREMENTS,
        "step": STEP,
        "sigma": SIGMA,
        "decay": {"noiseless": DECAY, NOISY: NOISY_DECAY},
    }
    return ExperimentResult(
        title, {**common, **parameters}, choices, setup.seeds, panels, tuple(claims), x_label=x_label
    )
