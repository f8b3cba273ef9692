"""Planted problems: losses, starts and noise floors against formulas, and runs on them against an independent loop."""

from functools import partial

import numpy as np
import pytest

from tests.reference import loops, planted_loops
from usdenoise.completion.problem import gaussian
from usdenoise.experiments import Setup, planted_experiments
from usdenoise.experiments.planted import (
    LARGEST_ERROR,
    SIZE,
    Descent,
    OneBitLoss,
    PlantedProblem,
    SensingLoss,
    descend,
    draw_one_bit,
    draw_phase,
    draw_sensing,
    least_squares_error,
)
from usdenoise.experiments.planted_experiments import PHASE, eta_decay, gradient_descent, panel, precgd

N, RANK, MEASUREMENTS = 7, 3, 20

DRAWS = [
    (partial(draw_sensing, scales=(1.0, 1e-2), measurements=160), 8),
    (partial(draw_one_bit, scales=(1.0, 1.0)), 4),
    (partial(draw_phase, measurements=80), 2),
]


def sensing(rng, dtype=np.float64):
    matrices = gaussian(rng, (MEASUREMENTS, N * N), dtype).reshape(-1, N, N)
    return SensingLoss(matrices, rng.standard_normal(MEASUREMENTS)), gaussian(rng, (N, RANK), dtype)


def one_bit(rng):
    # Estimates near and far from the log-odds use different branches of the formula.
    factor = gaussian(rng, (N, RANK), np.float64)
    log_odds = factor @ factor.T + rng.choice([0.3, 4.0], (N, N)) * rng.standard_normal((N, N))
    return OneBitLoss(log_odds), factor


class Half:
    """Half of a loss: its derivative by a complex X is the Wirtinger derivative of the loss."""

    def __init__(self, loss):
        self.loss = loss

    def evaluate(self, matrix):
        value, gradient = self.loss.evaluate(matrix)
        return value / 2, gradient


@pytest.mark.parametrize("make", [sensing, one_bit])
def test_gradient_passes_a_taylor_test(make):
    rng = np.random.default_rng(0)
    loss, x = make(rng)
    loops.assert_taylor(PlantedProblem(loss, np.eye(N)), (x,), rng, first_step=1e-3)


def test_the_gradient_of_a_complex_factor_is_the_wirtinger_derivative():
    rng = np.random.default_rng(1)
    loss, x = sensing(rng, np.complex128)
    loops.assert_taylor(PlantedProblem(Half(loss), np.eye(N)), (x,), rng, first_step=1e-3)


@pytest.mark.parametrize("make", [sensing, one_bit])
def test_squared_residuals_add_up_to_the_loss(make):
    loss, x = make(np.random.default_rng(12))
    matrix = x @ x.T
    # At a perfect fit the loss of one-bit sensing is the entropy of the fractions.
    least = loss.evaluate(loss.log_odds)[0] if make is one_bit else 0
    assert np.sum(loss.residuals(matrix) ** 2) == pytest.approx(loss.evaluate(matrix)[0] - least, rel=1e-12)


def test_one_bit_residuals_keep_their_digits_near_a_perfect_fit():
    # Their squares add up to 1e-20 here: a difference of two likelihoods of order 100 would have no digit of it.
    factor = gaussian(np.random.default_rng(6), (N, RANK), np.float64)
    exact = factor @ factor.T
    moved = factor * (1 + 1e-11)
    curvature = 1 / (2 + 2 * np.cosh(exact))
    excess = np.sum(OneBitLoss(exact).residuals(moved @ moved.T) ** 2)
    assert excess == pytest.approx(0.5 * np.sum(curvature * (moved @ moved.T - exact) ** 2), rel=1e-3)


def test_one_bit_residuals_far_from_the_fit_stay_finite():
    log_odds = np.array([[8.0, -8.0], [-8.0, 8.0]])
    (excess, *_), p = OneBitLoss(log_odds).residuals(np.full((2, 2), -1600.0)) ** 2, 1 / (1 + np.exp(-8))
    # log(1 + exp(-1600)) + 1600 p less the entropy.
    assert excess == pytest.approx(1600 * p + p * np.log(p) + (1 - p) * np.log(1 - p), rel=1e-9)


@pytest.mark.parametrize(("draw", "rank"), DRAWS)
def test_the_planted_matrix_minimises_its_loss(draw, rank):
    instance = draw(np.random.default_rng(2), rank=rank, sigma=0.0)
    problem = PlantedProblem(instance.loss, instance.truth)
    at_truth = problem.evaluate((instance.factor,))
    assert np.sum(instance.loss.residuals(instance.truth) ** 2) < 1e-28
    assert at_truth.held_out_rmse == 0
    assert np.abs(at_truth.gradients[0]).max() < 1e-12
    assert instance.start().shape == (SIZE, rank)
    assert problem.evaluate((instance.start(),)).value > 1e-6
    assert 0 < np.linalg.norm(instance.small_start) < 1e-10


