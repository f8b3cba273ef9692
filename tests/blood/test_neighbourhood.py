"""Averages over neighbours and medians over wide windows."""

import numpy as np
import pytest

from usdenoise.blood.neighbourhood import Neighbourhood


@pytest.mark.parametrize("shape", [(9,), (12, 7), (70, 45), (6, 5, 4)])
def test_average_is_the_gaussian_mean_over_the_image(shape):
    values = np.random.default_rng(0).standard_normal((int(np.prod(shape)), 2))
    average = Neighbourhood(shape).average(values, 0.85)
    places = np.stack(np.unravel_index(np.arange(len(values)), shape), axis=1)
    for pixel in (0, len(values) // 2, len(values) - 1):
        distance = np.sum((places - places[pixel]) ** 2, axis=1)
        weights = np.exp(-0.5 * distance / 0.85**2)
        np.testing.assert_allclose(average[pixel], weights @ values / weights.sum(), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1,), (3, 2), (60, 50), (12, 30, 28)])
def test_wide_median_keeps_constants_and_gains_with_depth(shape):
    grid = Neighbourhood(shape)
    np.testing.assert_allclose(grid.wide_median(np.full(int(np.prod(shape)), 2.5)), 2.5)
    if shape == (60, 50):
        gain = 10 ** (np.arange(60) / 60)[:, None] * np.ones(50)
        found = grid.wide_median(gain.ravel()).reshape(shape)
        np.testing.assert_allclose(found[8:-8], gain[8:-8], rtol=0.05)


def test_vessels_do_not_count_in_the_wide_median():
    image = np.ones((80, 64))
    image[:, 30:40] = 100.0
    assert Neighbourhood(image.shape).wide_median(image.ravel()).max() < 1.01
