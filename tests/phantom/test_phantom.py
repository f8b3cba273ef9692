"""The phantom's levels, spectra, velocities and decorrelation against the physics that it models."""

import hashlib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from tests.conftest import all_frames
from tests.phantom.terms import SESSION, block_terms, mean_power
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings


def singular_decibels(term):
    matrix = term.reshape(len(term), -1).astype(np.complex128)
    power = np.linalg.eigvalsh(matrix @ matrix.conj().T)[::-1]
    return 10 * np.log10(np.maximum(power / power[0], 1e-15))


def test_iq_is_the_sum_of_its_terms(small_phantom):
    _, terms = small_phantom
    assert np.array_equal(terms.iq, terms.tissue + terms.blood + terms.noise)
    assert terms.iq.dtype == np.complex64


@pytest.mark.parametrize(("clutter", "noise", "real"), [(30.0, 6.0, False), (60.0, -6.0, True)])
def test_levels_are_those_asked_for(clutter, noise, real):
    settings = PhantomSettings(
        (48, 40, 60), clutter_to_blood_db=clutter, blood_to_noise_db=noise, real=real, seed=1
    )
    phantom, terms = all_frames(settings)
    blood = mean_power(terms.blood)[phantom.mask].mean()
    assert 10 * np.log10(mean_power(terms.tissue).mean() / blood) == pytest.approx(clutter, abs=0.7)
    assert 10 * np.log10(blood / mean_power(terms.noise).mean()) == pytest.approx(noise, abs=0.7)
    assert terms.iq.dtype == (np.float32 if real else np.complex64)


@pytest.mark.slow
def test_tissue_falls_by_40_to_60_db_over_a_few_dozen_components_and_blood_does_not():
    _, terms = all_frames(PhantomSettings((48, 40, 300), seed=2))
    tissue, blood = singular_decibels(terms.tissue), singular_decibels(terms.blood)
    assert -60 < tissue[10] < -20
    assert tissue[30] < -55
    assert tissue[2] > -40
    assert blood[10] > -10
    assert blood[30] > -20


def test_tissue_decorrelates_slowly(small_phantom):
    _, terms = small_phantom
    first = terms.tissue[0].reshape(-1)

    def similarity(frame):
        other = terms.tissue[frame].reshape(-1)
        return abs(np.vdot(first, other)) / np.linalg.norm(first) / np.linalg.norm(other)

    assert similarity(1) > 0.999
    assert 0.5 < similarity(len(terms.tissue) - 1) < 0.999


def test_noise_is_white_circular_and_complex(small_phantom):
    _, terms = small_phantom
    noise = terms.noise.reshape(-1).astype(np.complex128)
    variance = np.mean(np.abs(noise) ** 2)
    assert abs(np.mean(noise**2)) < 0.02 * variance
    shifted = terms.noise[1:].reshape(-1)
    assert abs(np.vdot(terms.noise[:-1].reshape(-1), shifted)) < 0.02 * variance * len(shifted)


@pytest.mark.slow
def test_doppler_spectrum_has_the_mean_of_the_true_velocity_and_the_width_of_its_profile():
    settings = PhantomSettings((80, 60, 128), frame_rate_hz=1000.0, seed=5)
    phantom, terms = all_frames(settings)
    lag_one = np.sum(np.conj(terms.blood[:-1]) * terms.blood[1:], axis=0)
    measured_hz = np.angle(lag_one) * settings.frame_rate_hz / (2 * np.pi)
    true_hz = 2 * phantom.velocity_mm_s / settings.wavelength_mm
    strong = mean_power(terms.blood) > 0.5
    inside = phantom.mask & strong
    assert inside.sum() > 300
    assert np.corrcoef(measured_hz[inside], true_hz[inside])[0, 1] > 0.9
    assert 0.9 < np.polyfit(true_hz[inside], measured_hz[inside], 1)[0] < 1.1
    # The spectrum of the parabolic profile is wider than a line and narrower than white noise.
    width = np.sqrt(
        np.mean(1 - np.abs(lag_one[inside]) / (settings.n_frames * mean_power(terms.blood)[inside]))
    )
    assert 0.1 < width < 0.8


def test_blood_stays_in_the_vessels(small_phantom):
    phantom, terms = small_phantom
    blood = mean_power(terms.blood)
    assert blood[phantom.mask].sum() > 0.6 * blood.sum()
    far = ~binary_dilation(phantom.mask, np.ones((9, 11)))
    assert far.any()
    assert blood[far].max() < 0.05


def test_frames_do_not_depend_on_blocks_or_threads():
    settings = PhantomSettings((24, 16, 20), seed=9)
    with ThreadExecutor(1) as one, ThreadExecutor(2) as two:
        whole = Phantom(settings, one).frames(np.arange(20)).iq
        blocks = np.concatenate([block.iq for block in Phantom(settings, two).parts(frames_a_part=7)])
    assert np.array_equal(whole, blocks)


