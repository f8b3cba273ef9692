"""Rows fitted with a prior, against ridge regressions of the textbook."""

import numpy as np
import pytest

from usdenoise.completion.problem import CompletionProblem, fit_rows
from usdenoise.completion.starts import gaussian
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.tall_matrices import orthonormal
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
    rows, passes = fit_rows(completion, right, 0.01 / variances, 0.01)
    mask = completion.sample.mask(slice(0, len(matrix)))
    for i in (0, 17, 299):
        design = right[mask[i]].conj().astype(np.complex128)
        normal = design.conj().T @ design + np.diag(0.01 / variances)
        expected = np.linalg.solve(normal, design.conj().T @ matrix[i, mask[i]])
        # The error left is a small part of the posterior's spread, sqrt(r) times 0.1 over sqrt(0.6).
        assert np.linalg.norm(rows[i] - expected) < 0.1 * 0.13 * np.sqrt(rank) + 1e-4 * np.linalg.norm(
            expected
        )
    assert passes < 20


def test_rows_without_samples_are_zero_and_a_strong_prior_shrinks():
    _, right, variances, completion = problem(np.complex64, 5)
    completion.sample.bits[7] = 0
    rows, _ = fit_rows(completion, right, 0.01 / variances, 0.01)
    assert np.abs(rows[7]).max() == 0
    shrunk, _ = fit_rows(completion, right, 1e10 / variances, 0.01)
    assert np.abs(shrunk).max() < 1e-3 * np.abs(rows).max()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_rows_with_fewer_samples_than_components_and_hardly_noise(dtype):
    _, right, variances, completion = problem(dtype, 8, fraction=0.05, shape=(60, 40), noise=0)
    mask = completion.sample.mask(slice(0, 60))
    assert (mask.sum(axis=1) < 8).any()
    noise = 1e-14 * np.linalg.norm(completion.matrix) ** 2
    rows, _ = fit_rows(completion, right, noise / variances, noise)
    missed = (rows @ right.conj().T - completion.matrix)[mask]
    assert np.abs(missed).max() < 1e-3 * np.abs(completion.matrix).max()
