"""Phantoms with interference and with an image that moves."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

from tests.conftest import all_frames
from tests.reference.matrices import displaced
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.phantom import PhantomSettings
from usdenoise.phantom.motion_and_noise import DIRECTION, image_motion

QUIET = PhantomSettings((40, 32, 60), frame_rate_hz=500.0, seed=3)


@pytest.mark.parametrize(("shape", "level"), [((40, 32, 60), 0.3), ((12, 10, 9, 40), 3.0)])
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
    still = [image_motion(QUIET, t) for t in range(60)]
    assert np.abs(still).max() == 0
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
    places = []
    for own in (QUIET, settings):
        iq = all_frames(own)[1].iq
        matrix = np.moveaxis(iq, 0, -1).reshape(-1, 60)
        places.append(displaced((np.ascontiguousarray(matrix)), (40, 32)))
    moved = places[1] - places[0]
    assert moved[-1] - moved[0] == pytest.approx(2.5 * DIRECTION[:2], abs=0.4)


def test_the_file_has_the_numbers_of_the_bad_frames(tmp_path):
    simulate_to_file(tmp_path / "x.h5", replace(QUIET, bad_frames=3))
    simulate_to_file(tmp_path / "y.h5", QUIET)
    with h5py.File(tmp_path / "x.h5") as file, h5py.File(tmp_path / "y.h5") as other:
        assert file["truth/bad_frames"].shape == (3,)
        assert "bad_frames" not in other["truth"]
