"""Bad frames: what is found, what is not, and that the rest of the scan is as if they had never been there."""

import dask.array as da
import numpy as np
import pytest

from tests.conftest import all_frames
from tests.reference.matrices import casorati_matrix
from usdenoise import denoise
from usdenoise.blood.doppler import directional_power, doppler_frequency, signed_power
from usdenoise.errors import OptionError
from usdenoise.estimate.pixel_subset import draw_pixel_subset
from usdenoise.frames.bad_frames import find_bad_frames
from usdenoise.phantom import PhantomSettings

SETTINGS = PhantomSettings((36, 28, 200), frame_rate_hz=500.0, seed=31)
BAD = (17, 60, 61, 120, 199)


@pytest.fixture(scope="module")
def terms():
    return all_frames(SETTINGS)[1]


@pytest.fixture(scope="module")
def clean(terms):
    return np.moveaxis(terms.iq, 0, -1)


def with_interference(stack, level, frames=BAD):
    rng = np.random.default_rng(8)
    noisy = stack.copy()
    noise = rng.standard_normal((*stack.shape[:-1], len(frames), 2)) @ [1, 1j]
    noisy[..., list(frames)] += level * np.sqrt(np.mean(np.abs(stack) ** 2) / 2) * noise
    return noisy


def numbers(result):
    return tuple(bad.frame for bad in result.frame_quality.bad)


@pytest.mark.parametrize(("level", "scale"), [(3.0, 1.0), (0.3, 1e-6), (0.3, 1e6)])
def test_frames_with_interference_are_left_out_and_the_rest_is_as_without_them(clean, level, scale):
    clean = (scale * clean).astype(np.complex64)
    result = denoise(with_interference(clean, level).astype(np.complex64), axes="zxt")
    assert numbers(result) == BAD
    assert {bad.reason for bad in result.frame_quality.bad} == {"outlier"}
    good = np.setdiff1d(np.arange(200), BAD)
    without = denoise(np.ascontiguousarray(clean[..., good]), axes="zxt")
    assert result.options.low_cutoff == without.options.low_cutoff
    assert result.singular_values[:20] == pytest.approx(without.singular_values[:20], rel=1e-3)
    assert result.power_doppler == pytest.approx(without.power_doppler, rel=2e-2)
    assert np.corrcoef(result.blood_power.ravel(), without.blood_power.ravel())[0, 1] > 0.99
    assert result.fit_quality.held_out_ratio < 1.2
    assert result.noise_floor == pytest.approx(without.noise_floor, rel=0.05)
    assert result.n_unobserved == len(BAD) * 36 * 28
    filtered = result.acquisition.iq
    assert np.mean(np.abs(filtered[..., good]) ** 2, axis=-1) == pytest.approx(result.power_doppler, rel=1e-4)
    assert "excluded frames: 5 of 200 (5 unlike the other frames)" in result.verdict


def test_the_model_fills_the_frames_that_are_left_out(clean):
    band = {"axes": "zxt", "low_cutoff": 0, "high_cutoff": 8, "rank": 20}
    result = denoise(with_interference(clean, 3.0), refit="all", **band)
    assert numbers(result) == BAD
    truth = denoise(clean, **band).acquisition.iq
    error = np.abs(result.acquisition.iq - truth)[..., [17, 60, 61, 120]]
    # Tissue is interpolated between the frames before and after.
    assert np.sqrt(np.mean(error**2)) < 0.1 * np.sqrt(np.mean(np.abs(truth) ** 2))


