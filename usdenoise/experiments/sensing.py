"""Gaussian sensing of an ill-conditioned matrix at a search rank far above its own, in five comparisons."""

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
SLOW_CHOICE = f"with noise beta is {NOISY_DECAY:g}; beta {DECAY:g} is an addition"

MEASUREMENT_CHOICE = (
    f"{MEASUREMENTS} linearly independent matrices of 10 x 10 do not exist: the measurement matrices have "
    "independent standard Gaussian entries, and no independence beyond that"
)
NOISE_CHOICE = "the noise of 1e-6 is a standard deviation"
OBJECTIVE_CHOICE = "f is the mean of the squared residuals, and a step of 0.1 is for its gradient"


def against_scaledgd_lambda(setup: Setup) -> ExperimentResult:
    """Experiment 1: eta-decay against ScaledGD(lambda), without noise and with sigma = 1e-6.

    The measurement matrices are independent Gaussian ones: 160 linearly independent 10 x 10 matrices do not
    exist. The noise level is taken as a standard deviation. The number of iterations is not given. Both
    settings are repeated with the steps of `run`, which undoes and halves those that raise the objective.
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
            "the step is fixed, as in the paper; in the panels named so, steps that raise f are undone and "
            "halved, as `run` does",
            f"{iterations} iterations",
        ),
        (clean, noisy, clean_undone, noisy_undone),
        claims,
    )


def against_precgd(setup: Setup) -> ExperimentResult:
    """Experiment 2: eta-decay against PrecGD whose proxy of the noise level is right, or wrong.

    Which proxies are not given: without noise 0 and three above it; with noise the true sigma, a tenth of
    it, and 10, 100 and 10^4 times it. The rest is as in experiment 1.
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
            "the proxies are not given: with noise a tenth of the true sigma, the true one, and 10, 100 and "
            "10^4 times it",
            f"{iterations} iterations",
        ),
        (clean, noisy),
        claims,
    )


def from_small_start(setup: Setup) -> ExperimentResult:
    """Experiment 3: ScaledGD(lambda) and gradient descent from a small start.

    The small start is theirs; eta-decay is drawn from its own start near the truth, and from theirs as
    well. The rest is as in experiment 1.
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
            "the small start is that of ScaledGD(lambda) and of gradient descent; eta-decay has the start "
            "near the truth, and is drawn from the small start as well",
            f"{iterations} iterations",
        ),
        (clean, noisy),
        claims,
    )


def high_noise(setup: Setup) -> ExperimentResult:
    """Experiment 5: noise of variance 0.1, and PrecGD with proxies from a third to three times its level.

    Condition number, measurements and start are not given for it: they are those of experiment 1.
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
    # The start is below twice the noise floor already.
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
            "condition number, measurements and start are not given: they are those of sensing-lambda",
            MEASUREMENT_CHOICE,
            "the noise of 0.1 is a variance: the true sigma is 0.316",
        ),
        (setting,),
        claims,
    )


def wall_time(setup: Setup) -> ExperimentResult:
    """Experiment 6: error against wall time, eta-decay with its spectral start against small starts.

    Condition number, measurements and noise are not given for it: they are those of experiment 1 with
    noise. Times include the start and the evaluation of the error.
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
            "condition number, measurements and noise are not given: they are those of sensing-lambda with "
            "noise",
            MEASUREMENT_CHOICE,
            "eta-decay has the spectral start, ScaledGD(lambda) and gradient descent the small one; before "
            "a run has its start the error is drawn as 1",
            f"runs have at most {iterations} iterations, and are drawn for {seconds:g} s",
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
