"""The blood map of stacks whose blood and noise are known."""

from dataclasses import replace

import numpy as np
import pytest

import usdenoise
from tests.conftest import all_frames
from usdenoise.blood import blood_map, neighbourhood, noise
from usdenoise.blood.metrics import correlation, detection_auc
from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.linalg import tall_matrices
from usdenoise.phantom import PhantomSettings
from usdenoise.phantom.motion_and_noise import NoiseField

NOISY = PhantomSettings(
    shape=(64, 56, 160), seed=21, blood_to_noise_db=-6.0, noise_gain_db=20.0, clutter_to_blood_db=40.0
)


def stack_of(terms):
    return np.moveaxis(terms.iq, 0, -1)


@pytest.fixture(scope="module")
def noisy():
    """Noise 6 dB over blood at the bottom and 20 dB less at the top: phantom, terms, true power, result."""
    phantom, terms = all_frames(NOISY)
    truth = np.mean(np.abs(terms.blood) ** 2, axis=0, dtype=np.float64)
    return phantom, terms, truth, usdenoise.denoise(stack_of(terms), axes="zxt")


@pytest.fixture(scope="module")
def at_cutoff(noisy):
    """The result where the low cutoff of `noisy` is given, and the options that give it."""
    options = {"axes": "zxt", "low_cutoff": noisy[3].options.low_cutoff}
    return usdenoise.denoise(stack_of(noisy[1]), **options), options


def white(shape, seed, dtype=np.complex64):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (noise / np.sqrt(2) if np.iscomplexobj(dtype()) else noise.real).astype(dtype)


def relative_error(image, truth):
    return np.linalg.norm(image - truth) / np.linalg.norm(truth)


def test_noise_that_grows_with_depth_is_not_blood(noisy):
    phantom, _, truth, result = noisy
    plain, blood = result.power_doppler, result.blood_power
    assert correlation(blood, truth) > 0.88 > 0.5 > correlation(plain, truth)
    assert detection_auc(blood, phantom.mask) > 0.95 > 0.8 > detection_auc(plain, phantom.mask)
    assert relative_error(blood, truth) < 0.45 < 2 < relative_error(plain, truth)
    vessel = truth > 1
    assert 0.7 < blood[vessel].mean() / truth[vessel].mean() < 1.2


def test_the_noise_map_is_the_noise(noisy):
    phantom, _, _, result = noisy
    ratio = result.noise_power / phantom.noise_power
    # At the top, blood 14 dB over noise and leftover tissue add to it.
    assert np.quantile(np.abs(ratio[24:] - 1), 0.9) < 0.15
    assert np.corrcoef(np.log(result.noise_power.ravel()), np.log(phantom.noise_power.ravel()))[0, 1] > 0.99


def test_a_step_of_a_tenth_in_blood_power_reads_as_a_tenth(noisy, at_cutoff):
    terms, (before, options) = noisy[1], at_cutoff
    gain = np.ones((64, 56))
    gain[:, :28] = 1.1
    louder = np.moveaxis(terms.tissue + terms.blood * np.sqrt(gain) + terms.noise, 0, -1)
    after = usdenoise.denoise(louder.astype(np.complex64), **options)
    assert 1.08 < after.blood_power[:, :28].sum() / before.blood_power[:, :28].sum() < 1.12
    assert after.blood_power[:, 28:].sum() / before.blood_power[:, 28:].sum() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("dtype", [np.complex64, np.float32])
@pytest.mark.parametrize("shape", [(40, 32, 200), (48, 40, 30), (12, 16, 14, 60)])
@pytest.mark.parametrize("removed", [0, 4])
def test_noise_alone_has_no_blood(dtype, shape, removed):
    axes = "zxyt" if len(shape) == 4 else "zxt"
    result = usdenoise.denoise(white(shape, 5, dtype), axes=axes, low_cutoff=removed)
    # The power of real noise has twice the variance.
    standard_error = np.sqrt((1 if dtype is np.complex64 else 2) / shape[-1])
    assert result.blood_power.max() < 4 * standard_error
    assert np.median(result.noise_power) == pytest.approx(1.0, abs=2 * standard_error)
    assert result.picture_quality.lost_share is None
    assert result.picture_quality.sentence.startswith("no blood found above the noise")


