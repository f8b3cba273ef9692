"""Images of several methods on one scale, and the contact sheet: what is above the scale, doubtful or failed."""

import imageio.v3 as iio
import numpy as np

from usdenoise.pictures.contact_sheet import Tile, contact_sheet_png
from usdenoise.pictures.montage import montage_figure

RNG = np.random.default_rng(0)


def test_an_image_above_the_scale_says_by_how_much():
    fits = RNG.uniform(-20, 0, (12, 10))
    spike = fits.copy()
    spike[3, 4] = 7.2
    cells = [("fits", fits), ("spike", spike), ("white", fits + 31.0), ("nearly", fits + 0.5)]
    figure = montage_figure([cells[:2], cells[2:]], "zx", 20.0, {}, "", "gray")
    panels = figure.axes[:4]
    assert [panel.get_title() for panel in panels] == [
        "fits",
        "spike\nup to 7 dB above the scale",
        "white",
        "nearly",
    ]
    assert [[text.get_text() for text in panel.texts] for panel in panels] == [
        [],
        [],
        ["31 dB above\nthe scale"],
        [],
    ]
    drawn = [np.ma.filled(panel.images[0].get_array(), np.nan) for panel in panels]
    assert np.isnan(drawn[2]).all()
    np.testing.assert_allclose(drawn[1], np.minimum(spike, 0.0))
    assert {panel.images[0].get_clim() for panel in panels} == {(-20.0, 0.0)}
    assert {panel.images[0].get_cmap().name for panel in panels} == {"gray"}


def test_two_levels_are_the_scale_of_a_montage():
    figure = montage_figure(
        [[("a", np.linspace(0, 30, 25).reshape(5, 5))]], "zx", (5.0, 25.0), {}, "", "gray"
    )
    assert figure.axes[0].images[0].get_clim() == (5.0, 25.0)
    assert figure.axes[0].get_title() == "a\nup to 5 dB above the scale"


def colored(sheet, color, tolerance=12):
    return (np.abs(sheet.astype(int) - color).max(axis=2) < tolerance).sum()


def test_the_sheet_marks_failed_and_doubtful_scans():
    image = RNG.uniform(0.1, 1, (1, 30, 20))
    tiles = [Tile("good", image), Tile("odd", image, 1.0, "cutoff unsure"), Tile("bad", None, 1.0, "failed")]
    marked, plain = (
        iio.imread(contact_sheet_png(part))[..., :3] for part in (tiles, [Tile("good", image)] * 3)
    )
    assert marked.shape == plain.shape
    width = marked.shape[1] // 3
    red, orange = (179, 38, 30), (179, 92, 0)
    for number, (reds, oranges) in enumerate(((False, False), (False, True), (True, False))):
        place = marked[:, number * width : (number + 1) * width]
        assert (colored(place, red) > 500) == reds
        # The colour map has a few such pixels of its own.
        own = colored(plain[:, number * width : (number + 1) * width], orange)
        assert (colored(place, orange) > own + 500) == oranges


def test_few_scans_are_shown_larger_than_many():
    image = np.ones((1, 4, 4))
    sheets = {
        n: iio.imread(contact_sheet_png([Tile(f"scan{k}", image) for k in range(n)])).shape
        for n in (1, 7, 60)
    }
    assert sheets[1][1] == 352
    assert sheets[7][1] == 4 * 352
    assert sheets[60][1] == 10 * 176


def test_levels_that_are_given_are_the_scale_of_all_tiles():
    images = [np.full((1, 9, 9), level) for level in (1.0, 100.0, 1e9)]
    tiles = [Tile(str(number), image) for number, image in enumerate(images)]
    fixed, own = (
        iio.imread(contact_sheet_png(tiles, levels))[100:200, :, :3] for levels in ((0.0, 40.0), None)
    )
    width = fixed.shape[1] // 3
    shades = [
        fixed[:, number * width + 100 : (number + 1) * width - 100].astype(int).sum(axis=2).mean()
        for number in range(3)
    ]
    assert shades[0] < 20 < 200 < shades[1] < 500 < 600 < shades[2]
    assert np.array_equal(own[:, 100 : width - 100], own[:, 2 * width + 100 : 3 * width - 100])
