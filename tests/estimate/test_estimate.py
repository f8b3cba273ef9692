"""The truncated SVD, against numpy."""

import numpy as np
import pytest

from tests.conftest import all_frames
from tests.reference import loops
from tests.reference.matrices import low_rank_and_noise
from usdenoise import denoise
from usdenoise.completion.starts import gaussian
from usdenoise.estimate.estimate import truncated_svd
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import PhantomSettings


@pytest.mark.parametrize("shape", [(300, 40), (30, 90)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_svd_of_tall_and_wide_stacks(dtype, shape):
    matrix = low_rank_and_noise(dtype, shape)
    with ThreadExecutor(2) as executor:
        model = truncated_svd(matrix, 8, executor)
    left, singular, right = loops.truncated_svd(matrix, 8)
    assert model.singular_values == pytest.approx(singular, rel=1e-4)
    a, b_h = model.band(0, 8)
    difference = a @ b_h - (left * singular) @ right.conj().T
    assert np.linalg.norm(difference) < 1e-4 * np.linalg.norm(singular)


def test_svd_keeps_components_a_million_times_smaller():
    rng = np.random.default_rng(0)
    left = np.linalg.qr(gaussian(rng, (400, 2), np.complex128))[0]
    right = np.linalg.qr(gaussian(rng, (50, 2), np.complex128))[0]
    matrix = (left * [1e6, 1.0]) @ right.conj().T
    with ThreadExecutor(1) as executor:
        assert truncated_svd(matrix, 2, executor).singular_values == pytest.approx([1e6, 1.0], rel=1e-3)


@pytest.mark.parametrize(("tissue_db", "real"), [(35.0, True), (55.0, False), (75.0, False)])
def test_filtered_entries_are_those_of_numpy_in_double_precision(tissue_db, real):
    settings = PhantomSettings((16, 14, 60), frame_rate_hz=500.0, clutter_to_blood_db=tissue_db, real=real)
    stack = all_frames(settings)[1].iq
    left, singular, right_h = np.linalg.svd(stack.reshape(60, -1).astype(complex), full_matrices=False)
    exact = ((left[:, 6:] * singular[6:]) @ right_h[6:]).reshape(stack.shape)
    # Single precision rounds the result by 6e-8, and no step before it.
    for precision, most in (("single", 1e-7), ("double", 3e-8)):
        options = {"method": "svd", "low_cutoff": 6, "precision": precision, "bad_frames": "keep"}
        found = denoise(stack, axes="tzx", **options).acquisition.iq
        assert np.abs(found - exact).max() < most * np.abs(exact).max()
