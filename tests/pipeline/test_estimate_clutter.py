"""Noisy lines and pixels: excluded and named, while the picture elsewhere stays as it is; vessels are never excluded."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import usdenoise
from tests.conftest import all_frames
from usdenoise.blood.metrics import correlation
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline.denoise import denoise

SHAPE = (48, 40)
EVERY = slice(None)


@pytest.fixture(scope="module")
def terms():
    return all_frames(PhantomSettings((*SHAPE, 120), seed=72))[1]


def noisy(stack, level, *places, seed=0):
    """The stack with white noise in some pixels, relative to the root mean square of the stack."""
    rng = np.random.default_rng(seed)
    noise = (rng.standard_normal((*stack.shape, 2)) @ [1, 1j]).astype(np.complex64) / np.sqrt(2)
    if not np.iscomplexobj(stack):
        noise = noise.real * np.sqrt(2)
    noisy, mask = stack.copy(), np.zeros(stack.shape[1:], bool)
    rms = float(np.sqrt(np.mean(np.abs(stack) ** 2)))
    for place in places:
        mask[place] = True
    noisy[:, mask] += level * rms * noise[:, mask]
    return noisy, mask


def flow(rng, mask, n_frames):
    """Blood with a Doppler frequency of .15 cycles a frame, smooth in space and time, in the pixels of a mask."""
    parts = rng.standard_normal((2, n_frames, *mask.shape))
    speckle = gaussian_filter(parts[0], (2, 1, 1)) + 1j * gaussian_filter(parts[1], (2, 1, 1))
    speckle /= np.sqrt(np.mean(np.abs(speckle) ** 2))
    return mask * speckle * np.exp(0.3j * np.pi * np.arange(n_frames))[:, None, None]


@pytest.fixture(scope="module")
def usual(terms):
    return denoise(terms.iq, axes="tzx")


@pytest.mark.parametrize(("level", "places", "named"), [
    (0.05, [(EVERY, 33)], ["x = 33"]),
    (5.0, [(EVERY, 33)], ["x = 33"]),
    (0.05, [(20, EVERY)], ["z = 20"]),
    (5.0, [(EVERY, 0), (EVERY, 21), (EVERY, 22)], ["x = 0", "x = 21", "x = 22"]),
    (0.5, [(slice(10, 30), 33)], [f"z = {z}, x = 33" for z in range(10, 30)]),
    (0.05, [(5, 5), (20, 30), (33, 12)], ["z = 5, x = 5", "z = 20, x = 30", "z = 33, x = 12"]),
])  # fmt: skip
def test_noisy_pixels_are_excluded_and_named(terms, usual, level, places, named):
    stack, mask = noisy(terms.iq, level, *places)
    truth = np.mean(np.abs(terms.blood.astype(np.complex128)) ** 2, axis=0)
    result = denoise(stack, axes="tzx")
    assert not usual.bad_pixels.n_pixels
    assert set(named) <= set(result.bad_pixels.places("zx"))
    # A strong line may take a neighbour with it.
    assert 0 <= result.bad_pixels.n_pixels - mask.sum() <= 3
    assert abs(result.low_cutoff - usual.low_cutoff) <= 1
    for image in ("power_doppler", "blood_power"):
        ours, whole = getattr(result, image), getattr(usual, image)
        assert not ours[mask].any()
        assert correlation(ours[~mask], truth[~mask]) > correlation(whole[~mask], truth[~mask]) - 0.01
    assert [doubt.code for doubt in result.doubts] == (["bad-pixels"] if mask.mean() > 0.05 else [])


@pytest.mark.parametrize("mask", ["column", "row", "spot", "pixel"])
def test_a_bright_vessel_is_no_noise(terms, mask):
    """A vessel of one line or one pixel with sharp edges, 20 dB over the noise."""
    inside = np.zeros(SHAPE)
    spot = (slice(9, 12), slice(9, 12))
    inside[{"column": (EVERY, 20), "row": (30, EVERY), "spot": spot, "pixel": (9, 9)}[mask]] = 1
    level = 10 * np.sqrt(np.mean(np.abs(terms.noise) ** 2))
    stack = terms.iq + level * flow(np.random.default_rng(1), inside, 120)
    result = denoise(stack.astype(np.complex64), axes="tzx")
    assert not result.bad_pixels.n_pixels
    assert "bad-pixels" not in [doubt.code for doubt in result.doubts]
    assert result.power_doppler[inside > 0].min() > 5 * np.median(result.power_doppler)


@pytest.mark.parametrize("place", [(slice(20, 23), slice(20, 23)), (EVERY, slice(20, 26))])
def test_noise_that_is_not_excluded_is_a_doubt(terms, place):
    stack, _ = noisy(terms.iq, 0.5, place)
    assert "bad-pixels" in [doubt.code for doubt in denoise(stack, axes="tzx").doubts]


def test_noise_that_grows_with_depth_is_none(terms):
    # Up to 6 dB above the blood, whose power in the vessels is 1
    level = 10 ** (np.linspace(-19, 6, SHAPE[0])[:, None] / 20) / np.sqrt(np.mean(np.abs(terms.noise) ** 2))
    result = denoise(terms.tissue + terms.blood + level.astype(np.float32) * terms.noise, axes="tzx")
    assert not result.bad_pixels.n_pixels
    assert "bad-pixels" not in [doubt.code for doubt in result.doubts]


def test_planes_of_volumes_and_lines_of_real_data(terms):
    volume = all_frames(PhantomSettings((16, 16, 12, 80), seed=4))[1].iq
    stack, mask = noisy(volume, 0.5, (EVERY, 7, EVERY), (3, 2, 9))
    found = denoise(stack, axes="tzxy").bad_pixels
    assert found.places("zxy") == ["x = 7", "z = 3, x = 2, y = 9"]
    assert found.n_pixels == mask.sum()
    stack, mask = noisy(terms.iq.real.copy(), 0.5, (EVERY, 7))
    assert denoise(stack, axes="tzx").bad_pixels.places("zx") == ["x = 7"]


@pytest.mark.slow
def test_a_noisy_line_of_a_session_and_bad_frames_of_a_scan():
    _, terms = all_frames(PhantomSettings((32, 32, 60), seed=5, session=8, block_interval_s=1.0))
    stack, mask = noisy(terms.iq, 0.5, (EVERY, 11))
    session = usdenoise.session(stack, 60, axes="tzx")
    usual = usdenoise.session(terms.iq, 60, axes="tzx")
    assert session.fit.bad_pixels.places("zx") == ["x = 11"]
    assert not usual.fit.bad_pixels.n_pixels
    mean, expected = (one.means["power_doppler"] for one in (session, usual))
    assert not mean[mask].any()
    assert correlation(mean[~mask], expected[~mask]) > 0.99
    stack[[5, 17, 40]] += np.random.default_rng(6).standard_normal((3, 32, 32)) * np.abs(stack).max()
    result = denoise(stack[:160], axes="tzx")
    assert result.bad_pixels.places("zx") == ["x = 11"]
    assert result.frame_quality.excluded[[5, 17, 40]].all()
