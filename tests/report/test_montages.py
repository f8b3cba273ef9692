"""Pictures of many images: methods on one scale, error curves, thumbnails, and films in real time."""

import io
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
from matplotlib import rc_context
from numpy.typing import NDArray
from PIL import Image

from usdenoise.options.job_options import Display
from usdenoise.report import montages
from usdenoise.report.montages import CommonScale, Setting, montage_png, movie, small_image, thumbnail_png
from usdenoise.stack.geometry import Coordinate


def test_an_image_above_the_scale_has_the_excess_in_its_title(figure_of):
    fits = np.random.default_rng(0).uniform(-20, 0, (12, 10))
    spike = fits.copy()
    spike[3, 4] = 7.2
    fits[0, 0] = -np.inf
    grid = [[("fits", fits), ("spike", spike)], [("below", fits)]]
    panels = figure_of(montage_png, grid, "zx", dynamic_range_db=20.0, color_map="gray").axes[:3]
    assert [panel.get_title() for panel in panels] == ["fits", "spike\nup to 7 dB above the scale", "below"]
    drawn = [panel.images[0].get_array() for panel in panels]
    for panel, image in zip(drawn, (fits, spike, fits), strict=True):
        np.testing.assert_allclose(panel, np.clip(image, -20.0, 0.0))
    assert {panel.images[0].get_clim() for panel in panels} == {(-20.0, 0.0)}
    assert {panel.images[0].get_cmap().name for panel in panels} == {"gray"}


def test_a_title_that_is_wider_than_the_panels_is_shown_in_full():
    image = np.random.default_rng(0).uniform(-20, 0, (12, 10))
    widths = []
    for n_words in (0, 12, 24):
        picture = montage_png([[("method", image)]], "zx", dynamic_range_db=20.0, title="words " * n_words)
        widths.append(iio.imread(picture).shape[1])
    # Each of the longer titles takes its own room.
    assert widths[0] < widths[1] < widths[2] - 300


X = np.arange(50.0)


def line(factor):
    median = factor * 10.0 ** (-X / 10)
    return X, np.array([median / 2, median, median * 2])


def curves(settings):
    drawn = montages.curves_png(settings, title="Title", x_label="iteration", y_label="error")
    return iio.imread(drawn, extension=".png")


def has_color(image, color):
    return bool(np.any(np.all(np.abs(image[..., :3].astype(int) - color) < 12, axis=-1)))


def test_every_curve_has_another_colour():
    image = curves([Setting("one", {str(k): line(2.0**k) for k in range(3)})])
    for color in ((0, 114, 178), (213, 94, 0), (0, 158, 115)):
        assert has_color(image, color)
    alone = curves([Setting("one", {"0": line(1.0)})])
    assert has_color(alone, (0, 114, 178))
    assert not has_color(alone, (213, 94, 0))


def test_errors_off_the_scale_are_drawn_at_its_edge():
    low = {"low": (X, np.zeros((3, 50)))}
    high = {"high": (X, np.full((3, 50), np.inf))}
    assert has_color(curves([Setting("one", low)]), (0, 114, 178))
    image = curves([Setting("one", high, 1e-3)])
    assert has_color(image, (0, 114, 178))
    assert has_color(image, (128, 128, 128))


@pytest.mark.slow
def test_montages_and_curves_do_not_depend_on_the_settings_of_matplotlib():
    def drawn():
        levels = np.linspace(-20.0, 0.0, 24).reshape(6, 4)
        labels = {"title": "", "x_label": "iteration", "y_label": "error"}
        montage = montage_png([[("a", levels)]], "zx", dynamic_range_db=20.0)
        return montage, montages.curves_png([Setting("one", {"0": line(1.0)})], **labels)

    wanted = drawn()
    with rc_context({"image.origin": "lower", "font.size": 30.0, "axes.facecolor": "black"}):
        assert drawn() == wanted


