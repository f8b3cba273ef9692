"""The cutoff of a scan, also where tissue is not alone or not slow."""

import numpy as np
import pytest

from tests.conftest import all_frames
from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings


@pytest.mark.slow
def test_the_cutoff_of_a_long_scan_of_strong_tissue_leaves_blood():
    # As recorded, tissue of 65 dB has about 98 components; held still about 65.
    settings = PhantomSettings((32, 32, 2400), 500.0, clutter_to_blood_db=65, blood_to_noise_db=6, seed=1)
    with ThreadExecutor(2) as executor:
        parts = [(part.iq, part.blood) for part in Phantom(settings, executor).parts(frames_a_part=64)]
    iq, blood = (np.concatenate(frames) for frames in zip(*parts, strict=True))
    truth = np.mean(np.abs(blood) ** 2, axis=0, dtype=np.float64).ravel()
    found = denoise(iq, axes="tzx")
    assert 58 <= found.low_cutoff <= 80
    assert correlation(found.power_doppler.ravel(), truth) > 0.84
    assert correlation(found.blood_power.ravel(), truth) > 0.93
    given = denoise(iq, axes="tzx", low_cutoff=45)
    assert given.low_cutoff == 45
    assert correlation(given.power_doppler.ravel(), truth) < 0.4


SHAPE, N = (36, 32), 120


@pytest.fixture(scope="module")
def terms():
    return all_frames(PhantomSettings((*SHAPE, N), seed=71))[1]


@pytest.fixture(scope="module")
def stiff(terms):
    """Tissue of three components: one speckle whose phase changes by a gain that differs over the image."""
    z, x = np.mgrid[0:1:36j, 0:1:32j]
    phase = np.sin(2 * np.pi * 0.003 * np.arange(N)) + 0.25 * np.sin(2 * np.pi * 0.012 * np.arange(N))
    gain = 1 + 0.25 * np.sin(6 * z) + 0.2 * np.cos(6 * x)
    return terms.tissue[0] * np.exp(1j * phase[:, None, None] * gain)


def rigid(image, pixels):
    """The image at some displacements along depth and half of them laterally, with the phase of the axial ones."""
    k_z, k_x = np.fft.fftfreq(image.shape[0])[:, None], np.fft.fftfreq(image.shape[1])
    spectrum = np.fft.fft2(image)
    moved = [np.fft.ifft2(spectrum * np.exp(-2j * np.pi * d * (k_z + k_x / 2))) for d in pixels]
    return np.stack([image * np.exp(1j * np.pi * d) for image, d in zip(moved, pixels, strict=True)])


def with_rigid_tissue(terms, pixels):
    return rigid(terms.tissue[0], pixels) + terms.blood + terms.noise


T = np.arange(N)[:, None, None]
DEPTH = np.exp(-np.arange(SHAPE[0]) / 3)[:, None]
COMMON = (np.random.default_rng(0).standard_normal((N, 2)) @ [1, 1j])[:, None, None]
# From the phantom, the stack with the stiff tissue, and the root mean square of the phantom.
CASES = {
    "usual": lambda terms, few, rms: terms.iq,
    "few components": lambda terms, few, rms: few,
    "step of the phase": lambda terms, few, rms: terms.iq * np.exp(2j * np.pi * 0.2 * T),
    "pulse inversion": lambda terms, few, rms: few * (-1.0) ** T,
    "constant": lambda terms, few, rms: few + 10 * rms,
    "strong constant": lambda terms, few, rms: terms.iq + 100 * rms,
    "ring-down": lambda terms, few, rms: few + 30 * rms * DEPTH,
    "interference in all pixels": lambda terms, few, rms: terms.iq + 2 * rms * COMMON,
    "rigid": lambda terms, few, rms: with_rigid_tissue(terms, 0.15 * np.sin(2 * np.pi * 0.006 * T.ravel())),
    "rigid, far": lambda terms, few, rms: with_rigid_tissue(terms, np.sin(2 * np.pi * 0.006 * T.ravel())),
}


SIMILAR = ("few components", "strong constant", "rigid")
"""Cases of the slow run."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SIMILAR)) for name in CASES]
)
def test_pictures_are_as_good_as_with_the_best_cutoff(terms, stiff, name):
    rms = np.sqrt(np.mean(np.abs(terms.iq) ** 2))
    stack = CASES[name](terms, stiff + terms.blood + terms.noise, rms).astype(np.complex64)
    truth = np.mean(np.abs(terms.blood.astype(np.complex128)) ** 2, axis=0)
    matrix = stack.reshape(len(stack), -1).astype(np.complex128)
    left = np.linalg.svd(matrix, full_matrices=False)[0]
    best = 0.0
    for component in left[:, :29].T:
        matrix -= np.outer(component, component.conj() @ matrix)
        best = max(best, correlation((np.abs(matrix) ** 2).mean(axis=0), truth.ravel()))
    result = denoise(stack, axes="tzx")
    assert not result.doubts
    assert correlation(result.power_doppler, truth) > 0.97 * best
    assert correlation(result.blood_power, truth) > 0.97 * best
