"""The estimate of a pixel sample: its SVD, the sampled entries, and the refit to all observed entries."""

import numpy as np
import pytest

from tests.conftest import all_frames
from tests.reference import loops
from tests.reference.matrices import casorati_matrix, low_rank_and_noise, with_gaps
from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.completion.problem import gaussian
from usdenoise.estimate.estimate import Prior, _whitening, draw_sampled_pixels, refit, truncated_svd
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.phantom import PhantomSettings
from usdenoise.stack.sampling import PixelSample


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
    matrix = (left * [1e6, 1.0]) @ np.linalg.qr(gaussian(rng, (50, 2), np.complex128))[0].conj().T
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
        options["tissue"] = "recorded"
        found = denoise(stack, axes="tzx", **options).acquisition.iq
        assert np.abs(found - exact).max() < most * np.abs(exact).max()


def test_every_frame_has_the_same_number_of_samples_whatever_the_sampling():
    rng = np.random.default_rng(0)
    assert draw_sampled_pixels(casorati_matrix(np.zeros((500, 9))), 30, 0.5, rng) == slice(None)
    matrix = casorati_matrix(np.zeros((9000, 9)))
    for sampling, rank, wanted in ((1.0, 10, 256), (0.5, 42, 512), (0.5, 100, 1200), (0.2, 100, 3000)):
        sampled = draw_sampled_pixels(matrix, rank, sampling, rng)
        assert len(sampled) == wanted
        assert len(set(sampled)) == len(sampled)
        # Spread over the image: every tenth of it has about its share.
        share = np.histogram(sampled, 10, (0, 9000))[0] / len(sampled)
        assert share == pytest.approx(np.full(10, 0.1), abs=0.05)


def test_pixels_without_an_observed_entry_are_not_sampled():
    missing = np.zeros((5000, 30), bool)
    missing[::2] = True
    matrix = casorati_matrix(np.ones((5000, 30)), missing)
    assert (draw_sampled_pixels(matrix, 30, 0.5, np.random.default_rng(0)) % 2 == 1).all()
    assert draw_sampled_pixels(matrix, 30, 0.1, np.random.default_rng(0)) == slice(None)


FLAT = Prior(np.ones(6), 0.0)
"""No prior at all."""


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_refit_of_everything_is_the_projection_on_the_fitted_pixels(dtype, scale):
    """Rayleigh-Ritz by the textbook: Q = orth(M V), and the SVD of Q Q^H M."""
    matrix = low_rank_and_noise(dtype) * np.dtype(dtype).type(scale)
    rng = np.random.default_rng(3)
    exact = loops.truncated_svd(matrix, 6)
    near = np.linalg.qr(exact[2] + 0.05 * gaussian(rng, exact[2].shape, np.result_type(dtype, float)))[0]
    with ThreadExecutor(2) as executor:
        model = refit(PixelSample.of(matrix, np.arange(len(matrix)), executor), near.astype(dtype), FLAT)[0]
    wide = matrix.astype(np.result_type(dtype, np.float64))
    basis = np.linalg.qr(wide @ near)[0]
    left, singular, right_h = np.linalg.svd(basis.conj().T @ wide, full_matrices=False)
    assert model.singular_values == pytest.approx(singular[:6], rel=1e-4)
    a, b_h = model.band(0, 6)
    wanted = basis @ ((left[:, :6] * singular[:6]) @ right_h[:6])
    assert np.linalg.norm(a @ b_h - wanted) < 1e-4 * np.linalg.norm(wanted)
    for side in (model.left, model.right):
        assert np.abs(side.conj().T @ side - np.eye(6)).max() < 1e-4

    again = refit(casorati_matrix(matrix), near.astype(dtype), FLAT, rotate_again=True)[0]
    a, b_h = again.band(0, 6)
    projected = wide @ right_h[:6].conj().T @ right_h[:6]
    assert np.linalg.norm(a @ b_h - projected) < 1e-4 * np.linalg.norm(projected)
    # The best approximation of rank 6 leaves the least; each fit comes closer to it.
    assert np.linalg.norm(wide - a @ b_h) <= np.linalg.norm(wide - wanted) * (1 + 1e-4)

    def angle(found):
        return np.linalg.norm(found - exact[2] @ (exact[2].conj().T @ found), 2)

    assert angle(model.right) < 0.1 * angle(near)


