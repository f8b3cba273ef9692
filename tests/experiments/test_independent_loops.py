"""Every method of the experiments takes the steps of an independent loop in plain NumPy."""

from functools import partial

import numpy as np
import pytest

from tests.reference import planted_loops
from usdenoise.completion.descent_methods import METHODS, StoppingRule
from usdenoise.completion.problem import CompletionProblem
from usdenoise.completion.solve import solve
from usdenoise.experiments.planted import LARGEST_ERROR, descend, draw_one_bit, draw_phase, draw_sensing
from usdenoise.experiments.planted_experiments import eta_decay, gradient_descent, precgd, scaledgd
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.sampling import draw_entries

STEPS = 25

# Settings of the paper with their search rank, their step and their beta.
SETTINGS = {
    "sensing-lambda, noise 1e-6": (
        partial(draw_sensing, scales=(1.0, 1e-2), rank=8, measurements=160, sigma=1e-6), 0.1, 0.5,
    ),
    "high-noise": (
        partial(draw_sensing, scales=(1.0, 1.0), rank=8, measurements=80, sigma=0.1), 0.01, 0.97,
    ),
    "sensing-well-conditioned, noise 1e-6": (
        partial(draw_sensing, scales=(1.0, 1.0), rank=4, measurements=80, sigma=1e-6), 0.1, 0.1,
    ),
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
        (eta_decay(beta), "eta-decay", beta),
        (precgd(0.5), "precgd", 0.5),
        (precgd(1e-5), "precgd", 1e-5),
        (scaledgd(1e-2), "scaledgd", 1e-2),
        (gradient_descent(), "gd", None),
    ]
    for variant, kind, parameter in methods:
        expected = planted_loops.descent(
            gradient_of(instance), instance.start(), instance.truth, kind, parameter, step, STEPS
        )
        errors = descend(instance, variant, step, STEPS).errors
        assert errors == pytest.approx(np.minimum(expected, LARGEST_ERROR), rel=1e-6), kind


METHODS_OF_COMPLETION = {
    "eta-decay": (None, 0.05, 0.05),
    "precgd": (5e-3, 1.0, 5e-3),
    "scaledgd-lambda": (5e-2, 1.0, 5e-2),
    "gd": (None, 1.0, None),
}


@pytest.mark.parametrize("name", METHODS_OF_COMPLETION)
def test_completion_takes_the_steps_of_the_independent_loop(name):
    damping, decay, parameter = METHODS_OF_COMPLETION[name]
    rng = np.random.default_rng(4)
    left, right = rng.standard_normal((40, 3)), rng.standard_normal((30, 3))
    matrix = left @ right.T + 0.1 * rng.standard_normal((40, 30))
    sample = draw_entries(matrix.shape, 0.5, 0)
    mask = sample.mask(slice(0, 40))
    problem = CompletionProblem(matrix, sample, ThreadExecutor(1))
    start = (left + 0.1 * rng.standard_normal(left.shape), right + 0.1 * rng.standard_normal(right.shape))
    step = 1.0 if name == "gd" else 0.32 * mask.size / 2

    def gradient(M):
        off = np.where(mask, M - matrix, 0)
        return np.sum(off**2) / mask.sum(), 2 * off / mask.sum()

    expected = planted_loops.descent(
        gradient, start[0], matrix, name.removesuffix("-lambda"), parameter, step, STEPS, start[1]
    )
    method = METHODS[name]
    errors = []
    for iterations in (1, 5, STEPS):
        u, v = solve(
            problem,
            start,
            preconditioner=method.preconditioner,
            damping=method.make_damping(damping, decay),
            step=step,
            stopping=StoppingRule(iterations),
            undo=False,
        ).factors
        errors.append(np.linalg.norm(u @ v.T - matrix) / np.linalg.norm(matrix))
    assert errors == pytest.approx(expected[[1, 5, STEPS]], rel=1e-9)
