"""Values and gradients of the losses with one symmetric factor, against formulas and a Taylor expansion."""

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.completion.problem import CompletionProblem
from usdenoise.completion.starts import gaussian
from usdenoise.experiments.problems import AgainstTruth, OneBitProblem, PhaseProblem, SensingProblem
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.sampling import draw_entries

DTYPES = [np.float64, np.complex128]
N, RANK, MEASUREMENTS = 7, 3, 20


def sensing(rng, dtype):
    matrices = gaussian(rng, (MEASUREMENTS, N * N), dtype).reshape(-1, N, N)
    return SensingProblem(matrices, rng.standard_normal(MEASUREMENTS)), (gaussian(rng, (N, RANK), dtype),)


def one_bit(rng, dtype):
    # Estimates near and far from the log-odds use different branches of the formula.
    factor = gaussian(rng, (N, RANK), dtype)
    log_odds = (factor @ factor.conj().T).real + rng.choice([0.3, 4.0], (N, N)) * rng.standard_normal((N, N))
    return OneBitProblem(log_odds), (factor,)


def phase(rng, dtype):
    vectors = gaussian(rng, (MEASUREMENTS, N), dtype)
    return PhaseProblem(vectors, rng.random(MEASUREMENTS)), (gaussian(rng, (N, RANK), dtype),)


def completion(rng, dtype):
    shape = (N, 2 * N)
    problem = CompletionProblem(gaussian(rng, shape, dtype), draw_entries(shape, 0.5, 0), ThreadExecutor(1))
    return problem, tuple(gaussian(rng, (n, RANK), dtype) for n in shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [completion, sensing, one_bit, phase])
@pytest.mark.parametrize("seed", [0, 1])
def test_gradient_passes_a_taylor_test(make, dtype, seed):
    rng = np.random.default_rng(seed)
    problem, factors = make(rng, dtype)
    direction = tuple(gaussian(rng, factor.shape, dtype) for factor in factors)
    here = problem.evaluate(factors)
    slope = sum(
        np.vdot(gradient, step).real for gradient, step in zip(here.gradients, direction, strict=True)
    )
    steps = np.array([1e-3, 5e-4, 2.5e-4, 1.25e-4])

    def moved(h):
        return tuple(factor + h * step for factor, step in zip(factors, direction, strict=True))

    remainders = [abs(problem.evaluate(moved(h)).value - here.value - h * slope) for h in steps]
    orders = np.diff(np.log(remainders)) / np.diff(np.log(steps))
    assert np.all(np.abs(orders - 2.0) < 0.05)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_sensing_equals_the_sum_over_measurements(dtype, scale):
    problem, (x,) = sensing(np.random.default_rng(3), dtype)
    problem.measurements *= scale**2
    value, gradient = loops.sensing_value_and_gradient(
        np.sqrt(scale) * x, problem.matrices, problem.measurements
    )
    evaluation = problem.evaluate((np.sqrt(scale) * x,))
    assert evaluation.value == pytest.approx(value, rel=1e-12)
    assert np.abs(evaluation.gradients[0] - gradient).max() <= 1e-12 * np.abs(gradient).max()


def test_phase_retrieval_is_sensing_with_rank_one_matrices():
    problem, (x,) = phase(np.random.default_rng(4), np.complex128)
    matrices = np.einsum("ki,kj->kij", problem.vectors, problem.vectors.conj())
    value, gradient = loops.sensing_value_and_gradient(x, matrices, problem.measurements)
    evaluation = problem.evaluate((x,))
    assert evaluation.value == pytest.approx(value, rel=1e-12)
    assert np.abs(evaluation.gradients[0] - gradient).max() <= 1e-12 * np.abs(gradient).max()


def test_one_bit_loss_is_the_likelihood_less_its_smallest_value():
    problem, (x,) = one_bit(np.random.default_rng(5), np.float64)
    fractions = 1 / (1 + np.exp(-problem.log_odds))
    expected = loops.one_bit_loss(x @ x.T, fractions) - loops.one_bit_loss(problem.log_odds, fractions)
    assert problem.evaluate((x,)).value == pytest.approx(expected, rel=1e-12)


def test_one_bit_loss_keeps_its_digits_near_a_perfect_fit():
    # The loss is about 1e-20 here: a difference of two likelihoods of order 100 would have no digit of it.
    factor = gaussian(np.random.default_rng(6), (N, RANK), np.float64)
    exact = factor @ factor.T
    problem = OneBitProblem(exact)
    moved = factor * (1 + 1e-11)
    off = moved @ moved.T - exact
    curvature = 1 / (2 + 2 * np.cosh(exact))
    value = problem.evaluate((moved,)).value
    assert value == pytest.approx(0.5 * np.sum(curvature * off**2), rel=1e-3)
    assert problem.evaluate((factor,)).value == 0


def test_one_bit_loss_far_from_the_fit_stays_finite():
    problem = OneBitProblem(np.array([[800.0, -800.0], [-800.0, 800.0]]))
    far = problem.evaluate((np.full((2, 1), 40.0),))
    # The estimate is 1600 where the log-odds are -800: each of these two entries adds 1600 to the loss.
    assert far.value == pytest.approx(2 * 1600.0, rel=1e-6)
    assert np.isfinite(far.gradients[0]).all()


def test_spectral_start_of_many_measurements_is_near_the_matrix():
    rng = np.random.default_rng(7)
    factor = gaussian(rng, (N, 2), np.float64)
    matrices = gaussian(rng, (40000, N * N), np.float64).reshape(-1, N, N)
    measurements = matrices.reshape(len(matrices), -1) @ (factor @ factor.T).reshape(-1)
    (x,) = SensingProblem(matrices, measurements).spectral_start(2)
    assert x.shape == (N, 2)
    truth = factor @ factor.T
    assert np.linalg.norm(x @ x.T - truth) < 0.1 * np.linalg.norm(truth)


def test_against_truth_gives_the_error_over_all_entries():
    problem, (x,) = sensing(np.random.default_rng(8), np.complex128)
    truth = np.diag(np.arange(N)).astype(complex)
    watched = AgainstTruth(problem, truth).evaluate((x,))
    plain = problem.evaluate((x,))
    rms = np.sqrt(np.mean(np.abs(x @ x.conj().T - truth) ** 2))
    assert watched.held_out_rmse == pytest.approx(rms, rel=1e-13)
    assert watched.value == plain.value
    assert np.array_equal(watched.gradients[0], plain.gradients[0])
