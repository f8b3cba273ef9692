"""Methods on planted problems: they take the paper's steps, share one loop, and give curves over seeds."""

import ast
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import usdenoise
from tests.reference import loops
from usdenoise.completion import damping, preconditioners
from usdenoise.completion.solve import solve
from usdenoise.completion.stopping import StoppingRule, StopReason
from usdenoise.errors import DivergedError
from usdenoise.experiments import trials
from usdenoise.experiments.conventions import ALL, STARTS, Convention, Start
from usdenoise.experiments.instances import SIZE, draw_one_bit, draw_phase, draw_sensing
from usdenoise.experiments.noise_floor import minimax_level
from usdenoise.experiments.problems import PlantedProblem
from usdenoise.experiments.trials import (
    LOST,
    Setting,
    descend,
    eta_decay,
    gradient_descent,
    panels,
    precgd,
    scaledgd_lambda,
)

DRAW = partial(draw_sensing, scales=(1.0, 1e-2), rank=4, measurements=160, sigma=0.0)
OF_X = {Convention.OF_X: STARTS}


def test_one_symmetric_factor_takes_the_papers_steps():
    instance = DRAW(np.random.default_rng(0))
    loss = instance.loss
    x, values = loops.symmetric_eta_decay(
        instance.starts[Start.SPECTRAL](),
        lambda x: loops.sensing_value_and_gradient(x, loss.matrices, loss.measurements),
        0.1,
        0.85,
        15,
    )
    # The reference records a value before each of its 15 steps, the descent an error after the last step too.
    descent = descend(instance, eta_decay(0.85), 0.1, 15)
    error = np.linalg.norm(x @ x.T - instance.truth) / np.linalg.norm(instance.truth)
    assert descent.errors[-1] == pytest.approx(error, rel=1e-9)
    assert len(descent.errors) == len(values) + 1


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
    from usdenoise.components import fit_sample

    assert trials.solve is fit_sample.solve is solve
    calls = []

    def counted(problem, start, **arguments):
        calls.append(start)
        return solve(problem, start, **arguments)

    monkeypatch.setattr(trials, "solve", counted)
    variants = [eta_decay(0.5), precgd(0.0), scaledgd_lambda(0.1), gradient_descent(Start.SMALL)]
    panels(Setting("x", DRAW, variants, 0.1, 3), (0, 1, 2), OF_X)
    # One method has a start of its own, and runs once for the panels of both starts.
    assert len(calls) == 9 * len(STARTS) + 3
    assert sum(np.abs(start[0]).max() < 1e-11 for start in calls) == 3


