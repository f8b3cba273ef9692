"""Methods on planted problems: they take the paper's steps, share one loop, and give curves over seeds."""

import ast
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import usdenoise
from tests.reference import loops
from usdenoise.completion.solve import solve
from usdenoise.completion.stopping import StopReason
from usdenoise.errors import DivergedError
from usdenoise.experiments import trials
from usdenoise.experiments.instances import SIZE, draw_one_bit, draw_phase, draw_sensing, noise_floor
from usdenoise.experiments.trials import (
    LOST,
    Variant,
    descend,
    eta_decay,
    gradient_descent,
    panel,
    precgd,
    scaledgd_lambda,
)

DRAW = partial(draw_sensing, scales=(1.0, 1e-2), rank=4, measurements=160, sigma=0.0)


def test_one_symmetric_factor_takes_the_papers_steps():
    instance = DRAW(np.random.default_rng(0))
    problem = instance.problem
    x, values = loops.symmetric_eta_decay(
        instance.starts["near"]()[0],
        lambda x: loops.sensing_value_and_gradient(x, problem.matrices, problem.measurements),
        0.1,
        0.85,
        15,
    )
    # The reference records a value before each of its 15 steps, the descent an error after the last step too.
    descent = descend(instance, eta_decay(0.85), 0.1, 15)
    error = np.linalg.norm(x @ x.T - instance.truth) / np.linalg.norm(instance.truth)
    assert descent.errors[-1] == pytest.approx(error, rel=1e-9)
    assert len(descent.errors) == len(values) + 1
    assert descent.halvings == 0


