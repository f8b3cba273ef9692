"""Pictures of error curves: panels, colours, and errors outside the scale."""

import imageio.v3 as iio
import numpy as np

from usdenoise.report.montages import Setting, curves_png

X = np.arange(50.0)


def line(factor):
    median = factor * 10.0 ** (-X / 10)
    return X, np.array([median / 2, median, median * 2])


def picture(settings):
    return iio.imread(
        curves_png(settings, title="Title", x_label="iteration", y_label="error"), extension=".png"
    )


def has_color(image, color):
    return bool(np.any(np.all(np.abs(image[..., :3].astype(int) - color) < 12, axis=-1)))


def test_every_curve_has_another_colour():
    image = picture([Setting("one", {str(k): line(2.0**k) for k in range(3)})])
    for color in ((0, 114, 178), (213, 94, 0), (0, 158, 115)):
        assert has_color(image, color)
    alone = picture([Setting("one", {"0": line(1.0)})])
    assert has_color(alone, (0, 114, 178))
    assert not has_color(alone, (213, 94, 0))


def test_errors_off_the_scale_are_drawn_at_its_edge():
    low = {"low": (X, np.zeros((3, 50)))}
    high = {"high": (X, np.full((3, 50), np.inf))}
    assert has_color(picture([Setting("one", low)]), (0, 114, 178))
    image = picture([Setting("one", high, 1e-3)])
    assert has_color(image, (0, 114, 178))
    assert has_color(image, (128, 128, 128))
