"""Motions of the image, gains, interference and noise have the sizes that were asked for."""

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import all_frames
from tests.phantom.terms import SESSION, block_terms, correlation, mean_power
from tests.reference.matrices import SERIAL
from usdenoise.frames.alignment import Registration
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.phantom.motion_and_noise import DIRECTION, NoiseField, image_motion

QUIET = PhantomSettings((40, 32, 60), frame_rate_hz=500.0, seed=3)


@pytest.mark.parametrize(("shape", "level"), [((24, 20, 30), 0.3), ((10, 9, 8, 20), 3.0)])
def test_interference_is_on_as_many_frames_and_as_strong_as_asked_for(shape, level):
    settings = replace(QUIET, shape=shape)
    disturbed = replace(settings, bad_frames=4, bad_frame_level=level)
    (_, clean), (phantom, terms) = all_frames(settings), all_frames(disturbed)
    change = np.mean(np.abs(terms.iq - clean.iq) ** 2, axis=tuple(range(1, len(shape))))
    assert np.flatnonzero(change).tolist() == phantom.bad_frames.tolist()
    assert len(set(phantom.bad_frames.tolist())) == 4
    signal = np.mean(np.abs(clean.tissue + clean.blood) ** 2)
    assert np.sqrt(change[phantom.bad_frames] / signal) == pytest.approx(np.full(4, level), rel=0.02)
    np.testing.assert_array_equal(terms.tissue, clean.tissue)
    np.testing.assert_allclose(terms.tissue + terms.blood + terms.noise, terms.iq, rtol=1e-5)


def test_motions_of_the_image_have_their_sizes():
    assert np.abs([image_motion(QUIET, t) for t in range(60)]).max() == 0
    jerk = np.array([image_motion(replace(QUIET, jerk_pixels=1.5), t) for t in range(60)])
    assert np.count_nonzero(np.linalg.norm(jerk, axis=1) > 1e-6) == 6
    assert np.linalg.norm(jerk, axis=1).max() == pytest.approx(1.5, rel=0.1)
    drift = np.array([image_motion(replace(QUIET, drift_pixels=2.0), t) for t in range(60)])
    assert drift[0].tolist() == [0, 0, 0]
    assert drift[-1] == pytest.approx(2 * DIRECTION)
    breath = np.array([image_motion(replace(QUIET, breathing=(0.5, 25.0)), t) for t in range(60)])
    assert breath[5] == pytest.approx(0.5 * DIRECTION)  # a quarter of 20 frames
    assert breath[10] == pytest.approx(np.zeros(3), abs=1e-12)


def test_the_image_of_a_phantom_drifts_as_it_was_told():
    settings = replace(QUIET, drift_pixels=2.5)
    moved = []
    for own in (QUIET, settings):
        first, last = np.abs(Phantom(own, SERIAL).frames(np.array([0, 59])).iq)
        moved.append(Registration(first).shift(last).pixels)
    assert moved[1] - moved[0] == pytest.approx(2.5 * DIRECTION[:2], abs=0.4)


def test_locked_motion_follows_each_onset_and_nothing_else() -> None:
    settings = replace(SESSION, block_interval_s=0.6, locked_motion=(1.5, 2.0))
    moved = [image_motion(settings, frame)[:2] / [0.8, 0.6] for frame in range(settings.n_frames)]
    seconds = np.array([settings.seconds(frame) for frame in range(settings.n_frames)])
    since = np.where(seconds < 3.0, -1, (seconds - 3.0) % 6.0)
    wanted = np.where((since >= 0) & (since <= 2), 1.5 * np.sin(np.pi * since / 2) ** 2, 0)
    np.testing.assert_allclose(moved, np.stack([wanted, wanted], axis=1), atol=1e-9)
    assert wanted.max() > 1.2


def test_the_gain_rises_and_falls_once() -> None:
    drifting = replace(SESSION, gain_drift_db=2.0)
    for block, gain_db in ((0, 0.0), (5, 1.0), (15, -1.0)):
        rest, found = (block_terms(settings, block) for settings in (SESSION, drifting))
        for before, after in ((rest.tissue, found.tissue), (rest.blood, found.blood)):
            assert after[0] == pytest.approx(10 ** (gain_db / 20) * before[0], rel=1e-4)
        assert np.array_equal(rest.noise, found.noise)


