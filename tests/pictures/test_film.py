"""Films: one scale for all images, and the same orientation as the pictures."""

import imageio.v3 as iio
import numpy as np
import pytest

from usdenoise.pictures.figures import front_view, suitable_range_db
from usdenoise.pictures.film import movie

IMAGES = -np.random.default_rng(0).uniform(0, 30, (3, 12, 10, 4))


def test_the_default_range_is_that_of_a_picture_of_all_images():
    shown = [image.max(axis=2) for image in IMAGES]
    given = movie(list(IMAGES), "zxy", "gif", dynamic_range_db=suitable_range_db(np.stack(shown)))
    assert movie(list(IMAGES), "zxy", "gif") == given


@pytest.mark.parametrize("axes", ["xzy", "yxz", "yzx"])
def test_the_order_of_the_axes_does_not_change_the_film(axes):
    reordered = [image.transpose(["zxy".index(letter) for letter in axes]) for image in IMAGES]
    assert movie(reordered, axes, "gif") == movie(list(IMAGES), "zxy", "gif")


def test_small_images_are_enlarged_to_at_least_240_rows_of_square_pixels():
    film = iio.imread(movie(list(IMAGES), "zxy", "gif"), extension=".gif", index=None)
    assert film.shape[:3] == (3, 240, 200)


def test_the_front_view_of_a_volume_is_depth_by_lateral():
    volume = np.arange(24.0).reshape(4, 3, 2)
    view, rows, columns = front_view(volume.transpose(2, 1, 0), "yxz")
    assert np.array_equal(view, volume.max(axis=2))
    assert (rows, columns) == ("z", "x")
