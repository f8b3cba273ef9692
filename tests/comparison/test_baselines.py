"""The other clutter filters against numpy, scipy and the conditions that define their results."""

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from tests.reference import loops
from usdenoise.comparison.randomized_svd import randomized_svd
from usdenoise.comparison.robust_pca import robust_pca, threshold_singular_values
from usdenoise.comparison.soft_impute import soft_impute
from usdenoise.comparison.temporal_filters import highpass, polynomial
from usdenoise.completion.problem import CompletionProblem, Evaluation
from usdenoise.completion.starts import gaussian
from usdenoise.components.svd import truncated_svd
from usdenoise.errors import DivergedError, OptionError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.sampling import draw_entries


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


def test_rsvd_is_right_for_complex_columns_and_needs_its_power_iterations(executor):
    rng = np.random.default_rng(2)
    data = gaussian(rng, (400, 90), np.complex128)
    data += 3 * gaussian(rng, (400, 3), np.complex128) @ gaussian(rng, (3, 90), np.complex128)
    exact = np.linalg.svd(data)[1][:3]

    def error(power_iterations):
        rng = np.random.default_rng(0)
        model = randomized_svd(data, 3, executor, rng, oversampling=2, power_iterations=power_iterations)
        return np.abs(model.singular_values - exact).max() / exact[0]

    assert error(6) < 1e-6 < error(0)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_highpass_is_scipys_forward_and_backward_filter(executor, dtype):
    data = gaussian(np.random.default_rng(0), (30, 200), dtype)
    expected = sosfiltfilt(butter(4, 60.0, "highpass", fs=500.0, output="sos"), data, axis=1)
    highpass(data, executor, 60.0 / 500.0, 4)
    assert np.abs(data - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("frames", "cutoff", "order", "sentence"),
    [
        (40, 0.5, 4, r"cutoff is 0.5 of the frame rate and must be in \(0, 0.5\)"),
        (40, 0.0, 4, "must be in"),
        (40, 0.1, 0, "order 0 must be at least 1"),
        (15, 0.1, 4, "order 4 needs more than 15 frames, not 15; lower highpass.order"),
    ],
)
def test_highpass_refuses(executor, frames, cutoff, order, sentence):
    data = np.zeros((3, frames), np.complex64)
    with pytest.raises(OptionError, match=sentence):
        highpass(data, executor, cutoff, order)


def test_highpass_takes_the_shortest_ensemble_that_scipy_takes(executor):
    data = gaussian(np.random.default_rng(0), (3, 16), np.complex64)
    highpass(data, executor, 0.1, 4)
    assert np.isfinite(data).all()


@pytest.mark.parametrize("order", [0, 3, 60])
def test_polynomial_is_numpys_least_squares_fit(executor, order):
    data = gaussian(np.random.default_rng(0), (20, 90), np.complex128)
    frames = np.linspace(-1, 1, 90)
    basis = np.polynomial.chebyshev.chebvander(frames, order)
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


@pytest.mark.parametrize("order", [-2, 49])
def test_polynomial_refuses(executor, order):
    data = np.zeros((3, 50), np.complex64)
    with pytest.raises(OptionError, match=rf"order {order} must be in \[-1, 48\] with 50 frames"):
        polynomial(data, executor, order)


def planted(dtype, shape=(200, 120), rank=5, fraction=0.05):
    rng = np.random.default_rng(0)
    low = gaussian(rng, (shape[0], rank), dtype) @ gaussian(rng, (rank, shape[1]), dtype)
    sparse = np.where(rng.random(shape) < fraction, 10 * gaussian(rng, shape, dtype), 0)
    return low, sparse


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("tall", [True, False])
def test_rpca_recovers_a_planted_low_rank_and_a_sparse_part(executor, dtype, scale, tall):
    low, sparse = (scale * (part if tall else part.T) for part in planted(dtype))
    parts = robust_pca(np.ascontiguousarray(low + sparse), executor, tolerance=1e-8)
    a, b_h = parts.low_rank.band(0, parts.low_rank.rank)
    assert parts.converged
    assert parts.low_rank.rank == 5
    assert np.linalg.norm(a @ b_h - low) < 1e-5 * np.linalg.norm(low)