def calls_in_loops(path: Path) -> set[str]:
    """Names of what is called inside the for and while loops of a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.For | ast.While | ast.comprehension):
            for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
                found.add(getattr(call.func, "attr", getattr(call.func, "id", "")))
    return found


def test_there_is_one_descent_loop_in_the_package():
    root = Path(usdenoise.__file__).parent
    by_file = {str(path.relative_to(root)): calls_in_loops(path) for path in root.rglob("*.py")}
    # A descent loop is recognised by its calls: it evaluates a problem, a damping and a preconditioner.
    assert [name for name, calls in by_file.items() if calls & {"preconditioner", "damping"}] == [
        "completion/solve.py"
    ]
    # The sweep that fits the start from pixels is a linear least-squares fit of one factor, not a descent.
    assert {name for name, calls in by_file.items() if "evaluate" in calls} == {
        "completion/solve.py",
        "completion/posterior.py",
    }


def test_every_run_goes_through_the_loop(monkeypatch):
    from usdenoise.pipeline import fit_sample

    assert trials.solve is fit_sample.solve is solve
    calls = []

    def counted(problem, start, **arguments):
        calls.append(start)
        return solve(problem, start, **arguments)

    monkeypatch.setattr(trials, "solve", counted)
    variants = [eta_decay(0.5), precgd(0.0), scaledgd_lambda(0.1), gradient_descent("small")]
    panel("x", DRAW, variants, seeds=(0, 1, 2), step=0.1, iterations=3)
    assert len(calls) == 12
    assert np.abs(calls[3][0]).max() < 1e-11


def test_methods_are_what_they_are_called():
    instance = DRAW(np.random.default_rng(1))
    ends = {
        variant.label: descend(instance, variant, 0.1, 200).errors[-1]
        for variant in (eta_decay(0.85), scaledgd_lambda(1e-2), precgd(1e-2), gradient_descent())
    }
    assert ends["eta-decay"] < 1e-12
    # Both dampings end at the same level, and plain gradient descent does not find the weak component.
    assert 1e-5 < ends["ScaledGD(0.01)"] < 1e-2
    assert ends["PrecGD, proxy 0.01"] == pytest.approx(ends["ScaledGD(0.01)"], rel=0.5)
    assert ends["GD"] > 10 * ends["ScaledGD(0.01)"]


def test_the_same_seed_gives_the_same_problem_with_and_without_noise():
    clean, noisy = (
        draw_sensing(np.random.default_rng(4), scales=(1.0, 0.5), rank=3, measurements=50, sigma=sigma)
        for sigma in (0.0, 1e-3)
    )
    assert np.array_equal(clean.truth, noisy.truth)
    assert np.array_equal(clean.starts["near"]()[0], noisy.starts["near"]()[0])
    off = noisy.problem.measurements - clean.problem.measurements
    assert 0.5e-3 < np.std(off) < 2e-3


@pytest.mark.parametrize(
    ("draw", "rank"),
    [
        (partial(draw_sensing, scales=(1.0, 1e-2), measurements=160), 8),
        (partial(draw_one_bit, scales=(1.0, 1.0)), 4),
        (partial(draw_phase, measurements=80), 2),
    ],
)
def test_planted_matrix_is_what_its_problem_looks_for(draw, rank):
    instance = draw(np.random.default_rng(2), rank=rank, sigma=0.0)
    truth = instance.truth
    values, vectors = np.linalg.eigh(truth)
    factor = vectors * np.sqrt(np.maximum(values, 0))
    at_truth = instance.problem.evaluate((factor,))
    assert at_truth.value < 1e-28
    assert np.abs(at_truth.gradients[0]).max() < 1e-12
    (near,) = instance.starts["near"]()
    assert near.shape == (SIZE, rank)
    assert instance.problem.evaluate((near,)).value > 1e-4
    (small,) = instance.starts["small"]()
    assert 0 < np.linalg.norm(small) < 1e-10


def test_singular_values_of_the_planted_matrix():
    instance = draw_sensing(np.random.default_rng(0), scales=(1.0, 1e-2), rank=2, measurements=5, sigma=0.0)
    assert np.linalg.svd(instance.truth, compute_uv=False)[:3] == pytest.approx([1, 1e-2, 0], abs=1e-14)


def test_noise_floor_formula():
    assert noise_floor(1e-3, 4, 80, 2.0) == pytest.approx(1e-3 * math.sqrt(40 * math.log(10) / 80) / 2)


def test_a_run_that_diverges_counts_as_lost():
    instance = DRAW(np.random.default_rng(3))
    descent = descend(instance, gradient_descent(), 1e3, 50)
    assert descent.stop_reason == StopReason.DIVERGED.value
    assert descent.errors[-1] == LOST
    assert descent.errors.max() == LOST
    assert descent.raised > 0
    result = panel("x", DRAW, [gradient_descent()], seeds=(3,), step=1e3, iterations=50)
    assert result["GD"].final == LOST
    assert result["GD"].errors.shape == (1, 51)


def test_rising_steps_are_kept_or_undone():
    instance = DRAW(np.random.default_rng(3))
    fixed = descend(instance, gradient_descent(), 0.3, 40)
    undone = descend(instance, gradient_descent(), 0.3, 40, undo=True)
    assert fixed.raised > 0
    assert fixed.halvings == 0
    assert undone.raised == 0
    assert undone.halvings > 0


def test_a_fixed_step_that_leaves_the_finite_numbers_ends_the_loop():
    from usdenoise.completion import damping, preconditioners
    from usdenoise.completion.stopping import StoppingRule

    instance = DRAW(np.random.default_rng(3))
    with np.errstate(over="ignore", invalid="ignore"):
        solution = solve(
            instance.problem,
            instance.starts["near"](),
            preconditioner=preconditioners.identity,
            damping=damping.none(),
            step=1e3,
            stopping=StoppingRule(50),
            undo=False,
        )
    assert solution.stop_reason is StopReason.DIVERGED
    assert 0 < solution.iterations < 50
    with pytest.raises(DivergedError, match=f"at iteration {len(solution.trace)} with step"):
        solution.check_finite()


def test_a_run_that_stands_still_is_drawn_to_the_end():
    result = panel("x", DRAW, [scaledgd_lambda(1e-2)], seeds=(0,), step=1e60, iterations=5, undo=True)
    curve = result.curves[0]
    assert curve.stop_reasons == ("no step lowered the objective any further",)
    assert curve.errors.shape == (1, 6)
    assert np.ptp(curve.errors) == 0


def test_curves_against_time_begin_before_the_start_is_there():
    descent = trials.Descent(np.array([0.5, 0.25, 0.125]), np.array([0.1, 0.2, 0.4]), 0, 0, "")
    at = trials._at(descent, np.array([0.0, 0.1, 0.15, 0.3, 0.4, 9.0]))
    assert at.tolist() == [1.0, 0.5, 0.5, 0.25, 0.125, 0.125]


def test_panel_against_time():
    result = panel(
        "x", DRAW, [Variant("spectral", "eta-decay", decay=0.85, start="spectral")],
        seeds=(0, 1), step=0.1, iterations=50, seconds=5.0,
    )  # fmt: skip
    curve = result.curves[0]
    assert curve.x[0] == 0
    assert curve.x[-1] == 5
    assert np.all(curve.errors[:, 0] == 1)
    assert curve.final < 1e-2


def test_seeds_are_apart_and_repeatable():
    first, again = (
        panel("x", DRAW, [eta_decay(0.85)], seeds=(0, 1), step=0.1, iterations=4) for _ in range(2)
    )
    assert np.array_equal(first.curves[0].errors, again.curves[0].errors)
    assert first.curves[0].errors[0, -1] != first.curves[0].errors[1, -1]
