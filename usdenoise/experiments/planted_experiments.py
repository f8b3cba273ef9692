"""The experiments on 10 x 10 problems, in the paper's reading.

Noise levels are standard deviations. What the paper does not give is chosen here: the number of iterations of the first
three experiments, the proxies of PrecGD in the second one, and condition number, measurements and noise of the
experiment against wall time, which are the same as in the first one.
"""

from collections.abc import Callable, Mapping, Sequence

from usdenoise.experiments.planted import (
    SIZE,
    Instance,
    PlantedExperiment,
    PlantedSetting,
    Variant,
    draw_one_bit,
    draw_phase,
    draw_sensing,
)
from usdenoise.experiments.record import (
    BEST_OTHER,
    CONVERGED,
    DELAY,
    FINAL,
    FLOOR,
    LAMBDAS,
    MINE,
    SLOPE,
    TIME,
    TIME_RATIO,
    Claim,
)

SIGMA = 1e-6
ILL_CONDITIONED = {"scales": (1.0, 1e-2), "rank": 8, "measurements": 2 * SIZE * 8}
STEP = 0.1
DECAY, NOISY_DECAY = 0.85, 0.5

# Bounds of "stays above the floor", "as accurate", "as fast", "slower" and "much worse".
ABOVE_FLOOR, AS_ACCURATE, AS_FAST, SLOWER, WORSE = 2.0, 1.1, 1.5, 2.0, 10.0
MANY = 100
"""Iterations to the noise floor: the abstract of the paper gives a practitioner tens to hundreds."""


def eta_decay(decay: float) -> Variant:
    """Return eta-decay, with the damping eta_t = beta^t sqrt(f(X_0)).

    This is the method of Zhang, Chiu and Zhang (AISTATS 2024).
    """
    return Variant(MINE, "eta-decay", decay=decay)


def scaledgd(damping: float, *, from_small: bool = False) -> Variant:
    """Return ScaledGD(lambda), with the constant damping eta_t = lambda; for lambda = 0 it is ScaledGD.

    The methods are from Xu, Shen, Chi and Ma (ICML 2023) and from Tong, Ma and Chi (JMLR 2021).
    """
    return Variant(f"ScaledGD({damping:g})", "scaledgd-lambda", damping, from_small=from_small)


def precgd(sigma_hat: float) -> Variant:
    """Return PrecGD, with the damping eta_t = sqrt(|f(X_t) - sigma_hat^2|) and a proxy sigma_hat of the noise level.

    This is the method of Zhang, Fattahi and Zhang (NeurIPS 2021).
    """
    return Variant(f"PrecGD({sigma_hat:g})", "precgd", sigma_hat)


def gradient_descent(*, from_small: bool = False) -> Variant:
    """Return plain gradient descent."""
    return Variant("GD", "gd", from_small=from_small)


def _sensing(
    sigma: float, iterations: int, rivals: Sequence[Variant], *claims: Claim, seconds: float | None = None
) -> PlantedSetting:
    """Return the setting of an ill-conditioned matrix at a search rank that is too large."""
    return PlantedSetting(
        name="noise 1e-6" if sigma else "noiseless",
        draw=draw_sensing,
        problem={**ILL_CONDITIONED, "sigma": sigma},
        variants=[eta_decay(NOISY_DECAY if sigma else DECAY), *rivals],
        step=STEP,
        iterations=iterations,
        claims=claims,
        seconds=seconds,
    )


_CONSTANT = [scaledgd(value) for value in LAMBDAS]

AGAINST_SCALEDGD = PlantedExperiment(
    "Gaussian sensing against ScaledGD(lambda)",
    [
        _sensing(
            0.0,
            300,
            _CONSTANT,
            Claim(MINE, TIME, CONVERGED, at_most=300),
            Claim("ScaledGD(lambda)", SLOPE, at_least=0.9, at_most=1.1),
            Claim(MINE, FINAL, BEST_OTHER, at_most=0.1),
        ),
        _sensing(
            SIGMA,
            300,
            _CONSTANT,
            Claim(MINE, TIME, FLOOR, at_most=MANY),
            *Claim.each(("ScaledGD(0.01)", "ScaledGD(0.0001)"), FINAL, FLOOR, ABOVE_FLOOR),
            Claim(MINE, FINAL, BEST_OTHER, at_most=AS_ACCURATE),
        ),
    ],
)

AGAINST_PRECGD = PlantedExperiment(
    "Gaussian sensing against PrecGD with several proxies",
    [
        _sensing(
            0.0,
            300,
            [precgd(proxy) for proxy in (0.0, 1e-6, 1e-4, 1e-2)],
            Claim(MINE, TIME, CONVERGED, at_most=300),
            Claim("PrecGD(0)", TIME, CONVERGED, at_most=300),
            *Claim.each(("PrecGD(1e-06)", "PrecGD(0.0001)", "PrecGD(0.01)"), FINAL, "PrecGD(0)", WORSE),
        ),
        _sensing(
            SIGMA,
            300,
            [precgd(proxy) for proxy in (1e-7, 1e-6, 1e-5, 1e-4, 1e-2)],
            Claim(MINE, TIME, FLOOR, at_most=MANY),
            Claim("PrecGD(1e-06)", TIME, FLOOR, at_most=MANY),
            Claim(MINE, FINAL, BEST_OTHER, at_most=AS_ACCURATE),
            *Claim.each(("PrecGD(1e-05)", "PrecGD(0.0001)", "PrecGD(0.01)"), FINAL, FLOOR, ABOVE_FLOOR),
        ),
    ],
)

