"""The baselines against numpy, scipy and the conditions that define their results."""

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from tests.reference import loops
from usdenoise import baselines
from usdenoise.baselines import end_of_clutter, polynomial, randomized_svd, robust_pca
from usdenoise.completion.problem import gaussian
from usdenoise.errors import DivergedError
from usdenoise.estimate.estimate import truncated_svd
from usdenoise.linalg.executor import ThreadExecutor


@pytest.fixture(scope="module")
def executor():
    with ThreadExecutor(2) as threads:
        yield threads


@pytest.fixture(scope="module")
def matrix(small_phantom):
    """Return the small phantom's Casorati matrix, 1280 x 120, complex64."""
    iq = small_phantom[1].iq
    return np.ascontiguousarray(iq.reshape(len(iq), -1).T)


@pytest.mark.parametrize(("low", "scale"), [(4, 1e-6), (12, 1.0), (12, 1e6)])
@pytest.mark.parametrize("method", ["svd", "rsvd"])
def test_the_svds_remove_what_numpys_removes(matrix, executor, method, low, scale):
    data = matrix * np.float32(scale)
    if method == "svd":
        model = truncated_svd(data, 20, executor)
    else:
        model = randomized_svd(data, 20, executor, np.random.default_rng(0))
    left, singular, right = loops.truncated_svd(data, low)
    wanted = data - (left * singular) @ right.conj().T
    a, b_h = model.band(0, low)
    assert np.linalg.norm(data - a @ b_h - wanted) < 1e-4 * np.linalg.norm(wanted)
    assert model.singular_values[:low] == pytest.approx(singular, rel=1e-4)
    assert model.rank == 20


def test_rsvd_is_right_for_complex_columns_and_a_weak_component(executor):
    rng = np.random.default_rng(2)
    data = gaussian(rng, (400, 90), np.complex128)
    data += 3 * gaussian(rng, (400, 3), np.complex128) @ gaussian(rng, (3, 90), np.complex128)
    exact = np.linalg.svd(data)[1][:3]
    model = randomized_svd(data, 3, executor, np.random.default_rng(0))
    assert model.singular_values == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_highpass_is_scipys_forward_and_backward_filter(executor, dtype):
    data = gaussian(np.random.default_rng(0), (30, 200), dtype)
    expected = sosfiltfilt(butter(4, 60.0, "highpass", fs=500.0, output="sos"), data, axis=1)
    baselines.highpass(data, executor, 60.0 / 500.0)
    assert np.abs(data - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("order", [0, 3, 60])
def test_polynomial_is_numpys_least_squares_fit(executor, order):
    data = gaussian(np.random.default_rng(0), (20, 90), np.complex128)
    basis = np.polynomial.chebyshev.chebvander(np.linspace(-1, 1, 90), order)
    fit = basis @ np.linalg.lstsq(basis, data.T, rcond=None)[0]
    out = data.copy()
    polynomial(out, executor, order)
    assert np.abs(out - (data - fit.T)).max() < 1e-7


def test_polynomial_removes_polynomials_and_of_order_minus_one_nothing(executor):
    frames = np.arange(50.0)
    data = ((1 + 2j) + frames * 0.3 - 1j * frames**2)[None, :].repeat(3, axis=0)
    out = data.copy()
    polynomial(out, executor, -1)
    assert np.array_equal(out, data)
    polynomial(out, executor, 2)
    assert np.abs(out).max() < 1e-9 * np.abs(data).max()


@pytest.mark.parametrize("edge", [0.05, 0.2])
def test_the_clutter_ends_where_its_spectrum_falls_below_the_residual(edge):
    rng = np.random.default_rng(0)
    n_frames = 200
    tones = np.exp(2j * np.pi * np.outer(np.linspace(-edge, edge, 9), np.arange(n_frames)))
    clutter = 100 * (rng.standard_normal((600, 9)) @ tones)
    residual = gaussian(rng, (600, n_frames), np.complex128)
    assert end_of_clutter(clutter + residual, 9) == pytest.approx(edge, abs=0.03)
    assert end_of_clutter(residual, 0) == 1 / n_frames


def planted(dtype, shape=(200, 120), rank=5, fraction=0.05):
    rng = np.random.default_rng(0)
    low = gaussian(rng, (shape[0], rank), dtype) @ gaussian(rng, (rank, shape[1]), dtype)
    return low, np.where(rng.random(shape) < fraction, 10 * gaussian(rng, shape, dtype), 0)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("tall", [True, False])
def test_rpca_recovers_a_planted_low_rank_and_a_sparse_part(executor, dtype, scale, tall):
    low, sparse = (scale * (part if tall else part.T) for part in planted(dtype))
    model, iterations, mismatch = robust_pca(np.ascontiguousarray(low + sparse), executor)
    a, b_h = model.band(0, model.rank)
    assert mismatch <= 1e-6
    assert iterations < 100
    assert model.rank == 5
    assert np.linalg.norm(a @ b_h - low) < 1e-4 * np.linalg.norm(low)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_rpca_refuses_an_iterate_that_is_not_finite(executor):
    low, sparse = planted(np.float64)
    with pytest.raises(DivergedError):
        robust_pca((1e37 * (low + sparse)).astype(np.float32), executor)


@pytest.mark.parametrize("tall", [True, False])
def test_threshold_is_the_proximal_map_of_the_nuclear_norm(executor, tall):
    data = gaussian(np.random.default_rng(0), (60, 30) if tall else (30, 60), np.complex128)
    u, s, vh = np.linalg.svd(data, full_matrices=False)
    a, b_h = baselines.threshold_singular_values(data, s[10], executor).band(0, 30)
    assert np.abs(a @ b_h - (u * np.maximum(s - s[10], 0)) @ vh).max() < 1e-10
    assert baselines.threshold_singular_values(data, 2 * s[0], executor).rank == 0