def test_a_thumbnail_keeps_its_proportions() -> None:
    assert small_image(np.ones((1, 192, 96)), 1.0).shape == (96, 48)
    assert small_image(np.ones((1, 100, 100)), 0.5).shape == (48, 96)
    assert small_image(np.ones((3, 300, 100)), 1.0).shape == (96, 32)
    assert small_image(np.ones((1, 1, 500)), 1.0).shape == (1, 96)


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
    scale = montages.common_scale(images)
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
    scale = montages.common_scale(images, Display(dynamic_range=24.0, db_factor=20.0, color_map="gray"))
    # Thumbnails are 10 log10 of the power, and the range was asked for in 20 log10.
    assert scale.range_db == 12.0
    gray = iio.imread(thumbnail_png(images[0], CommonScale(0.0, 12.0, color_map="gray")))
    shown = gray[16, ::40].astype(int)
    assert np.ptp(shown[:, :3], axis=1).max() == 0
    # 0, 10 and 30 dB below the maximum.
    assert shown[:, 0].tolist() == [255, pytest.approx(255 * 2 / 12, abs=2), 0]


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


def test_the_order_of_the_axes_does_not_change_the_film():
    reordered = [image.transpose(["zxy".index(letter) for letter in "yxz"]) for image in IMAGES]
    assert movie(reordered, "yxz") == movie(list(IMAGES), "zxy")


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
    timed = frames(movie(still, "zx", times=Coordinate(np.array([0.1, 0.2, 0.3]), unit="s"), title="scan"))
    plain = frames(movie(still, "zx", title="scan"))
    # Only the time changes, which is above the image.
    changes = np.abs(np.diff(timed, axis=0)).sum(axis=(0, 3)) > 0
    assert 0 < np.flatnonzero(changes.any(axis=1))[-1] < 40
    # Equal images are one image that is shown for longer.
    assert len(plain) == 1
    assert max(np.unique(column).size for column in timed[0].sum(axis=-1).T) > 100


@pytest.mark.parametrize(("times", "unit", "expected"), [
    ([0.0, 0.1, 0.2, 0.25], "s", 100),
    # Slower and faster than people watch
    ([0.0, 4.0, 8.0, 12.0], "s", 200),
    ([0.0, 0.01, 0.02, 0.03], "s", 40),
    ([0.0, 40.0, 80.0, 120.0], "frames", 100),
    ([], "s", 100),
    ([7.0], "s", 100),
    # As long as a film may be
    (list(0.6 * np.arange(20)), "s", 100),
])  # fmt: skip
def test_a_film_plays_in_real_time_if_that_can_be_watched(times, unit, expected, monkeypatch):
    monkeypatch.setattr(montages, "LONGEST_S", 2.0)
    images = [np.full((4, 3), -1.0 * (number % 9)) for number in range(len(times) or 4)]
    clock = Coordinate(np.array(times), unit=unit) if times else None
    found = delays_ms(movie(images, "zx", times=clock))
    assert len(found) == len(images)
    assert set(found) == {expected} or len(images) == 1


def test_an_image_with_a_note_has_a_red_frame_and_does_not_set_the_scale():
    usual = np.random.default_rng(1).uniform(-18, 0, (12, 10))
    images = [usual, usual + 30.0, np.full((12, 10), np.nan), usual - 1.0]
    film = frames(movie(images, "zx", notes=("", "bad block", "bad block", "")))
    alone = frames(movie([usual, usual - 1.0], "zx"))
    red = [np.count_nonzero(np.all(image == (255, 32, 32), axis=-1)) for image in film]
    assert red[0] == red[3] == 0
    assert min(red[1:3]) > 1000
    inside = film[:, 60:-60, 60:-160], alone[:, 60:-60, 60:-160]
    for image, wanted in zip(inside[0][::3], inside[1], strict=True):
        assert image.mean() == pytest.approx(wanted.mean(), abs=2)


@pytest.mark.filterwarnings("error")
def test_a_title_with_unprintable_letters_is_drawn():
    times = Coordinate(np.array([1.0, 2.0, 3.0]), unit="s")
    film = movie(list(IMAGES), "zxy", title="a\x1b[31m\n$x$\udcff 雪", times=times)
    assert film.startswith(b"GIF89a")
