"""The loop: the iterations of the paper and of an independent loop, undone steps, divergence, stopping."""

import warnings

import numpy as np
import pytest

import usdenoise.completion.problem as initialize
from tests.completion.test_problem import make
from tests.reference import loops, planted_loops
from usdenoise.completion import descent_methods
from usdenoise.completion.descent_methods import METHODS, StoppingRule, StopReason, damped_gram, identity
from usdenoise.completion.problem import CompletionProblem, Evaluation
from usdenoise.completion.solve import solve
from usdenoise.errors import DivergedError, OptionError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.sampling import draw_entries


def low_rank(dtype, shape=(60, 40), rank=3, seed=1, scales=(10, 3, 1)):
    rng = np.random.default_rng(seed)
    u, v = (initialize.gaussian(rng, (n, rank), dtype) for n in shape)
    return (u * np.array(scales, u.real.dtype)) @ v.conj().T


def solved(problem, start, step, rule, preconditioner=identity, damping=None, **more):
    """The solution from a start; plain descent unless a method is given."""
    damping = descent_methods.constant(0.0) if damping is None else damping
    how = {"preconditioner": preconditioner, "damping": damping, "stopping": rule}
    return solve(problem, start, step=step, **how, **more)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_eta_decay_is_the_papers_iteration(dtype):
    _, _, sample, problem = make(dtype, (60, 40), fraction=0.7)
    problem.matrix = low_rank(dtype)
    start = initialize.spectral_start(problem, 3, np.random.default_rng(0))
    alpha = 0.3 * 60 * 40 / 2
    u, v, values = loops.eta_decay(
        *start, problem.matrix, sample.mask(slice(0, 60)), alpha, beta=0.05, iterations=12
    )
    solution = solved(problem, start, alpha, StoppingRule(12), damped_gram, descent_methods.geometric(0.05))
    assert [line.objective for line in solution.trace[:-1]] == pytest.approx(values, rel=1e-8)
    assert solution.iterations == 12
    assert solution.passes == 13
    assert np.abs(solution.factors[0] - u).max() < 1e-8
    assert np.abs(solution.factors[1] - v).max() < 1e-8


@pytest.mark.parametrize("name", METHODS)
def test_every_method_recovers_a_low_rank_matrix_from_a_sample(name):
    _, _, _, problem = make(np.complex128, (60, 40), fraction=0.7)
    problem.matrix = low_rank(np.complex128)
    rng = np.random.default_rng(0)
    method = METHODS[name]
    alpha = method.step_tau * 60 * 40 / 2
    if method.preconditioner is identity:
        alpha /= initialize.largest_singular_value(problem, rng)
    start, rule = initialize.spectral_start(problem, 3, rng), StoppingRule(2500 if name == "gd" else 150)
    damping = method.make_damping(1e-3 if "lambda" in name or name == "precgd" else None, 0.5)
    solution = solved(problem, start, alpha, rule, method.preconditioner, damping)
    product = solution.factors[0] @ solution.factors[1].conj().T
    assert np.linalg.norm(product - problem.matrix) < 1e-3 * np.linalg.norm(problem.matrix)


class Bowl:
    """f(x) = |x|^2 / 2 for one factor: plain descent is stable up to a step of 2."""

    def evaluate(self, factors):
        (x,) = factors
        return Evaluation(float(np.vdot(x, x).real) / 2, (x.copy(),))


def descend(problem, start, step, iterations=20):
    return solved(problem, (start,), step, StoppingRule(iterations))


def test_a_step_that_raises_the_objective_is_undone_and_halved():
    solution = descend(Bowl(), np.ones((3, 1)), step=7.0)
    # 7 -> 3.5 -> 1.75, which shrinks |x| by 0.75 a step; it then stays.
    assert [line.halvings for line in solution.trace] == [0, 2] + [0] * 19
    assert all(line.step == 1.75 for line in solution.trace[1:])
    assert np.allclose(solution.factors[0], (-0.75) ** 20)
    assert solution.passes == 1 + 20 + 2


def test_a_non_finite_iterate_is_a_stop_reason_and_an_error_that_names_the_step():
    solution = descend(Bowl(), np.full((2, 1), 1e100), step=1e300)
    assert solution.stop_reason is StopReason.DIVERGED
    # The trace of the finite iterates is kept, and so are the last finite factors.
    assert [line.iteration for line in solution.trace] == [0]
    assert np.array_equal(solution.factors[0], np.full((2, 1), 1e100))
    assert solution.passes == 2
    with pytest.raises(DivergedError, match=r"iteration 1 with step 1e\+300.*smaller step") as caught:
        solution.check_finite()
    assert "smaller step, or more damping" in str(caught.value)


