"""Every method of the experiments takes the steps of an independent loop in plain NumPy."""

from functools import partial

import numpy as np
import pytest

from tests.reference import planted_loops
from usdenoise.completion.descent_methods import METHODS
from usdenoise.completion.problem import CompletionProblem
from usdenoise.completion.solve import solve
from usdenoise.completion.stopping import StoppingRule
from usdenoise.experiments.conventions import STARTS, Convention, Start
from usdenoise.experiments.problems import draw_one_bit, draw_phase, draw_sensing
from usdenoise.experiments.trials import LOST, descend, eta_decay, gradient_descent, precgd, scaledgd_lambda
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.sampling import draw_entries

STEPS = 25


def gradient_of(instance):
    loss = instance.loss
    if hasattr(loss, "log_odds"):
        return partial(planted_loops.one_bit_gradient, log_odds=loss.log_odds)
    return partial(planted_loops.sensing_gradient, matrices=loss.matrices, y=loss.measurements)


def spectral_start(instance, rank):
    """The start as the docs describe it, from the measurements alone."""
    loss = instance.loss
    if hasattr(loss, "log_odds"):
        mean = 4 / (1 + np.exp(-loss.log_odds)) - 2
    else:
        # Real and imaginary parts of the a are standard Gaussian, so the mean of a a^H is 2 I and the variance of its
        # entries 4; the mean of real matrices is 0, and their variance 1.
        expected, variance = (2 * np.eye(10), 4) if np.iscomplexobj(loss.matrices) else (0, 1)
        terms = [y * (A - expected) for A, y in zip(loss.matrices, loss.measurements, strict=True)]
        mean = sum(terms) / len(terms) / variance
    values, vectors = np.linalg.eigh((mean + mean.conj().T) / 2)
    order = np.argsort(values)[::-1][:rank]
    return vectors[:, order] * np.sqrt(np.maximum(values[order], 0))


# Settings of the paper with their search rank, their step and their beta.
SETTINGS = {
    "sensing-lambda, noise 1e-6": (
        partial(draw_sensing, scales=(1.0, 1e-2), rank=8, measurements=160, sigma=1e-6), 8, 0.1, 0.5,
    ),
    "high-noise": (
        partial(draw_sensing, scales=(1.0, 1.0), rank=8, measurements=80, sigma=0.1), 8, 0.01, 0.97,
    ),
    "sensing-well-conditioned, noise 1e-6": (
        partial(draw_sensing, scales=(1.0, 1.0), rank=4, measurements=80, sigma=1e-6), 4, 0.1, 0.1,
    ),
    "one-bit, noise 1e-6": (partial(draw_one_bit, scales=(1.0, 1.0), rank=4, sigma=1e-6), 4, 1.0, 0.4),
    "phase, noiseless": (partial(draw_phase, rank=1, measurements=80, sigma=0.0), 1, 0.02, 0.1),
    "phase, noise 1e-6": (partial(draw_phase, rank=2, measurements=80, sigma=1e-6), 2, 0.02, 0.1),
}  # fmt: skip


@pytest.mark.parametrize("convention", Convention)
@pytest.mark.parametrize("name", SETTINGS)
def test_methods_take_the_steps_of_the_independent_loop(name, convention):
    draw, rank, step, beta = SETTINGS[name]
    instance = draw(np.random.default_rng(2))
    gradient = gradient_of(instance)
    starts = {start: instance.starts[start]() for start in STARTS[:2]}
    mine = spectral_start(instance, rank)
    ours = starts[Start.SPECTRAL]
    assert np.allclose(ours @ ours.conj().T, mine @ mine.conj().T, rtol=0, atol=1e-12)
    # With eigenvectors of the other sign the factors differ, but no product of them.
    starts[Start.SPECTRAL] = mine
    methods = [
        (eta_decay(beta), "eta-decay", beta),
        (precgd(0.5), "precgd", 0.5),
        (precgd(1e-5), "precgd", 1e-5),
        (scaledgd_lambda(1e-2), "scaledgd", 1e-2),
        (gradient_descent(), "gd", None),
    ]
    for start, first in starts.items():
        for variant, kind, parameter in methods:
            expected = planted_loops.descent(
                gradient, first, instance.truth, kind, parameter, step, STEPS, convention.value
            )
            errors = descend(instance, variant, step, STEPS, start, convention).errors
            # With 4/m the steps of phase retrieval are too long on some seeds.
            assert errors == pytest.approx(np.minimum(expected, LOST), rel=1e-6), (start, kind)


