"""The ultrasound experiments: the published settings of each method on a stack, in power Doppler."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.experiments.claims import TINY, ends_above
from usdenoise.experiments.record import Claim, Curve, ExperimentResult, Montage, Panel
from usdenoise.experiments.setup import PAPER_SHAPE, Setup, Stack
from usdenoise.images.metrics import correlation
from usdenoise.images.power_doppler import decibels, power_doppler
from usdenoise.pipeline.denoise import denoise
from usdenoise.pipeline.options import make_options
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.stack.casorati import casorati

RANK, ALPHA, GD_ALPHA, SIGMA_HAT, LAMBDA = 100, 1e7, 1e3, 5e-3, 5e-2
SAMPLINGS = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
DB_FACTOR = 20.0
CHOICES = (
    "the phantom's tissue is 40 dB below its blood, as after a clutter filter: every component is kept here, "
    "and the power Doppler of a stack that tissue rules shows no vessel",
    "the stack is scaled to a largest magnitude of 1: the proxy, lambda and the step of gradient descent "
    "depend on its unit, which is not given",
    "on a stack of another size the steps keep their tau, which is alpha = tau n_pixels n_frames / 2, and the "
    "rank its share of the frames",
    "steps that raise the objective are undone and halved, as `run` does",
    "one seed: the sample and the start of `run --seed 0`",
)


@dataclass(frozen=True)
class Outcome:
    """What one method made of the stack.

    Attributes
    ----------
    power : array
        Power Doppler in dB.
    held_out : (iterations + 1,) array
        Held-out rms over the noise rms.
    halvings : int
        Steps undone.
    stop_reason : str
        Why it ended.
    numbers : dict
        Distances and correlations.
    """

    power: NDArray[np.float32]
    held_out: NDArray[np.float64]
    halvings: int
    stop_reason: str
    numbers: dict[str, float]


def methods(stack: Stack) -> dict[str, dict[str, Any]]:
    """Options of each method beyond the preset's, with the published steps and rank fitted to the stack."""
    size = stack.acquisition.iq.size / math.prod(PAPER_SHAPE)
    shortest = min(stack.acquisition.n_frames, stack.acquisition.n_pixels)
    rank = max(1, min(RANK, round(RANK * shortest / PAPER_SHAPE[-1])))
    common = {"rank": rank, "alpha": ALPHA * size}
    return {
        "eta-decay": common,
        "PrecGD": {**common, "method": "precgd", "damping": SIGMA_HAT},
        "GD": {**common, "method": "gd", "alpha": GD_ALPHA * size},
        f"ScaledGD({LAMBDA:g})": {**common, "method": "scaledgd-lambda", "damping": LAMBDA},
    }


def single(setup: Setup) -> ExperimentResult:
    """Experiment 9: original, eta-decay, PrecGD and gradient descent at half of the entries.

    The unit of the data is not given, and the proxy 5e-3 and the step of gradient descent depend on it: the
    stack is scaled to a largest magnitude of 1. Nothing is cut off, so the phantom has next to no clutter.
    """
    stack, half = setup.stack, SAMPLINGS[0]
    options = {name: given for name, given in methods(stack).items() if not name.startswith("ScaledGD")}
    outcomes = {name: _solve(setup, stack, name, given, half) for name, given in options.items()}
    panel = _panel(half, outcomes)
    claims = [_near_noise([outcomes["eta-decay"]], "sampling 50 %")]
    claims += [ends_above(panel, rival, "eta-decay", factor) for rival, factor in (("PrecGD", 1), ("GD", 2))]
    claims += _against_noise_free(outcomes)
    power = power_doppler(np.nan_to_num(stack.acquisition.iq), stack.acquisition.axes.index("t"))
    row = (("original", decibels(power, DB_FACTOR)), *((name, one.power) for name, one in outcomes.items()))
    title = "Ultrasound: power Doppler at half of the entries"
    return _result(title, stack, options, {half: outcomes}, claims, (row,))


