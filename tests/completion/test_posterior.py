"""Rows by their posterior means and the sweep of expectation maximisation, against textbook forms."""

import numpy as np
import pytest

from usdenoise.completion import posterior
from usdenoise.completion.posterior import fit_rows, posterior_sweep
from usdenoise.completion.problem import CompletionProblem
from usdenoise.completion.starts import gaussian
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.stack.sampling import draw_entries


def problem(dtype, rank, fraction=0.6, shape=(300, 200), decades=2.0, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    right = orthonormal(gaussian(rng, (shape[1], rank), np.result_type(dtype, np.float64))).astype(dtype)
    scales = np.logspace(decades, 0, rank)
    rows = gaussian(rng, (shape[0], rank), dtype) * scales.astype(np.dtype(dtype).type(0).real.dtype)
    matrix = (rows @ right.conj().T + noise * gaussian(rng, shape, dtype)).astype(dtype)
    sample = draw_entries(shape, fraction, seed)
    return matrix, right, scales**2, CompletionProblem(matrix, sample, ThreadExecutor(2), "dense")


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("rank", [1, 8, 40])
def test_rows_are_the_ridge_regressions_of_the_textbook(dtype, rank):
    matrix, right, variances, completion = problem(dtype, rank)
    rows, passes = fit_rows(completion, right, variances, 0.01)
    mask = completion.sample.mask(slice(0, len(matrix)))
    for i in (0, 17, 299):
        design = right[mask[i]].conj().astype(np.complex128)
        normal = design.conj().T @ design + np.diag(0.01 / variances)
        expected = np.linalg.solve(normal, design.conj().T @ matrix[i, mask[i]])
        # What is left is a small part of the posterior's spread, sqrt(r) times 0.1 over sqrt(0.6).
        assert np.linalg.norm(rows[i] - expected) < 0.25 * 0.13 * np.sqrt(rank) + 1e-4 * np.linalg.norm(
            expected
        )
    assert (passes < 2) == (rank <= 24)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_long_stacks_are_swept_by_parts_of_the_frames(dtype, monkeypatch):
    _, right, variances, completion = problem(dtype, 8)
    whole = posterior_sweep(completion, right, variances, 0.01)
    monkeypatch.setattr(posterior, "_ROWS_KEPT", 150)
    monkeypatch.setattr(posterior, "_ROWS_OF_V", 70)
    parts = posterior_sweep(completion, right, variances, 0.01)
    assert whole[3] == parts[3]
    for one, other in zip(whole[:3], parts[:3], strict=True):
        assert np.linalg.norm(one - other) < 50 * np.finfo(dtype).eps * np.linalg.norm(one)


def test_a_guess_of_the_rows_costs_one_look_and_saves_the_steps():
    _, right, variances, completion = problem(np.complex64, 40)
    cold, cold_passes = fit_rows(completion, right, variances, 0.01)
    warm, warm_passes = fit_rows(completion, right, variances, 0.01, cold)
    assert warm_passes < cold_passes
    assert warm_passes < 3
    assert np.linalg.norm(warm - cold) < 1e-3 * np.linalg.norm(cold)
    zero, zero_passes = fit_rows(completion, right, variances, 0.01, np.zeros_like(cold))
    assert zero_passes == pytest.approx(cold_passes + 1)
    assert np.linalg.norm(zero - cold) < 1e-5 * np.linalg.norm(cold)


def test_a_sweeps_guess_is_the_old_model_in_the_new_columns():
    _, right, variances, completion = problem(np.complex128, 6, fraction=0.9, decades=1.0)
    rows, _ = fit_rows(completion, right, variances, 0.01)
    better, learnt, guess, _ = posterior_sweep(completion, right, variances, 0.01)
    wanted, _ = fit_rows(completion, better, learnt, 0.01)
    # The factor hardly moves from the truth, so the guess is nearly the fit that it saves.
    assert np.linalg.norm(guess - wanted) < 0.02 * np.linalg.norm(wanted)
    assert np.linalg.norm(guess @ better.conj().T - rows @ right.conj().T) < 0.02 * np.linalg.norm(rows)


def test_rows_without_samples_are_zero_and_a_strong_prior_shrinks():
    _, right, variances, completion = problem(np.complex64, 5)
    completion.sample.bits[7] = 0
    rows, _ = fit_rows(completion, right, variances, 0.01)
    assert np.abs(rows[7]).max() == 0
    shrunk, _ = fit_rows(completion, right, variances * 1e-12, 0.01)
    assert np.abs(shrunk).max() < 1e-3 * np.abs(rows).max()


def angle(first, second):
    """Largest sine between two subspaces."""
    projected = second - first @ (first.conj().T @ second)
    return np.linalg.norm(projected, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_a_sweep_brings_the_subspace_closer_and_learns_the_variances(dtype):
    _, right, variances, completion = problem(dtype, 6, fraction=0.4, shape=(2000, 90), decades=1.0)
    rng = np.random.default_rng(1)
    guess = orthonormal(right + 0.02 * gaussian(rng, right.shape, dtype))
    better, learnt, _, _ = posterior_sweep(completion, guess, variances, 0.01)
    best, learnt, _, _ = posterior_sweep(completion, better, learnt, 0.01)
    assert angle(best, right) < 0.25 * angle(guess, right)
    # The weakest component has ten times the noise's amplitude, and 800 samples a frame.
    assert angle(best, right) < 1.5 * 0.1 * np.sqrt(90 / 800)
    assert np.abs(best.conj().T @ best - np.eye(6)).max() < 1e-5
    assert learnt == pytest.approx(np.sort(variances)[::-1], rel=0.2)


def test_a_sweep_from_the_truth_stays_near_it_where_samples_are_few():
    # 16 samples a row for 8 unknowns, the weakest twice the noise.
    _, right, variances, completion = problem(np.complex64, 8, fraction=0.2, shape=(1500, 80), noise=0.5)
    subspace, prior, _, _ = posterior_sweep(completion, right, variances, 0.25)
    assert angle(subspace, right) < 0.5 * np.sqrt(80 / 300)
    assert prior[:6] == pytest.approx(variances[:6], rel=0.25)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_rows_with_fewer_samples_than_components_and_hardly_noise(dtype):
    _, right, variances, completion = problem(dtype, 8, fraction=0.05, shape=(60, 40), noise=0)
    mask = completion.sample.mask(slice(0, 60))
    assert (mask.sum(axis=1) < 8).any()
    rows, _ = fit_rows(completion, right, variances, 1e-14 * np.linalg.norm(completion.matrix) ** 2)
    missed = (rows @ right.conj().T - completion.matrix)[mask]
    assert np.abs(missed).max() < 1e-3 * np.abs(completion.matrix).max()
