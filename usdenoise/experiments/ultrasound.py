"""The ultrasound experiments: power Doppler of one stack by each method with its published settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.metrics import correlation
from usdenoise.blood.power_doppler import decibels, power_doppler
from usdenoise.experiments.claims import TINY
from usdenoise.experiments.conventions import Convention
from usdenoise.experiments.record import Claim, Curve, ExperimentResult, Panel, Rows
from usdenoise.experiments.setup import ALPHA, GD_ALPHA, PAPER_SHAPE, Setup, Stack
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.options.denoise_options import make_options
from usdenoise.recipe.denoise import denoise
from usdenoise.recipe.result import DenoiseResult
from usdenoise.stack.casorati import casorati

SIGMA_HAT, LAMBDA = 5e-3, 5e-2
MINE, SCALED = "eta-decay", f"ScaledGD({LAMBDA:g})"
SAMPLINGS = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
DB_FACTOR = 20.0
PICTURE_DB = 40.0
"""Dynamic range in which pictures are compared, in dB of power: a usual range of a power Doppler picture."""

HELD_OUT, DISTANCE, CORRELATION = "held_out_rms", "rms_to_noise_free", "correlation_with_noise_free"
WORDS = {
    HELD_OUT: ("held-out rms of {}", " / noise rms"),
    DISTANCE: ("distance of {} to the noise-free stack", " / that of the measured stack"),
    CORRELATION: ("correlation of {}'s picture in dB with the noise-free picture", ""),
}
"""The numbers of a method in words, and what they are divided by."""

NOISE = (DISTANCE, HELD_OUT)
"""Noise of a filtered stack: its distance to the noise-free one where that is known."""

CONVENTION = Convention.OF_BOTH_GENERAL
"""Entry (i, j) is measured by the matrix with a 1 at (i, j), which is not symmetric."""

PERFECT, ENOUGH = 0.95, 0.25
"""A picture is almost perfect where its correlation in dB with the noise-free picture is at least 0.95."""

NEAR_NOISE, HALF, SIGNIFICANT, TWICE = 1.5, 0.5, 1.1, 2.0
"""Bounds: held-out rms at the noise, noise halved, and errors significantly above and twice as large as another."""

ALMOST_PERFECT = "experiment 10 (almost perfect above 25 %)"
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
        The last value of the curve, distances of the filtered stack to the original and, for a phantom, to the
        noise-free one, and the correlation of the pictures.
    """

    power: NDArray[np.float32]
    curve: Curve
    numbers: dict[str, float]


Outcomes = Mapping[float, Mapping[str, Outcome]]
"""Outcomes by sampling and by the label of the method."""


def methods(stack: Stack) -> dict[str, dict[str, Any]]:
    """Return the options of each method that differ from the preset, by the method's label.

    The published steps belong to 200 x 130 pixels and 2400 frames. They are scaled by the number of entries.
    """
    size = stack.acquisition.iq.size / math.prod(PAPER_SHAPE)
    common = {"rank": stack.rank, "alpha": ALPHA * size}
    return {
        MINE: common,
        "PrecGD": {**common, "method": "precgd", "damping": SIGMA_HAT},
        "GD": {**common, "method": "gd", "alpha": GD_ALPHA * size},
        SCALED: {**common, "method": "scaledgd-lambda", "damping": LAMBDA},
    }


@dataclass(frozen=True)
class UltrasoundCheck:
    """A number of a method, and the bound of the worst one over the samplings.

    Attributes
    ----------
    where : str
        Place in the paper.
    label : str
        Label of the method.
    kinds : sequence of str
        Keys of WORDS; the number is the first of them that is known.
    at_least, at_most : float
        Bounds of the number; one of them is infinite, as both are by default.
    reference : str
        Label of the method that the number is divided by; by default none.
    least_sampling : float
        Sampling from which on the check is made; by default every sampling.
    """

    where: str
    label: str
    kinds: Sequence[str]
    at_least: float = -math.inf
    at_most: float = math.inf
    reference: str = ""
    least_sampling: float = 0.0

    def claim(self, outcomes: Outcomes) -> Claim | None:
        """Return the claim that the outcomes decide, or None where none of the numbers is known."""
        found = [by_name for sampling, by_name in outcomes.items() if sampling >= self.least_sampling]
        kind = next((kind for kind in self.kinds if kind in found[0][self.label].numbers), None)
        if kind is None:
            return None
        numbers = [by_name[self.label].numbers[kind] for by_name in found]
        words, unit = WORDS[kind]
        if self.reference:
            unit = f" / that of {self.reference}"
            of_reference = (by_name[self.reference].numbers[kind] for by_name in found)
            numbers = [mine / other for mine, other in zip(numbers, of_reference, strict=True)]
        worst, extreme = (
            (max(numbers), "largest ") if math.isinf(self.at_least) else (min(numbers), "smallest ")
        )
        setting = "every sampling" + (f" from {_percent(self.least_sampling)}" if self.least_sampling else "")
        if len(outcomes) == 1:
            setting, extreme = f"sampling {_percent(*outcomes)}", ""
        return Claim(
            f"{setting}: {extreme}{words.format(self.label)}{unit}",
            self.where,
            worst,
            self.at_least,
            self.at_most,
            convention=CONVENTION,
        )