def test_the_same_seed_gives_the_same_problem_with_and_without_noise():
    draw = partial(draw_sensing, scales=(1.0, 0.5), rank=3, measurements=50)
    clean, noisy = (draw(np.random.default_rng(4), sigma=sigma) for sigma in (0.0, 1e-3))
    assert np.array_equal(clean.truth, noisy.truth)
    assert np.array_equal(clean.small_start, noisy.small_start)
    assert 0.5e-3 < np.std(noisy.loss.measurements - clean.loss.measurements) < 2e-3


def test_singular_values_of_the_planted_matrix():
    instance = draw_sensing(np.random.default_rng(0), scales=(1.0, 1e-2), rank=2, measurements=5, sigma=0.0)
    assert np.linalg.svd(instance.truth, compute_uv=False)[:3] == pytest.approx([1, 1e-2, 0], abs=1e-14)


def test_the_spectral_start_has_the_leading_eigenpairs_of_the_mean():
    instance = DRAWS[0][0](np.random.default_rng(1), rank=8, sigma=1e-6)
    terms = [y * A for A, y in zip(instance.loss.matrices, instance.loss.measurements, strict=True)]
    mean = sum(terms) / len(terms)
    values, vectors = np.linalg.eigh((mean + mean.T) / 2)
    kept = np.maximum(values[2:], 0)
    x = instance.start()
    assert np.allclose(x @ x.T, (vectors[:, 2:] * kept) @ vectors[:, 2:].T, rtol=0, atol=1e-12)
    # A column of zeros never moves: the search rank is the number of positive eigenvalues.
    assert np.count_nonzero(np.linalg.norm(x, axis=0)) == np.count_nonzero(kept) < 8


@pytest.mark.parametrize(("draw", "rms"), [
    (partial(draw_one_bit, scales=(1.0, 1.0), rank=4), 1), (partial(draw_phase, rank=2, measurements=80), np.sqrt(2))
])  # fmt: skip
def test_the_start_of_the_appendix_is_the_factor_plus_a_tenth_of_a_gaussian(draw, rms):
    spread = []
    for seed in range(20):
        instance = draw(np.random.default_rng(seed), sigma=0.0)
        spread.append(np.abs(instance.start() - instance.factor) ** 2)
    assert np.sqrt(np.mean(spread)) == pytest.approx(0.1 * rms, rel=0.05)


@pytest.mark.parametrize("seed", [0, 1])
def test_at_the_true_rank_the_least_squares_error_is_that_of_the_linearised_problem(seed):
    draw = partial(draw_sensing, scales=(1.0, 0.3), rank=2, measurements=80)
    clean, noisy = (draw(np.random.default_rng(seed), sigma=sigma) for sigma in (0.0, 1e-5))
    noise = noisy.loss.measurements - clean.loss.measurements
    factor = clean.factor
    changes = []
    for i in range(SIZE):
        for j in range(2):
            direction = np.zeros((SIZE, 2))
            direction[i, j] = 1
            changes.append(direction @ factor.T + factor @ direction.T)
    seen = np.array([np.einsum("kij,ij->k", clean.loss.matrices, change) for change in changes]).T
    weights = np.linalg.lstsq(seen, noise, rcond=1e-10)[0]
    expected = np.linalg.norm(sum(w * change for w, change in zip(weights, changes, strict=True)))
    assert least_squares_error(noisy) == pytest.approx(expected / np.linalg.norm(clean.truth), rel=1e-3)


@pytest.mark.parametrize(("draw", "rank"), DRAWS)
def test_the_floor_grows_with_the_noise(draw, rank):
    noisy = (draw(np.random.default_rng(0), rank=rank, sigma=sigma) for sigma in (1e-5, 1e-4))
    low, high = map(least_squares_error, noisy)
    assert high / low == pytest.approx(10, rel=0.1)


STEPS = 25