def test_methods_are_what_they_are_called():
    instance = DRAW(np.random.default_rng(1))
    ends = {
        variant.label: descend(instance, variant, 0.1, 200, Start.APPENDIX).errors[-1]
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
    for start in (Start.APPENDIX, Start.SMALL):
        assert np.array_equal(clean.starts[start](), noisy.starts[start]())
    off = noisy.loss.measurements - clean.loss.measurements
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
    problem = PlantedProblem(instance.loss, instance.truth)
    at_truth = problem.evaluate((instance.factor,))
    assert at_truth.value < 1e-28
    assert at_truth.held_out_rmse == 0
    assert np.abs(at_truth.gradients[0]).max() < 1e-12
    for start in ALL[Convention.OF_X]:
        factor = instance.starts[start]()
        assert factor.shape == (SIZE, rank)
        assert problem.evaluate((factor,)).value > 1e-6
    assert 0 < np.linalg.norm(instance.starts[Start.SMALL]()) < 1e-10


@pytest.mark.parametrize("draw", [partial(DRAW, rank=8), partial(draw_phase, rank=2, measurements=80)])
def test_the_appendix_start_is_the_factor_plus_a_tenth_of_a_gaussian(draw):
    spread = []
    for seed in range(20):
        instance = draw(np.random.default_rng(seed), sigma=0.0)
        spread.append(np.abs(instance.starts[Start.APPENDIX]() - instance.factor) ** 2)
    assert np.sqrt(np.mean(spread)) == pytest.approx(0.1, rel=0.05)


def test_the_spectral_start_takes_nothing_from_the_planted_matrix():
    instance = DRAW(np.random.default_rng(5))
    factor = instance.starts[Start.SPECTRAL]()
    loss = instance.loss
    mean = np.einsum("k,kij->ij", loss.measurements, loss.matrices) / len(loss.measurements)
    values, vectors = np.linalg.eigh((mean + mean.T) / 2)
    nearest = (vectors[:, -4:] * np.maximum(values[-4:], 0)) @ vectors[:, -4:].T
    assert np.allclose(factor @ factor.T, nearest, rtol=0, atol=1e-12)


def test_singular_values_of_the_planted_matrix():
    instance = draw_sensing(np.random.default_rng(0), scales=(1.0, 1e-2), rank=2, measurements=5, sigma=0.0)
    assert np.linalg.svd(instance.truth, compute_uv=False)[:3] == pytest.approx([1, 1e-2, 0], abs=1e-14)


def test_a_run_that_diverges_counts_as_lost():
    instance = DRAW(np.random.default_rng(3))
    descent = descend(instance, gradient_descent(), 1e3, 50)
    assert descent.stop_reason == StopReason.DIVERGED.value
    assert descent.errors[-1] == LOST
    assert descent.errors.max() == LOST
    assert descent.raised > 0
    result = panels(Setting("x", DRAW, [gradient_descent()], 1e3, 50), (3,), OF_X)[0]
    assert result["GD"].final == LOST
    assert result["GD"].errors.shape == (1, 51)


def descent_by(undo, step, iterations):
    instance = DRAW(np.random.default_rng(3))
    with np.errstate(over="ignore", invalid="ignore"):
        return solve(
            PlantedProblem(instance.loss, instance.truth),
            (instance.starts[Start.APPENDIX](),),
            preconditioner=preconditioners.identity,
            damping=damping.none(),
            step=step,
            stopping=StoppingRule(iterations),
            undo=undo,
        )


def test_rising_steps_are_kept_or_undone():
    kept, undone = (descent_by(undo, 0.3, 40).trace for undo in (False, True))
    assert max(np.diff([line.objective for line in kept])) > 0
    assert sum(line.halvings for line in kept) == 0
    assert max(np.diff([line.objective for line in undone])) <= 0
    assert sum(line.halvings for line in undone) > 0


def test_a_fixed_step_that_leaves_the_finite_numbers_ends_the_loop():
    solution = descent_by(False, 1e3, 50)
    assert solution.stop_reason is StopReason.DIVERGED
    assert 0 < solution.iterations < 50
    with pytest.raises(DivergedError, match=f"at iteration {len(solution.trace)} with step"):
        solution.check_finite()


def test_curves_against_time_begin_before_the_start_is_there():
    descent = trials.Descent(np.array([0.5, 0.25, 0.125]), np.array([0.1, 0.2, 0.4]), 0, "")
    at = trials._at(descent, np.array([0.0, 0.1, 0.15, 0.3, 0.4, 9.0]))
    assert at.tolist() == [1.0, 0.5, 0.5, 0.25, 0.125, 0.125]


def test_panel_against_time():
    setting = Setting("x", DRAW, [eta_decay(0.85)], 0.1, 50, seconds=5.0)
    curve = panels(setting, (0, 1), OF_X)[0].curves[0]
    assert curve.x[0] == 0
    assert curve.x[-1] == 5
    assert np.all(curve.errors[:, 0] == 1)
    assert curve.final < 1e-2


def test_seeds_are_apart_and_repeatable():
    first, again = (panels(Setting("x", DRAW, [eta_decay(0.85)], 0.1, 4), (0, 1), OF_X)[0] for _ in range(2))
    assert np.array_equal(first.curves[0].errors, again.curves[0].errors)
    assert first.curves[0].errors[0, -1] != first.curves[0].errors[1, -1]


def test_every_start_and_convention_has_a_panel_and_the_spectral_one_with_f_is_the_first():
    found = panels(Setting("x", DRAW, [eta_decay(0.85)], 0.1, 4), (0,), ALL)
    kinds = [(panel.start, panel.convention) for panel in found]
    assert kinds == [(start, convention) for convention, starts in ALL.items() for start in starts]
    assert kinds[0] == (Start.SPECTRAL, Convention.OF_X)
    ends = {kind: panel.curves[0].final for kind, panel in zip(kinds, found, strict=True)}
    assert len(set(ends.values())) == len(ends)


def test_eta_decay_reaches_the_noise_floor_from_the_spectral_start():
    from usdenoise.experiments.sensing import MEASUREMENTS, NOISY_DECAY, RANK, SCALES, SIGMA, STEP

    draw = partial(draw_sensing, scales=SCALES, rank=RANK, measurements=MEASUREMENTS, sigma=SIGMA)
    level = minimax_level(SIGMA, RANK, MEASUREMENTS, float(np.linalg.norm(SCALES)))
    setting = Setting("x", draw, [eta_decay(NOISY_DECAY)], STEP, 100, level)
    found = panels(setting, range(10), OF_X)[0]
    assert found.curves[0].share_within(2 * found.noise_floor, 100) >= 0.9
    # The floor is that of the noise: a hundredth of it is out of reach.
    assert found.curves[0].share_within(0.01 * found.noise_floor, 100) == 0


def test_columns_of_zeros_do_not_move_and_the_svd_start_has_none():
    instance = draw_sensing(
        np.random.default_rng(0), scales=(1.0, 1e-2), rank=8, measurements=160, sigma=1e-6
    )
    spectral, svd = instance.starts[Start.SPECTRAL](), instance.starts[Start.SVD]()
    zero = np.linalg.norm(spectral, axis=0) == 0
    assert 0 < zero.sum() < 8
    assert np.linalg.norm(svd, axis=0).min() > 1e-3
    mean = instance.loss.spectral_estimate()
    values = np.sort(np.abs(np.linalg.eigvalsh((mean + mean.T) / 2)))[::-1]
    assert np.linalg.svd(svd, compute_uv=False) ** 2 == pytest.approx(values[:8])
    problem = PlantedProblem(instance.loss, instance.truth)
    (gradient,) = problem.evaluate((spectral,)).gradients
    assert np.all(gradient[:, zero] == 0)
    # All eight columns in use, the error is far above the noise floor of 5e-7.
    assert descend(instance, eta_decay(0.5), 0.1, 60).errors[-1] < 2e-6
    assert descend(instance, eta_decay(0.5), 0.1, 60, Start.SVD).errors[-1] > 1e-5
