"""Images of several methods on one scale, and what is said of an image above it."""

import numpy as np

from usdenoise.report.montages import montage_png

RNG = np.random.default_rng(0)


def test_an_image_above_the_scale_has_the_excess_in_its_title(figure_of):
    fits = RNG.uniform(-20, 0, (12, 10))
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