def test_rpca_recovers_from_a_part_of_the_entries(executor):
    low, sparse = planted(np.complex128)
    seen = np.random.default_rng(1).random(low.shape) < 0.8
    parts = robust_pca(
        np.where(seen, low + sparse, 0),
        executor,
        observed=np.packbits(seen, axis=1, bitorder="little"),
        tolerance=1e-8,
    )
    a, b_h = parts.low_rank.band(0, parts.low_rank.rank)
    assert np.linalg.norm(a @ b_h - low) < 1e-5 * np.linalg.norm(low)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_rpca_says_when_it_did_not_converge_and_when_an_iterate_is_not_finite(executor):
    low, sparse = planted(np.float64)
    parts = robust_pca(low + sparse, executor, iterations=3)
    assert (parts.iterations, parts.converged) == (3, False)
    assert parts.mismatch > 1e-6
    with pytest.raises(DivergedError, match="an iterate of robust PCA is not finite; use precision double"):
        robust_pca((1e37 * (low + sparse)).astype(np.float32), executor)


@pytest.mark.parametrize("tall", [True, False])
def test_threshold_is_the_proximal_map_of_the_nuclear_norm(executor, tall):
    data = gaussian(np.random.default_rng(0), (60, 30) if tall else (30, 60), np.complex128)
    u, s, vh = np.linalg.svd(data, full_matrices=False)
    a, b_h = threshold_singular_values(data, s[10], executor).band(0, 30)
    assert np.abs(a @ b_h - (u * np.maximum(s - s[10], 0)) @ vh).max() < 1e-10
    assert threshold_singular_values(data, 2 * s[0], executor).rank == 0


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_softimputes_fixed_point_is_optimal(executor, dtype):
    """Check R V = penalty U, R^H U = penalty V and |R|_2 <= penalty: R is a subgradient of the penalty term."""
    rng = np.random.default_rng(0)
    shape = (60, 40)
    data = gaussian(rng, (60, 3), dtype) @ gaussian(rng, (3, 40), dtype) + 0.1 * gaussian(rng, shape, dtype)
    sample = draw_entries(shape, 0.6, 0)
    problem = CompletionProblem(data, sample, executor)
    penalty = 3.0
    found = soft_impute(problem, 20, penalty, rng, iterations=2000, tolerance=1e-14)
    assert found.converged
    kept = found.low_rank.singular_values > 1e-6
    # With fewer components than allowed the limit on the rank does not matter.
    assert 3 <= kept.sum() < 20
    left, right = found.low_rank.left[:, kept], found.low_rank.right[:, kept]
    model = (left * found.low_rank.singular_values[kept]) @ right.conj().T
    residual = np.where(sample.mask(slice(0, 60)), data - model, 0)
    assert np.abs(residual @ right - penalty * left).max() < 1e-5 * penalty
    assert np.abs(residual.conj().T @ left - penalty * right).max() < 1e-5 * penalty
    rest = residual - penalty * left @ right.conj().T
    assert np.linalg.norm(rest, 2) <= penalty * (1 + 1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_softimpute_of_nearly_everything_is_one_threshold_of_the_svd(executor, scale):
    rng = np.random.default_rng(0)
    data = scale * gaussian(rng, (50, 30), np.complex128)
    data += scale * 10 * gaussian(rng, (50, 2), np.complex128) @ gaussian(rng, (2, 30), np.complex128)
    sample = draw_entries(data.shape, 1.0, 0)
    problem = CompletionProblem(data, sample, executor)
    found = soft_impute(problem, 25, 6.0 * scale, rng, iterations=500, tolerance=1e-14)
    u, s, vh = np.linalg.svd(data, full_matrices=False)
    # 1 % of the entries are held out, so the results do not agree exactly.
    wanted = (u * np.maximum(s - 6.0 * scale, 0)) @ vh
    a, b_h = found.low_rank.band(0, 25)
    assert np.linalg.norm(a @ b_h - wanted) < 0.02 * np.linalg.norm(wanted)


class Overflowing(CompletionProblem):
    """A problem whose objective is infinite."""

    def evaluate(self, factors):
        return Evaluation(np.inf, factors)


def test_softimpute_refuses_what_is_not_finite(executor):
    rng = np.random.default_rng(0)
    data = gaussian(rng, (30, 20), np.complex64)
    problem = Overflowing(data, draw_entries(data.shape, 0.9, 0), executor)
    with pytest.raises(DivergedError, match="an iterate of Soft-Impute is not finite; use precision double"):
        soft_impute(problem, 2, 1.0, rng)