# Settings of the paper with their search rank, their step and their beta.
EVEN = partial(draw_sensing, scales=(1.0, 1.0), measurements=80)
SETTINGS = {
    "sensing-lambda, noise 1e-6": (partial(DRAWS[0][0], rank=8, sigma=1e-6), 0.1, 0.5),
    "high-noise": (partial(EVEN, rank=8, sigma=0.1), 0.01, 0.97),
    "sensing-well-conditioned, noise 1e-6": (partial(EVEN, rank=4, sigma=1e-6), 0.1, 0.1),
    "one-bit, noise 1e-6": (partial(draw_one_bit, scales=(1.0, 1.0), rank=4, sigma=1e-6), 1.0, 0.4),
    "phase, noiseless": (partial(draw_phase, rank=1, measurements=80, sigma=0.0), 0.02, 0.1),
    "phase, noise 1e-6": (partial(draw_phase, rank=2, measurements=80, sigma=1e-6), 0.02, 0.1),
}  # fmt: skip


def gradient_of(instance):
    loss = instance.loss
    if hasattr(loss, "log_odds"):
        return planted_loops.symmetric(partial(planted_loops.one_bit_gradient, log_odds=loss.log_odds))
    sensing = partial(planted_loops.sensing_gradient, matrices=loss.matrices, y=loss.measurements)
    return planted_loops.symmetric(sensing)


@pytest.mark.parametrize("name", SETTINGS)
def test_methods_take_the_steps_of_the_independent_loop(name):
    draw, step, beta = SETTINGS[name]
    instance = draw(np.random.default_rng(2))
    methods = [
        (eta_decay(beta), "eta-decay", beta), (precgd(0.5), "precgd", 0.5), (precgd(1e-5), "precgd", 1e-5),
        (planted_experiments.scaledgd(1e-2), "scaledgd", 1e-2), (gradient_descent(), "gd", None),
    ]  # fmt: skip
    for variant, kind, parameter in methods:
        expected = planted_loops.descent(
            gradient_of(instance), instance.start(), instance.truth, kind, parameter, step, STEPS
        )
        errors = descend(instance, variant, step, STEPS).errors
        assert errors == pytest.approx(np.minimum(expected, LARGEST_ERROR), rel=1e-6), kind


def setting(*variants, step=0.1, iterations=50, sigma=0.0, **more):
    problem = {"scales": (1.0, 1e-2), "rank": 4, "measurements": 160, "sigma": sigma}
    return planted_experiments.PlantedSetting("x", draw_sensing, problem, variants, step, iterations, **more)


def test_a_run_that_diverges_counts_as_lost():
    instance = draw_sensing(np.random.default_rng(3), **setting().problem)
    errors = descend(instance, gradient_descent(), 1e3, 50).errors
    assert errors[-1] == errors.max() == LARGEST_ERROR
    found = panel(setting(gradient_descent(), step=1e3), (3,))
    assert found["GD"].final == LARGEST_ERROR
    assert found["GD"].errors.shape == (1, 51)


def test_methods_from_the_small_start_begin_at_an_error_of_1():
    found = panel(setting(eta_decay(0.5), gradient_descent(from_small=True), iterations=3), (0, 1))
    assert found["GD"].errors[:, 0] == pytest.approx(1)
    assert np.all(found["eta-decay"].errors[:, 0] < 0.9)


def test_curves_against_time_begin_before_the_start_is_computed():
    descent = Descent(np.array([0.5, 0.25, 0.125]), np.array([0.1, 0.2, 0.4]))
    at = descent.at(np.array([0.0, 0.1, 0.15, 0.3, 0.4, 9.0]))
    assert at.tolist() == [1.0, 0.5, 0.5, 0.25, 0.125, 0.125]
    curve = panel(setting(eta_decay(0.85), seconds=5.0), (0, 1)).curves[0]
    assert (curve.x[0], curve.x[-1]) == (0, 5)
    assert np.all(curve.errors[:, 0] == 1)
    assert curve.final < 1e-2


def test_seeds_are_apart_and_repeatable():
    first, again = (panel(setting(eta_decay(0.85), iterations=4), (0, 1)).curves[0].errors for _ in range(2))
    assert np.array_equal(first, again)
    assert first[0, -1] != first[1, -1]


def test_eta_decay_ends_at_the_noise_floor():
    found = panel(setting(eta_decay(0.5), iterations=100, sigma=1e-6), range(4))
    assert 0.5 < found["eta-decay"].final / found.noise_floor < 2


@pytest.mark.parametrize(("experiment", "n_seeds"), [
    (planted_experiments.ONE_BIT, 3),
    pytest.param(planted_experiments.HIGH_NOISE, 6, marks=pytest.mark.slow),
    pytest.param(PHASE, 2, marks=pytest.mark.slow),
])  # fmt: skip
def test_claims_hold_in_the_paper_s_reading(experiment, n_seeds):
    assert all(claim.held for claim in experiment.run(Setup(n_seeds)).claims)
