"""The experiments on 10 x 10 problems, in the paper's reading: what one declares, its runs, and all of them.

Noise levels are standard deviations. What the paper does not give is chosen here: the number of iterations of the first
three experiments, the proxies of PrecGD in the second one, and condition number, measurements and noise of the
experiment against wall time, which are the same as in the first one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from usdenoise.experiments import planted
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
    Curve,
    CurvePanel,
    ExperimentResult,
)
from usdenoise.experiments.ultrasound import Setup
from usdenoise.linalg.executor import ThreadExecutor

SECONDS_POINTS = 201
"""Points of a curve against wall time."""


@dataclass(frozen=True)
class PlantedSetting:
    """One setting of an experiment: its problems, the methods that are compared on them, and its claims.

    Attributes
    ----------
    name : str
        Name of the setting, for example "noiseless".
    draw : callable
        Function that draws a problem from a generator, such as :func:`usdenoise.experiments.planted.draw_sensing`.
    problem : mapping
        Other arguments of `draw`, among them `sigma`; if it is not 0, the curves have a noise floor.
    variants : sequence of Variant
        Methods with their parameters, one curve each.
    step : float
        Step length that multiplies the preconditioned gradient.
    iterations : int
        Number of iterations of each run.
    claims : sequence of Claim
        Claims on the curves; none by default.
    seconds : float or None
        Length of the time axis in seconds, for errors against wall time; None, the default, for errors against
        iterations.
    """

    name: str
    draw: Callable[..., planted.Instance]
    problem: Mapping[str, object]
    variants: Sequence[planted.Variant]
    step: float
    iterations: int
    claims: Sequence[Claim] = ()
    seconds: float | None = None

    def claiming(self, *claims: Claim) -> "PlantedSetting":
        """Return the setting with claims on its curves."""
        return replace(self, claims=claims)

    def as_dict(self) -> dict[str, object]:
        """Return the setting as it is written to the record."""
        methods = {variant.label: asdict(variant) for variant in self.variants}
        return {**self.problem, "step": self.step, "iterations": self.iterations, "methods": methods}


@dataclass(frozen=True)
class PlantedExperiment:
    """An experiment that finds a planted matrix M* by several methods.

    Attributes
    ----------
    title : str
        Title of the figure.
    settings : sequence of PlantedSetting
        Problems with their methods and claims.
    """

    title: str
    settings: Sequence[PlantedSetting]

    def run(self, setup: Setup) -> ExperimentResult:
        """Run every method in every setting, and check the claims."""
        panels = [panel(setting, setup.seeds) for setting in self.settings]
        return ExperimentResult(
            title=self.title,
            parameters={
                "size": planted.SIZE,
                "seeds": list(setup.seeds),
                "settings": {setting.name: setting.as_dict() for setting in self.settings},
            },
            panels=tuple(panels),
            claims=tuple(
                claim.check(setting.name, [panel])
                for setting, panel in zip(self.settings, panels, strict=True)
                for claim in setting.claims
            ),
        )


def panel(setting: PlantedSetting, seeds: Sequence[int]) -> CurvePanel:
    """Run the methods of a setting on the same random problems.

    Parameters
    ----------
    setting : PlantedSetting
        Problems and methods.
    seeds : sequence of int
        Seeds of the generators, one problem each.
    """
    # On such small matrices a second thread of BLAS only costs time.
    with ThreadExecutor(1):
        instances = [setting.draw(np.random.default_rng(seed), **setting.problem) for seed in seeds]
        return CurvePanel(
            setting=setting.name,
            curves=tuple(_curve(setting, variant, instances) for variant in setting.variants),
            noise_floor=planted.noise_floor(instances) if setting.problem["sigma"] else None,
            unit="iterations" if setting.seconds is None else "seconds",
        )


def _curve(setting: PlantedSetting, variant: planted.Variant, instances: Sequence[planted.Instance]) -> Curve:
    descents = [planted.descend(one, variant, setting.step, setting.iterations) for one in instances]
    if setting.seconds is None:
        x = np.arange(setting.iterations + 1, dtype=np.float64)
        # A run that diverged ends early: its last error is drawn to the end.
        errors = [np.pad(one.errors, (0, len(x) - len(one.errors)), mode="edge") for one in descents]
    else:
        x = np.linspace(0, setting.seconds, SECONDS_POINTS)
        errors = [one.at(x) for one in descents]
    return Curve(variant.label, x, np.array(errors))


SIGMA = 1e-6
EVEN = {"scales": (1.0, 1.0)}
ILL_CONDITIONED = {"scales": (1.0, 1e-2), "rank": 8, "measurements": 2 * planted.SIZE * 8}
STEP = 0.1
DECAY, NOISY_DECAY = 0.85, 0.5

# Bounds of "stays above the floor", "as accurate", "as fast", "slower" and "much worse".
ABOVE_FLOOR, AS_ACCURATE, AS_FAST, SLOWER, WORSE = 2.0, 1.1, 1.5, 2.0, 10.0
MANY = 100
"""Iterations to the noise floor: the abstract of the paper gives a practitioner tens to hundreds."""


def eta_decay(decay: float) -> planted.Variant:
    """Return eta-decay, with the damping eta_t = beta^t sqrt(f(X_0)).

    This is the method of Zhang, Chiu and Zhang (AISTATS 2024).
    """
    return planted.Variant(MINE, "eta-decay", decay=decay)


def scaledgd(damping: float, *, from_small: bool = False) -> planted.Variant:
    """Return ScaledGD(lambda), with the constant damping eta_t = lambda; for lambda = 0 it is ScaledGD.

    The methods are from Xu, Shen, Chi and Ma (ICML 2023) and from Tong, Ma and Chi (JMLR 2021).
    """
    return planted.Variant(f"ScaledGD({damping:g})", "scaledgd-lambda", damping, from_small=from_small)


def precgd(sigma_hat: float) -> planted.Variant:
    """Return PrecGD, with the damping eta_t = sqrt(|f(X_t) - sigma_hat^2|) and a proxy sigma_hat of the noise level.

    This is the method of Zhang, Fattahi and Zhang (NeurIPS 2021).
    """
    return planted.Variant(f"PrecGD({sigma_hat:g})", "precgd", sigma_hat)


def gradient_descent(*, from_small: bool = False) -> planted.Variant:
    """Return plain gradient descent."""
    return planted.Variant("GD", "gd", from_small=from_small)


def _sensing(
    sigma: float, iterations: int, rivals: Sequence[planted.Variant], seconds: float | None = None
) -> PlantedSetting:
    """Return the setting of an ill-conditioned matrix at a search rank that is too large."""
    return PlantedSetting(
        name="noise 1e-6" if sigma else "noiseless",
        draw=planted.draw_sensing,
        problem={**ILL_CONDITIONED, "sigma": sigma},
        variants=[eta_decay(NOISY_DECAY if sigma else DECAY), *rivals],
        step=STEP,
        iterations=iterations,
        seconds=seconds,
    )


_CONSTANT = [scaledgd(value) for value in LAMBDAS]

AGAINST_SCALEDGD = PlantedExperiment(
    "Gaussian sensing against ScaledGD(lambda)",
    [
        _sensing(0.0, 300, _CONSTANT).claiming(
            Claim(MINE, TIME, CONVERGED, at_most=300),
            Claim("ScaledGD(lambda)", SLOPE, at_least=0.9, at_most=1.1),
            Claim(MINE, FINAL, BEST_OTHER, at_most=0.1),
        ),
        _sensing(SIGMA, 300, _CONSTANT).claiming(
            Claim(MINE, TIME, FLOOR, at_most=MANY),
            *Claim.each(("ScaledGD(0.01)", "ScaledGD(0.0001)"), FINAL, FLOOR, ABOVE_FLOOR),
            Claim(MINE, FINAL, BEST_OTHER, at_most=AS_ACCURATE),
        ),
    ],
)

AGAINST_PRECGD = PlantedExperiment(
    "Gaussian sensing against PrecGD with several proxies",
    [
        _sensing(0.0, 300, [precgd(proxy) for proxy in (0.0, 1e-6, 1e-4, 1e-2)]).claiming(
            Claim(MINE, TIME, CONVERGED, at_most=300),
            Claim("PrecGD(0)", TIME, CONVERGED, at_most=300),
            *Claim.each(("PrecGD(1e-06)", "PrecGD(0.0001)", "PrecGD(0.01)"), FINAL, "PrecGD(0)", WORSE),
        ),
        _sensing(SIGMA, 300, [precgd(proxy) for proxy in (1e-7, 1e-6, 1e-5, 1e-4, 1e-2)]).claiming(
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
        _sensing(0.0, 500, [_COARSE, _FINE, _GD]).claiming(
            *Claim.each(("ScaledGD(0.01)", "ScaledGD(0.0001)", "GD"), FINAL, MINE, WORSE),
            Claim("ScaledGD(0.0001)", DELAY, 1e-3, at_least=SLOWER),
        ),
        _sensing(SIGMA, 500, [_COARSE, _FINE, _GD]).claiming(
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
            draw=planted.draw_sensing,
            problem={**EVEN, "rank": 8, "measurements": 80, "sigma": 0.1},
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
        # More iterations than fit into the half second, at 50 microseconds each.
        _sensing(SIGMA, 10_000, [_COARSE, _GD], seconds=0.5).claiming(
            Claim(MINE, TIME, FLOOR, at_most=0.5, is_run=True),
            *Claim.each(("ScaledGD(0.01)", "GD"), DELAY, FLOOR, SLOWER),
            Claim("ScaledGD(0.01)", FINAL, FLOOR, at_least=ABOVE_FLOOR),
        )
    ],
)


def _exact_and_over(
    title: str,
    draw: Callable[..., planted.Instance],
    problem: Mapping[str, object],
    *,
    rank: int,
    step: float,
    iterations: int,
    decay: float,
) -> PlantedExperiment:
    """Return an experiment at the true rank without noise, and at twice the rank with noise.

    With noise the proxy of PrecGD is ten times too large. Without noise it is 0, and lambda is 0, which makes
    ScaledGD(lambda) ScaledGD.
    """
    mine, gd = eta_decay(decay), gradient_descent()
    clean = PlantedSetting(
        name=f"rank {rank}, noiseless",
        draw=draw,
        problem={**problem, "rank": rank, "sigma": 0.0},
        variants=[mine, precgd(0.0), scaledgd(0.0), gd],
        step=step,
        iterations=iterations,
    ).claiming(
        Claim(MINE, TIME, CONVERGED, at_most=iterations, is_run=True),
        Claim(MINE, TIME_RATIO, "ScaledGD(0)", at_most=AS_FAST),
        Claim(MINE, TIME_RATIO, "GD", at_most=AS_FAST),
    )
    noisy = replace(
        clean,
        name=f"rank {2 * rank}, noise 1e-6",
        problem={**problem, "rank": 2 * rank, "sigma": SIGMA},
        variants=[mine, precgd(10 * SIGMA), scaledgd(1e-2), gd],
    ).claiming(
        Claim(MINE, TIME, FLOOR, at_most=iterations, is_run=True),
        Claim(MINE, FINAL, BEST_OTHER, at_most=AS_ACCURATE),
        *Claim.each(("ScaledGD(0.01)", "GD"), DELAY, FLOOR, SLOWER),
    )
    return PlantedExperiment(title, [clean, noisy])


WELL_CONDITIONED = _exact_and_over(
    "Gaussian sensing of a well-conditioned matrix",
    planted.draw_sensing,
    {**EVEN, "measurements": 80},
    rank=2,
    step=0.1,
    iterations=500,
    decay=0.1,
)

ONE_BIT = _exact_and_over(
    "One-bit sensing", planted.draw_one_bit, EVEN, rank=2, step=1.0, iterations=200, decay=0.4
)

PHASE = _exact_and_over(
    "Phase retrieval", planted.draw_phase, {"measurements": 80}, rank=1, step=0.02, iterations=1000, decay=0.1
)