def test_misfits_equal_the_regression_of_each_frame_on_all_others():
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 40)) + 0.1 * rng.standard_normal((60, 40))
    matrix[:, 7] += rng.standard_normal(60)
    rows = casorati_matrix(matrix)
    subset = draw_pixel_subset(rows, np.random.default_rng(0)).subset
    ridge = subset.n_pixels * subset.noise_rms**2
    misfits = []
    for t in range(40):
        others = np.delete(matrix, t, axis=1)
        weights = np.linalg.solve(others.T @ others + ridge * np.eye(39), others.T @ matrix[:, t])
        misfits.append(np.sum((matrix[:, t] - others @ weights) ** 2))
    # By the spectrum of the pixels, and with the noise level from elsewhere.
    for noise_rms in (None, subset.noise_rms):
        found = find_bad_frames(rows, "auto", 0, noise_rms)[0].bad
        assert [bad.frame for bad in found] == [7]
        assert found[0].score == pytest.approx(10 * np.log10(misfits[7] / np.median(misfits)), abs=0.05)


@pytest.mark.parametrize(("clutter", "noise"), [(0.0, 17.0), (20.0, -6.0), (60.0, 17.0)])
def test_no_frame_of_a_clean_scan_is_bad(terms, clutter, noise):
    tissue_db, noise_db = clutter - SETTINGS.clutter_to_blood_db, SETTINGS.blood_to_noise_db - noise
    stack = terms.blood + terms.tissue * 10 ** (tissue_db / 20) + terms.noise * 10 ** (noise_db / 20)
    stack = np.moveaxis(stack[:120, :32], 0, -1).astype(np.complex64)
    assert numbers(denoise(stack, axes="zxt")) == ()


def test_the_ends_of_a_scan_that_changes_fast_are_not_bad():
    rng = np.random.default_rng(4)
    # Noise over the pixels, so smooth over 32 frames that a frame is predicted well only between two others.
    kernel = np.exp(-0.5 * ((np.arange(32)[:, None] - np.arange(32)) / 1.5) ** 2)
    smooth = rng.standard_normal((900, 32, 2)) @ [1, 1j] @ np.linalg.cholesky(kernel + 1e-3 * np.eye(32)).T
    stack = (smooth + 0.01 * (rng.standard_normal((900, 32, 2)) @ [1, 1j])).reshape(30, 30, 32)
    assert numbers(denoise(stack, axes="zxt")) == ()
    stack[..., [0, 1, 15]] += 3 * (rng.standard_normal((30, 30, 3, 2)) @ [1, 1j])
    assert numbers(denoise(stack, axes="zxt")) == (0, 1, 15)


def test_damaged_frames_have_their_reasons(clean):
    stack = clean.copy()
    stack[..., 10] = 0
    stack[..., 50] = 1 + 2j
    stack[..., 91] = stack[..., 90]
    top = np.float32(0.5 * np.abs(stack.real).max())
    stack.real = np.clip(stack.real, -10 * top, 10 * top)
    stack.real[:24, :, 150] = 10 * top
    result = denoise(stack, axes="zxt")
    found = {bad.frame: bad.reason for bad in result.frame_quality.bad}
    assert found == {10: "zero", 50: "constant", 91: "duplicate", 150: "saturated"}
    says = "1 zero everywhere, 1 the same everywhere, 1 copies of the previous frame, 1 saturated"
    assert says in result.frame_quality.sentence


def test_bad_frames_may_be_kept_or_given(clean):
    noisy = with_interference(clean, 3.0)
    kept = denoise(noisy, axes="zxt", bad_frames="keep")
    assert numbers(kept) == BAD
    assert not kept.frame_quality.excluded.any()
    assert "kept as requested" in kept.frame_quality.sentence
    given = denoise(noisy, axes="zxt", bad_frames=[*BAD, 3])
    assert numbers(given) == (3, *BAD)
    assert given.n_unobserved == 6 * 36 * 28
    assert numbers(denoise(clean, axes="zxt", bad_frames=5)) == (5,)


@pytest.mark.parametrize("value", [0, np.nan])
def test_frames_without_data_do_not_say_what_a_good_frame_is(clean, value):
    stack = with_interference(clean, 3.0, (120, 199))
    empty = set(range(50, 62))
    stack[..., list(empty)] = value
    result = denoise(stack, axes="zxt")
    assert set(numbers(result)) - empty == {120, 199}
    assert set(numbers(result)) == empty | {120, 199}


