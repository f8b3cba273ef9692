"""Runs on planted problems: curves over seeds, divergence, wall time, and the claims with few seeds."""

import numpy as np
import pytest

from usdenoise.experiments import Setup
from usdenoise.experiments.planted import LARGEST_ERROR, Descent, descend, draw_sensing
from usdenoise.experiments.planted_experiments import (
    HIGH_NOISE,
    ONE_BIT,
    PHASE,
    PlantedSetting,
    eta_decay,
    gradient_descent,
    panel,
)


def setting(*variants, step=0.1, iterations=50, sigma=0.0, **more):
    problem = {"scales": (1.0, 1e-2), "rank": 4, "measurements": 160, "sigma": sigma}
    return PlantedSetting("x", draw_sensing, problem, variants, step, iterations, **more)


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


@pytest.mark.parametrize(
    ("experiment", "n_seeds"),
    [
        (ONE_BIT, 3),
        pytest.param(HIGH_NOISE, 6, marks=pytest.mark.slow),
        pytest.param(PHASE, 2, marks=pytest.mark.slow),
    ],
)
def test_claims_hold_in_the_paper_s_reading(experiment, n_seeds):
    result = experiment.run(Setup(n_seeds))
    assert all(claim.held for claim in result.claims)
