"""The ultrasound experiments: power Doppler of one simulated stack by each method with its published settings.

Every component is kept, so the stack has no clutter. On a stack of another size than the paper's, the steps keep tau in
alpha = tau n_pixels n_frames / 2, and the rank keeps its ratio to the number of frames. A step that raises the objective
is undone and halved, as `run` does. There is one seed: sampled entries and start are the same as in `run --seed 0`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import decibels, power_doppler
from usdenoise.blood.metrics import correlation
from usdenoise.experiments.record import MINE, Claim, Curve, CurvePanel, ExperimentResult, Quantity, Reference
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.tall_matrices import orthonormal, row_parts
from usdenoise.options import PhantomSettings
from usdenoise.options.denoise_options import make_options
from usdenoise.pipeline.denoise import denoise
from usdenoise.progress import Progress
from usdenoise.report.montages import Grid
from usdenoise.stack.acquisition import Acquisition

LARGEST_SINGULAR_VALUE = 1e4
"""Largest singular value of the blood, which is alpha of eta-decay over alpha of gradient descent. The paper does not give
the unit of its data. In this unit the published step of gradient descent moves the strongest component as fast as the
step of eta-decay: it is neither too small to move nor too large to be stable. Eta-decay does not depend on the unit."""

FALL_DB = 35.0
"""Fall from the first to the last singular value of the blood, in the middle of the 30 to 40 dB of in-vivo stacks."""

BED_DB = -20.0
"""Power of the blood outside the large vessels, as in the capillary bed of a brain, relative to that in them."""

POINT_SPREAD_PIXELS = 1.0
"""Standard deviation of the point-spread function in pixels."""

SPREAD, WIDTH = 0.12, 0.03
"""Standard deviation of the mean Doppler frequencies of the components, and of the frequencies within one, in
cycles a frame: most of the blood is far from aliasing, at half a cycle a frame."""


@dataclass(frozen=True)
class FilteredStack:
    """A stack as after a clutter filter.

    Attributes
    ----------
    acquisition : Acquisition
        Blood and white noise, float32, axes z, x, t.
    blood : (n_z, n_x, n_frames) float32 array
        The blood alone.
    components : int
        Number of components of the blood.
    """

    acquisition: Acquisition
    blood: NDArray[np.float32]
    components: int


def draw_filtered_stack(shape: tuple[int, int, int], components: int, executor: Executor) -> FilteredStack:
    """Draw RF as after a clutter filter: blood of a number of components, and noise that hides the components beyond.

    Blood is U S V^H. The columns of U are speckle of the point-spread function, bright in the vessels of the
    simulator and 20 dB darker outside. The columns of V are narrow-band Gaussian signals. The singular values fall
    evenly in dB from 1e4. The last of them is the largest singular value of the noise, sigma (sqrt(n_pixels) +
    sqrt(n_frames)).

    Parameters
    ----------
    shape : (n_z, n_x, n_frames)
        Number of pixels in depth and lateral, and number of frames.
    components : int
        Number of components of the blood.
    executor : Executor
        Maps over the row blocks.
    """
    # With its compiled kernels, which a list of the experiments does not need
    from usdenoise.phantom import Phantom

    n_z, n_x, n_frames = shape
    n_pixels = n_z * n_x
    anatomy = PhantomSettings(shape=shape)
    vessels = Phantom(anatomy, executor).mask
    rng = np.random.default_rng(anatomy.seed)
    left = _speckle(rng, np.where(vessels, 1.0, 10 ** (BED_DB / 20)), components)
    right = _narrow_band(rng, n_frames, components)
    values = LARGEST_SINGULAR_VALUE * 10 ** (-FALL_DB / 20 * np.linspace(0, 1, components))
    sigma = values[-1] / (np.sqrt(n_pixels) + np.sqrt(n_frames))
    scaled = (left * values).astype(np.float32)
    blood = np.empty((n_pixels, n_frames), np.float32)
    iq = np.empty_like(blood)

    def fill(rows: slice) -> None:
        blood[rows] = scaled[rows] @ right.T
        noise = np.random.Generator(np.random.SFC64([anatomy.seed, rows.start]))
        iq[rows] = blood[rows] + np.float32(sigma) * noise.standard_normal(blood[rows].shape, np.float32)

    for _ in executor.map(fill, row_parts(blood.shape)):
        pass
    acquisition = Acquisition(
        iq.reshape(shape),
        "zxt",
        frame_rate_hz=anatomy.frame_rate_hz,
        spacing_mm=dict.fromkeys("zx", anatomy.wavelength_mm),
        name="phantom",
    )
    return FilteredStack(acquisition, blood.reshape(shape), components)


def _speckle(
    rng: np.random.Generator, amplitude: NDArray[np.float64], components: int
) -> NDArray[np.float32]:
    """Return orthonormal images of speckle with an amplitude in every pixel, (n_pixels, components)."""
    depth, lateral = (np.fft.fftfreq(n)[:, None] for n in amplitude.shape)
    blur = np.exp(-2 * (np.pi * POINT_SPREAD_PIXELS) ** 2 * (depth**2 + lateral.T**2))
    images = rng.standard_normal((components, *amplitude.shape))
    smooth = np.fft.ifft2(np.fft.fft2(images) * blur).real * amplitude
    return orthonormal(smooth.reshape(components, -1).T.astype(np.float32))


def _narrow_band(rng: np.random.Generator, n_frames: int, components: int) -> NDArray[np.float32]:
    """Return orthonormal signals around random Doppler frequencies, (n_frames, components)."""
    centers = np.abs(SPREAD * rng.standard_normal(components))
    distance = np.fft.rfftfreq(n_frames)[:, None] - centers
    noise = np.fft.rfft(rng.standard_normal((n_frames, components)), axis=0)
    signals = np.fft.irfft(noise * np.exp(-0.25 * (distance / WIDTH) ** 2), n_frames, axis=0)
    return orthonormal(signals.astype(np.float32))


SEEDS, QUICK_SEEDS = 10, 2
PAPER_SHAPE, QUICK_SHAPE = (200, 130, 2400), (48, 40, 240)
RANK = 100


@dataclass(frozen=True)
class Outcome:
    """Result of one method on the stack.

    Attributes
    ----------
    picture : array
        Power Doppler in dB, cut off 40 dB below its maximum, with the spatial axes of the stack.
    curve : Curve
        Rms residual of the held-out entries over the rms of the noise, at the start and after each iteration. Of its
        numbers, "held_out_rms" is its last value. "noise_left" is the distance of the filtered stack to the noise-free
        one over the distance of the measured stack. "correlation" compares the picture with the noise-free one.
    """

    picture: NDArray[np.float32]
    curve: Curve


@dataclass(frozen=True)
class Setup:
    """Settings of the experiments.

    Attributes
    ----------
    n_seeds : int or None
        Number of random seeds for each 10 x 10 experiment, one problem each; by default 10, or 2 if `quick`.
    quick : bool
        Whether to use fewer seeds, and a phantom of 48 x 40 pixels and 240 frames instead of 200 x 130 and 2400; by
        default not.
    threads : int or None
        Number of threads of the ultrasound experiments; by default all processors.
    progress : Progress
        Gets a message before each longer step, and the number of experiments that are done; by default nothing happens.
    outcomes : dict
        Results of the ultrasound runs so far, by method and sampling; at first none.
    """

    n_seeds: int | None = None
    quick: bool = False
    threads: int | None = None
    progress: Progress = field(default_factory=Progress)
    outcomes: dict[tuple[str, float], Outcome] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the 10 x 10 experiments."""
        return tuple(range(self.n_seeds or (QUICK_SEEDS if self.quick else SEEDS)))

    @cached_property
    def stack(self) -> FilteredStack:
        """The stack of the ultrasound experiments, simulated once. Its number of components is the search rank."""
        shape = QUICK_SHAPE if self.quick else PAPER_SHAPE
        self.progress.message("drawing the phantom")
        with ThreadExecutor(self.threads) as executor:
            return draw_filtered_stack(shape, round(RANK * shape[-1] / PAPER_SHAPE[-1]), executor)


