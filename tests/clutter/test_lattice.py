"""Every second pixel of an image."""

import numpy as np
import pytest

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.local_cutoffs import Lattice, lattice_places


@pytest.mark.parametrize(
    ("shape", "coarse"),
    [
        ((128, 101), (64, 51)),
        ((15, 600), (15, 300)),
        ((64, 48, 20), (32, 24, 10)),
        ((80, 90), (80, 90)),
        ((7,), (7,)),
    ],
)
def test_longer_axes_of_large_images_are_thinned_out(shape, coarse):
    lattice = Lattice(Neighbourhood.whole(shape), lattice_places(shape))
    assert lattice.coarse.shape == coarse
    steps = tuple(slice(None, None, 2 if n != m else 1) for n, m in zip(shape, coarse, strict=True))
    assert np.array_equal(lattice.pixels, np.arange(np.prod(shape)).reshape(shape)[steps].ravel())


@pytest.mark.parametrize("shape", [(128, 101), (64, 48, 20), (30, 20)])
def test_values_between_the_pixels_are_linear(shape):
    lattice = Lattice(Neighbourhood.whole(shape), lattice_places(shape))
    plane = sum(slope * axis for slope, axis in zip((1.0, -2.0, 0.5), np.indices(shape), strict=False)) + 3
    found = lattice.interpolated(plane[np.ix_(*lattice.places)].ravel()).reshape(shape)
    inside = tuple(slice(0, places[-1] + 1) for places in lattice.places)
    np.testing.assert_allclose(found[inside], plane[inside], atol=1e-12)
    # Beyond the last pixel of the lattice there is its value.
    assert np.array_equal(found[-1], found[lattice.places[0][-1]])


@pytest.mark.parametrize("shape", [(128, 101), (30, 20)])
def test_the_lattice_of_an_image_with_a_mask(shape):
    z, x = np.indices(shape)
    mask = (z - shape[0] / 2) ** 2 / shape[0] ** 2 + (x - shape[1] / 2) ** 2 / shape[1] ** 2 < 0.2
    signal_pixels = np.flatnonzero(mask)
    lattice = Lattice(Neighbourhood(mask), lattice_places(shape))
    assert lattice.coarse.n_pixels == len(lattice.pixels)
    # Rows are counted among the pixels that have values.
    chosen = np.zeros(shape, bool)
    chosen.ravel()[signal_pixels[lattice.pixels]] = True
    expected = np.zeros(shape, bool)
    expected[np.ix_(*lattice.places)] = True
    assert np.array_equal(chosen, expected & mask)
    plane = 1.0 * z - 0.5 * x + 3
    found = lattice.interpolated(plane[mask][lattice.pixels])
    assert found.shape == (len(signal_pixels),)
    assert found == pytest.approx(plane[mask], abs=2)
    inner = (z - shape[0] / 2) ** 2 / shape[0] ** 2 + (x - shape[1] / 2) ** 2 / shape[1] ** 2 < 0.1
    np.testing.assert_allclose(found[inner[mask]], plane[mask][inner[mask]], atol=1e-9)