def test_what_is_in_a_frame_that_is_left_out_counts_nowhere(clean):
    given = (40, 41, 42, 43, 90)
    others = np.setdiff1d(np.arange(200), given)
    strong = 1000 * np.roll(clean[..., given], (9, 6), axis=(0, 1))
    results = []
    for content in (0, np.nan, strong):
        stack = clean.copy()
        stack[..., given] = content
        results.append(denoise(stack, axes="zxt", bad_frames=given, low_cutoff=10, high_cutoff="rank"))
    first, *rest = results
    # A pixel with unobserved entries is fitted in another way.
    for result, near in zip(rest, (0.05, 1e-4), strict=True):
        assert result.power_doppler == pytest.approx(first.power_doppler, rel=near)
        assert result.fit_quality.residual_rms == pytest.approx(first.fit_quality.residual_rms, rel=near)
        assert result.fit_quality.verdict == first.fit_quality.verdict
        places, same = (
            one.frame_quality.curves.displacement[others] - one.frame_quality.curves.displacement[0]
            for one in (result, first)
        )
        assert places == pytest.approx(same, abs=0.02)
    with_zeros, with_nan = clean.copy(), clean.copy()
    with_zeros[..., given], with_nan[..., given] = 0, np.nan
    exact, same = (
        denoise(stack, axes="zxt", bad_frames=given, method="svd") for stack in (with_zeros, with_nan)
    )
    assert same.power_doppler == pytest.approx(exact.power_doppler, rel=1e-5)


def test_the_rank_is_that_of_the_frames_that_are_used(clean):
    used = np.r_[:20, 170:200]
    left_out = tuple(range(20, 170))
    alone = denoise(np.ascontiguousarray(clean[..., used]), axes="zxt")
    assert denoise(clean, axes="zxt", bad_frames=left_out).options.rank == alone.options.rank


@pytest.mark.parametrize(("share", "level"), [(0.25, 3.0), (0.8, 0.3)])
def test_a_scan_that_is_bad_as_a_whole_is_said_to_be(clean, share, level):
    frames = tuple(np.sort(np.random.default_rng(4).permutation(200)[: round(200 * share)]).tolist())
    result = denoise(with_interference(clean, level, frames), axes="zxt")
    assert result.frame_quality.is_bad
    assert not result.frame_quality.excluded.any()
    found = numbers(result)
    assert set(found) <= set(frames)
    assert len(found) > 40
    assert result.frame_quality.sentence.startswith(f"bad frames: {len(found)} of 200")


@pytest.mark.slow
def test_frames_of_a_stack_with_few_levels_are_no_copies_of_each_other():
    rng = np.random.default_rng(6)
    # Of 3 bits, and so slow that one pixel in 300 changes from a frame to the next: samples of 256 often do not.
    speckle, drift = (rng.standard_normal((60, 70, 1)) for _ in range(2))
    stack = np.clip(np.round(speckle + 5e-3 * drift * np.arange(200)), -4, 3).astype(np.float32)
    stack[..., 70] = stack[..., 69]
    for given in (stack, da.from_array(stack, chunks=(16, 70, 50))):
        bad = denoise(given, axes="zxt", low_cutoff=1).frame_quality.bad
        assert [frame.frame for frame in bad if frame.reason == "duplicate"] == [70]


def test_too_few_frames_are_not_judged():
    stack = np.random.default_rng(0).standard_normal((12, 10, 12)).astype(np.float32)
    stack[..., 5] *= 100
    assert numbers(denoise(stack, axes="zxt")) == ()


def test_holes_and_bad_frames_together(clean):
    noisy = with_interference(clean, 3.0)
    noisy[3:9, 4:8, 30:40] = np.nan
    noisy[20, 20, 60] = np.nan
    result = denoise(noisy, axes="zxt")
    assert numbers(result) == BAD
    assert result.n_unobserved == len(BAD) * 36 * 28 + 6 * 4 * 10
    assert np.isfinite(result.acquisition.iq).all()