def test_overflows_of_a_problem_are_told_as_divergence_alone():
    class Steep(Bowl):
        def evaluate(self, factors):
            (x,) = factors
            return Evaluation(float(np.vdot(x, x)), (x * x * x,))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = descend(Steep(), np.full((2, 1), 1e10, np.float32), step=1e10)
    assert solution.stop_reason is StopReason.DIVERGED


def test_a_start_that_is_not_finite_has_no_trace():
    solution = descend(Bowl(), np.full((2, 1), np.inf), step=1.0)
    assert (solution.stop_reason, solution.trace, solution.iterations) == (StopReason.DIVERGED, (), 0)


def test_no_descent_ends_the_loop_with_its_reason():
    class Wall:
        calls = 0

        def evaluate(self, factors):
            Wall.calls += 1
            return Evaluation(float(Wall.calls), (np.ones_like(factors[0]),))

    solution = descend(Wall(), np.zeros((2, 1)), step=1.0)
    assert solution.stop_reason is StopReason.NO_DESCENT
    assert solution.iterations == 0


def test_stopping_by_held_out_error_waits_its_patience():
    rule = StoppingRule(100, patience=2)
    errors = [1.0, 0.5, 0.5, 0.4999, 0.1]
    reasons = [rule.check(k, error) for k, error in enumerate(errors[:4])]
    assert reasons == [None, None, None, StopReason.HELD_OUT]


def test_a_slow_beginning_is_not_convergence_and_a_rise_is():
    slow = [1.0, 0.9999, 0.9997, 0.999, 0.9, 0.5, 0.4999]
    rule = StoppingRule(100, patience=1)
    reasons = [rule.check(k, error) for k, error in enumerate(slow)]
    assert reasons == [None] * 6 + [StopReason.HELD_OUT]
    rule = StoppingRule(100, patience=1)
    assert [rule.check(k, error) for k, error in enumerate([1.0, 0.9999, 1.1])][-1] is StopReason.HELD_OUT


def test_iterations_after_the_best_one_do_not_count():
    _, _, _, problem = make(np.complex128, (60, 40), fraction=0.7)
    problem.matrix = low_rank(np.complex128)
    start = initialize.spectral_start(problem, 3, np.random.default_rng(0))

    class Worse:
        """The problem with a held-out error that falls twice and then rises."""

        errors = iter([1.0, 0.5, 0.2, 0.4])

        def evaluate(self, factors):
            found = problem.evaluate(factors)
            return Evaluation(found.value, found.gradients, next(self.errors))

    rule, damping = StoppingRule(10, patience=1), descent_methods.geometric(0.5)
    solution = solved(Worse(), start, 0.3 * 60 * 40 / 2, rule, damped_gram, damping)
    assert (solution.iterations, len(solution.trace), solution.held_out_rmse) == (2, 4, 0.2)


def test_penalties_have_the_gradients_of_their_values():
    rng = np.random.default_rng(4)
    factors = tuple(initialize.gaussian(rng, (n, 3), np.complex128) for n in (9, 7))
    weights = np.array([0.5, 1.0, 7.0])
    u, v = factors
    sizes = [(np.abs(factor) ** 2).sum(axis=0) for factor in factors]
    for penalty, expected in (
        (descent_methods.norm_penalty(lambda iteration: 0.3 * iteration), 0.6 * np.sum(sizes)),
        (descent_methods.component_products(weights), np.sum(weights * sizes[0] * sizes[1])),
    ):
        assert penalty(2, factors)[0] == pytest.approx(expected)

        class Alone:
            def evaluate(self, factors, penalty=penalty):
                return Evaluation(*penalty(2, factors))

        loops.assert_taylor(Alone(), factors, rng, 0.01)
    # The size of a component may move between the factors.
    scaled = u * np.array([10.0, 0.1, 3.0]), v / np.array([10.0, 0.1, 3.0])
    assert descent_methods.component_products(weights)(0, scaled)[0] == pytest.approx(expected)


