"""Orthogonalisation, bands, refit, SVD and the noise level, against numpy."""

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.completion.starts import gaussian
from usdenoise.filters.svd import truncated_svd
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.noise_spectrum import marchenko_pastur_quantiles
from usdenoise.pipeline.band import keep_band
from usdenoise.pipeline.pixel_subset import draw_panel, draw_pixels
from usdenoise.pipeline.refit import _whitening, refit, refit_left

SERIAL = ThreadExecutor(1)


def stack(dtype, shape=(300, 40), rank=6, noise=0.01, seed=0):
    rng = np.random.default_rng(seed)
    u, v = (gaussian(rng, (n, rank), dtype) for n in shape)
    scales = np.logspace(2, 0, rank).astype(u.real.dtype)
    return (u * scales) @ v.conj().T + gaussian(rng, shape, dtype) * u.real.dtype.type(noise)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_from_factors_gives_the_svd_of_the_product(dtype):
    rng = np.random.default_rng(0)
    u, v = (gaussian(rng, (n, 5), dtype) for n in (50, 30))
    model = LowRank.from_factors(u, v)
    product = u.astype(np.complex128) @ v.astype(np.complex128).conj().T
    assert model.singular_values == pytest.approx(np.linalg.svd(product)[1][:5], rel=1e-5)
    a, b_h = model.band(0, 5)
    assert np.abs(a @ b_h - product).max() < 1e-4
    for side in (model.left, model.right):
        assert np.abs(side.conj().T @ side - np.eye(5)).max() < 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("low", "high"), [(0, 6), (2, 6), (3, 5), (2, None), (0, None), (6, None)])
def test_band_equals_numpys_svd_filter(dtype, low, high):
    matrix = stack(dtype)
    left, singular, right = loops.truncated_svd(matrix, 6)
    with ThreadExecutor(2) as executor:
        model = truncated_svd(matrix, 6, executor)
        out = np.empty_like(matrix)
        power = keep_band(matrix, model, low, high, executor, None, out)
    clutter = (left[:, :low] * singular[:low]) @ right[:, :low].conj().T
    kept = (left[:, low:high] * singular[low:high]) @ right[:, low:high].conj().T
    expected = matrix - clutter if high is None else kept
    assert np.linalg.norm(out - expected) < 1e-4 * max(
        np.linalg.norm(expected), 1e-2 * np.linalg.norm(matrix)
    )
    assert power == pytest.approx(np.mean(np.abs(out) ** 2, axis=1), rel=1e-5)


def test_band_may_overwrite_the_data_and_fills_what_is_missing():
    matrix = stack(np.complex64, noise=0.0)
    truth = matrix.copy()
    missing = np.random.default_rng(1).random(matrix.shape) < 0.1
    observed = np.packbits(~missing, axis=1, bitorder="little")
    with ThreadExecutor(2) as executor:
        model = truncated_svd(truth, 6, executor)
        matrix[missing] = 0
        keep_band(matrix, model, 2, None, executor, observed, out=matrix)
    a, b_h = model.band(2, 6)
    assert np.abs(matrix - a @ b_h)[missing].max() < 1e-3
    assert np.linalg.norm(matrix - a @ b_h) < 1e-3 * np.linalg.norm(truth)


