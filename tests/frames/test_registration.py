"""Shifts of images against a phase correlation of one image at a time, and movements of images that were moved."""

import numpy as np
import pytest
from scipy import ndimage

from usdenoise.frames.alignment import PEAK_SIGMA, Registration, phase_correlation_shift


def smooth_images(size, n_images, seed=0):
    images = np.random.default_rng(seed).standard_normal((n_images, *size))
    return ndimage.gaussian_filter(images, (0, *[1.0] * len(size))).astype(np.float32)


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


@pytest.mark.parametrize("size", [(16,), (100,), (15, 16), (40, 37), (24, 20, 18)])
def test_shifts_are_those_of_the_textbook(size):
    images = smooth_images(size, 5)
    # Turned around the edges, as the transform takes them to be.
    shift = (5, -3, 2)[: len(size)]
    images[1:] = np.roll(images[:1], shift, axis=tuple(range(1, len(size) + 1)))
    images += 0.1 * smooth_images(size, 5, seed=1)
    spectra = [np.fft.rfftn(image) for image in images]
    found = np.array([phase_correlation_shift(spectrum, spectra[0], size) for spectrum in spectra])
    expected = [textbook(images[k], images[0]) for k in range(5)]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    if len(size) > 1:
        assert np.abs(found[1:] - shift).max() < 0.2


def test_the_error_of_a_shift_is_that_of_images_with_noise():
    rng = np.random.default_rng(3)
    smooth = np.exp(-2 * (np.pi * 1.2 * np.hypot(*np.ix_(*[np.fft.fftfreq(64)] * 2))) ** 2)

    def speckle(scale):
        return scale * np.abs(np.fft.ifft2(np.fft.fft2(rng.standard_normal((64, 64)) + 0j) * smooth))

    tissue = speckle(1.0)
    registration = Registration(tissue)
    for level in (0.2, 0.6):
        found = [registration.shift(tissue + speckle(level)) for _ in range(60)]
        spread = np.std([one.pixels for one in found], axis=0).max()
        assert 0.4 < np.mean([one.error for one in found]) / spread < 2.5
    same = registration.shift(tissue)
    assert same.error < 1e-3
    np.testing.assert_allclose(same.pixels, 0, atol=1e-3)