@dataclass(frozen=True)
class UltrasoundExperiment:
    """An experiment that filters one stack by several methods. Every component is kept, so the phantom has no clutter.

    Attributes
    ----------
    title : str
        Title of the figure.
    methods : sequence of str
        Labels of the methods (see :func:`methods`).
    samplings : sequence of float
        Fractions of the entries to sample.
    checks : sequence of UltrasoundCheck
        What is checked on the outcomes.
    """

    title: str
    methods: Sequence[str]
    samplings: Sequence[float]
    checks: Sequence[UltrasoundCheck]

    def run(self, setup: Setup) -> ExperimentResult:
        """Run every method at every sampling, and check the claims."""
        stack = setup.stack
        options = {name: given for name, given in methods(stack).items() if name in self.methods}
        outcomes = {
            sampling: {name: _solve(setup, name, given, sampling) for name, given in options.items()}
            for sampling in self.samplings
        }
        return ExperimentResult(
            self.title,
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
                    f"sampling {_percent(sampling)}",
                    tuple(one.curve for one in by_name.values()),
                    noise_floor=1.0,
                    convention=CONVENTION,
                )
                for sampling, by_name in outcomes.items()
            ),
            tuple(filter(None, (check.claim(outcomes) for check in self.checks))),
            y_label="held-out rms over noise rms",
            pictures=_pictures(stack, outcomes),
            acquisition=stack.acquisition,
            numbers={
                _percent(sampling): {name: one.numbers for name, one in by_name.items()}
                for sampling, by_name in outcomes.items()
            },
        )


def _percent(sampling: float) -> str:
    return f"{100 * sampling:g} %"


def _pictures(stack: Stack, outcomes: Outcomes) -> Rows:
    """Return a row of the original and the methods for one sampling, or a row for each method over the samplings."""
    (_, first), *others = outcomes.items()
    if others:
        return tuple(
            tuple((f"{name}, {_percent(at)}", by_name[name].power) for at, by_name in outcomes.items())
            for name in first
        )
    power = power_doppler(np.nan_to_num(stack.acquisition.iq), stack.acquisition.axes.index("t"))
    return ((("original", decibels(power, DB_FACTOR)), *((name, one.power) for name, one in first.items())),)


def _solve(setup: Setup, name: str, given: dict[str, Any], sampling: float) -> Outcome:
    # The two experiments share the runs at sampling 0.5.
    key = (name, sampling)
    if key not in setup.outcomes:
        setup.say(f"ultrasound: {name} at {_percent(sampling)}")
        options = make_options("paper", sampling=sampling, threads=setup.threads, **given)
        result = denoise(setup.stack.acquisition, options=options)
        solution = result.solution
        assert solution is not None
        trace, reason = solution.trace, solution.stop_reason.value
        held_out = np.array([line.held_out_rmse for line in trace], np.float64) / max(
            result.noise_floor, TINY
        )
        halvings = sum(line.halvings for line in trace)
        curve = Curve(name, np.arange(len(trace)), held_out[None], (0,), (halvings,), (reason,))
        numbers = {HELD_OUT: curve.final, **_numbers(setup.stack, result)}
        setup.outcomes[key] = Outcome(decibels(result.power_doppler, DB_FACTOR), curve, numbers)
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
        numbers[DISTANCE] = _rms(filtered, noise_free) / _rms(original, noise_free)
        truth = power_doppler(stack.noise_free, axis=-1)
        numbers[CORRELATION] = correlation(_picture(np.asarray(result.power_doppler)), _picture(truth))
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


_RIVALS = ("PrecGD", "GD")
_SINGLE, _GRID = ABSTRACT + "9", ABSTRACT + "10"

SINGLE = UltrasoundExperiment(
    "Ultrasound: power Doppler at half of the entries",
    [MINE, *_RIVALS],
    SAMPLINGS[:1],
    [
        UltrasoundCheck(_SINGLE, MINE, [HELD_OUT], at_most=NEAR_NOISE),
        UltrasoundCheck(_SINGLE, "GD", [HELD_OUT], TWICE, reference=MINE),
        UltrasoundCheck(_SINGLE, MINE, [DISTANCE], at_most=HALF),
        *(UltrasoundCheck(_SINGLE, rival, NOISE, SIGNIFICANT, reference=MINE) for rival in _RIVALS),
    ],
)

GRID = UltrasoundExperiment(
    "Ultrasound: power Doppler, 50 % to 20 % of the entries",
    [MINE, *_RIVALS, SCALED],
    SAMPLINGS,
    [
        UltrasoundCheck(ALMOST_PERFECT, MINE, [HELD_OUT], at_most=NEAR_NOISE, least_sampling=ENOUGH),
        UltrasoundCheck(ALMOST_PERFECT, MINE, [CORRELATION], PERFECT, least_sampling=ENOUGH),
        *(UltrasoundCheck(_GRID, rival, NOISE, SIGNIFICANT, reference=MINE) for rival in [*_RIVALS, SCALED]),
    ],
)
