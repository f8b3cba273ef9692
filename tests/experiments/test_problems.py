"""Losses with one symmetric factor or two, against formulas and a Taylor expansion."""

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.completion.starts import gaussian
from usdenoise.experiments.conventions import Convention
from usdenoise.experiments.problems import OneBitLoss, PlantedProblem, SensingLoss

DTYPES = [np.float64, np.complex128]
N, RANK, MEASUREMENTS = 7, 3, 20


def sensing(rng, dtype):
    matrices = gaussian(rng, (MEASUREMENTS, N * N), dtype).reshape(-1, N, N)
    return SensingLoss(matrices, rng.standard_normal(MEASUREMENTS)), gaussian(rng, (N, RANK), dtype)


def one_bit(rng, dtype):
    # Estimates near and far from the log-odds use different branches of the formula.
    factor = gaussian(rng, (N, RANK), dtype)
    log_odds = (factor @ factor.conj().T).real + rng.choice([0.3, 4.0], (N, N)) * rng.standard_normal((N, N))
    return OneBitLoss(log_odds), factor


def phase(rng, dtype):
    return phase_loss(gaussian(rng, (MEASUREMENTS, N), dtype), rng.random(MEASUREMENTS)), gaussian(
        rng, (N, RANK), dtype
    )


def phase_loss(vectors, powers, power=1.0):
    return SensingLoss(vectors[:, :, None] * vectors[:, None, :].conj(), powers, power)


def planted(make, rng, dtype, convention):
    loss, x = make(rng, dtype)
    problem = PlantedProblem(loss, np.eye(N), convention)
    # Two factors that differ test the two gradients apart.
    second = x + 0.1 * gaussian(rng, x.shape, dtype)
    return problem, (x,) if convention is Convention.OF_X else (x, second)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("convention", Convention)
@pytest.mark.parametrize("make", [sensing, one_bit, phase])
@pytest.mark.parametrize("seed", [0, 1])
def test_gradient_passes_a_taylor_test(make, convention, dtype, seed):
    rng = np.random.default_rng(seed)
    problem, factors = planted(make, rng, dtype, convention)
    loops.assert_taylor(problem, factors, rng, first_step=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_sensing_equals_the_sum_over_measurements(dtype, scale):
    loss, x = sensing(np.random.default_rng(3), dtype)
    loss.measurements *= scale**2
    x = np.sqrt(scale) * x
    value, gradient = loops.sensing_value_and_gradient(x, loss.matrices, loss.measurements)
    evaluation = PlantedProblem(loss, np.eye(N)).evaluate((x,))
    assert evaluation.value == pytest.approx(value, rel=1e-12)
    assert np.abs(evaluation.gradients[0] - gradient).max() <= 1e-12 * np.abs(gradient).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [sensing, one_bit, phase])
def test_squared_residuals_add_up_to_the_loss(make, dtype):
    loss, x = make(np.random.default_rng(12), dtype)
    matrix = x @ x.conj().T
    value, _ = loss.evaluate(matrix)
    # At a perfect fit the loss of one-bit sensing is the entropy of the fractions.
    least = loss.evaluate(loss.log_odds)[0] if make is one_bit else 0
    assert np.sum(loss.residuals(matrix) ** 2) == pytest.approx(value - least, rel=1e-12)


def test_one_bit_loss_is_as_printed():
    log_odds, entries = np.array([[0.0, 1.0], [-2.0, 0.5]]), np.array([[0.3, -1.0], [0.0, 2.0]])
    ones = 1 / (1 + np.exp(-log_odds))
    value, gradient = OneBitLoss(log_odds).evaluate(entries)
    assert value == pytest.approx(np.sum(np.log(1 + np.exp(entries)) - ones * entries), rel=1e-14)
    assert gradient == pytest.approx(1 / (1 + np.exp(-entries)) - ones, rel=1e-14)
    # At a perfect fit it is the entropy, log 2 for a fraction of one half.
    assert OneBitLoss(np.zeros((2, 2))).evaluate(np.zeros((2, 2)))[0] == pytest.approx(4 * np.log(2))