def grid(setup: Setup) -> ExperimentResult:
    """Experiment 10: the same with ScaledGD(lambda), at 50 % down to 20 % of the entries."""
    stack = setup.stack
    options = methods(stack)
    outcomes = {
        sampling: {name: _solve(setup, stack, name, given, sampling) for name, given in options.items()}
        for sampling in SAMPLINGS
    }
    panels = [_panel(sampling, by_name) for sampling, by_name in outcomes.items()]
    claims = [_near_noise([by_name["eta-decay"] for by_name in outcomes.values()], "at every sampling")]
    claims += [
        Claim(
            f"at every sampling {rival} ends at least as high as eta-decay",
            min(panel[rival].final / panel["eta-decay"].final for panel in panels),
            1,
            at_most=False,
        )
        for rival in options
        if rival != "eta-decay"
    ]
    first, last = (outcomes[sampling]["eta-decay"].power for sampling in (SAMPLINGS[0], SAMPLINGS[-1]))
    claims.append(
        Claim(
            "eta-decay's picture in dB at 20 % has a correlation of at least 0.9 with that at 50 %",
            correlation(first, last),
            0.9,
            at_most=False,
        )
    )
    rows = tuple(
        tuple((f"{name}, {100 * sampling:g} %", outcomes[sampling][name].power) for sampling in SAMPLINGS)
        for name in options
    )
    title = "Ultrasound: power Doppler from 50 % down to 20 % of the entries"
    return _result(title, stack, options, outcomes, claims, rows)


def _solve(setup: Setup, stack: Stack, name: str, given: dict[str, Any], sampling: float) -> Outcome:
    setup.say(f"ultrasound: {name} at {100 * sampling:g} %")
    options = make_options("paper", sampling=sampling, threads=setup.threads, **given)
    result = denoise(stack.acquisition, options=options)
    solution = result.solution
    assert solution is not None
    held_out = np.array([line.held_out_rmse for line in solution.trace], np.float64)
    return Outcome(
        decibels(result.power_doppler, DB_FACTOR),
        held_out / max(result.noise_floor, TINY),
        sum(line.halvings for line in solution.trace),
        solution.stop_reason.value,
        _numbers(stack, result),
    )


def _numbers(stack: Stack, result: DenoiseResult) -> dict[str, float]:
    """How far the filtered stack is from the original, and from it without noise where that is known.

    Both as a root mean square over the noise's; 1 is what the original itself has against the latter.
    """
    filtered, original = casorati(result.acquisition), casorati(stack.acquisition)
    numbers = {"rms_to_original": _rms(filtered, original) / max(result.noise_floor, TINY)}
    if stack.noise_free is not None:
        noise_free = stack.noise_free.reshape(original.shape)
        numbers["rms_to_noise_free"] = _rms(filtered, noise_free) / _rms(original, noise_free)
    return numbers


def _rms(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Root mean square of the difference, over the entries where both are finite."""
    total, count = 0.0, 0
    for a, b in zip(first, second, strict=True):
        squares = np.abs(a - b).astype(np.float64) ** 2
        finite = np.isfinite(squares)
        total += float(squares[finite].sum())
        count += int(finite.sum())
    return math.sqrt(total / count)


def _near_noise(outcomes: Sequence[Outcome], where: str) -> Claim:
    return Claim(
        f"{where}: eta-decay's held-out rms comes to within 1.5x of the noise rms",
        max(float(one.held_out[-1]) for one in outcomes),
        1.5,
    )


def _against_noise_free(outcomes: dict[str, Outcome]) -> list[Claim]:
    left = {name: one.numbers.get("rms_to_noise_free") for name, one in outcomes.items()}
    mine = left["eta-decay"]
    if mine is None:
        return []
    claims = [Claim("eta-decay leaves at most half of the noise in the stack", mine, 0.5)]
    for name, other in left.items():
        if name != "eta-decay" and other is not None:
            claims.append(
                Claim(
                    f"{name} is at least as far from the noise-free stack as eta-decay",
                    other / mine,
                    1,
                    False,
                )
            )
    return claims


def _panel(sampling: float, outcomes: dict[str, Outcome]) -> Panel:
    curves = tuple(
        Curve(
            name,
            np.arange(len(one.held_out)),
            one.held_out[None],
            (0,),
            (one.halvings,),
            (one.stop_reason,),
        )
        for name, one in outcomes.items()
    )
    return Panel(f"sampling {100 * sampling:g} %", curves, 1.0)


def _result(
    title: str,
    stack: Stack,
    options: dict[str, dict[str, Any]],
    outcomes: dict[float, dict[str, Outcome]],
    claims: Sequence[Claim],
    rows: tuple[tuple[tuple[str, NDArray[np.float32]], ...], ...],
) -> ExperimentResult:
    return ExperimentResult(
        title,
        {
            "preset": "paper",
            "methods": options,
            "samplings": list(outcomes),
            "input": dict(stack.source),
            "shape": list(stack.acquisition.iq.shape),
            "axes": stack.acquisition.axes,
        },
        CHOICES,
        (0,),
        tuple(_panel(sampling, by_name) for sampling, by_name in outcomes.items()),
        tuple(claims),
        y_label="held-out rms over noise rms",
        montage=Montage(rows, stack.acquisition),
        numbers={
            f"{100 * sampling:g} %": {name: one.numbers for name, one in by_name.items()}
            for sampling, by_name in outcomes.items()
        },
    )