ALPHA, GD_ALPHA = 1e7, 1e3
SIGMA_HAT, LAMBDA = 5e-3, 5e-2
SAMPLINGS = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
PICTURE_DB = 40.0
"""Dynamic range of the pictures in dB: a usual range of a power Doppler picture."""

# Held-out rms near the noise, noise halved, errors significantly above and twice as large as another, and the
# correlation of an almost perfect picture.
NEAR_NOISE, HALF, SIGNIFICANT, TWICE, PERFECT = 1.5, 0.5, 1.1, 2.0, 0.95


def _ratio(number: str, panel: CurvePanel, label: str, reference: Reference) -> float:
    """Return a number of a method, or its ratio to the number of another method."""
    divisor = panel[str(reference)].numbers[number] if reference else 1.0
    return panel[label].numbers[number] / divisor


HELD_OUT = Quantity("{label}, held-out rms / noise rms", partial(_ratio, "held_out_rms"))
HELD_OUT_RATIO = Quantity("{label}, held-out rms / {reference}", partial(_ratio, "held_out_rms"))
NOISE_LEFT = Quantity("{label}, noise left", partial(_ratio, "noise_left"))
NOISE_RATIO = Quantity("{label}, noise left / {reference}", partial(_ratio, "noise_left"))
CORRELATION = Quantity("{label}, correlation with the noise-free picture", partial(_ratio, "correlation"))


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
            )
            for sampling, by_name in outcomes.items()
        }
        checked = [
            claim.check(setting, [panel for sampling, panel in panels.items() if sampling >= smallest])
            for setting, (smallest, claims) in self.claims.items()
            for claim in claims
        ]
        return ExperimentResult(
            title=self.title,
            parameters={
                "preset": "paper",
                "shape": list(stack.blood.shape),
                "seeds": [0],
                "methods": {name: method_options(stack)[name] for name in self.methods},
            },
            panels=tuple(panels.values()),
            claims=tuple(checked),
            y_label="held-out rms over noise rms",
            pictures=_pictures(stack, outcomes),
            acquisition=stack.acquisition,
        )


