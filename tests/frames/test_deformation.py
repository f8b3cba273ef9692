"""The field of a deformed image is found, undone where measurements add up, and not found where there is none."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from tests.sessions.scans import LENGTH, scan
from usdenoise import Acquisition, session
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.frames.alignment import Alignment, Reference, shifted
from usdenoise.frames.deformation import AtRest, Deformation, at_places, deformation_of, find_field


def speckle(rng: Any, shape: tuple[int, ...], width: float = 1.0) -> NDArray[np.complex128]:
    return gaussian_filter(rng.standard_normal(shape), width) + 1j * gaussian_filter(
        rng.standard_normal(shape), width
    )


def displaced(image: NDArray[Any], field: NDArray[np.float64]) -> NDArray[Any]:
    """An image at the places of a field, by splines of order 5; beyond the edge it is mirrored."""
    return map_coordinates(image, np.indices(image.shape) + field, order=5, mode="reflect")


def rotation(shape: tuple[int, ...], degrees: float) -> NDArray[np.float64]:
    """The field of a rotation from the first axis towards the second, about the middle."""
    angle, field = np.radians(degrees), np.zeros((len(shape), *shape))
    z, x = (place - (n - 1) / 2 for place, n in zip(np.indices(shape)[:2], shape[:2], strict=True))
    field[0] = z * (np.cos(angle) - 1) - x * np.sin(angle)
    field[1] = z * np.sin(angle) + x * (np.cos(angle) - 1)
    return field


def bump(shape: tuple[int, ...], pixels: float) -> NDArray[np.float64]:
    """A displacement along both axes that is largest off the middle, and smooth."""
    places = [np.linspace(-1, 1, n) for n in shape]
    squares = np.add.outer((places[0] - 0.2) ** 2, (places[1] + 0.1) ** 2)
    return pixels * np.exp(-2 * squares) * np.array([0.8, -0.6])[:, None, None]


def rms(field: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.sum(field**2, axis=0))))


def tissue(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float64]:
    """A mean envelope whose level changes over depth."""
    level = np.exp(-np.arange(shape[0]) / shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    return level * gaussian_filter(np.abs(speckle(np.random.default_rng(seed), shape)), 0.7)


@pytest.mark.parametrize("shape", [(36, 44), (22, 18, 20)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_values_are_interpolated_at_the_places_of_a_field(shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    field = rotation(shape, 3) + np.array([0.4, -1.3, 0.7][: len(shape)]).reshape(-1, *(1,) * len(shape))
    field[-1] += 0.8 * np.sin(np.indices(shape)[0] / 5)
    image = speckle(rng, shape, 2.0) / 0.1
    image = image if np.dtype(dtype).kind == "c" else image.real
    wanted = displaced(image, field)
    found = at_places(np.stack([image, 2 * image], axis=-1).reshape(-1, 2).astype(dtype), field)
    assert found.dtype == dtype
    inside = (slice(5, -5),) * len(shape)
    for column, factor in zip(found.T, (1, 2), strict=True):
        error = (column.reshape(shape) / factor - wanted)[inside]
        assert np.abs(error).max() < 0.02 * np.abs(image).max()


def test_interpolation_does_not_smooth() -> None:
    """The finest structure that the pixels have is kept where it is not half a pixel away."""
    values = np.random.default_rng(1).standard_normal((40, 60, 50)).reshape(40, -1).T
    assert at_places(values, rotation((60, 50), 2)).var() > 0.75
    np.testing.assert_allclose(at_places(values, np.zeros((2, 60, 50))), values, atol=1e-12)


@pytest.mark.parametrize(("made", "largest"), [
    (rotation((60, 50), 3), 0.06), (rotation((60, 50), -0.7), 0.04), (bump((60, 50), 3.0), 0.13)
])  # fmt: skip
def test_rotation_and_deformation_are_found(made: NDArray[np.float64], largest: float) -> None:
    """To a few hundredths of a pixel, as in a block with its own speckle of blood and another gain over depth."""
    rng, shape = np.random.default_rng(2), made.shape[1:]
    reference = tissue(shape)
    # What is at p in the reference is at p + made in the image
    image = reference
    inverse = -made
    for _ in range(20):
        inverse = -np.stack([displaced(along, inverse) for along in made])
    image = displaced(reference, inverse)
    image *= np.linspace(1, 2, shape[0])[:, None] * (1 + 0.05 * rng.standard_normal(shape))
    found = find_field(image, reference, np.ones(shape, bool))
    inside = (slice(None), *(slice(4, -4),) * 2)
    assert rms((found - made)[inside]) < largest < 0.4 * rms(made[inside])
    summary = Deformation.of(found, (1.0, 1.0))
    assert summary.pixels == pytest.approx(np.sqrt((made**2).sum(axis=0)).max(), rel=0.15)
    assert summary.rotation == pytest.approx(Deformation.of(made, (1.0, 1.0)).rotation, abs=0.1)


def test_the_rotation_is_of_the_tissue_and_not_of_the_pixels() -> None:
    """With pixels of 0.1 x 0.2 mm a rotation of the tissue by 1 degree is no rotation of the pixels."""
    shape, angle = (30, 20), np.radians(1)
    z, x = np.indices(shape)
    field = np.stack([-angle * 0.2 * x / 0.1, angle * 0.1 * z / 0.2])
    assert Deformation.of(field, (0.1, 0.2)).rotation == pytest.approx((1.0,))
    assert Deformation.of(rotation((9, 8, 7), 2), (1.0, 1.0, 1.0)).rotation == pytest.approx(
        (2, 0, 0), abs=1e-2
    )


def test_the_deformation_of_a_volume_is_found() -> None:
    shape = (26, 24, 22)
    made, reference = rotation(shape, 4), tissue(shape)
    found = find_field(displaced(reference, rotation(shape, -4)), reference, np.ones(shape, bool))
    assert rms((found - made)[:, 3:-3, 3:-3, 3:-3]) < 0.1 < 0.2 * rms(made)


@pytest.mark.parametrize("what", ["noise", "noise of the same tissue", "out of the plane", "a small shift"])
def test_nothing_is_found_where_nothing_is_deformed(what: str) -> None:
    shape = (48, 44)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        first, second = speckle(rng, shape), speckle(rng, shape)
        noisy, again = (np.abs(first) + 0.05 * np.abs(speckle(rng, shape)) for _ in range(2))
        image, reference = {
            "noise": (np.abs(first), np.abs(second)),
            "noise of the same tissue": (noisy, again),
            "out of the plane": (np.abs(0.9 * first + np.sqrt(1 - 0.81) * second), np.abs(first)),
            "a small shift": (shifted(np.abs(first)[None], np.array([0.04, -0.03]))[0], np.abs(first)),
        }[what]
        assert find_field(image, reference, np.ones(shape, bool)) is None


def test_a_rigid_shift_that_was_compensated_leaves_nothing() -> None:
    shape, shift = (48, 44), (1.3, -0.6)
    image = tissue(shape).astype(np.float32)
    reference = Reference(image, np.ones(shape, bool))
    moved = shifted(image[None], -np.array(shift)).reshape(1, -1).repeat(4, axis=0).astype(np.complex64)
    aligned = Alignment(shift, 0.0, 0.9, is_shifted=True)
    assert deformation_of(moved, np.zeros(4, bool), reference, aligned) is None
    turned = displaced(image, rotation(shape, -3)).reshape(1, -1).repeat(4, axis=0).astype(np.complex64)
    still = Alignment((0.0, 0.0), 0.0, 0.9)
    # Excluded frames do not count
    turned[2:] = moved[:2]
    excluded = np.array([False, False, True, True])
    assert deformation_of(turned, excluded, reference, still) is not None
    unlike = Alignment((np.nan, np.nan), 0.0, 0.1)
    off = Reference(image, np.ones(shape, bool), registers=False)
    assert deformation_of(turned, excluded, reference, unlike) is None
    assert deformation_of(turned, excluded, off, still) is None


def test_pixels_from_outside_are_unobserved_and_masked_ones_do_not_spread() -> None:
    shape = (20, 16)
    field = np.zeros((2, *shape))
    field[0], field[1] = 2.3, -1.6
    mask = np.ones(shape, bool)
    mask[:, 0], mask[10, 8] = False, False
    grid = Neighbourhood(mask)
    observed = np.ones(shape, bool)
    observed[5, 6] = False
    image = 10 + np.indices(shape).sum(axis=0).astype(np.float64)
    wanted = image + 0.7
    image[~observed | ~mask] = 1e6
    rest = AtRest(field, grid, grid.at_signal(observed.ravel()))
    values = grid.at_signal(image.ravel())
    counts = rest.counts(np.where(grid.at_signal(observed.ravel()), 50.0, 0.0))
    at = grid.everywhere(counts).reshape(shape)
    # The pixel p takes p + (2, -2): from the rows 0 to 17, and not from column 0, which is masked
    known = np.zeros(shape, bool)
    known[:18, 3:] = mask[:18, 3:]
    known[8, 10] = known[3, 8] = False
    np.testing.assert_array_equal(at == 50, known)
    np.testing.assert_array_equal(at == 0, ~known)
    found = grid.everywhere(rest.means(np.stack([values, 1j * values], axis=1))).reshape(*shape, 2)
    away = known.copy()
    away[[0, 1, 2, *range(13, 20)]] = away[:, [*range(8), 13, 14, 15]] = False
    np.testing.assert_allclose(found[away, 1], 1j * found[away, 0])
    np.testing.assert_allclose(found[away, 0].real, wanted[away], atol=0.6)


def test_a_session_reports_its_rotation_and_changes_no_block_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    angles, edge = np.array([0, 0, 0.1, 2.5, 0, 0, -2, 0]), slice(2, -2)
    made = scan(len(angles), shape=(40, 40), resolution=1.0)
    blocks = []
    for block, angle in zip(made.blocks, angles, strict=True):
        places = np.indices((40, 40)) + rotation((40, 40), -angle)
        turned = [map_coordinates(frame, places, order=3) for frame in block] if angle else block
        blocks.append(np.stack(turned)[:, edge, edge])
    iq, scales = np.concatenate(blocks).astype(np.complex64), {"spacing_mm": {"z": 0.1, "x": 0.1}}
    stack = Acquisition(iq, "tzx", frame_rate_hz=500.0, **scales)
    found = session(stack, window=LENGTH, rank=20, low_cutoff=12)
    turned = np.abs(angles) > 1
    assert found.blocks["rotation"] == pytest.approx(np.where(turned, angles, 0), abs=0.15)
    assert ((np.array(found.blocks["deformation"]) > 0.5) == turned).all()
    likeness = np.array(found.blocks["likeness"])
    assert likeness[turned].max() < 0.9 < 0.97 < likeness[~turned].min()
    monkeypatch.setattr("usdenoise.sessions.measured_block.deformation_of", lambda *_: None)
    without = session(stack, window=LENGTH, rank=20, low_cutoff=12)
    powers, others = found.images["power_doppler"], without.images["power_doppler"]
    np.testing.assert_array_equal(powers[~turned], others[~turned])
    assert (powers[turned] != others[turned]).any()
