"""Thumbnails: their size, their proportions and their common scale."""

import imageio.v3 as iio
import numpy as np
import pytest

from usdenoise.options.job_options import Display
from usdenoise.report.montages import CommonScale, common_scale, small_image, thumbnail_png


@pytest.mark.parametrize(
    ("shape", "aspect", "size"),
    [
        ((1, 192, 96), 1.0, (96, 48)),
        ((1, 100, 100), 0.5, (48, 96)),
        ((3, 300, 100), 1.0, (96, 32)),
        ((1, 1, 500), 1.0, (1, 96)),
    ],
)
def test_a_thumbnail_keeps_its_proportions(
    shape: tuple[int, ...], aspect: float, size: tuple[int, int]
) -> None:
    assert small_image(np.ones(shape), aspect).shape == size


def test_a_thumbnail_shows_the_mean_power_of_its_pixels_and_the_maximum_over_pages() -> None:
    power = np.zeros((2, 192, 192))
    power[0, :96] = 1.0
    power[1, 96:] = np.tile([[0.0, 0.2], [0.0, 0.2]], (48, 96))
    levels = small_image(power)
    np.testing.assert_allclose(levels[:48], 0.0, atol=1e-5)
    np.testing.assert_allclose(levels[48:], -10.0, atol=1e-4)


def test_the_median_scan_sets_the_scale() -> None:
    rng = np.random.default_rng(0)
    images = [small_image(10 ** rng.uniform(-3, 0, (1, 60, 60)) * level) for level in (1.0, 2.0, 4.0, 1e6)]
    scale = common_scale(images)
    assert scale.peak_db == pytest.approx(4.5, abs=0.2)
    assert 16 < scale.range_db < 18
    assert [scale.is_near(image) for image in images] == [True, True, True, False]


def test_brightness_follows_the_level() -> None:
    image = small_image(np.array([[[1.0, 0.1, 0.001]]]))
    shown = iio.imread(thumbnail_png(image, CommonScale(0.0, 20.0)))[..., :3].sum(axis=2)[16, ::40]
    assert shown[0] > 600
    assert 200 < shown[1] < 500
    assert shown[2] < 40
    # A scan far below the scale is shown below its own maximum.
    far = small_image(np.array([[[1.0, 0.1, 0.001]]]) * 1e-9)
    assert thumbnail_png(far, CommonScale(0.0, 20.0)) == thumbnail_png(image, CommonScale(0.0, 20.0))


def test_thumbnails_have_the_range_and_the_colours_of_the_pictures() -> None:
    images = [small_image(np.array([[[1.0, 0.1, 0.001]]]) * level) for level in (1.0, 2.0)]
    scale = common_scale(images, Display(dynamic_range=24.0, db_factor=20.0, color_map="gray"))
    # Thumbnails are 10 log10 of the power, and the range was asked for in 20 log10.
    assert scale.range_db == 12.0
    shown = iio.imread(thumbnail_png(images[0], CommonScale(0.0, 12.0, color_map="gray")))[16, ::40].astype(
        int
    )
    assert np.ptp(shown[:, :3], axis=1).max() == 0
    # 0, 10 and 30 dB below the maximum.
    assert shown[:, 0].tolist() == [255, pytest.approx(255 * 2 / 12, abs=2), 0]
