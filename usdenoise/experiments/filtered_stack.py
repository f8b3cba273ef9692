"""A clutter-filtered stack with known blood: a given number of components whose singular values fall by 35 dB."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.stack.acquisition import Acquisition

LARGEST_SINGULAR_VALUE = 1e4
"""Largest singular value of the blood, which is alpha of eta-decay over alpha of gradient descent. The paper does not give
the unit of its data. In this unit the published step of gradient descent moves the strongest component as fast as the
step of eta-decay: it is neither too small to move nor too large to be stable. Eta-decay does not depend on the unit."""

FALL_DB = 35.0
"""Fall from the first to the last singular value of the blood, in the middle of the 30 to 40 dB of in-vivo stacks."""

BED_DB = -20.0
"""Power of the blood outside the large vessels, as in the capillary bed of a brain, relative to that in them."""

SPECKLE_PIXELS = 1.0
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

    for _ in executor.map(fill, block_rows(blood.shape)):
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
    blur = np.exp(-2 * (np.pi * SPECKLE_PIXELS) ** 2 * (depth**2 + lateral.T**2))
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
