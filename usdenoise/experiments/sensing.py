"""Experiments on Gaussian sensing of an ill-conditioned matrix of rank 2 at search rank 8."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from usdenoise.experiments.claims import (
    ends_above,
    ends_near,
    ends_near_best,
    floor_level,
    proportional,
    reaches,
    reaches_floor,
    slower,
    stays_above_floor,
)
from usdenoise.experiments.conventions import Start
from usdenoise.experiments.instances import SIZE, draw_sensing
from usdenoise.experiments.noise_floor import minimax_level
from usdenoise.experiments.record import Claim, ExperimentResult, Panel
from usdenoise.experiments.setup import Setup
from usdenoise.experiments.start_condition import condition_of_starts
from usdenoise.experiments.trials import (
    Setting,
    Variant,
    eta_decay,
    gradient_descent,
    panels,
    precgd,
    scaledgd_lambda,
)

SCALES = (1.0, 1e-2)
RANK = 8
MEASUREMENTS = 2 * SIZE * RANK
STEP = 0.1
SIGMA = 1e-6
DECAY, NOISY_DECAY = 0.85, 0.5
LAMBDAS = (1e-2, 1e-4, 1e-6, 1e-9)
NOISY = "noise 1e-6"
ABSTRACT = "abstract; "
"""The abstract says that the method converges to minimax error at a linear rate."""
MANY = 100
"""Iterations to reach the noise floor: the abstract says that a practitioner has tens to hundreds."""

MEASUREMENT_CHOICE = (
    f"{MEASUREMENTS} matrices of 10 x 10 cannot be linearly independent: instead, the entries of the measurement "
    "matrices are independent and standard Gaussian"
)
NOISE_CHOICE = "the noise level 1e-6 is taken as a standard deviation"


def against_scaledgd_lambda(setup: Setup) -> ExperimentResult:
    """Repeat experiment 1: eta-decay against ScaledGD(lambda), without noise and with sigma = 1e-6.

    The measurement matrices are independent Gaussian ones, since 160 matrices of 10 x 10 cannot be linearly
    independent. The noise level is taken as a standard deviation. The paper does not give the number of
    iterations.
    """
    iterations, where = 300, "experiment 1"
    rivals = [scaledgd_lambda(value) for value in LAMBDAS]
    labels = [rival.label for rival in rivals]
    clean = panels(
        _setting("noiseless", 0.0, [eta_decay(DECAY), *rivals], iterations), setup.seeds, setup.tried
    )
    noisy = panels(
        _setting(NOISY, SIGMA, [eta_decay(NOISY_DECAY), *rivals], iterations), setup.seeds, setup.tried
    )

    def of_clean(panel: Panel) -> list[Claim]:
        return [
            reaches(panel, where, "eta-decay", 1e-10, iterations),
            proportional(panel, where, labels, LAMBDAS, "ScaledGD(lambda)"),
            ends_near_best(panel, where, "eta-decay", labels, "ScaledGD(lambda)", 0.1),
        ]

    def of_noisy(panel: Panel) -> list[Claim]:
        return [
            reaches_floor(panel, ABSTRACT + where, "eta-decay", MANY),
            *(stays_above_floor(panel, where, label) for label in labels[:2]),
            ends_near_best(panel, where, "eta-decay", labels, "ScaledGD(lambda)"),
        ]

    return _result(
        setup,
        "Gaussian sensing against ScaledGD(lambda)",
        {"iterations": iterations, "lambdas": LAMBDAS},
        (MEASUREMENT_CHOICE, NOISE_CHOICE, f"a run has {iterations} iterations"),
        [(clean, of_clean), (noisy, of_noisy)],
    )


def against_precgd(setup: Setup) -> ExperimentResult:
    """Repeat experiment 2: eta-decay against PrecGD with right and wrong proxies of the noise level.

    The paper does not give the proxies. Without noise they are 0, 1e-6, 1e-4 and 1e-2; with noise they are 0.1, 1,
    10, 100 and 10^4 times the true sigma. The rest is as in experiment 1.
    """
    iterations, where = 300, "experiment 2"
    clean_proxies, noisy_proxies = (0.0, 1e-6, 1e-4, 1e-2), (1e-7, 1e-6, 1e-5, 1e-4, 1e-2)
    clean_rivals = [precgd(proxy) for proxy in clean_proxies]
    noisy_rivals = [precgd(proxy) for proxy in noisy_proxies]
    exact, right = precgd(0.0).label, precgd(SIGMA).label
    labels = [rival.label for rival in noisy_rivals]
    too_large = [precgd(proxy).label for proxy in noisy_proxies if proxy > SIGMA]
    clean = panels(
        _setting("noiseless", 0.0, [eta_decay(DECAY), *clean_rivals], iterations),
        setup.seeds,
        setup.tried,
    )
    noisy = panels(
        _setting(NOISY, SIGMA, [eta_decay(NOISY_DECAY), *noisy_rivals], iterations),
        setup.seeds,
        setup.tried,
    )

    def of_clean(panel: Panel) -> list[Claim]:
        return [
            reaches(panel, where, "eta-decay", 1e-10, iterations),
            reaches(panel, where, exact, 1e-10, iterations),
            *(ends_above(panel, where, rival.label, exact, 10) for rival in clean_rivals[1:]),
        ]

    def of_noisy(panel: Panel) -> list[Claim]:
        return [
            reaches_floor(panel, ABSTRACT + where, "eta-decay", MANY),
            reaches_floor(panel, where, right, MANY),
            ends_near_best(panel, where, "eta-decay", labels, "PrecGD"),
            *(stays_above_floor(panel, where, label) for label in too_large),
        ]

    return _result(
        setup,
        "Gaussian sensing against PrecGD with right and wrong proxies of the noise",
        {"iterations": iterations, "proxies": {"noiseless": clean_proxies, NOISY: noisy_proxies}},
        (
            MEASUREMENT_CHOICE,
            NOISE_CHOICE,
            "the paper does not give the proxies: with noise they are 0.1, 1, 10, 100 and 10^4 times the true sigma",
            f"a run has {iterations} iterations",
        ),
        [(clean, of_clean), (noisy, of_noisy)],
    )


def from_small_start(setup: Setup) -> ExperimentResult:
    """Repeat experiment 3: eta-decay against ScaledGD(lambda) and gradient descent from a small start.

    Eta-decay begins at the start of the panel, and for a further curve at the small start of the others. The rest
    is as in experiment 1.
    """
    iterations, where = 500, "experiment 3"
    small = eta_decay(DECAY, Start.SMALL)
    rivals = [scaledgd_lambda(value, Start.SMALL) for value in LAMBDAS[:2]] + [gradient_descent(Start.SMALL)]
    clean = panels(
        _setting("noiseless", 0.0, [eta_decay(DECAY), small, *rivals], iterations),
        setup.seeds,
        setup.tried,
    )
    variants = [eta_decay(NOISY_DECAY), eta_decay(NOISY_DECAY, Start.SMALL), *rivals]
    noisy = panels(_setting(NOISY, SIGMA, variants, iterations), setup.seeds, setup.tried)
    finest = rivals[1].label

    def of_clean(panel: Panel) -> list[Claim]:
        return [
            *(ends_above(panel, where, rival.label, "eta-decay", 10) for rival in rivals),
            slower(panel, where, "eta-decay", finest, 1e-3),
            ends_near(panel, where, small.label, "eta-decay", 10),
        ]

    def of_noisy(panel: Panel) -> list[Claim]:
        return [
            *(stays_above_floor(panel, where, rival.label) for rival in rivals),
            slower(panel, where, "eta-decay", finest, 1e-3),
            slower(panel, where, "eta-decay", finest, floor_level(panel), "the noise floor"),
            reaches_floor(panel, where, small.label, iterations),
        ]

    return _result(
        setup,
        "Gaussian sensing against ScaledGD(lambda) and gradient descent from a small start",
        {"iterations": iterations, "lambdas": LAMBDAS[:2], "small_start": 1e-12},
        (
            MEASUREMENT_CHOICE,
            NOISE_CHOICE,
            "ScaledGD(lambda) and gradient descent begin at the small start, 1e-12 Gaussian; eta-decay begins at the "
            "start of the panel, and for a further curve at the small start",
            f"a run has {iterations} iterations",
        ),
        [(clean, of_clean), (noisy, of_noisy)],
    )


def high_noise(setup: Setup) -> ExperimentResult:
    """Repeat experiment 5: noise of variance 0.1, and PrecGD with proxies from a third to three times its sigma.

    The paper does not give condition number and measurements: they are those of experiment 1.
    """
    variance, step, decay, iterations, where = 0.1, 0.01, 0.97, 500, "experiment 5"
    sigma = math.sqrt(variance)
    proxies = (1.0, 0.7, 0.5, 0.1)
    rivals = [precgd(proxy) for proxy in proxies]
    labels = [rival.label for rival in rivals]
    too_large = [precgd(proxy).label for proxy in proxies if proxy > sigma]
    noisy = panels(
        _setting("noise variance 0.1", sigma, [eta_decay(decay), *rivals], iterations, step),
        setup.seeds,
        setup.tried,
    )

    def of_noisy(panel: Panel) -> list[Claim]:
        return [
            reaches_floor(panel, ABSTRACT + where, "eta-decay", MANY),
            ends_near_best(panel, where, "eta-decay", labels, "PrecGD"),
            *(ends_above(panel, where, label, "eta-decay", 1.1) for label in too_large),
        ]

    return _result(
        setup,
        "Gaussian sensing with high noise",
        {"iterations": iterations, "step": step, "decay": decay, "sigma": sigma, "proxies": proxies},
        (
            "the paper does not give condition number and measurements: they are those of sensing-lambda",
            MEASUREMENT_CHOICE,
            "the noise level 0.1 is taken as a variance: the true sigma is 0.316",
        ),
        [(noisy, of_noisy)],
    )


def wall_time(setup: Setup) -> ExperimentResult:
    """Repeat experiment 6: error against wall time, eta-decay against the others from small starts.

    The paper does not give condition number, measurements and noise: they are those of experiment 1 with noise.
    Times include the computation of the start and of the error.
    """
    seconds, damping, where = 0.5, 1e-2, "experiment 6"
    # At 125 microseconds an iteration, a common time, the iterations last as long as the figure.
    iterations = 4000
    rivals = [scaledgd_lambda(damping, Start.SMALL), gradient_descent(Start.SMALL)]
    noisy = panels(
        _setting(NOISY, SIGMA, [eta_decay(NOISY_DECAY), *rivals], iterations, seconds=seconds),
        setup.seeds,
        setup.tried,
    )

    def of_noisy(panel: Panel) -> list[Claim]:
        level = floor_level(panel)
        return [
            reaches_floor(panel, where, "eta-decay", seconds, "s"),
            *(slower(panel, where, "eta-decay", rival.label, level, "the noise floor") for rival in rivals),
            # How far gradient descent gets in these seconds depends on the machine, and the paper does not say it.
            stays_above_floor(panel, where, rivals[0].label),
        ]

    return _result(
        setup,
        "Gaussian sensing: error against wall time, start included",
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
            "eta-decay begins at the start of the panel, ScaledGD(lambda) and gradient descent at the small one; "
            "until a run has computed its start, its error is drawn as 1",
            f"a run has at most {iterations} iterations, and the figure shows its first {seconds:g} s",
        ),
        [(noisy, of_noisy)],
        x_label="seconds",
    )


def _setting(
    name: str,
    sigma: float,
    variants: Sequence[Variant],
    iterations: int,
    step: float = STEP,
    seconds: float | None = None,
) -> Setting:
    norm = float(np.linalg.norm(SCALES))
    return Setting(
        name,
        partial(draw_sensing, scales=SCALES, rank=RANK, measurements=MEASUREMENTS, sigma=sigma),
        variants,
        step,
        iterations,
        minimax_level(sigma, RANK, MEASUREMENTS, norm) if sigma else None,
        seconds,
    )


def _result(
    setup: Setup,
    title: str,
    parameters: dict[str, Any],
    choices: tuple[str, ...],
    settings: Sequence[tuple[list[Panel], Callable[[Panel], list[Claim]]]],
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
    draw = partial(draw_sensing, scales=SCALES, rank=RANK, measurements=MEASUREMENTS, sigma=0.0)
    return ExperimentResult(
        title,
        {**common, **parameters},
        choices,
        setup.seeds,
        tuple(panel for of_setting, _ in settings for panel in of_setting),
        tuple(claim for of_setting, check in settings for panel in of_setting for claim in check(panel)),
        x_label=x_label,
        numbers=condition_of_starts(draw, setup.seeds, min(SCALES)),
    )