@pytest.mark.parametrize(("shape", "pixels", "gain_db"), [
    ((64, 48, 30), 1.0, 20.0),
    pytest.param((64, 48, 200), 1.5, 20.0, marks=pytest.mark.slow),
    pytest.param((64, 48, 200), 1.5, 0.0, marks=pytest.mark.slow),
    pytest.param((24, 20, 18, 60), 1.0, 20.0, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_map_of_noise_that_is_correlated_and_grows_with_depth(shape, pixels, gain_db):
    axes = "zxyt" if len(shape) == 4 else "zxt"
    rows = []
    for seed in (1, 2):
        settings = PhantomSettings(shape, noise_gain_db=gain_db, noise_correlation_pixels=pixels, seed=seed)
        field = NoiseField(settings)
        noise = np.stack([field.frame(number) for number in range(shape[-1])], axis=-1)
        result = usdenoise.denoise(noise, axes=axes, low_cutoff=0)
        rows.append((result.noise_power / field.power).reshape(shape[0], -1).mean(axis=1))
        assert (result.blood_power / field.power).max() < 6 / np.sqrt(shape[-1])
    found = np.mean(rows, axis=0)
    assert found.mean() == pytest.approx(1.0, abs=0.02)
    assert found == pytest.approx(np.ones(shape[0]), abs=0.08)


@pytest.mark.slow
def test_real_stacks_have_the_map_of_their_blood():
    phantom, terms = all_frames(replace(NOISY, real=True))
    truth = np.mean(np.abs(terms.blood) ** 2, axis=0, dtype=np.float64)
    result = usdenoise.denoise(stack_of(terms), axes="zxt")
    assert correlation(result.blood_power, truth) > 0.75 > 0.45 > correlation(result.power_doppler, truth)
    assert np.quantile(np.abs(result.noise_power / phantom.noise_power - 1)[24:], 0.9) < 0.25


@pytest.mark.slow
def test_missing_entries_and_dropped_frames_do_not_count(noisy):
    _, terms, truth, result = noisy
    stack = stack_of(terms).copy()
    rng = np.random.default_rng(0)
    stack[..., rng.choice(160, 16, replace=False)] = np.nan
    stack[rng.random(stack.shape) < 0.01] = np.nan
    stack[40, 10] = np.nan
    holes = usdenoise.denoise(stack, axes="zxt")
    assert correlation(holes.blood_power, truth) > correlation(result.blood_power, truth) - 0.03
    assert np.quantile(np.abs(holes.noise_power / result.noise_power - 1), 0.9) < 0.1


def test_few_frames_still_separate_blood_from_noise(noisy):
    _, terms, _, _ = noisy
    truth = np.mean(np.abs(terms.blood[:30]) ** 2, axis=0, dtype=np.float64)
    result = usdenoise.denoise(np.ascontiguousarray(stack_of(terms)[..., :30]), axes="zxt")
    assert correlation(result.blood_power, truth) > correlation(result.power_doppler, truth) + 0.1


def test_the_map_is_the_same_for_any_number_of_threads_and_any_band(noisy):
    _, terms, _, result = noisy
    stack = stack_of(terms)
    band = {"high_cutoff": "rank", "rank": result.options.rank}
    for more in ({"threads": 3}, band):
        other = usdenoise.denoise(stack, axes="zxt", **more)
        assert other.blood_power.tobytes() == result.blood_power.tobytes(), more
        assert other.noise_power.tobytes() == result.noise_power.tobytes(), more


def test_the_map_is_the_same_for_any_size_of_its_blocks(noisy, monkeypatch):
    _, terms, _, result = noisy
    for module in (blood_map, noise):
        monkeypatch.setattr(module, "cached_slices", lambda n, _: tall_matrices.slices_of(n, 299))
    again = usdenoise.denoise(stack_of(terms), axes="zxt")
    np.testing.assert_allclose(again.noise_power, result.noise_power, rtol=1e-5)
    np.testing.assert_allclose(again.blood_power, result.blood_power, atol=1e-5 * result.blood_power.max())


@pytest.mark.parametrize("is_real", [False, True])
def test_the_map_of_a_volume_is_the_same_by_slabs(is_real, monkeypatch):
    rng = np.random.default_rng(4)
    shape, n = (60, 9, 8), 90
    noise = rng.standard_normal((*shape, n)) + 1j * rng.standard_normal((*shape, n))
    tissue = 60 * rng.standard_normal((*shape, 1)) * np.exp(0.03j * np.arange(n))
    blood = np.zeros((*shape, n), complex)
    course = np.cumsum(rng.standard_normal((2, n)), axis=1)
    blood[10:30, 2:5, 3:6] = (course[0] + 1j * course[1]) * np.exp(0.6j * np.arange(n))
    stack = tissue + noise + blood
    call = {"axes": "zxyt", "precision": "double", "low_cutoff": 2}
    whole = usdenoise.denoise(stack.real if is_real else stack, **call)
    monkeypatch.setattr(neighbourhood, "CACHED_ENTRIES", 600)
    assert len(neighbourhood.Neighbourhood.whole(shape).slabs(0.85)) > 1
    found = usdenoise.denoise(stack.real if is_real else stack, **call)
    for name in ("blood_power", "noise_power"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-5)
    assert found.picture_quality.missing_share == pytest.approx(whole.picture_quality.missing_share, abs=1e-9)


def test_pixels_without_any_signal_have_no_blood():
    stack = np.zeros((80, 6, 40), np.complex64)
    stack[:20] = white((20, 6, 40), seed=3)
    result = usdenoise.denoise(stack, axes="zxt", rank=3, low_cutoff=0)
    assert result.noise_power[5:10].min() > 0
    assert not result.blood_power[40:].any()


def test_the_verdict_on_the_picture_has_its_figures(noisy):
    phantom, _, truth, result = noisy
    picture = result.picture_quality
    assert 0.5 * phantom.mask.mean() < picture.vessel_share < 2 * phantom.mask.mean()
    noise = phantom.noise_power[phantom.mask]
    level = 10 * np.log10(np.median(truth[phantom.mask] / noise))
    assert picture.blood_to_noise_db == pytest.approx(level, abs=2.5)
    outside = np.mean((phantom.noise_power > truth) & ~phantom.mask)
    assert picture.noise_share == pytest.approx(outside, abs=0.08)
    assert picture.noise_share + picture.vessel_share <= 1
    assert 0.05 < picture.lost_share < 0.6
    assert picture.reproducibility > 0.8
    assert picture.sentence in result.verdict
    assert result.fit_quality.sentence in result.verdict


def test_blood_is_where_it_is_stronger_than_noise_and_not_faint() -> None:
    blood, noise = np.ones(200), np.full(200, 0.1)
    noise[0], blood[1] = 2.0, 0.005
    noise[1] = 0.0
    expected = np.ones(200, bool)
    expected[:2] = False
    assert np.array_equal(blood_pixels(blood, noise), expected)