def test_phase_retrieval_converges_at_the_rate_of_its_curvature():
    # Near M* a step of gradient descent multiplies the slowest error by 1 - step * smallest curvature. The Wirtinger
    # derivative is half of the gradient in real and imaginary parts.
    instance = draw_phase(np.random.default_rng(0), rank=1, measurements=80, sigma=0.0)
    values, leading = np.linalg.eigh(instance.loss.matrices)
    vectors, z = np.sqrt(values[:, -1:]) * leading[:, :, -1], instance.factor[:, 0]
    directions = np.concatenate([np.eye(10), 1j * np.eye(10)])
    jacobian = 2 * ((vectors.conj() @ directions.T) * (vectors @ z.conj())[:, None]).real
    curvatures = np.linalg.eigvalsh(2 / 80 * jacobian.T @ jacobian)
    # The phase of z is free, so one curvature is 0.
    assert curvatures[0] < 1e-12 < curvatures[1]
    errors = descend(
        instance, gradient_descent(), 0.02, 1000, Start.APPENDIX, Convention.OF_BOTH_SYMMETRIC
    ).errors
    rate = (errors[600] / errors[400]) ** (1 / 200)
    assert rate == pytest.approx(1 - 0.01 * curvatures[1], abs=2e-4)
    # So the 1000 iterations of the experiment reach 1e-10. With vectors of variance 1 the curvature is a quarter, and
    # 1000 iterations would multiply an error by more than 1e-4.
    assert errors[1000] < 1e-10
    assert (1 - 0.01 * curvatures[1] / 4) ** 1000 > 1e-4


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
        gradient, start[0], matrix, name.removesuffix("-lambda"), parameter, step, STEPS, "(U, V)", start[1]
    )
    method = METHODS[name]
    seen = []
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
        seen.append(np.linalg.norm(u @ v.T - matrix) / np.linalg.norm(matrix))
    assert seen == pytest.approx(expected[[1, 5, STEPS]], rel=1e-9)


def step_times_curvature(instance, factor, step):
    """Largest eigenvalue of the linearised step of ScaledGD on the columns of X that are not zero."""
    x = factor[:, np.linalg.norm(factor, axis=0) > 0]
    matrices = (instance.loss.matrices + np.swapaxes(instance.loss.matrices, 1, 2)) / 2
    seen = 2 * np.einsum("kij,jc->kic", matrices, x).reshape(len(matrices), -1)
    moved = np.einsum("kij,jc->kic", matrices, x @ np.linalg.inv(x.T @ x)).reshape(len(matrices), -1)
    return step * np.abs(np.linalg.eigvals(4 / len(matrices) * moved.T @ seen)).max()


def test_with_all_columns_in_use_the_published_step_is_near_its_limit_of_2():
    # The page on the reproduction has these medians; the spectral start has 4 to 6 columns, the others have 8.
    draw = SETTINGS["sensing-lambda, noise 1e-6"][0]
    instances = [draw(np.random.default_rng(seed)) for seed in range(10)]
    for start, median in ((Start.SPECTRAL, 1.44), (Start.APPENDIX, 1.69), (Start.SVD, 1.71)):
        found = [step_times_curvature(one, one.starts[start](), 0.1) for one in instances]
        assert np.median(found) == pytest.approx(median, abs=0.01)
        assert max(found) < 2
    used = [np.count_nonzero(np.linalg.norm(one.starts[Start.SPECTRAL](), axis=0)) for one in instances]
    assert (min(used), max(used)) == (4, 6)
