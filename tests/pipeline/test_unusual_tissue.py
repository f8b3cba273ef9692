"""The cutoff and both pictures where tissue is not alone, or is not slow: constants, steps of the phase, rigid motion."""

import numpy as np
import pytest

from tests.conftest import all_frames
from usdenoise.blood.metrics import correlation
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline.denoise import denoise


@pytest.fixture(scope="module")
def terms():
    return all_frames(PhantomSettings((48, 40, 160), seed=71))[1]


@pytest.fixture(scope="module")
def stiff(terms):
    """Tissue of three components: one speckle whose phase changes by a gain that differs over the image."""
    z, x = np.mgrid[0:1:48j, 0:1:40j]
    phase = np.sin(2 * np.pi * 0.003 * np.arange(160)) + 0.25 * np.sin(2 * np.pi * 0.012 * np.arange(160))
    return terms.tissue[0] * np.exp(
        1j * phase[:, None, None] * (1 + 0.25 * np.sin(6 * z) + 0.2 * np.cos(6 * x))
    )


def rigid(image, pixels):
    """The image at some displacements along depth and half of them laterally, with the phase of the axial ones."""
    k_z, k_x = np.fft.fftfreq(image.shape[0])[:, None], np.fft.fftfreq(image.shape[1])
    spectrum = np.fft.fft2(image)
    return np.stack(
        [
            np.fft.ifft2(spectrum * np.exp(-2j * np.pi * d * (k_z + k_x / 2))) * np.exp(1j * np.pi * d)
            for d in pixels
        ]
    )


def cases(terms, stiff):
    rng, t = np.random.default_rng(0), np.arange(160)[:, None, None]
    depth = np.exp(-np.arange(48) / 3)[:, None]
    usual, few = terms.iq, stiff + terms.blood + terms.noise
    rms = np.sqrt(np.mean(np.abs(usual) ** 2))
    common = (rng.standard_normal((160, 2)) @ [1, 1j])[:, None, None]
    return {
        "usual": usual,
        "few components": few,
        "step of the phase": usual * np.exp(2j * np.pi * 0.2 * t),
        "pulse inversion": few * (-1.0) ** t,
        "constant": few + 10 * rms,
        "strong constant": usual + 100 * rms,
        "ring-down": few + 30 * rms * depth,
        "interference in all pixels": usual + 2 * rms * common,
        "rigid": rigid(terms.tissue[0], 0.15 * np.sin(2 * np.pi * 0.006 * t.ravel()))
        + terms.blood
        + terms.noise,
        "rigid, far": rigid(terms.tissue[0], np.sin(2 * np.pi * 0.006 * t.ravel()))
        + terms.blood
        + terms.noise,
    }


@pytest.mark.parametrize(
    "name",
    [
        "usual",
        "few components",
        "step of the phase",
        "pulse inversion",
        "constant",
        "strong constant",
        "ring-down",
        "interference in all pixels",
        "rigid",
        "rigid, far",
    ],
)
def test_pictures_are_as_good_as_with_the_best_cutoff(terms, stiff, name):
    stack = cases(terms, stiff)[name].astype(np.complex64)
    truth = np.mean(np.abs(terms.blood.astype(np.complex128)) ** 2, axis=0)
    matrix = stack.reshape(len(stack), -1).astype(np.complex128)
    left = np.linalg.svd(matrix, full_matrices=False)[0]
    best = max(
        correlation(
            (np.abs(matrix - left[:, :low] @ (left[:, :low].conj().T @ matrix)) ** 2).mean(axis=0),
            truth.ravel(),
        )
        for low in range(1, 30)
    )
    result = denoise(stack, axes="tzx")
    assert not result.doubts
    assert correlation(result.power_doppler, truth) > 0.97 * best
    assert correlation(result.blood_power, truth) > 0.97 * best
