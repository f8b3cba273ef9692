"""Pixels without a signal count nowhere: a masked stack gives what its other pixels give alone."""

import dask.array as da
import numpy as np
import pytest

import usdenoise
from tests.conftest import all_frames
from tests.reference.matrices import casorati_matrix
from usdenoise.blood.metrics import correlation
from usdenoise.linalg.tall_matrices import row_squared_norms
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline.inspection import find_signal_pixels

SHAPE = (44, 36)
DEPTH, WIDTH = np.indices(SHAPE)
MASKS = {
    "rows": DEPTH >= 12,
    "first column": WIDTH > 0,
    "border": (abs(DEPTH - 21.5) < 17) & (abs(WIDTH - 17.5) < 14),
    "disk": (DEPTH - 22) ** 2 + (WIDTH - 18) ** 2 < 13**2,
    "sector": abs(WIDTH - 18) < 5 + 0.35 * DEPTH,
}
FILLS = {
    "zero": lambda values: 0 * values,
    "unobserved": lambda values: np.nan * values,
    "next to nothing": lambda values: np.complex64(1e-4) * values,
    "rounding errors": lambda values: np.complex64(1e-9) * np.roll(values, 7, axis=0),
}


@pytest.fixture(scope="module")
def terms():
    return all_frames(PhantomSettings((*SHAPE, 120), frame_rate_hz=500.0, seed=11))[1]


def masked(stack, mask, fill):
    stack = stack.copy()
    stack[:, ~mask] = FILLS[fill](stack[:, ~mask])
    return stack


@pytest.fixture(scope="module")
def whole(terms):
    return usdenoise.denoise(terms.iq, axes="tzx", tissue="recorded", low_cutoff=9)


@pytest.mark.parametrize(
    ("mask", "fills"), [*((mask, ["zero"]) for mask in ("rows", "first column", "sector")), ("disk", FILLS)]
)
def test_a_masked_stack_gives_what_its_other_pixels_give_alone(terms, whole, mask, fills):
    has_signal = MASKS[mask]
    # One column of pixels has no neighbours by which its tissue could be held still, and its cutoff chosen
    options = {"axes": "tzx", "tissue": "recorded", "low_cutoff": 9}
    alone = usdenoise.denoise(terms.iq[:, has_signal][:, :, None], **options)
    for fill in fills:
        found = usdenoise.denoise(masked(terms.iq, has_signal, fill), **options)
        check_masked(found, alone, whole, terms, has_signal, fill)


def check_masked(found, alone, whole, terms, has_signal, fill):
    assert found.noise_floor == pytest.approx(alone.noise_floor, rel=1e-5)
    assert found.power_doppler[has_signal] == pytest.approx(alone.power_doppler[:, 0], rel=1e-3)
    assert np.allclose(found.acquisition.iq[:, has_signal], alone.acquisition.iq[:, :, 0], atol=1e-3)
    for image in (found.power_doppler, found.blood_power, found.noise_power):
        assert (image[~has_signal] == 0).all()
        assert np.isfinite(image).all()
    assert (found.acquisition.iq[:, ~has_signal] == 0).all()
    assert found.model.left.shape == (44 * 36, found.model.rank)
    assert found.n_silent == (~has_signal).sum()
    assert found.n_unobserved == (120 * (~has_signal).sum() if fill == "unobserved" else 0)
    # The map of the whole image, where its edges are not those of the mask.
    truth = (np.abs(terms.blood) ** 2).mean(axis=0)[has_signal]
    assert (
        correlation(found.blood_power[has_signal], truth)
        > correlation(whole.blood_power[has_signal], truth) - 0.01
    )


@pytest.mark.parametrize(
    ("mask", "part"), [("rows", (slice(12, 44), slice(0, 36))), ("border", (slice(5, 39), slice(4, 32)))]
)
def test_the_maps_of_a_masked_stack_are_those_of_the_cropped_one(terms, mask, part):
    # Its tiles begin at other pixels
    found = usdenoise.denoise(masked(terms.iq, MASKS[mask], "zero"), axes="tzx", low_cutoff=7)
    cropped = usdenoise.denoise(terms.iq[:, *part], axes="tzx", low_cutoff=7)
    assert correlation(found.blood_power[part], cropped.blood_power) > 0.999
    assert found.blood_power[part].sum() == pytest.approx(cropped.blood_power.sum(), rel=0.02)
    assert found.noise_power[part].mean() == pytest.approx(cropped.noise_power.mean(), rel=0.02)
    ours, theirs = found.picture_quality, cropped.picture_quality
    assert ours.vessel_share == pytest.approx(theirs.vessel_share, rel=0.05)
    moved, alone = (one.frame_quality.curves.displacement for one in (found, cropped))
    assert moved[:, 0] == pytest.approx(alone[:, 0], abs=5e-3)
    # Of some thirty tiles
    assert moved[:, 1].mean() == pytest.approx(alone[:, 1].mean(), rel=0.3)


@pytest.mark.parametrize(("chunks", "fill"), [((50, 10, 9), "unobserved"), ((10, 44, 36), "next to nothing")])
def test_chunks_of_a_masked_stack_give_the_same(terms, chunks, fill):
    stack = masked(terms.iq[:100], MASKS["rows"], fill)
    expected = usdenoise.denoise(stack, axes="tzx", bad_frames=(3, 4))
    found = usdenoise.denoise(da.from_array(stack, chunks=chunks), axes="tzx", bad_frames=(3, 4))
    assert found.options.low_cutoff == expected.options.low_cutoff
    assert found.n_unobserved == expected.n_unobserved
    assert np.allclose(found.acquisition.iq.compute(), expected.acquisition.iq, atol=1e-3)
    assert found.blood_power == pytest.approx(expected.blood_power, rel=1e-2, abs=1e-3)


