"""Films: one scale for all images, the orientation of the pictures, the time of each image, and real time."""

import io
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from usdenoise.options.job_options import Display
from usdenoise.report.montages import movie

IMAGES = -np.random.default_rng(0).uniform(0, 30, (3, 12, 10, 4))


def frames(film: bytes) -> NDArray[Any]:
    return iio.imread(film, extension=".gif", index=None)[..., :3].astype(int)


def delays_ms(film: bytes) -> list[int]:
    image = Image.open(io.BytesIO(film))
    delays = []
    for number in range(image.n_frames):
        image.seek(number)
        delays.append(image.info["duration"])
    return delays


@pytest.mark.parametrize("axes", ["yxz"])
def test_the_order_of_the_axes_does_not_change_the_film(axes):
    reordered = [image.transpose(["zxy".index(letter) for letter in axes]) for image in IMAGES]
    assert movie(reordered, axes) == movie(list(IMAGES), "zxy")


def test_a_film_has_square_pixels_an_even_size_and_one_scale():
    # The brightest quarter moves around; the rest is black.
    levels = np.full((4, 12, 10), -40.0)
    for number, (row, column) in enumerate(((0, 0), (0, 5), (6, 0), (6, 5))):
        levels[number, row : row + 6, column : column + 5] = -2.0 * number
    film = frames(movie(list(levels), "zx", display=Display(dynamic_range=20.0)))
    assert film.shape[1] % 2 == film.shape[2] % 2 == 0
    assert film.shape[1] > 240
    changes = np.abs(np.diff(film, axis=0)).sum(axis=(0, 3)) > 0
    rows, columns = np.flatnonzero(changes.any(axis=1)), np.flatnonzero(changes.any(axis=0))
    assert np.ptp(rows) / np.ptp(columns) == pytest.approx(12 / 10, abs=0.02)
    middle = (rows[0] + rows[-1]) // 2, (columns[0] + columns[-1]) // 2
    quarters = [
        film[number, slice(rows[0] + 9, middle[0] - 9) if number < 2 else slice(middle[0] + 9, rows[-1] - 9),
             slice(columns[0] + 9, middle[1] - 9) if number % 2 == 0 else slice(middle[1] + 9, columns[-1] - 9)]
        for number in range(4)
    ]  # fmt: skip
    brightness = [quarter.sum(axis=-1).mean() for quarter in quarters]
    assert np.all(np.diff(brightness) < -5)
    assert brightness[-1] > 200


def test_a_film_has_a_colour_bar_and_the_time_of_each_image():
    still = [np.zeros((12, 10))] * 3
    timed = frames(movie(still, "zx", times=[0.1, 0.2, 0.3], title="scan"))
    plain = frames(movie(still, "zx", title="scan"))
    # Only the time changes, which is above the image.
    changes = np.abs(np.diff(timed, axis=0)).sum(axis=(0, 3)) > 0
    assert 0 < np.flatnonzero(changes.any(axis=1))[-1] < 40
    # Equal images are one image that is shown for longer.
    assert len(plain) == 1
    assert max(np.unique(column).size for column in timed[0].sum(axis=-1).T) > 100


@pytest.mark.parametrize(
    ("times", "settings", "expected"),
    [
        ([0.0, 0.1, 0.2, 0.25], {}, [100] * 4),
        ([0.0, 4.0, 8.0, 12.0], {}, [4000] * 4),
        ([0.0, 0.01, 0.02, 0.03], {}, [20] * 2),
        ([0.0, 40.0, 80.0, 120.0], {"time_unit": "frames"}, [100] * 4),
        (None, {}, [100] * 4),
        ([7.0], {}, [100]),
        # Slower and faster than any player shows.
        ([0.0, 6000.0, 12000.0], {}, [10000] * 3),
    ],
)
def test_a_film_plays_in_real_time(times, settings, expected):
    images = [np.full((12, 10), -3.0 * number) for number in range(len(times or range(4)))]
    film = movie(images, "zx", times=times, **settings)
    found = delays_ms(film)
    assert found == expected or (len(expected) == 1 and len(found) == 1)


@pytest.mark.filterwarnings("error")
def test_a_title_with_unprintable_letters_is_drawn():
    assert movie(list(IMAGES), "zxy", title="a\x1b[31m\n$x$\udcff 雪", times=[1.0, 2.0, 3.0]).startswith(
        b"GIF89a"
    )
