"""The ultrasound experiments: power Doppler of one simulated stack by each method with its published settings.

Every component is kept, so the stack has no clutter. On a stack of another size than the paper's, the steps keep tau in
alpha = tau n_pixels n_frames / 2, and the rank keeps its ratio to the number of frames. A step that raises the objective
is undone and halved, as `run` does. There is one seed: sampled entries and start are the same as in `run --seed 0`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import decibels, power_doppler
from usdenoise.blood.metrics import correlation
from usdenoise.experiments.record import (
    MINE,
    Claim,
    Curve,
    CurvePanel,
    ExperimentResult,
    Quantity,
    ReferenceLevel,
    Rows,
)
from usdenoise.experiments.setup import PAPER_SHAPE, FilteredStack, Outcome, Setup
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import row_parts
from usdenoise.options.denoise_options import make_options
from usdenoise.pipeline.denoise import denoise

ALPHA, GD_ALPHA = 1e7, 1e3
SIGMA_HAT, LAMBDA = 5e-3, 5e-2
SAMPLINGS = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
PICTURE_DB = 40.0
"""Dynamic range of the pictures in dB: a usual range of a power Doppler picture."""

# Held-out rms near the noise, noise halved, errors significantly above and twice as large as another, and the
# correlation of an almost perfect picture.
NEAR_NOISE, HALF, SIGNIFICANT, TWICE, PERFECT = 1.5, 0.5, 1.1, 2.0, 0.95


def _ratio_of(number: str) -> Callable[[CurvePanel, str, ReferenceLevel], float]:
    """Return the function that measures a number of a method, or its ratio to the number of another method."""

    def measure(panel: CurvePanel, label: str, reference: ReferenceLevel) -> float:
        divisor = panel.numbers[str(reference)][number] if reference else 1.0
        return panel.numbers[label][number] / divisor

    return measure


HELD_OUT = Quantity("{label}, held-out rms / noise rms", _ratio_of("held_out_rms"))
HELD_OUT_RATIO = Quantity("{label}, held-out rms / {reference}", _ratio_of("held_out_rms"))
NOISE_LEFT = Quantity("{label}, noise left", _ratio_of("noise_left"))
NOISE_RATIO = Quantity("{label}, noise left / {reference}", _ratio_of("noise_left"))
CORRELATION = Quantity("{label}, correlation with the noise-free picture", _ratio_of("correlation"))


@dataclass(frozen=True)
class UltrasoundExperiment:
    """An experiment that filters one stack by several methods.

    Attributes
    ----------
    title : str
        Title of the figure.
    methods : sequence of str
        Labels of the methods (see :func:`method_options`).
    samplings : sequence of float
        Fractions of the entries to sample.
    claims : mapping from str to (float, sequence of Claim)
        Name of a setting -> the smallest sampling that belongs to it, and its claims.
    """

    title: str
    methods: Sequence[str]
    samplings: Sequence[float]
    claims: Mapping[str, tuple[float, Sequence[Claim]]]

    def run(self, setup: Setup) -> ExperimentResult:
        """Run every method at every sampling, and check the claims."""
        stack = setup.stack
        outcomes = {
            sampling: {name: _outcome_of(setup, name, sampling) for name in self.methods}
            for sampling in self.samplings
        }
        panels = {
            sampling: CurvePanel(
                setting=f"sampling {100 * sampling:g} %",
                curves=tuple(one.curve for one in by_name.values()),
                noise_floor=1.0,
                numbers={name: one.numbers for name, one in by_name.items()},
            )
            for sampling, by_name in outcomes.items()
        }
        checked = [
            claim.check(setting, [panel for sampling, panel in panels.items() if sampling >= smallest])
            for setting, (smallest, claims) in self.claims.items()
            for claim in claims
        ]
        options = {name: method_options(stack)[name] for name in self.methods}
        return ExperimentResult(
            title=self.title,
            parameters={
                "preset": "paper",
                "shape": list(stack.blood.shape),
                "seeds": [0],
                "methods": options,
            },
            panels=tuple(panels.values()),
            claims=tuple(checked),
            y_label="held-out rms over noise rms",
            pictures=_pictures(stack, outcomes),
            acquisition=stack.acquisition,
        )


def method_options(stack: FilteredStack) -> dict[str, dict[str, Any]]:
    """Return the options of each method that differ from the preset, by the method's label."""
    size = stack.acquisition.iq.size / math.prod(PAPER_SHAPE)
    common = {"rank": stack.components, "alpha": ALPHA * size}
    return {
        MINE: common,
        "PrecGD": {**common, "method": "precgd", "damping": SIGMA_HAT},
        "GD": {**common, "method": "gd", "alpha": GD_ALPHA * size},
        f"ScaledGD({LAMBDA:g})": {**common, "method": "scaledgd-lambda", "damping": LAMBDA},
    }