@pytest.mark.parametrize("shape", [(300, 40), (30, 90)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_svd_of_tall_and_wide_stacks(dtype, shape):
    matrix = stack(dtype, shape)
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


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_refit_of_everything_is_the_projection_on_the_fitted_pixels(dtype, scale):
    """Rayleigh-Ritz by the textbook: Q = orth(M V), and the SVD of Q Q^H M."""
    matrix = stack(dtype) * np.dtype(dtype).type(scale)
    rng = np.random.default_rng(3)
    exact = loops.truncated_svd(matrix, 6)
    near = np.linalg.qr(exact[2] + 0.05 * gaussian(rng, exact[2].shape, np.result_type(dtype, float)))[0]
    with ThreadExecutor(2) as executor:
        model = refit(matrix, near.astype(dtype), executor, None)
    wide = matrix.astype(np.result_type(dtype, np.float64))
    basis = np.linalg.qr(wide @ near)[0]
    left, singular, right_h = np.linalg.svd(basis.conj().T @ wide, full_matrices=False)
    assert model.singular_values == pytest.approx(singular[:6], rel=1e-4)
    a, b_h = model.band(0, 6)
    wanted = basis @ ((left[:, :6] * singular[:6]) @ right_h[:6])
    assert np.linalg.norm(a @ b_h - wanted) < 1e-4 * np.linalg.norm(wanted)
    for side in (model.left, model.right):
        assert np.abs(side.conj().T @ side - np.eye(6)).max() < 1e-4

    with ThreadExecutor(2) as executor:
        again = refit(matrix, near.astype(dtype), executor, None, twice=True)
    a, b_h = again.band(0, 6)
    projected = wide @ right_h[:6].conj().T @ right_h[:6]
    assert np.linalg.norm(a @ b_h - projected) < 1e-4 * np.linalg.norm(projected)
    # The best approximation of rank 6 leaves the least; each fit comes closer to it.
    assert np.linalg.norm(wide - a @ b_h) <= np.linalg.norm(wide - wanted) * (1 + 1e-4)

    def angle(found):
        return np.linalg.norm(found - exact[2] @ (exact[2].conj().T @ found), 2)

    assert angle(model.right) < 0.1 * angle(near)


def test_refit_of_a_matrix_of_lower_rank_leaves_the_rest_at_zero():
    matrix = stack(np.complex128, rank=2, noise=0.0)
    guess = np.linalg.qr(gaussian(np.random.default_rng(0), (40, 5), np.complex128))[0]
    with ThreadExecutor(1) as executor:
        model = refit(matrix, guess, executor, None)
    assert model.singular_values[:2] == pytest.approx(loops.truncated_svd(matrix, 2)[1], rel=1e-6)
    assert np.abs(model.singular_values[2:]).max() < 1e-6 * model.singular_values[0]
    a, b_h = model.band(0, 5)
    assert np.linalg.norm(a @ b_h - matrix) < 1e-6 * np.linalg.norm(matrix)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_refit_with_the_true_subspace_is_least_squares(dtype):
    matrix = stack(dtype)
    right = loops.truncated_svd(matrix, 6)[2].astype(dtype)
    missing = np.random.default_rng(1).random(matrix.shape) < 0.2
    missing[7], missing[11], missing[11, :3] = True, True, False
    observed = np.packbits(~missing, axis=1, bitorder="little")
    matrix[missing] = 0
    with ThreadExecutor(2) as executor:
        model = refit_left(matrix, right, executor, observed)
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
@pytest.mark.parametrize("shape", [(3000, 100), (2000, 400)])
@pytest.mark.parametrize("sigma", [1e-6, 1.0, 1e5])
def test_pixel_subset_knows_noise_and_rank(dtype, shape, sigma):
    matrix = (stack(dtype, shape, rank=12, noise=1.0) * sigma).astype(dtype)
    subset = draw_pixels(matrix, None, np.random.default_rng(0), SERIAL)
    assert subset.noise_rms == pytest.approx(sigma, rel=0.05)
    assert subset.n_above_noise == 12
    # The data are a sum of twelve products of independent unit vectors with scales from 100 to 1.
    power = np.mean(np.abs(matrix.astype(np.complex128)) ** 2) * shape[1]
    assert subset.signal_variances(12).sum() == pytest.approx(power - shape[1] * sigma**2, rel=0.3)


def test_pixel_subset_sees_through_missing_entries():
    matrix = stack(np.complex64, (1500, 120), rank=5, noise=0.1)
    frames = np.linspace(0, 3, 120)
    smooth = np.exp(1j * frames[:, None] * np.arange(1, 6)).astype(np.complex64)
    rng = np.random.default_rng(0)
    matrix += 1000 * gaussian(rng, (1500, 5), np.complex64) @ smooth.T
    complete = draw_pixels(matrix, None, np.random.default_rng(0), SERIAL)
    missing = rng.random(matrix.shape) < 0.02
    missing[:, 40:46] = True
    matrix[missing] = 0
    holes = draw_pixels(
        matrix, np.packbits(~missing, axis=1, bitorder="little"), np.random.default_rng(0), SERIAL
    )
    assert holes.noise_rms == pytest.approx(complete.noise_rms, rel=0.15)
    assert holes.singular_values[:4] == pytest.approx(complete.singular_values[:4], rel=0.2)


def test_marchenko_pastur_quantiles_of_a_large_noise_matrix():
    noise = np.random.default_rng(0).standard_normal((300, 900))
    eigenvalues = np.linalg.eigvalsh(noise @ noise.T / 900)
    levels = (np.arange(300) + 0.5) / 300
    assert np.abs(marchenko_pastur_quantiles(1 / 3, levels) - eigenvalues).max() < 0.05


@pytest.mark.parametrize(("shape", "dtype"), [((60, 200), np.complex64), ((200, 60), np.float32)])
def test_the_spectrum_of_a_few_pixels_is_numpys(shape, dtype):
    matrix = stack(dtype, shape=shape)
    subset = draw_pixels(matrix, None, np.random.default_rng(0), SERIAL)
    _, singular, right = loops.truncated_svd(matrix, min(shape))
    assert subset.n_pixels == shape[0]
    assert subset.singular_values[:6] == pytest.approx(singular[:6], rel=1e-5)
    assert subset.singular_values[-5:] == pytest.approx(singular[-5:], rel=1e-3)
    overlap = np.abs(np.sum(subset.right[:, :6].conj() * right[:, :6], axis=0))
    assert overlap == pytest.approx(np.ones(6), abs=1e-4)


def test_a_panel_has_as_many_samples_a_frame_whatever_the_sampling():
    rng = np.random.default_rng(0)
    assert draw_panel(500, 30, 0.5, None, rng) is None
    for sampling, rank, wanted in ((1.0, 10, 256), (0.5, 42, 512), (0.5, 100, 1200), (0.2, 100, 3000)):
        panel = draw_panel(9000, rank, sampling, None, rng)
        assert len(panel) == wanted
        assert len(set(panel)) == len(panel)
        # Spread over the image: every tenth of it has about its share.
        share = np.histogram(panel, 10, (0, 9000))[0] / len(panel)
        assert share == pytest.approx(np.full(10, 0.1), abs=0.05)


def test_a_panel_leaves_out_pixels_that_were_never_seen():
    observed = np.full((5000, 4), 255, np.uint8)
    observed[::2] = 0
    panel = draw_panel(5000, 30, 0.5, observed, np.random.default_rng(0))
    assert (panel % 2 == 1).all()
    assert draw_panel(5000, 30, 0.1, observed, np.random.default_rng(0)) is None


def test_whitening_leaves_out_what_is_there_by_rounding_alone():
    rng = np.random.default_rng(0)
    left = gaussian(rng, (32, 4), np.complex128)
    # Such a column squared is below the least number of double precision.
    left[:, 3] *= 1e-154
    squares = left.conj().T @ left
    white = _whitening(squares)
    assert np.isfinite(white.astype(np.complex64)).all()
    assert white.conj().T @ squares @ white == pytest.approx(np.diag([0, 1, 1, 1]), abs=1e-10)