_COARSE, _FINE = (scaledgd(value, from_small=True) for value in LAMBDAS[:2])
_GD = gradient_descent(from_small=True)

FROM_SMALL_START = PlantedExperiment(
    "Gaussian sensing, the other methods from a small start",
    [
        _sensing(
            0.0,
            500,
            [_COARSE, _FINE, _GD],
            *Claim.each(("ScaledGD(0.01)", "ScaledGD(0.0001)", "GD"), FINAL, MINE, WORSE),
            Claim("ScaledGD(0.0001)", DELAY, 1e-3, at_least=SLOWER),
        ),
        _sensing(
            SIGMA,
            500,
            [_COARSE, _FINE, _GD],
            *Claim.each(("ScaledGD(0.01)", "ScaledGD(0.0001)", "GD"), FINAL, FLOOR, ABOVE_FLOOR),
            Claim("ScaledGD(0.0001)", DELAY, 1e-3, at_least=SLOWER),
            Claim("ScaledGD(0.0001)", DELAY, FLOOR, at_least=SLOWER),
        ),
    ],
)

HIGH_NOISE = PlantedExperiment(
    "Gaussian sensing with high noise",
    [
        PlantedSetting(
            name="noise 0.1",
            draw=draw_sensing,
            problem={"scales": (1.0, 1.0), "rank": 8, "measurements": 80, "sigma": 0.1},
            variants=[eta_decay(0.97), *(precgd(proxy) for proxy in (1.0, 0.7, 0.5, 0.1))],
            step=0.01,
            iterations=500,
            claims=[
                Claim(MINE, TIME, FLOOR, at_most=500, is_run=True),
                Claim(MINE, FINAL, BEST_OTHER, at_most=AS_ACCURATE),
                *Claim.each(("PrecGD(1)", "PrecGD(0.7)", "PrecGD(0.5)"), FINAL, MINE, AS_ACCURATE),
            ],
        )
    ],
)

WALL_TIME = PlantedExperiment(
    "Gaussian sensing against wall time, start included",
    [
        _sensing(
            SIGMA,
            # More than fit into the half second, at 50 microseconds an iteration.
            10_000,
            [_COARSE, _GD],
            Claim(MINE, TIME, FLOOR, at_most=0.5, is_run=True),
            *Claim.each(("ScaledGD(0.01)", "GD"), DELAY, FLOOR, SLOWER),
            Claim("ScaledGD(0.01)", FINAL, FLOOR, at_least=ABOVE_FLOOR),
            seconds=0.5,
        )
    ],
)


def _exact_and_over(
    title: str,
    draw: Callable[..., Instance],
    problem: Mapping[str, object],
    *,
    ranks: tuple[int, int],
    step: float,
    iterations: int,
    decay: float,
) -> PlantedExperiment:
    """Return an experiment at the true rank without noise, and at twice the rank with noise.

    With noise the proxy of PrecGD is ten times too large. Without noise it is 0, and lambda is 0, which makes
    ScaledGD(lambda) ScaledGD.
    """
    exact, over = ranks
    mine, gd = eta_decay(decay), gradient_descent()
    clean = PlantedSetting(
        name=f"rank {exact}, noiseless",
        draw=draw,
        problem={**problem, "rank": exact, "sigma": 0.0},
        variants=[mine, precgd(0.0), scaledgd(0.0), gd],
        step=step,
        iterations=iterations,
        claims=[
            Claim(MINE, TIME, CONVERGED, at_most=iterations, is_run=True),
            Claim(MINE, TIME_RATIO, "ScaledGD(0)", at_most=AS_FAST),
            Claim(MINE, TIME_RATIO, "GD", at_most=AS_FAST),
        ],
    )
    noisy = PlantedSetting(
        name=f"rank {over}, noise 1e-6",
        draw=draw,
        problem={**problem, "rank": over, "sigma": SIGMA},
        variants=[mine, precgd(10 * SIGMA), scaledgd(1e-2), gd],
        step=step,
        iterations=iterations,
        claims=[
            Claim(MINE, TIME, FLOOR, at_most=iterations, is_run=True),
            Claim(MINE, FINAL, BEST_OTHER, at_most=AS_ACCURATE),
            *Claim.each(("ScaledGD(0.01)", "GD"), DELAY, FLOOR, SLOWER),
        ],
    )
    return PlantedExperiment(title, [clean, noisy])


WELL_CONDITIONED = _exact_and_over(
    "Gaussian sensing of a well-conditioned matrix",
    draw_sensing,
    {"scales": (1.0, 1.0), "measurements": 80},
    ranks=(2, 4),
    step=0.1,
    iterations=500,
    decay=0.1,
)

ONE_BIT = _exact_and_over(
    "One-bit sensing",
    draw_one_bit,
    {"scales": (1.0, 1.0)},
    ranks=(2, 4),
    step=1.0,
    iterations=200,
    decay=0.4,
)

PHASE = _exact_and_over(
    "Phase retrieval",
    draw_phase,
    {"measurements": 80},
    ranks=(1, 2),
    step=0.02,
    iterations=1000,
    decay=0.1,
)