def test_volumes():
    phantom, terms = all_frames(PhantomSettings((16, 14, 12, 30), seed=1))
    assert terms.iq.shape == (30, 16, 14, 12)
    assert phantom.mask.shape == (16, 14, 12)
    assert 0.0 < phantom.mask.mean() < 0.5
    blood = mean_power(terms.blood)
    assert blood[phantom.mask].mean() == pytest.approx(1.0, rel=0.2)
    assert blood[~phantom.mask].mean() < 0.5


def test_vessels_and_tissue_are_there_after_hours() -> None:
    """The blocks are 3 minutes apart, and so an hour long."""
    settings = replace(SESSION, block_interval_s=180.3)
    with ThreadExecutor() as executor:
        phantom = Phantom(settings, executor)
        blocks = [phantom.frames(np.arange(block * 6, block * 6 + 6)) for block in range(settings.n_blocks)]
    tissue = np.array([np.mean(np.abs(block.tissue) ** 2) for block in blocks])
    blood = np.array([np.mean(np.abs(block.blood[:, phantom.mask]) ** 2) for block in blocks])
    assert tissue.max() < 1.5 * tissue.min()
    assert blood.mean() == pytest.approx(1, rel=0.1)
    assert blood.min() > 0.5
    # Tissue drifts, and differs from block to block.
    first, last = (blocks[k].tissue[0].ravel() for k in (0, -1))
    assert 0.3 < abs(np.vdot(first, last)) / (np.linalg.norm(first) * np.linalg.norm(last)) < 0.99


@pytest.mark.slow
def test_an_activation_raises_the_blood_of_the_left_half_in_five_of_ten_blocks() -> None:
    active = replace(SESSION, activation=10.0)
    for block, rise in ((0, 1.0), (4, 1.0), (5, 1.1), (9, 1.1), (10, 1.0), (19, 1.1)):
        rest, found = (block_terms(settings, block) for settings in (SESSION, active))
        before, after = mean_power(rest.blood), mean_power(found.blood)
        assert after[:, :14] == pytest.approx(rise * before[:, :14], rel=1e-4)
        assert after[:, 14:] == pytest.approx(before[:, 14:], rel=1e-6)
        assert np.array_equal(rest.tissue, found.tissue)
        assert np.array_equal(rest.noise, found.noise)


SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"


def test_the_sample_data_can_be_simulated_again():
    settings = PhantomSettings((72, 56, 150), frame_rate_hz=500.0, blood_to_noise_db=10.0, seed=2)
    with ThreadExecutor() as executor, h5py.File(SAMPLE) as file:
        phantom = Phantom(settings, executor)
        assert np.array_equal(phantom.frames(np.arange(8)).iq, file["iq"][:8])
        assert np.array_equal(phantom.mask, file["truth/vessel_mask"][()])
        np.testing.assert_allclose(phantom.velocity_mm_s, file["truth/velocity"], rtol=1e-5)


@pytest.mark.parametrize(("settings", "digest"), [
    (PhantomSettings((24, 20, 12), seed=1, real=True), "3152687440b2e1fd666a5354"),
    (PhantomSettings((10, 9, 8, 6), seed=4), "7713a8846051b8c85239876b"),
    (
        PhantomSettings(
            (40, 32, 12), seed=6, thin_vessels=3, capillary_db=-10.0, attenuation_db=20.0, noise_gain_db=10.0,
            jerk_pixels=1.0, drift_pixels=2.0, breathing=(0.5, 2.0), max_speed_mm_s=9.0,
        ),
        "4b682841b94354e1535ee4b0",
    ),
], ids=["real", "volume", "everything"])  # fmt: skip
def test_a_phantom_has_the_same_bytes_as_ever(settings, digest):
    phantom, terms = all_frames(settings)
    found = hashlib.sha256()
    for values in (terms.iq, terms.tissue, terms.blood, terms.noise, phantom.mask):
        found.update(np.ascontiguousarray(values).tobytes())
    assert found.hexdigest()[:24] == digest


@pytest.mark.parametrize("shape", [(32, 24, 6), (12, 10, 8, 4)])
def test_tissue_and_blood_lose_the_attenuation_linearly_in_db(shape):
    settings = PhantomSettings(shape, thin_vessels=1, capillary_db=0.0)
    _, plain = all_frames(settings)
    _, attenuated = all_frames(replace(settings, attenuation_db=30.0))
    gain = 10 ** (-30.0 / 20 * np.arange(shape[0]) / (shape[0] - 1))
    gain = gain.reshape((-1,) + (1,) * (len(shape) - 2))
    np.testing.assert_allclose(attenuated.tissue, plain.tissue * gain, rtol=1e-5)
    np.testing.assert_allclose(attenuated.blood, plain.blood * gain, rtol=1e-5)