def _outcome_of(setup: Setup, name: str, sampling: float) -> Outcome:
    # The two experiments share the runs at sampling 0.5.
    if (name, sampling) in setup.outcomes:
        return setup.outcomes[name, sampling]
    setup.progress.message(f"ultrasound: {name} at {100 * sampling:g} %")
    stack = setup.stack
    options = make_options("paper", sampling=sampling, threads=setup.threads, **method_options(stack)[name])
    result = denoise(stack.acquisition, options=options)
    assert result.solution is not None
    trace = result.solution.trace
    held_out = np.array([line.held_out_rmse for line in trace], np.float64) / result.noise_floor
    curve = Curve(name, np.arange(len(trace), dtype=np.float64), held_out[None])
    filtered, measured = result.acquisition.frames.T, stack.acquisition.frames.T
    noise_free = stack.blood.reshape(measured.shape)
    picture = np.maximum(decibels(result.power_doppler), np.float32(-PICTURE_DB))
    numbers = {
        "held_out_rms": curve.final,
        "noise_left": _rms_difference(filtered, noise_free) / _rms_difference(measured, noise_free),
        "correlation": correlation(picture, _picture(stack.blood)),
    }
    setup.outcomes[name, sampling] = Outcome(picture, curve, numbers)
    return setup.outcomes[name, sampling]


def _pictures(stack: FilteredStack, outcomes: Mapping[float, Mapping[str, Outcome]]) -> Rows:
    """Return a row of the measured stack and the methods for one sampling, or a row for each method over several."""
    (_, first), *others = outcomes.items()
    if others:
        return tuple(
            tuple((f"{name}, {100 * at:g} %", by_name[name].picture) for at, by_name in outcomes.items())
            for name in first
        )
    measured = _picture(stack.acquisition.iq)
    return ((("original", measured), *((name, one.picture) for name, one in first.items())),)


def _picture(frames: Numbers) -> NDArray[np.float32]:
    return np.maximum(decibels(power_doppler(frames, axis=-1)), np.float32(-PICTURE_DB))


def _rms_difference(first: Numbers, second: Numbers) -> float:
    """Return the root mean square of the difference."""
    total = 0.0
    for rows in row_parts(first.shape):
        total += float(np.sum((first[rows] - second[rows]).astype(np.float64) ** 2))
    return math.sqrt(total / first.size)


SINGLE = UltrasoundExperiment(
    "Ultrasound: power Doppler at half of the entries",
    [MINE, "PrecGD", "GD"],
    SAMPLINGS[:1],
    {
        "sampling 50 %": (
            0.0,
            [
                Claim(MINE, HELD_OUT, at_most=NEAR_NOISE),
                Claim("GD", HELD_OUT_RATIO, MINE, at_least=TWICE),
                Claim(MINE, NOISE_LEFT, at_most=HALF),
                *Claim.each(("PrecGD", "GD"), NOISE_RATIO, MINE, SIGNIFICANT),
            ],
        )
    },
)

GRID = UltrasoundExperiment(
    "Ultrasound: power Doppler, 50 % to 20 % of the entries",
    [MINE, "PrecGD", "GD", "ScaledGD(0.05)"],
    SAMPLINGS,
    {
        "sampling from 25 %": (
            0.25,
            [
                Claim(MINE, HELD_OUT, at_most=NEAR_NOISE),
                Claim(MINE, CORRELATION, at_least=PERFECT),
            ],
        ),
        "every sampling": (
            0.0,
            [
                *Claim.each(("PrecGD", "GD", "ScaledGD(0.05)"), NOISE_RATIO, MINE, SIGNIFICANT),
            ],
        ),
    },
)
