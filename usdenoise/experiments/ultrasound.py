"""The ultrasound experiments: power Doppler of one stack by each method with its published settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.experiments.claims import TINY
from usdenoise.experiments.conventions import Convention
from usdenoise.experiments.record import Claim, Curve, ExperimentResult, Montage, Panel
from usdenoise.experiments.setup import ALPHA, GD_ALPHA, PAPER_SHAPE, Setup, Stack
from usdenoise.images.metrics import correlation
from usdenoise.images.power_doppler import decibels, power_doppler
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.options.denoise_options import make_options
from usdenoise.recipe.denoise import denoise
from usdenoise.recipe.result import DenoiseResult
from usdenoise.stack.casorati import casorati

SIGMA_HAT, LAMBDA = 5e-3, 5e-2
SAMPLINGS = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
DB_FACTOR = 20.0
PICTURE_DB = 40.0
"""Dynamic range in which pictures are compared, in dB of power: a usual range of a power Doppler picture."""

PERFECT, ENOUGH = 0.95, 0.25
"""A picture is almost perfect where its correlation in dB with the noise-free picture is at least 0.95."""

NEAR_NOISE, HALF, SIGNIFICANT, TWICE = 1.5, 0.5, 1.1, 2.0
"""Bounds: held-out rms at the noise, noise halved, and errors significantly above and twice as large as another."""

ABSTRACT = "abstract (significantly reduced noise levels compared to previous approaches); experiment "
CHOICES = (
    "the phantom is a stack as after a clutter filter: its blood has as many components as the search rank, 100 at "
    "full size, whose singular values fall by 35 dB, and the last of them is the largest singular value of the noise",
    "the stack is scaled to a largest singular value of 1e4, because the paper does not give the unit of its data: "
    "then the published step of gradient descent moves the strongest component as fast as that of eta-decay",
    "on a stack of another size than the paper's, the steps keep tau in alpha = tau n_pixels n_frames / 2, and the "
    "rank keeps its ratio to the number of frames, or of pixels where those are fewer",
    "a step that raises the objective is undone and halved, as `run` does",
    "there is one seed: sampled entries and start are those of `run --seed 0`",
)

# Entry (i, j) is measured by the matrix with a 1 at (i, j), which is not symmetric.
_claim = partial(Claim, convention=Convention.OF_BOTH_GENERAL)


@dataclass(frozen=True)
class Outcome:
    """Result of one method on the stack.

    Attributes
    ----------
    power : array
        Power Doppler in dB, with the spatial axes of the stack.
    curve : Curve
        Rms residual of the held-out entries over the rms of the noise, at the start and after each iteration.
    numbers : dict
        Distances of the filtered stack to the original and, for a phantom, to the noise-free one, and the
        correlation of the pictures.
    """

    power: NDArray[np.float32]
    curve: Curve
    numbers: dict[str, float]


def methods(stack: Stack) -> dict[str, dict[str, Any]]:
    """Return the options of each method that differ from the preset, by the method's label.

    The published steps belong to 200 x 130 pixels and 2400 frames. They are scaled by the number of entries.
    """
    size = stack.acquisition.iq.size / math.prod(PAPER_SHAPE)
    common = {"rank": stack.rank, "alpha": ALPHA * size}
    return {
        "eta-decay": common,
        "PrecGD": {**common, "method": "precgd", "damping": SIGMA_HAT},
        "GD": {**common, "method": "gd", "alpha": GD_ALPHA * size},
        f"ScaledGD({LAMBDA:g})": {**common, "method": "scaledgd-lambda", "damping": LAMBDA},
    }


def single(setup: Setup) -> ExperimentResult:
    """Repeat experiment 9: original, eta-decay, PrecGD and gradient descent at sampling 0.5.

    Every component is kept, so the phantom has no clutter.
    """
    stack, half = setup.stack, SAMPLINGS[0]
    options = {name: given for name, given in methods(stack).items() if not name.startswith("ScaledGD")}
    outcomes = {name: _solve(setup, name, given, half) for name, given in options.items()}
    where, setting = ABSTRACT + "9", f"sampling {100 * half:g} %"
    mine, gd = outcomes["eta-decay"], outcomes["GD"]
    claims = [
        _claim(
            f"{setting}: held-out rms of eta-decay / noise rms", where, mine.curve.final, at_most=NEAR_NOISE
        ),
        _claim(
            f"{setting}: held-out rms of GD / that of eta-decay",
            where,
            gd.curve.final / mine.curve.final,
            TWICE,
        ),
    ]
    if stack.noise_free is not None:
        claims.append(
            _claim(
                f"{setting}: distance of eta-decay to the noise-free stack / that of the measured stack",
                where,
                mine.numbers["rms_to_noise_free"],
                at_most=HALF,
            )
        )
    claims += _rivals_are_noisier({half: outcomes}, where, setting)
    power = power_doppler(np.nan_to_num(stack.acquisition.iq), stack.acquisition.axes.index("t"))
    row = (("original", decibels(power, DB_FACTOR)), *((name, one.power) for name, one in outcomes.items()))
    title = "Ultrasound: power Doppler at half of the entries"
    return _result(title, stack, options, {half: outcomes}, claims, (row,))


def grid(setup: Setup) -> ExperimentResult:
    """Repeat experiment 10: the methods of experiment 9 and ScaledGD(lambda), at sampling 0.5 down to 0.2."""
    stack = setup.stack
    options = methods(stack)
    outcomes = {
        sampling: {name: _solve(setup, name, given, sampling) for name, given in options.items()}
        for sampling in SAMPLINGS
    }
    where = "experiment 10 (almost perfect above 25 %)"
    enough = [by_name["eta-decay"] for sampling, by_name in outcomes.items() if sampling >= ENOUGH]
    setting = f"every sampling from {100 * ENOUGH:g} %"
    claims = [
        _claim(
            f"{setting}: largest held-out rms of eta-decay / noise rms",
            where,
            max(one.curve.final for one in enough),
            at_most=NEAR_NOISE,
        )
    ]
    if stack.noise_free is not None:
        claims.append(
            _claim(
                f"{setting}: smallest correlation of eta-decay's picture in dB with the noise-free picture",
                where,
                min(one.numbers["correlation_with_noise_free"] for one in enough),
                PERFECT,
            )
        )
    claims += _rivals_are_noisier(outcomes, ABSTRACT + "10", "every sampling")
    rows = tuple(
        tuple((f"{name}, {100 * sampling:g} %", outcomes[sampling][name].power) for sampling in SAMPLINGS)
        for name in options
    )
    title = "Ultrasound: power Doppler from 50 % down to 20 % of the entries"
    return _result(title, stack, options, outcomes, claims, rows)


def _rivals_are_noisier(
    outcomes: Mapping[float, Mapping[str, Outcome]], where: str, setting: str
) -> list[Claim]:
    """Return the claims that the stacks of the other methods have significantly more noise.

    Noise is the distance to the noise-free stack where that is known, otherwise the held-out rms.
    """
    first = next(iter(outcomes.values()))
    known = "rms_to_noise_free" in first["eta-decay"].numbers
    what = "distance of {} to the noise-free stack" if known else "held-out rms of {}"

    def noise(one: Outcome) -> float:
        return one.numbers["rms_to_noise_free"] if known else one.curve.final

    smallest = "" if len(outcomes) == 1 else "smallest "
    return [
        _claim(
            f"{setting}: {smallest}{what.format(rival)} / that of eta-decay",
            where,
            min(noise(by_name[rival]) / noise(by_name["eta-decay"]) for by_name in outcomes.values()),
            SIGNIFICANT,
        )
        for rival in first
        if rival != "eta-decay"
    ]


def _solve(setup: Setup, name: str, given: dict[str, Any], sampling: float) -> Outcome:
    # The two experiments share the runs at sampling 0.5.
    key = (name, sampling)
    if key not in setup.outcomes:
        setup.say(f"ultrasound: {name} at {100 * sampling:g} %")
        options = make_options("paper", sampling=sampling, threads=setup.threads, **given)
        result = denoise(setup.stack.acquisition, options=options)
        solution = result.solution
        assert solution is not None
        trace, reason = solution.trace, solution.stop_reason.value
        held_out = np.array([line.held_out_rmse for line in trace], np.float64) / max(
            result.noise_floor, TINY
        )
        halvings = sum(line.halvings for line in trace)
        setup.outcomes[key] = Outcome(
            decibels(result.power_doppler, DB_FACTOR),
            Curve(name, np.arange(len(trace)), held_out[None], (0,), (halvings,), (reason,)),
            _numbers(setup.stack, result),
        )
    outcome: Outcome = setup.outcomes[key]
    return outcome


def _numbers(stack: Stack, result: DenoiseResult) -> dict[str, float]:
    """Return the distances of the filtered stack to the original and, where known, to the noise-free one.

    Both are a root mean square difference over the rms of the noise. The original itself has the distance 1 to the
    noise-free stack. The pictures are compared in dB, cut off 40 dB below the largest power.
    """
    filtered, original = casorati(result.acquisition), casorati(stack.acquisition)
    numbers = {"rms_to_original": _rms(filtered, original) / max(result.noise_floor, TINY)}
    if stack.noise_free is not None:
        noise_free = stack.noise_free.reshape(original.shape)
        numbers["rms_to_noise_free"] = _rms(filtered, noise_free) / _rms(original, noise_free)
        truth = power_doppler(stack.noise_free, axis=-1)
        numbers["correlation_with_noise_free"] = correlation(
            _picture(np.asarray(result.power_doppler)), _picture(truth)
        )
    return numbers


def _picture(power: NDArray[Any]) -> NDArray[np.float32]:
    return np.maximum(decibels(power), np.float32(-PICTURE_DB))


def _rms(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the root mean square of the difference, over the entries where both are finite."""
    total, count = 0.0, 0
    for rows in block_rows(first.shape):
        squares = np.abs(first[rows] - second[rows]).astype(np.float64) ** 2
        finite = np.isfinite(squares)
        total += float(squares[finite].sum())
        count += int(finite.sum())
    return math.sqrt(total / count)


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
        tuple(
            Panel(
                f"sampling {100 * sampling:g} %",
                tuple(one.curve for one in by_name.values()),
                noise_floor=1.0,
                convention=Convention.OF_BOTH_GENERAL,
            )
            for sampling, by_name in outcomes.items()
        ),
        tuple(claims),
        y_label="held-out rms over noise rms",
        montage=Montage(rows, stack.acquisition),
        numbers={
            f"{100 * sampling:g} %": {name: one.numbers for name, one in by_name.items()}
            for sampling, by_name in outcomes.items()
        },
    )