def test_schedules():
    assert [descent_methods.geometric(0.5)(t, 9.0, 16.0) for t in range(3)] == [4.0, 2.0, 1.0]
    assert descent_methods.geometric(0.5, 3.0)(1, 9.0, 16.0) == 1.5
    assert descent_methods.constant(0.1)(7, 9.0, 16.0) == 0.1
    assert descent_methods.constant(0.0)(7, 9.0, 16.0) == 0.0
    assert descent_methods.residual(3.0)(0, 25.0, 0.0) == 4.0
    assert descent_methods.residual(5.0)(0, 9.0, 0.0) == 4.0


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_damped_gram_equals_its_formula(dtype):
    rng = np.random.default_rng(2)
    u, v, gu, gv = (initialize.gaussian(rng, (n, 3), dtype) for n in (9, 7, 9, 7))
    du, dv = damped_gram((u, v), (gu, gv), 0.3)
    wide = [a.astype(np.complex128) for a in (u, v, gu, gv)]
    tolerance = 50 * np.finfo(dtype).eps
    for ours, gradient, other in ((du, wide[2], wide[1]), (dv, wide[3], wide[0])):
        expected = gradient @ np.linalg.inv(other.conj().T @ other + 0.3 * np.eye(3))
        assert np.abs(ours - expected).max() < tolerance * np.abs(expected).max() * 10


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_spectral_start_is_the_truncated_svd_of_the_scaled_sample(dtype):
    matrix, _, sample, problem = make(dtype, (80, 50), fraction=0.9)
    problem.matrix = matrix + low_rank(dtype, (80, 50), scales=(30, 20, 15)).astype(dtype)
    u, v = initialize.spectral_start(problem, 3, np.random.default_rng(0))
    scaled = np.where(sample.mask(slice(0, 80)), problem.matrix, 0) / sample.density
    left, singular, right = loops.truncated_svd(scaled, 3)
    difference = u @ v.conj().T - (left * singular) @ right.conj().T
    assert np.linalg.norm(difference) < 1e-3 * np.linalg.norm(singular)
    for factor in (u, v):
        product = factor.conj().T @ factor
        assert np.abs(product - np.diag(singular)).max() < 2e-3 * singular[0]


def test_warm_start_keeps_the_given_factors_and_fills_up_the_rank():
    _, factors, _, problem = make(np.complex64, (60, 40), rank=3)
    u, v = initialize.start_from(problem, 5, np.random.default_rng(0), factors)
    assert u.shape == (60, 5)
    assert np.array_equal(u[:, :3], factors[0])
    assert np.array_equal(v[:, :3], factors[1])
    assert 0 < np.abs(u[:, 3:] @ v[:, 3:].conj().T).max() < 1e-4
    same = initialize.start_from(problem, 3, np.random.default_rng(0), factors)
    assert np.array_equal(same[0], factors[0])


@pytest.mark.parametrize("rank", [2, 3])
def test_warm_start_of_another_size_is_refused(rank):
    _, (u, v), _, problem = make(np.complex64, (60, 40), rank=3)
    with pytest.raises(OptionError, match="cannot start a matrix of 60 pixels x 40 frames at rank"):
        initialize.start_from(problem, rank, np.random.default_rng(0), (u, v) if rank == 2 else (v, u))


def test_random_starts_have_the_scale_of_the_data():
    matrix, _, _, problem = make(np.complex64, (400, 300), scale=1e4)
    for make_start, scale in ((initialize.random_start, 1.0), (initialize.small_start, initialize.SMALL_RMS)):
        u, v = make_start(problem, 5, np.random.default_rng(0))
        rms = np.sqrt(np.mean(np.abs(u @ v.conj().T) ** 2))
        assert rms == pytest.approx(scale * np.sqrt(np.mean(np.abs(matrix) ** 2)), rel=0.2)


def test_a_fixed_step_is_kept_whatever_it_does():
    # Plain descent multiplies x by 1 - 2.5 in every step.
    solution = solved(Bowl(), (np.ones((2, 1)),), 2.5, StoppingRule(4), undo=False)
    assert solution.factors[0] == pytest.approx(np.full((2, 1), 1.5**4))
    assert [line.objective for line in solution.trace] == pytest.approx([1.5 ** (2 * k) for k in range(5)])
    assert {line.step for line in solution.trace[1:]} == {2.5}
    assert solution.passes == 5


STEPS = 25

METHODS_OF_COMPLETION = {
    "eta-decay": (None, 0.05, 0.05), "precgd": (5e-3, 1.0, 5e-3), "scaledgd-lambda": (5e-2, 1.0, 5e-2),
    "gd": (None, 1.0, None),
}  # fmt: skip


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
    method, errors = METHODS[name], []
    how = method.preconditioner, method.make_damping(damping, decay)
    for iterations in (1, 5, STEPS):
        u, v = solved(problem, start, step, StoppingRule(iterations), *how, undo=False).factors
        errors.append(np.linalg.norm(u @ v.T - matrix) / np.linalg.norm(matrix))
    assert errors == pytest.approx(expected[[1, 5, STEPS]], rel=1e-9)