def test_the_image_moves_in_the_blocks_of_a_burst_alone() -> None:
    moving = replace(SESSION, burst_blocks=(2,), jerk_pixels=3.0)
    for block in (1, 2, 3):
        rest, found = (block_terms(settings, block) for settings in (SESSION, moving))
        change = np.mean(np.abs(found.tissue - rest.tissue) ** 2, axis=(1, 2))
        change /= np.mean(np.abs(rest.tissue) ** 2)
        # Out and back within the block.
        assert change[[0, -1]] == pytest.approx([0, 0], abs=1e-3)
        assert change.max() > 0.5 if block == 2 else change.max() < 1e-3


def noise_frames(settings):
    field = NoiseField(settings)
    return field.power, np.stack([field.frame(number) for number in range(settings.n_frames)])


@pytest.mark.parametrize("shape", [(40, 30, 300), (20, 12, 10, 80)])
@pytest.mark.parametrize("correlation_pixels", [0.0, 1.0])
def test_noise_grows_by_the_gain_and_is_at_the_bottom_what_was_asked_for(shape, correlation_pixels):
    levels = {
        "blood_to_noise_db": -6.0, "noise_gain_db": 20.0, "noise_correlation_pixels": correlation_pixels,
    }  # fmt: skip
    power, noise = noise_frames(PhantomSettings(shape, seed=3, **levels))
    decibels = 10 * np.log10(power.reshape(shape[0], -1))
    np.testing.assert_allclose(decibels[:, 0], np.linspace(-14.0, 6.0, shape[0]), atol=1e-4)
    assert np.ptp(decibels, axis=1).max() == 0
    assert (power.dtype, power.shape, noise.dtype) == (np.float32, shape[:-1], np.complex64)
    measured = mean_power(noise).reshape(shape[0], -1).mean(axis=1)
    # Pixels that are correlated over s count as one in 4 pi s^2, along a row as one in 2 sqrt(2 pi) s at most.
    independent = noise[:, 0].size / (6.0 if correlation_pixels and len(shape) == 3 else 1.0)
    independent /= 4 * np.pi if correlation_pixels and len(shape) == 4 else 1.0
    np.testing.assert_allclose(measured, power.reshape(shape[0], -1)[:, 0], rtol=4.5 / np.sqrt(independent))


def test_noise_is_against_the_blood_at_the_bottom_with_its_attenuation():
    settings = PhantomSettings((32, 40, 40), blood_to_noise_db=3.0, attenuation_db=20.0, noise_gain_db=10.0)
    phantom, terms = all_frames(settings)
    decibels = 10 * np.log10(phantom.noise_power[:, 0])
    assert decibels[[0, -1]] == pytest.approx([-33.0, -23.0], abs=1e-4)
    rows = mean_power(terms.noise).mean(axis=1)
    np.testing.assert_allclose(rows, phantom.noise_power[:, 0], rtol=4.5 / np.sqrt(40 * 40))
    without = Phantom(replace(settings, attenuation_db=0.0), SERIAL)
    assert 10 * np.log10(without.noise_power[-1, 0]) == pytest.approx(-3.0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "sigma", "shifts"), [
    *(((64, 56, 200), sigma, [(1, 0), (0, 1), (2, 0), (0, 3), (2, 2)]) for sigma in (0.4, 2.5)),
    ((18, 20, 16, 100), 1.2, [(2, 0, 0), (0, 2, 0), (0, 0, 2)]),
])  # fmt: skip
def test_neighbours_are_correlated_as_a_gaussian_makes_them(shape, sigma, shifts):
    _, noise = noise_frames(PhantomSettings(shape, noise_correlation_pixels=sigma))
    for shift in shifts:
        # Rolled, so that pixels at opposite edges are neighbours as well.
        measured = correlation(noise, np.roll(noise, shift, range(1, noise.ndim)))
        assert measured == pytest.approx(np.exp(-np.dot(shift, shift) / (4 * sigma**2)), abs=0.02)
    assert abs(correlation(noise[:-1], noise[1:])) < 0.02
    assert abs(np.mean(noise.astype(complex) ** 2)) < 0.02 * np.mean(mean_power(noise))
