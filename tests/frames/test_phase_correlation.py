"""Phase correlation by matrix products, against one by numpy's Fourier transform."""

import numpy as np
import pytest
from scipy import ndimage

from usdenoise.frames.phase_correlation import PEAK_SIGMA, PhaseCorrelation


def smooth_images(size, n_images, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((*size, n_images))
    return ndimage.gaussian_filter(images, (*[1.0] * len(size), 0)).astype(np.float32)


def textbook(image, reference):
    """The peak of the phase correlation of two images, with the transform of a Gaussian as its weight."""
    size = image.shape
    cross = np.fft.fftn(image.astype(float)) * np.fft.fftn(reference.astype(float)).conj()
    squares = sum(f**2 for f in np.meshgrid(*map(np.fft.fftfreq, size), indexing="ij"))
    correlation = np.fft.ifftn(cross / np.abs(cross) * np.exp(-2 * (np.pi * PEAK_SIGMA) ** 2 * squares)).real
    best = np.unravel_index(np.argmax(correlation), size)
    places = []
    for axis, n in enumerate(size):
        line = np.moveaxis(correlation, axis, 0)[(slice(None), *np.delete(best, axis))]
        low, peak, high = np.log(line[[best[axis] - 1, best[axis], (best[axis] + 1) % n]])
        place = best[axis] + 0.5 * (low - high) / (low - 2 * peak + high)
        places.append(place - n * (place > n / 2))
    return places


@pytest.mark.parametrize("size", [(16,), (15, 16), (12, 9), (8, 9, 10)])
def test_small_images_have_the_textbook_displacement(size):
    images = smooth_images(size, 5)
    # Turned around the edges, as the transform takes them to be.
    images[..., 1:] = np.roll(images[..., :1], (2, -1, 1)[: len(size)], axis=tuple(range(len(size))))
    images += 0.1 * smooth_images(size, 5, seed=1)
    correlation = PhaseCorrelation.for_size(size)
    assert correlation.points == size
    spectra = correlation.spectra(images)
    found = correlation.displacements(spectra, spectra[..., 0])
    expected = [textbook(images[..., k], images[..., 0]) for k in range(5)]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("size", [(40, 37), (24, 20, 18), (100,)])
def test_the_low_frequencies_of_larger_images_say_the_same(size):
    images = smooth_images(size, 6)
    images[..., 1:] = np.roll(images[..., :1], (5, -3, 2)[: len(size)], axis=tuple(range(len(size))))
    images += 0.2 * smooth_images(size, 6, seed=1)
    correlation = PhaseCorrelation.for_size(size)
    assert all(points < n for points, n in zip(correlation.points, size, strict=True))
    spectra = correlation.spectra(images)
    found = correlation.displacements(spectra, spectra[..., 0])
    expected = [textbook(images[..., k], images[..., 0]) for k in range(6)]
    assert np.abs(found[1:] - (5, -3, 2)[: len(size)]).max() < 0.2
    assert np.abs(found - expected).max() < 0.05


def test_the_spectra_are_those_of_numpys_transform():
    images = smooth_images((40, 37), 3)
    correlation = PhaseCorrelation.for_size((40, 37))
    points = correlation.points
    highest = [(m - 1) // 2 for m in points]
    expected = np.fft.fft2(images, axes=(0, 1))
    columns = np.arange(-highest[1], highest[1] + 1)
    np.testing.assert_allclose(
        correlation.spectra(images),
        expected[: highest[0] + 1][:, columns],
        atol=1e-4 * np.abs(expected).max(),
    )
