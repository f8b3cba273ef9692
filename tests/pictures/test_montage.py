"""Images of several methods on one scale, and what is said of an image above it."""

import numpy as np

from usdenoise.pictures.montage import montage_png

RNG = np.random.default_rng(0)


def test_an_image_above_the_scale_says_by_how_much(figure_of):
    fits = RNG.uniform(-20, 0, (12, 10))
    spike = fits.copy()
    spike[3, 4] = 7.2
    grid = [[("fits", fits), ("spike", spike)], [("white", fits + 31.0), None]]
    panels = figure_of(montage_png, grid, "zx", dynamic_range_db=20.0, color_map="gray").axes[:3]
    assert [panel.get_title() for panel in panels] == ["fits", "spike\nup to 7 dB above the scale", "white"]
    assert [[text.get_text() for text in panel.texts] for panel in panels] == [
        [], [], ["31 dB above\nthe scale"],
    ]  # fmt: skip
    drawn = [np.ma.filled(panel.images[0].get_array(), np.nan) for panel in panels]
    np.testing.assert_allclose(drawn[0], fits)
    np.testing.assert_allclose(drawn[1], np.minimum(spike, 0.0))
    assert np.isnan(drawn[2]).all()
    assert {panel.images[0].get_clim() for panel in panels} == {(-20.0, 0.0)}
    assert {panel.images[0].get_cmap().name for panel in panels} == {"gray"}


def test_two_levels_are_the_scale_of_a_montage(figure_of):
    grid = [[("a", np.linspace(0, 30, 25).reshape(5, 5))]]
    panel = figure_of(montage_png, grid, "zx", dynamic_range_db=(5.0, 25.0)).axes[0]
    assert panel.images[0].get_clim() == (5.0, 25.0)
    assert panel.get_title() == "a\nup to 5 dB above the scale"