def test_refit_of_a_matrix_of_lower_rank_leaves_the_rest_at_zero():
    matrix = low_rank_and_noise(np.complex128, rank=2, noise=0.0)
    guess = np.linalg.qr(gaussian(np.random.default_rng(0), (40, 5), np.complex128))[0]
    model = refit(casorati_matrix(matrix), guess, FLAT)[0]
    assert model.singular_values[:2] == pytest.approx(loops.truncated_svd(matrix, 2)[1], rel=1e-6)
    assert np.abs(model.singular_values[2:]).max() < 1e-6 * model.singular_values[0]
    a, b_h = model.band(0, 5)
    assert np.linalg.norm(a @ b_h - matrix) < 1e-6 * np.linalg.norm(matrix)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_refit_with_the_true_subspace_is_least_squares(dtype):
    matrix = low_rank_and_noise(dtype)
    right = loops.truncated_svd(matrix, 6)[2].astype(dtype)
    missing = np.random.default_rng(1).random(matrix.shape) < 0.2
    missing[7], missing[11], missing[11, :3] = True, True, False
    holes = casorati_matrix(matrix, missing)
    model = LowRank.from_factors(holes.fit(right)[0], right)
    matrix = holes.values
    a, b_h = model.band(0, 6)
    product = a @ b_h
    for row in (0, 5, 200, 299):
        seen = ~missing[row]
        expected = np.linalg.lstsq(right.conj()[seen].astype(complex), matrix[row, seen], rcond=None)[0]
        assert np.abs(product[row] - right.conj() @ expected).max() < 2e-3 * np.abs(matrix[row]).max()
    assert np.abs(product[7]).max() < 1e-3
    # Three observations determine no six coefficients: the smallest solution goes through them.
    assert np.abs(product[11, :3] - matrix[11, :3]).max() < 1e-2 * np.abs(matrix[11, :3]).max()


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_pixels_with_gaps_get_their_posterior_means(dtype, scale):
    """The textbook: (A^H A / s^2 + C^-1)^-1 A^H y / s^2, with A the observed rows of V."""
    matrix = low_rank_and_noise(dtype) * np.dtype(dtype).type(scale)
    right = loops.truncated_svd(matrix, 6)[2].astype(dtype)
    missing = np.zeros(matrix.shape, bool)
    missing[5, :30], missing[7], missing[200, 10:39] = True, True, True
    noise = float(np.vdot(matrix, matrix).real / matrix.size)
    variances = noise * np.array([10.0, 3.0, 1.0, 0.3, 0.1, 0.0])
    holes = casorati_matrix(matrix, missing)
    a, b_h = LowRank.from_factors(holes.fit(right, Prior(variances, noise).ridge)[0], right).band(0, 6)
    for row in (5, 7, 200):
        seen = ~missing[row]
        regressors = right.conj()[seen].astype(complex)
        # A component without variance has the least prior of all, 1e-3 of the noise.
        inverse = np.diag(1 / np.maximum(variances, 1e-3 * noise))
        normal = regressors.conj().T @ regressors / noise + inverse
        expected = np.linalg.solve(normal, regressors.conj().T @ matrix[row, seen] / noise)
        assert np.abs((a @ b_h)[row] - right.conj() @ expected).max() < 1e-4 * np.sqrt(noise)


def test_gaps_in_time_cost_little_of_the_picture(small_phantom):
    """With least squares alone the correlation falls by 0.27 here."""
    terms = small_phantom[1]
    truth = (np.abs(terms.blood) ** 2).mean(axis=0)
    complete, gappy = (
        correlation(denoise(stack, axes="tzx").power_doppler.astype(float), truth)
        for stack in (terms.iq, with_gaps(terms.iq, 5))
    )
    assert gappy > complete - 0.03, (complete, gappy)


def test_whitening_leaves_out_what_is_there_by_rounding_alone():
    left = gaussian(np.random.default_rng(0), (32, 4), np.complex128)
    # Such a column squared is below the least number of double precision.
    left[:, 3] *= 1e-154
    squares = left.conj().T @ left
    white = _whitening(squares)
    assert np.isfinite(white.astype(np.complex64)).all()
    assert white.conj().T @ squares @ white == pytest.approx(np.diag([0, 1, 1, 1]), abs=1e-10)
