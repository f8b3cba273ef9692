"""Averages over neighbours and medians over wide windows."""

import numpy as np
import pytest

from usdenoise.blood import neighbourhood
from usdenoise.blood.neighbourhood import Neighbourhood


def gaussian_weights(offsets, sigma):
    """Weights of pixels by their offsets, 0 beyond four standard deviations along an axis."""
    near = (np.abs(offsets) <= np.ceil(4 * sigma)).all(axis=1)
    return np.exp(-0.5 * np.sum(offsets**2, axis=1) / sigma**2) * near


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(9,), (12, 7), (70, 45), (6, 5, 4), (9, 8, 7)])
def test_an_average_is_the_gaussian_mean_over_the_pixels_with_values(shape, masked):
    rng = np.random.default_rng(1)
    mask = rng.random(shape) < 0.6 if masked else np.ones(shape, bool)
    places = np.argwhere(mask)
    values = rng.standard_normal((len(places), 2))
    average = (Neighbourhood(mask) if masked else Neighbourhood.whole(shape)).average(values, 0.85)
    for pixel in (*range(0, len(places), max(len(places) // 5, 1)), len(places) - 1):
        weights = gaussian_weights(places - places[pixel], 0.85)
        np.testing.assert_allclose(average[pixel], weights @ values / weights.sum(), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1,), (3, 2), (60, 50), (12, 30, 28)])
def test_wide_median_keeps_constants_and_gains_with_depth(shape):
    grid = Neighbourhood.whole(shape)
    np.testing.assert_allclose(grid.wide_median(np.full(int(np.prod(shape)), 2.5)), 2.5)
    if shape == (60, 50):
        gain = 10 ** (np.arange(60) / 60)[:, None] * np.ones(50)
        np.testing.assert_allclose(grid.wide_median(gain.ravel()).reshape(shape), gain, rtol=1e-6)


def test_vessels_do_not_count_in_the_wide_median():
    image = np.ones((80, 64))
    image[:, 30:40] = 100.0
    assert Neighbourhood.whole(image.shape).wide_median(image.ravel()).max() < 1.01


@pytest.mark.parametrize("shape", [(80, 64), (200, 9), (20, 18, 16)])
def test_the_wide_median_of_an_image_with_a_mask(shape):
    """Noise of a level that falls with the depth, and nothing in a third of the image."""
    mask = np.indices(shape)[1] > shape[1] // 3
    grid = Neighbourhood(mask)
    level = np.broadcast_to(2 - np.indices(shape)[0] / shape[0], shape)
    found = grid.wide_median((level * np.random.default_rng(2).chisquare(40, shape) / 40)[mask])
    middle = (slice(8, -8), *(slice(None) for _ in shape[1:])) if shape[0] > 30 else (slice(8, 12),)
    within = np.zeros(shape)
    within[mask] = found
    assert (within[middle] / level[middle])[mask[middle]] == pytest.approx(1, abs=0.15)
    # A mask of all pixels is none.
    everything = Neighbourhood(np.ones(shape, bool))
    assert everything.is_whole
    values = np.random.default_rng(3).random(mask.size)
    np.testing.assert_allclose(everything.wide_median(values), Neighbourhood.whole(shape).wide_median(values))


def test_places_without_a_value_take_that_of_their_neighbours():
    shape = (40, 30)
    mask = np.indices(shape)[1] < 20
    values = np.indices(shape)[0][mask].astype(float)
    filled = Neighbourhood(mask).filled(values).reshape(shape)
    assert np.array_equal(filled[mask], values)
    assert filled[10:30, 20:24] == pytest.approx(np.indices(shape)[0][10:30, 20:24], abs=1)
    lonely = Neighbourhood(np.arange(600).reshape(200, 3) == 0).filled(np.array([7.0]))
    assert lonely == pytest.approx(np.full(600, 7.0))


@pytest.mark.parametrize("shape", [(23,), (20, 31), (9, 8, 11)])
@pytest.mark.parametrize("masked", [False, True])
def test_averages_at_nodes_are_those_of_all_pixels(shape, masked):
    rng = np.random.default_rng(len(shape))
    mask = rng.random(shape) > 0.3 if masked else np.ones(shape, bool)
    grid, step = Neighbourhood(mask), 3
    values = rng.standard_normal((grid.n_pixels, 2))
    averages, nodes = grid.average_at_nodes(values.__getitem__, 2.0, step)
    everywhere = grid.everywhere(grid.average(values, 2.0)).reshape(*shape, 2)
    for pixel, node in zip(np.argwhere(mask), nodes, strict=True):
        # The middle of three pixels; the pixels that are left at the edge belong to the last ones.
        place = np.minimum(pixel // step, (np.array(shape) - 2) // step) * step + 1
        if mask[tuple(place)]:
            np.testing.assert_allclose(averages[node], everywhere[tuple(place)], atol=1e-12)
        assert np.isfinite(averages[node]).all()


@pytest.mark.parametrize("shape", [(23,), (20, 31), (9, 8, 11)])
@pytest.mark.parametrize("masked", [False, True])
def test_what_is_spread_is_the_transpose_of_the_average(shape, masked):
    rng = np.random.default_rng(len(shape))
    grid = Neighbourhood(rng.random(shape) > 0.3 if masked else np.ones(shape, bool))
    weights, images = rng.standard_normal(grid.n_pixels), rng.standard_normal((grid.n_pixels, 3))
    wanted = weights @ grid.average(images, 1.5)
    np.testing.assert_allclose(grid.spread(weights, 1.5) @ images, wanted, rtol=1e-10)


@pytest.mark.parametrize("shape", [(60, 31), (60, 8, 11)])
@pytest.mark.parametrize("masked", [False, True])
def test_averages_within_slabs_are_those_of_the_image(shape, masked, monkeypatch):
    rng = np.random.default_rng(len(shape))
    grid = Neighbourhood(rng.random(shape) > 0.3 if masked else np.ones(shape, bool))
    values = rng.standard_normal((grid.n_pixels, 2))
    (one,) = grid.slabs(0.8)
    assert one.rows == one.own == one.inner == slice(0, grid.n_pixels)
    wanted, at_nodes = grid.average(values, 0.8), grid.average_at_nodes(values.__getitem__, 2.0, 3)[0]
    monkeypatch.setattr(neighbourhood, "CACHED_ENTRIES", 100)
    slabs = grid.slabs(0.8)
    assert len(slabs) > 1
    found = [slab.grid.average(values[slab.rows], 0.8)[slab.inner] for slab in slabs]
    np.testing.assert_allclose(np.concatenate(found), wanted, atol=1e-12)
    np.testing.assert_allclose(grid.average_at_nodes(values.__getitem__, 2.0, 3)[0], at_nodes, atol=1e-12)


ALL = slice(None)
PLACES = [(slice(30, 54), ALL), (ALL, slice(15, 45)), (slice(20, 55), slice(10, 40))]
# At either edge of the image, and wider than half of it
PLACES += [(ALL, slice(40, None)), (ALL, slice(24)), (ALL, slice(20, None))]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("gain_db", [0, 20])
def test_vessels_that_are_wider_than_the_window_do_not_count_either(place, gain_db):
    level = 10 ** (gain_db / 10 * np.linspace(-1, 0, 80))[:, None] * np.ones(64)
    image = level.copy()
    image[place] *= 30
    found = Neighbourhood.whole(image.shape).wide_median(image.ravel()).reshape(image.shape)
    assert (found / level).max() < 1.25
    assert (found / level).min() > 0.99


@pytest.mark.parametrize("shape", [(40, 60), (30, 20, 60)])
def test_noise_that_changes_little_between_lines_is_no_rise(shape):
    across = np.linspace(-1, 1, 60)
    for log in (0.7 * across, 0.35 * across**2, -0.35 * across**2):
        level = np.exp(log) * np.ones(shape)
        found = Neighbourhood.whole(shape).wide_median(level.ravel()).reshape(shape)
        # At the edge the level is constant from the middle of the last window on
        assert np.abs(np.log(found / level)).max() < 0.3


def test_a_level_that_grows_towards_an_end_is_no_rise():
    depth = np.linspace(-1, 1, 60)
    valley = np.exp(3 * np.abs(depth))[:, None] * np.ones(40)
    found = Neighbourhood.whole(valley.shape).wide_median(valley.ravel()).reshape(valley.shape)
    assert np.abs(np.log(found / valley))[4:-4].max() < 0.25


def test_the_floor_of_a_depth_is_its_low_quantile_without_vessels():
    image = np.random.default_rng(0).exponential(size=(60, 400))
    low = np.quantile(image, 0.2, axis=1).mean()
    image[20:40] *= 50
    mask = np.ones(image.shape, bool)
    mask[:5, :30] = mask[10] = False
    # The quantile of a line of 60 pixels has a standard error of sqrt(0.2 * 0.8 / 60) / (0.8 * 0.223) = 0.29 of its own.
    # Noise may differ between lines
    for gains in (np.ones(400), np.exp(np.random.default_rng(1).standard_normal(400))):
        floor = Neighbourhood(mask).floor((image * gains)[mask], 0.2)
        errors = np.log(floor / (low * np.broadcast_to(gains, mask.shape)[mask]))
        errors -= np.median(errors)
        assert np.quantile(np.abs(errors), 0.9) < 2 * 0.29
    # Between planes of a volume, too
    planes = np.array([1.0, 4.0, 0.5, 2.0])
    volume = np.random.default_rng(2).exponential(size=(60, 100, 4)) * planes
    floor = Neighbourhood.whole(volume.shape).floor(volume.ravel(), 0.2).reshape(volume.shape)
    assert np.median(floor, axis=(0, 1)) / planes == pytest.approx(0.223 * np.ones(4), rel=0.1)
