"""Pictures of filtered stacks: the colours of their pixels, orientation and scale."""

import imageio.v3 as iio
import numpy as np
import pytest

from usdenoise.formats.tiff import tiff
from usdenoise.pictures.cutoff_figure import cutoff_png
from usdenoise.pictures.doppler_pictures import directional_png, power_doppler_png, velocity_png


def brightness(png):
    return iio.imread(png)[..., :3].astype(float).sum(axis=2)


def test_depth_runs_downwards_and_the_maximum_is_bright():
    decibels = np.full((40, 40), -30.0)
    decibels[30:, :] = 0.0
    for image, axes in ((decibels, "zx"), (decibels.T, "xz")):
        shown = brightness(power_doppler_png(image, axes, dynamic_range_db=30.0))
        height, width = shown.shape
        column = shown[:, int(0.35 * width)]
        upper, lower = (
            column[int(0.3 * height) : int(0.5 * height)],
            column[int(0.78 * height) : int(0.82 * height)],
        )
        assert upper.max() < 0.2 * lower.min()


def test_dynamic_range_suits_the_image_unless_given():
    noise = np.random.default_rng(0).uniform(-14, -12, (30, 30))
    noise[3, 3] = 0.0
    automatic = brightness(power_doppler_png(noise, "zx"))
    wide = brightness(power_doppler_png(noise, "zx", dynamic_range_db=60.0))
    center = slice(len(automatic) // 3, len(automatic) // 2)
    assert automatic[center, center].mean() < 0.5 * wide[center, center].mean()


@pytest.mark.parametrize("axes", ["zxy", "yxz"])
def test_a_volume_shows_three_projections_and_a_page_for_each_elevation(axes):
    rng = np.random.default_rng(0)
    volume = rng.uniform(0.1, 1.0, [{"z": 12, "x": 10, "y": 5}[letter] for letter in axes]).astype(np.float32)
    png = brightness(
        power_doppler_png(10 * np.log10(volume), axes, spacing_mm={"z": 0.1, "x": 0.1, "y": 0.2})
    )
    assert png.shape[1] > 1.5 * png.shape[0]
    pages = np.stack(list(iio.imiter(tiff(volume, axes), plugin="pillow")))
    ordered = volume.transpose([axes.index(letter) for letter in "yzx"])
    assert np.array_equal(pages, ordered)


def halves(png):
    """Return the mean colour in the left and in the right part of the image."""
    picture = iio.imread(png)[..., :3].astype(float)
    height, width, _ = picture.shape
    rows = slice(int(0.35 * height), int(0.6 * height))
    return [
        picture[rows, int(a * width) : int(b * width)].mean(axis=(0, 1))
        for a, b in ((0.2, 0.35), (0.5, 0.62))
    ]


@pytest.mark.parametrize("axes", ["zx", "xz"])
def test_directions_are_red_and_blue_and_low_power_is_black(axes):
    strong, weak = np.full((40, 40), 0.3), np.full((40, 40), 1e-6)
    strong[0, 0] = 1.0
    left = np.where(np.arange(40) < 20, strong, weak)
    right = np.where(np.arange(40) < 20, weak, strong)
    towards, away = (image if axes == "zx" else image.T for image in (left, right))
    first, second = halves(directional_png(towards, away, axes))
    assert first[0] > first[2] + 50
    assert second[2] > second[0] + 50
    dark, _ = halves(
        directional_png(np.where(towards > 0.1, 1e-5, towards), np.full((40, 40), 1e-9) + np.eye(40), axes)
    )
    assert dark.max() < 60


def test_velocity_is_red_towards_blue_away_and_grey_in_noise():
    velocity = np.where(np.arange(40) < 20, 10.0, -10.0) * np.ones((40, 1))
    power = np.ones((40, 40))
    power[:30] = 9.0
    first, second = halves(velocity_png(velocity, power, "zx", unit="mm/s"))
    assert first[0] > first[2] + 50
    assert second[2] > second[0] + 50
    power[:] = 9.0
    power[9:28] = 1.0
    grey, _ = halves(velocity_png(velocity, power, "zx", unit="Hz"))
    assert np.ptp(grey) < 5


def test_projections_of_velocity_keep_the_larger_of_either_sign():
    velocity = np.zeros((6, 5, 3))
    velocity[:, :2, 1], velocity[:, 3:, 1] = -5.0, 3.0
    power = np.random.default_rng(0).uniform(1, 2, velocity.shape)
    assert brightness(velocity_png(velocity, power, "zxy", unit="mm/s")).size > 1000


def test_tiff_is_linear_float_with_depth_downwards():
    image = np.random.default_rng(0).uniform(0, 1e6, (7, 9)).astype(np.float32)
    assert np.array_equal(iio.imread(tiff(image, "zx"), plugin="pillow"), image)
    assert np.array_equal(iio.imread(tiff(image, "xz"), plugin="pillow"), image.T)


def test_the_low_cutoff_is_drawn_at_its_component():
    singular, similarity, profile = np.geomspace(100, 1, 20), np.eye(20), np.linspace(1, 0, 20)
    early, late = (iio.imread(cutoff_png(singular, similarity, profile, low)).astype(int) for low in (3, 15))
    red = [
        np.flatnonzero(((i[..., 0] > 180) & (i[..., 1] < 80) & (i[..., 2] < 80)).sum(axis=0) > 300)
        for i in (early, late)
    ]
    assert red[0].min() < red[1].min()
