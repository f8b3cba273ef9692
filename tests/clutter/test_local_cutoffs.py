"""Per-pixel cutoffs, against slow loops and on planted components."""

from dataclasses import replace

import numpy as np
import pytest

import usdenoise
from usdenoise.blood.blood_map import BloodMap
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.local_cutoffs import Lattice, LocalCutoffs, lattice_places, local_cutoffs
from usdenoise.linalg.low_rank import LowRank

SHAPE = (40, 30)
N_PIXELS = SHAPE[0] * SHAPE[1]


def _random(rng, power):
    parts = rng.standard_normal((2, N_PIXELS))
    return (parts[0] + 1j * parts[1]) * np.sqrt(power)


@pytest.fixture(scope="module")
def planted():
    """Components 0-8 are tissue, 5-8 with some blood, 9-11 blood in the left third, 12-15 noise; the image and its model."""
    rng = np.random.default_rng(3)
    speckle = np.abs(_random(rng, 1.0)) ** 2
    vessel = np.broadcast_to(np.arange(SHAPE[1]) < SHAPE[1] // 3, SHAPE).reshape(-1)
    columns = [_random(rng, speckle * ~vessel + 0.3 * (k > 4) * vessel) for k in range(9)]
    columns += [_random(rng, vessel) for _ in range(3)] + [_random(rng, np.ones(N_PIXELS)) for _ in range(4)]
    left = np.linalg.qr(np.stack(columns, axis=1))[0].astype(np.complex64)
    right = np.linalg.qr(rng.standard_normal((60, 16)))[0].astype(np.complex64)
    model = LowRank(left, np.linspace(20, 5, 16), right)
    ones = np.ones(N_PIXELS)
    return model, vessel, BloodMap(vessel * 2.0, ones, ones, ones, None)


def shares(cutoffs):
    """Share of each of the 16 components that is removed from each pixel."""
    found = np.zeros((N_PIXELS, 16))
    found[:, : cutoffs.first] = 1
    found[:, cutoffs.first : cutoffs.stop] = cutoffs.removed
    return found


def test_tissue_above_the_cutoff_is_taken_and_blood_is_not(planted):
    model, vessel, blood = planted
    cutoffs = local_cutoffs(model, 7, blood, Neighbourhood.whole(SHAPE))
    assert (cutoffs.low, cutoffs.first, cutoffs.stop) == (7, 3, 15)
    taken = shares(cutoffs)
    inside = vessel.reshape(SHAPE).copy()
    inside[:, SHAPE[1] // 3 - 3 :] = False  # away from the wall, whose neighbours are tissue
    inside = inside.reshape(-1)
    assert (taken[:, :3] == 1).all()
    assert taken[~vessel][:, 7:9].mean() > 0.85
    assert taken[inside][:, 7:9].mean() < 0.2
    assert taken[inside][:, 9:12].max() < 0.1
    assert taken[:, 12:].mean() < 0.05
    assert (taken[:, 15] == 0).all()


def test_blood_below_the_cutoff_is_given_back_to_its_vessels(planted):
    model, vessel, blood = planted
    taken = shares(local_cutoffs(model, 12, blood, Neighbourhood.whole(SHAPE)))
    assert taken[vessel][:, 9:12].mean() < 0.1
    assert (taken[:, :8] == 1).all()


def test_without_blood_tissue_above_the_cutoff_is_taken_everywhere(planted):
    model, vessel, blood = planted
    nothing = BloodMap(np.zeros(N_PIXELS), blood.noise_power, blood.evidence, blood.kept_share, None)
    taken = shares(local_cutoffs(model, 7, nothing, Neighbourhood.whole(SHAPE)))
    assert taken[~vessel][:, 7:9].mean() > 0.7


def test_a_component_with_more_energy_than_blood_and_noise_is_tissue_whatever_it_looks_like(planted):
    model, _, blood = planted
    singular = np.where(np.arange(16) == 12, 1e4, model.singular_values)
    weak, strong = (
        shares(local_cutoffs(replace(model, singular_values=values), 13, blood, Neighbourhood.whole(SHAPE)))[
            :, 12
        ]
        for values in (model.singular_values, singular)
    )
    assert weak.max() < 0.3
    assert strong.min() > 0.99


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_scale_of_the_maps_does_not_count(planted, scale):
    model, _, blood = planted
    scaled = BloodMap(
        blood.blood_power * scale, blood.noise_power * scale, blood.evidence, blood.kept_share, None
    )
    one = local_cutoffs(model, 7, blood, Neighbourhood.whole(SHAPE)).removed
    model = replace(model, singular_values=model.singular_values * np.sqrt(scale))
    assert local_cutoffs(model, 7, scaled, Neighbourhood.whole(SHAPE)).removed == pytest.approx(one, abs=1e-6)


@pytest.mark.parametrize(("low", "rank"), [(1, 1), (1, 16), (2, 2), (16, 16)])
def test_cutoffs_at_the_ends_of_the_model(planted, low, rank):
    model, _, blood = planted
    short = LowRank(model.left[:, :rank], model.singular_values[:rank], model.right[:, :rank])
    cutoffs = local_cutoffs(short, low, blood, Neighbourhood.whole(SHAPE))
    assert cutoffs.first == max(1, low - 4)
    assert cutoffs.stop == max(min(low + 8, rank), cutoffs.first)
    assert np.isfinite(cutoffs.removed).all()


def test_shares_equal_a_loop():
    rng = np.random.default_rng(0)
    taken = rng.random((5, 6)).astype(np.float32)
    cutoffs = LocalCutoffs(5, 3, taken)

    def share(pixel, component):
        if component < 3:
            return 1.0
        return taken[pixel, component - 3] if component < 9 else 0.0

    more = [[share(pixel, k) - (1.0 if k < 5 else 0.0) for k in range(3, 9)] for pixel in range(5)]
    assert cutoffs.further == pytest.approx(np.array(more))
    weights = rng.random(5)
    for component, power in enumerate(cutoffs.removed_power_share(weights)):
        kept = sum(weights[p] * (1 - share(p, component)) ** 2 for p in range(5)) / weights.sum()
        assert power == pytest.approx(1 - kept)
    assert cutoffs.removed_power_share(np.zeros(5)) == pytest.approx(cutoffs.removed_power_share(np.ones(5)))


@pytest.mark.parametrize(
    ("dtype", "shape", "low", "n_frames"),
    [
        (np.float32, (9, 6, 11), 1, 90),
        (np.complex64, (12, 30), "auto", 90),
        (np.float32, (12, 30), "auto", 12),
        (np.complex64, (9, 6, 11), 1, 12),
    ],
)
def test_a_constant_stack_has_no_blood(dtype, shape, low, n_frames):
    """Its components beyond the first have no power."""
    axes = "zxy"[: len(shape)] + "t"
    stack = usdenoise.Acquisition(np.full((*shape, n_frames), 8e-6, dtype), axes)
    result = usdenoise.denoise(stack, low_cutoff=low, bad_frames="keep")
    assert result.blood_power.max() < 1e-8 * 8e-6**2
    assert result.power_doppler.max() < 1e-8 * 8e-6**2


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