@pytest.mark.parametrize("make", [sensing, phase])
def test_measurements_of_a_difference_are_differences_of_residuals(make):
    loss, x = make(np.random.default_rng(13), np.complex128)
    first, second = x @ x.conj().T, np.eye(N) + 0j
    expected = loss.residuals(first) - loss.residuals(second)
    assert np.allclose(loss.measure(first - second), expected, rtol=0, atol=1e-12)


def test_one_bit_residuals_keep_their_digits_near_a_perfect_fit():
    # Their squares add up to 1e-20 here: a difference of two likelihoods of order 100 would have no digit of it.
    factor = gaussian(np.random.default_rng(6), (N, RANK), np.float64)
    exact = factor @ factor.T
    loss = OneBitLoss(exact)
    moved = factor * (1 + 1e-11)
    off = moved @ moved.T - exact
    curvature = 1 / (2 + 2 * np.cosh(exact))
    excess = np.sum(loss.residuals(moved @ moved.T) ** 2)
    assert excess == pytest.approx(0.5 * np.sum(curvature * off**2), rel=1e-3)
    assert np.all(loss.residuals(exact) == 0)


def test_one_bit_loss_far_from_the_fit_stays_finite():
    loss = OneBitLoss(np.array([[800.0, -800.0], [-800.0, 800.0]]))
    far = np.full((2, 2), 1600.0)
    value, gradient = loss.evaluate(far)
    # The estimate is 1600 where the log-odds are -800: each of these two entries adds 1600 to the loss.
    assert value == pytest.approx(2 * 1600.0, rel=1e-6)
    assert np.isfinite(gradient).all()
    log_odds = np.array([[8.0, -8.0], [-8.0, 8.0]])
    (excess, *_), p = OneBitLoss(log_odds).residuals(-far) ** 2, 1 / (1 + np.exp(-8))
    # log(1 + exp(-1600)) + 1600 p less the entropy.
    assert excess == pytest.approx(1600 * p + p * np.log(p) + (1 - p) * np.log(1 - p), rel=1e-9)


def test_spectral_estimates_of_many_measurements_are_near_the_matrix():
    rng = np.random.default_rng(7)
    many = 40000
    factor = gaussian(rng, (N, 2), np.complex128)
    truth = factor @ factor.conj().T
    matrices = gaussian(rng, (many, N * N), np.complex128).reshape(-1, N, N)
    # The real part of a complex product has half of the power.
    seen = 2 * (matrices.reshape(many, -1).conj() @ truth.reshape(-1)).real
    losses = [SensingLoss(matrices, seen)]
    for power in (1.0, 2.0):
        vectors = np.sqrt(power) * gaussian(rng, (many, N), np.complex128)
        powers = np.sum(np.abs(vectors.conj() @ factor) ** 2, axis=1)
        losses.append(phase_loss(vectors, powers, power))
    for loss in losses:
        assert np.linalg.norm(loss.spectral_estimate() - truth) < 0.1 * np.linalg.norm(truth)


def test_spectral_estimate_of_one_bit_is_right_to_first_order():
    small = 1e-3 * np.random.default_rng(8).standard_normal((N, N))
    assert np.allclose(OneBitLoss(small).spectral_estimate(), small, rtol=1e-5, atol=0)


def test_the_error_is_that_over_all_entries():
    loss, x = sensing(np.random.default_rng(8), np.complex128)
    truth = np.diag(np.arange(N)).astype(complex)
    rms = np.sqrt(np.mean(np.abs(x @ x.conj().T - truth) ** 2))
    assert PlantedProblem(loss, truth).evaluate((x,)).held_out_rmse == pytest.approx(rms, rel=1e-13)
