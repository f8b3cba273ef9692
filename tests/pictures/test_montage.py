"""Images of several methods on one scale, and what is said of an image above it."""

import numpy as np

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