def method_options(stack: FilteredStack) -> dict[str, dict[str, object]]:
    """Return the options of each method that differ from the preset, by the method's label."""
    size = stack.acquisition.iq.size / math.prod(PAPER_SHAPE)
    common: dict[str, object] = {"rank": stack.components, "alpha": ALPHA * size}
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
    filtered, measured = result.acquisition.frames.T, stack.acquisition.frames.T
    noise_free = stack.blood.reshape(measured.shape)
    picture = np.maximum(decibels(result.power_doppler), np.float32(-PICTURE_DB))
    numbers = {
        "held_out_rms": float(held_out[-1]),
        "noise_left": _rms_difference(filtered, noise_free) / _rms_difference(measured, noise_free),
        "correlation": correlation(picture, _picture(stack.blood)),
    }
    curve = Curve(name, np.arange(len(trace), dtype=np.float64), held_out[None], numbers)
    setup.outcomes[name, sampling] = Outcome(picture, curve)
    return setup.outcomes[name, sampling]


def _pictures(stack: FilteredStack, outcomes: Mapping[float, Mapping[str, Outcome]]) -> Grid:
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

_NOISIER = Claim.each(("PrecGD", "GD", "ScaledGD(0.05)"), NOISE_RATIO, MINE, SIGNIFICANT)

GRID = UltrasoundExperiment(
    "Ultrasound: power Doppler, 50 % to 20 % of the entries",
    [MINE, "PrecGD", "GD", "ScaledGD(0.05)"],
    SAMPLINGS,
    {
        "sampling from 25 %": (
            0.25,
            [Claim(MINE, HELD_OUT, at_most=NEAR_NOISE), Claim(MINE, CORRELATION, at_least=PERFECT)],
        ),
        "every sampling": (0.0, _NOISIER),
    },
)
