"""Methods on planted problems: they take the paper's steps, share one loop, and give curves over seeds."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from usdenoise.completion.stopping import StopReason
from usdenoise.experiments import exact_and_over, sensing
from usdenoise.experiments.conventions import HERMITIAN, MAIN_TEXT, STARTS, Convention, Start
from usdenoise.experiments.planted import Setting, panels
from usdenoise.experiments.problems import SIZE, PlantedProblem, draw_one_bit, draw_phase, draw_sensing
from usdenoise.experiments.sensing import NOISY_DECAY, SIGMA, STEP
from usdenoise.experiments.trials import (
    LOST,
    Descent,
    Variant,
    descend,
    eta_decay,
    gradient_descent,
)

PROBLEM = {"scales": (1.0, 1e-2), "rank": 4, "measurements": 160, "sigma": 0.0}
DRAW = partial(draw_sensing, **PROBLEM)
OF_X = {Convention.OF_X: STARTS[:2]}


def test_a_method_with_a_start_of_its_own_has_one_curve_in_all_panels():
    spectral, appendix = panels(
        Setting("x", draw_sensing, PROBLEM, [eta_decay(0.5), gradient_descent(Start.SMALL)], 0.1, 3),
        (0, 1),
        OF_X,
    )
    assert np.array_equal(spectral["GD"].errors, appendix["GD"].errors)
    # The estimate from the small start is almost 0, so its relative error is almost 1.
    assert spectral["GD"].errors[:, 0] == pytest.approx(1)
    assert not np.array_equal(spectral["eta-decay"].errors, appendix["eta-decay"].errors)


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
    assert np.sum(instance.loss.residuals(instance.truth) ** 2) < 1e-28
    assert at_truth.held_out_rmse == 0
    assert np.abs(at_truth.gradients[0]).max() < 1e-12
    for start in STARTS:
        factor = instance.starts[start]()
        assert factor.shape == (SIZE, rank)
        assert problem.evaluate((factor,)).value > 1e-6
    assert 0 < np.linalg.norm(instance.starts[Start.SMALL]()) < 1e-10


@pytest.mark.parametrize(
    ("draw", "rms"), [(partial(DRAW, rank=8), 1), (partial(draw_phase, rank=2, measurements=80), np.sqrt(2))]
)
def test_the_appendix_start_is_the_factor_plus_a_tenth_of_a_gaussian(draw, rms):
    spread = []
    for seed in range(20):
        instance = draw(np.random.default_rng(seed), sigma=0.0)
        spread.append(np.abs(instance.starts[Start.APPENDIX]() - instance.factor) ** 2)
    assert np.sqrt(np.mean(spread)) == pytest.approx(0.1 * rms, rel=0.05)


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
    result = panels(Setting("x", draw_sensing, PROBLEM, [gradient_descent()], 1e3, 50), (3,), OF_X)[0]
    assert result["GD"].final == LOST
    assert result["GD"].errors.shape == (1, 51)


def test_curves_against_time_begin_before_the_start_is_there():
    descent = Descent(np.array([0.5, 0.25, 0.125]), np.array([0.1, 0.2, 0.4]), 0, "")
    at = descent.at(np.array([0.0, 0.1, 0.15, 0.3, 0.4, 9.0]))
    assert at.tolist() == [1.0, 0.5, 0.5, 0.25, 0.125, 0.125]


def test_panel_against_time():
    setting = Setting("x", draw_sensing, PROBLEM, [eta_decay(0.85)], 0.1, 50, seconds=5.0)
    curve = panels(setting, (0, 1), OF_X)[0].curves[0]
    assert curve.x[0] == 0
    assert curve.x[-1] == 5
    assert np.all(curve.errors[:, 0] == 1)
    assert curve.final < 1e-2


def test_seeds_are_apart_and_repeatable():
    first, again = (
        panels(Setting("x", draw_sensing, PROBLEM, [eta_decay(0.85)], 0.1, 4), (0, 1), OF_X)[0]
        for _ in range(2)
    )
    assert np.array_equal(first.curves[0].errors, again.curves[0].errors)
    assert first.curves[0].errors[0, -1] != first.curves[0].errors[1, -1]


def test_every_start_and_convention_has_a_panel_and_the_first_is_the_paper_s_reading():
    found = panels(Setting("x", draw_sensing, PROBLEM, [eta_decay(0.85)], 0.1, 4), (0,), MAIN_TEXT)
    kinds = [(panel.start, panel.convention) for panel in found]
    assert kinds == [(start, convention) for convention, starts in MAIN_TEXT.items() for start in starts]
    assert kinds[0] == (Start.SPECTRAL, Convention.OF_X)
    assert found[0].reading == "paper"
    assert found[1].reading == "appendix start, f(X)"
    assert len({panel.reading for panel in found}) == len(found)
    ends = {kind: panel.curves[0].final for kind, panel in zip(kinds, found, strict=True)}
    assert len(set(ends.values())) == len(ends)


def test_eta_decay_reaches_the_noise_floor_from_the_spectral_start():
    problem = {**sensing.PROBLEM, "sigma": SIGMA}
    setting = Setting("x", draw_sensing, problem, [eta_decay(NOISY_DECAY)], STEP, 100)
    found = panels(setting, range(10), OF_X)[0]
    assert found.curves[0].reaches(2 * found.noise_floor, 0.9) <= 100
    # The floor is that of the noise: a hundredth of it is out of reach.
    assert found.curves[0].errors.min() > 0.01 * found.noise_floor


def test_from_the_small_start_eta_decay_reaches_the_noise_floor_with_beta_085_but_not_with_05():
    slow, fast = (Variant(str(beta), "eta-decay", decay=beta, start=Start.SMALL) for beta in (0.85, 0.5))
    problem = {**sensing.PROBLEM, "sigma": SIGMA}
    found = panels(Setting("x", draw_sensing, problem, [slow, fast], STEP, 100), range(3), OF_X)[0]
    level = 2 * found.noise_floor
    assert found["0.85"].reaches(level, 1.0) <= 84
    assert found["0.5"].reaches(level) == np.inf


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


def settings(experiment, seeds, **changes):
    """The settings of an experiment with its first start and gradient, and some changes of the problem."""
    convention, starts = next(iter(experiment.tried.items()))
    for setting in experiment.settings:
        changed = replace(setting, problem={**setting.problem, **changes})
        yield setting.checks, panels(changed, range(seeds), {convention: starts[:1]})[0]


def held(experiment, seeds, **changes):
    return [
        check.claim(panel, "").held
        for checks, panel in settings(experiment, seeds, **changes)
        for check in checks
    ]


def test_high_noise_is_a_standard_deviation():
    assert all(held(sensing.HIGH_NOISE, 6))
    # With a variance of 0.1 the damping of PrecGD costs nothing, whatever its proxy.
    assert held(sensing.HIGH_NOISE, 6, sigma=np.sqrt(0.1))[2:] == [False] * 3


def test_one_bit_claims_hold_from_the_appendix_start_with_the_loss_as_printed():
    assert next(iter(exact_and_over.ONE_BIT.tried.values()))[0] is Start.APPENDIX
    assert all(held(exact_and_over.ONE_BIT, 3))
    (_, clean), _ = settings(exact_and_over.ONE_BIT, 3)
    # The entropy in the loss keeps the damping of PrecGD large, without noise as well.
    assert clean["PrecGD, proxy 0"].reaches(1e-10) == np.inf


def test_phase_claims_hold_with_vectors_of_variance_2_and_the_wirtinger_derivative():
    assert exact_and_over.PHASE.tried is HERMITIAN
    assert next(iter(HERMITIAN.values()))[0] is Start.APPENDIX
    assert all(held(exact_and_over.PHASE, 2))
