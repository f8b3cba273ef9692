"""Losses, starts and planted matrices against formulas and a Taylor expansion."""

from functools import partial

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.completion.starts import gaussian
from usdenoise.experiments.planted import (
    SIZE,
    OneBitLoss,
    PlantedProblem,
    SensingLoss,
    draw_one_bit,
    draw_phase,
    draw_sensing,
)

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
    clean, noisy = (
        draw_sensing(np.random.default_rng(4), scales=(1.0, 0.5), rank=3, measurements=50, sigma=sigma)
        for sigma in (0.0, 1e-3)
    )
    assert np.array_equal(clean.truth, noisy.truth)
    assert np.array_equal(clean.small_start, noisy.small_start)
    assert 0.5e-3 < np.std(noisy.loss.measurements - clean.loss.measurements) < 2e-3


def test_singular_values_of_the_planted_matrix():
    instance = draw_sensing(np.random.default_rng(0), scales=(1.0, 1e-2), rank=2, measurements=5, sigma=0.0)
    assert np.linalg.svd(instance.truth, compute_uv=False)[:3] == pytest.approx([1, 1e-2, 0], abs=1e-14)


def test_the_spectral_start_has_the_leading_eigenpairs_of_the_mean():
    instance = draw_sensing(
        np.random.default_rng(1), scales=(1.0, 1e-2), rank=8, measurements=160, sigma=1e-6
    )
    terms = [y * A for A, y in zip(instance.loss.matrices, instance.loss.measurements, strict=True)]
    mean = sum(terms) / len(terms)
    values, vectors = np.linalg.eigh((mean + mean.T) / 2)
    kept = np.maximum(values[2:], 0)
    x = instance.start()
    assert np.allclose(x @ x.T, (vectors[:, 2:] * kept) @ vectors[:, 2:].T, rtol=0, atol=1e-12)
    # A column of zeros never moves: the search rank is the number of positive eigenvalues.
    assert np.count_nonzero(np.linalg.norm(x, axis=0)) == np.count_nonzero(kept) < 8


@pytest.mark.parametrize(
    ("draw", "rms"),
    [(partial(draw_one_bit, scales=(1.0, 1.0), rank=4), 1), (partial(draw_phase, rank=2, measurements=80), np.sqrt(2))],
)  # fmt: skip
def test_the_start_of_the_appendix_is_the_factor_plus_a_tenth_of_a_gaussian(draw, rms):
    spread = []
    for seed in range(20):
        instance = draw(np.random.default_rng(seed), sigma=0.0)
        spread.append(np.abs(instance.start() - instance.factor) ** 2)
    assert np.sqrt(np.mean(spread)) == pytest.approx(0.1 * rms, rel=0.05)
