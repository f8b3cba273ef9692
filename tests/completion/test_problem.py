"""Value, gradients and fitted rows against the textbook and a Taylor expansion, dense and sparse, real and complex."""

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.completion import problem as kernels
from usdenoise.completion.problem import CompletionProblem, fit_rows, gaussian
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.tall_matrices import orthonormal
from usdenoise.stack.sampling import draw_entries

DTYPES = [np.float32, np.complex64, np.float64, np.complex128]


def make(dtype, shape=(37, 23), rank=4, fraction=0.4, seed=0, kernel="auto", threads=2, scale=1.0):
    rng = np.random.default_rng(seed)
    matrix = gaussian(rng, shape, dtype) * np.asarray(scale, np.dtype(dtype).type(0).real.dtype)
    factors = tuple(
        gaussian(rng, (n, rank), dtype) * np.asarray(np.sqrt(scale), matrix.real.dtype) for n in shape
    )
    sample = draw_entries(shape, fraction, seed)
    return matrix, factors, sample, CompletionProblem(matrix, sample, ThreadExecutor(threads), kernel)


def held_out_mask(sample):
    mask = np.zeros(sample.shape, bool)
    mask[sample.held_out_rows, sample.held_out_columns] = True
    return mask


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["dense", "sparse"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_evaluation_equals_textbook_loop(dtype, kernel, scale):
    matrix, (u, v), sample, problem = make(dtype, kernel=kernel, scale=scale)
    mask = sample.mask(slice(0, matrix.shape[0]))
    value, gradient_u, gradient_v = loops.value_and_gradients(u, v, matrix, mask)
    evaluation = problem.evaluate((u, v))
    rtol = 2e-5 if np.finfo(dtype).eps > 1e-10 else 1e-12
    assert evaluation.value == pytest.approx(value, rel=rtol)
    for ours, reference in zip(evaluation.gradients, (gradient_u, gradient_v), strict=True):
        assert ours.dtype == np.dtype(dtype)
        assert np.abs(ours - reference).max() <= rtol * np.abs(reference).max()
    missed = (u @ v.conj().T - matrix)[held_out_mask(sample)]
    assert evaluation.held_out_rmse == pytest.approx(np.sqrt(np.mean(np.abs(missed) ** 2)), rel=rtol)


OTHER_SIZES = [(np.float64, 1, 0.05), (np.float32, 8, 0.001), (np.complex64, 17, 0.05)]
OTHER_SIZES += [(np.complex128, 33, 0.001), (np.float32, 70, 0.05)]


@pytest.mark.parametrize(("dtype", "rank", "fraction"), OTHER_SIZES)
def test_sparse_evaluation_at_any_length_of_row_and_number_of_entries(dtype, rank, fraction):
    # Three tiles of columns; rows with no entry in a tile, with an odd number of them, and with one alone.
    matrix, (u, v), sample, problem = make(dtype, (60, 1100), rank, fraction, kernel="sparse")
    value, gradient_u, gradient_v = loops.value_and_gradients(u, v, matrix, sample.mask(slice(0, 60)))
    evaluation = problem.evaluate((u, v))
    rtol = 2e-5 if np.finfo(dtype).eps > 1e-10 else 1e-12
    assert evaluation.value == pytest.approx(value, rel=rtol)
    for ours, reference in zip(evaluation.gradients, (gradient_u, gradient_v), strict=True):
        assert np.abs(ours - reference).max() <= rtol * np.abs(reference).max()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("kernel", ["dense", "sparse"])
def test_gradient_passes_a_taylor_test(dtype, kernel):
    _, factors, _, problem = make(dtype, kernel=kernel)
    loops.assert_taylor(problem, factors, np.random.default_rng(5), first_step=1e-2)


@pytest.mark.parametrize("kernel", ["dense", "sparse"])
def test_evaluation_does_not_depend_on_threads(kernel):
    shape = (3000, 1500)
    one, two = (make(np.complex64, shape, fraction=0.1, kernel=kernel, threads=n) for n in (1, 2))
    first, second = one[3].evaluate(one[1]), two[3].evaluate(two[1])
    assert first.value == second.value
    assert first.held_out_rmse == second.held_out_rmse
    assert all(np.array_equal(a, b) for a, b in zip(first.gradients, second.gradients, strict=True))


def test_entries_outside_the_sample_do_not_matter():
    matrix, factors, sample, problem = make(np.complex64)
    before = problem.evaluate(factors)
    unused = ~sample.mask(slice(0, matrix.shape[0])) & ~held_out_mask(sample)
    matrix[unused] = 1e6
    after = problem.evaluate(factors)
    assert after.value == before.value
    assert after.held_out_rmse == before.held_out_rmse
    assert np.array_equal(after.gradients[0], before.gradients[0])


def test_a_zero_is_a_sample():
    matrix, factors, _, problem = make(np.float32)
    matrix[:] = 0
    u, v = factors
    mask = problem.sample.mask(slice(0, matrix.shape[0]))
    assert problem.evaluate(factors).value == pytest.approx(np.mean((u @ v.T)[mask] ** 2), rel=1e-5)


def test_sum_of_squares_is_kept_in_double_precision():
    # 2^24 ones and then a few more: a float32 running sum would stop at 2^24.
    values = np.ones((1 << 13, (1 << 11) + 1), np.float32)
    assert kernels.squared_norm(values) == values.size


def problem_of_rows(dtype, rank, fraction=0.6, shape=(300, 200), decades=2.0, noise=0.1, seed=0):
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
    matrix, right, variances, completion = problem_of_rows(dtype, rank)
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
    _, right, variances, completion = problem_of_rows(np.complex64, 5)
    completion.sample.bits[7] = 0
    rows, _ = fit_rows(completion, right, 0.01 / variances, 0.01)
    assert np.abs(rows[7]).max() == 0
    shrunk, _ = fit_rows(completion, right, 1e10 / variances, 0.01)
    assert np.abs(shrunk).max() < 1e-3 * np.abs(rows).max()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_rows_with_fewer_samples_than_components_and_hardly_noise(dtype):
    _, right, variances, completion = problem_of_rows(dtype, 8, fraction=0.05, shape=(60, 40), noise=0)
    mask = completion.sample.mask(slice(0, 60))
    assert (mask.sum(axis=1) < 8).any()
    noise = 1e-14 * np.linalg.norm(completion.matrix) ** 2
    rows, _ = fit_rows(completion, right, noise / variances, noise)
    missed = (rows @ right.conj().T - completion.matrix)[mask]
    assert np.abs(missed).max() < 1e-3 * np.abs(completion.matrix).max()