def test_frames_that_are_left_out_are_not_in_the_flow_images(clean):
    result = denoise(with_interference(clean, 3.0), axes="zxt", low_cutoff=14)
    stack, left_out = result.acquisition, result.frame_quality.excluded
    used = np.ascontiguousarray(stack.iq[..., ~left_out])
    assert signed_power(stack, left_out).values == pytest.approx(
        result.power_doppler * np.sign(doppler_frequency(stack.iq, -1, left_out)), rel=1e-3
    )
    positive, negative = directional_power(stack, left_out=left_out)
    assert positive + negative == pytest.approx(np.mean(np.abs(used) ** 2, axis=-1), rel=1e-3)
    pairs = ~left_out[1:] & ~left_out[:-1]
    lag = np.sum((stack.iq[..., 1:] * stack.iq[..., :-1].conj())[..., pairs], axis=-1)
    assert doppler_frequency(stack.iq, -1, left_out) == pytest.approx(np.angle(lag) / (2 * np.pi), abs=1e-4)


def test_a_frame_that_is_not_there_is_refused(clean):
    says = "bad frame 200 is not among the frames 0 to 199; change bad_frames"
    with pytest.raises(OptionError, match=says):
        denoise(clean, axes="zxt", bad_frames=[200])
    with pytest.raises(OptionError, match="199 bad frames of 200 leave fewer than two"):
        denoise(clean, axes="zxt", bad_frames=range(199))
    for wrong in ("3:x", [], [1.5], "none"):
        with pytest.raises(OptionError, match="is not valid"):
            denoise(clean, axes="zxt", bad_frames=wrong)


def test_the_svd_leaves_bad_frames_out_too(clean):
    noisy = with_interference(clean, 3.0)
    result = denoise(noisy, axes="zxt", method="svd", rank=20, low_cutoff=14, tissue="recorded")
    good = np.setdiff1d(np.arange(200), BAD)
    flat = clean[..., good].reshape(-1, len(good))
    left, singular, right = np.linalg.svd(flat, full_matrices=False)
    expected = flat - (left[:, :14] * singular[:14]) @ right[:14]
    power = np.mean(np.abs(expected) ** 2, axis=1).reshape(36, 28)
    assert result.power_doppler == pytest.approx(power, rel=1e-3)


@pytest.mark.parametrize(
    ("content", "first", "stop"),
    [
        ("noise", 170, 200),
        ("noise", 0, 100),
        ("noise", 80, 200),
        ("zero", 0, 100),
        ("zero", 56, 200),
        ("peaks", 30, 170),
        ("nan", 80, 200),
    ],
)
def test_frames_without_tissue_are_excluded_however_many(terms, clean, content, first, stop):
    empty, stack, rng = np.arange(first, stop), clean.copy(), np.random.default_rng(3)
    if content == "noise":
        stack[..., empty] = np.moveaxis(terms.noise, 0, -1)[..., empty]
    else:
        stack[..., empty] = np.nan if content == "nan" else 0
    if content == "peaks":
        places = rng.integers(0, 36, (3, len(empty))), rng.integers(0, 28, (3, len(empty)))
        stack[*places, empty] = 3 * np.sqrt(np.mean(np.abs(clean) ** 2))
    found = denoise(stack, axes="zxt")
    assert np.array_equal(np.flatnonzero(found.frame_quality.excluded), empty)
    # They are excluded as if they were known, and what is in them shows no other fault
    given = denoise(clean, axes="zxt", bad_frames=empty.tolist())
    limit = float(1e-4 * given.blood_power.max())
    assert found.blood_power == pytest.approx(given.blood_power, rel=1e-3, abs=limit)
    assert found.doubts == given.doubts