def test_a_warm_start_of_all_pixels_is_one_of_those_with_a_signal(terms):
    stack = masked(terms.iq, MASKS["disk"], "zero")
    first = usdenoise.denoise(stack, axes="tzx", rank=20, low_cutoff=9)
    factors = first.model.left * first.model.singular_values.astype(np.float32), first.model.right
    again = usdenoise.denoise(stack, axes="tzx", rank=20, low_cutoff=9, start=factors)
    assert again.solution.iterations <= first.solution.iterations
    assert correlation(again.power_doppler, first.power_doppler) > 0.9999


def silent(stack):
    rows = np.ascontiguousarray(stack.reshape(len(stack), -1).T)
    sample = casorati_matrix(rows)
    mask = find_signal_pixels(sample, row_squared_norms(rows), 0, sample.fast_power)
    assert mask.shape == (len(rows),)
    return np.count_nonzero(~mask)


def test_pixels_of_a_scan_are_not_silent(terms):
    assert silent(terms.iq) == 0
    # Noise alone, with 20 dB of gain over depth.
    gain = np.linspace(0, 1, 44)[:, None] * np.ones(36)
    assert silent(terms.noise * 10 ** gain.astype(np.float32)) == 0
    # A simulation without noise, and one without noise and tissue but in the vessels.
    assert silent(terms.tissue + terms.blood) == 0
    assert silent(terms.tissue + terms.blood * (terms.blood[0] > 1)) == 0
    # A few pixels that are much louder than all others.
    loud = terms.noise.copy()
    loud[:, 3, :20] *= 1e4
    assert silent(loud) == 0
    # A flow phantom: vessels 30 dB above the noise, without tissue.
    vessel = np.where((DEPTH > 20) & (DEPTH < 28), np.float32(30), np.float32(1))
    assert silent(terms.noise * vessel) == 0


@pytest.mark.parametrize(("shape", "n_pulses"), [((3, 2, 2), 1), ((60, 20, 20), 5)])
def test_pixels_that_are_zero_in_most_frames_are_used_if_all_are(shape, n_pulses):
    rng = np.random.default_rng(3)
    order = rng.permuted(np.broadcast_to(np.arange(shape[0])[:, None, None], shape), axis=0)
    values = np.where(order < n_pulses, rng.standard_normal(shape) + 1j, 0).astype(np.complex64)
    found = usdenoise.denoise(values, axes="tzx", low_cutoff=0)
    assert found.n_silent == 0
    assert found.power_doppler == pytest.approx(np.mean(np.abs(values) ** 2, axis=0), rel=1e-4)


def test_a_stack_with_fewer_signal_pixels_than_components_is_taken_as_it_is():
    values = np.zeros((30, 6, 8), np.complex64)
    values[:, 2, 3] = np.exp(0.3j * np.arange(30))
    found = usdenoise.denoise(values, axes="tzx", rank=3, low_cutoff=0)
    assert found.acquisition.iq == pytest.approx(values, abs=1e-5)


def test_a_zero_first_column_hides_no_frame():
    rng, shape = np.random.default_rng(3), (200, 512, 16)
    values = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    values += 100 * values[:1]
    values[[20, 21, 90, 150, 199]] = 0
    values[:, :, 0] = 0
    frames = usdenoise.denoise(values, axes="tzx", low_cutoff=2).frame_quality
    assert [(bad.frame, bad.reason.value) for bad in frames.bad] == [
        (frame, "zero") for frame in (20, 21, 90, 150, 199)
    ]


@pytest.mark.slow
def test_a_narrow_image_whose_first_column_is_quiet():
    """Every n-th pixel of it, for n a multiple of the width, is in that column."""
    settings = PhantomSettings((240, 8, 80), frame_rate_hz=500.0, seed=4)
    stack = np.tile(all_frames(settings)[1].iq, (1, 5, 1))
    # Well below the noise elsewhere, but not silent.
    stack[:, :, 0] *= np.float32(0.02)
    cutoffs = [usdenoise.denoise(part, axes="tzx").low_cutoff for part in (stack, stack[:, :, 1:])]
    assert abs(cutoffs[0] - cutoffs[1]) <= 1
    found = usdenoise.denoise(stack, axes="tzx", low_cutoff=cutoffs[1])
    others = usdenoise.denoise(stack[:, :, 1:], axes="tzx", low_cutoff=cutoffs[1])
    assert correlation(found.power_doppler[:, 1:], others.power_doppler) > 0.99
    ratio = found.blood_power[:, 2:].sum() / others.blood_power[:, 1:].sum()
    assert ratio == pytest.approx(1, abs=0.1)


def test_interference_outside_a_sector_is_no_signal(terms):
    rng = np.random.default_rng(0)
    stack = masked(terms.iq, MASKS["sector"], "zero")
    wanted = usdenoise.denoise(stack, axes="tzx")
    level = 3 * np.sqrt(np.mean(np.abs(stack) ** 2))
    for frame in (3, 70, 71):
        stack[frame] += level * (rng.standard_normal(SHAPE) + 1j * rng.standard_normal(SHAPE)).astype(
            np.complex64
        )
    found = usdenoise.denoise(stack, axes="tzx")
    assert found.n_silent == wanted.n_silent == np.count_nonzero(~MASKS["sector"])
    assert found.noise_floor == pytest.approx(wanted.noise_floor, rel=0.05)
    assert not found.blood_power[~MASKS["sector"]].any()
