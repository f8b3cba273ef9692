"""What the user chooses for all experiments, and the clutter-filtered stack of the ultrasound experiments."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from usdenoise.experiments.record import Curve
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.tall_matrices import orthonormal, row_parts
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.progress import Progress
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
        Rms residual of the held-out entries over the rms of the noise, at the start and after each iteration.
    numbers : dict
        "held_out_rms" is the last value of the curve. "noise_left" is the distance of the filtered stack to the
        noise-free one over the distance of the measured stack. "correlation" compares the picture with the noise-free
        one.
    """

    picture: NDArray[np.float32]
    curve: Curve
    numbers: dict[str, float]


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
