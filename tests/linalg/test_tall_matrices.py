"""Parts, energies, Gram matrices and factorisations of tall matrices, against the textbook's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdenoise.completion.problem import gaussian
from usdenoise.linalg import tall_matrices
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.tall_matrices import frame_gram, row_parts, squared_norm, tall_qr, weighted_squares


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 1 << 21))
def test_parts_cover_a_matrix_once_and_are_of_equal_size(n_rows, n_columns):
    parts = row_parts((n_rows, n_columns))
    sizes = [part.stop - part.start for part in parts]
    assert np.array_equal(np.concatenate([np.arange(n_rows)[part] for part in parts]), np.arange(n_rows))
    assert len(set(sizes[:-1])) <= 1
    assert 0 < sizes[-1] <= sizes[0] <= 1024
    assert sizes[0] * n_columns <= max(1 << 20, 16 * n_columns)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_row_energies_are_the_sums_of_squares(dtype, scale):
    values = np.random.default_rng(0).standard_normal((7, 900)) * scale
    is_complex = np.issubdtype(dtype, np.complexfloating)
    matrix = (values + 1j * values[::-1] if is_complex else values).astype(dtype)
    expected = [sum(abs(complex(value)) ** 2 for value in row) for row in matrix]
    assert tall_matrices.row_squared_norms(matrix) == pytest.approx(expected, rel=1e-6)
    assert squared_norm(matrix) == pytest.approx(sum(expected), rel=1e-6)
    assert squared_norm(matrix[:0]) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_energies_along_both_axes_are_the_sums_of_squares_in_any_memory_order(dtype, scale):
    rng = np.random.default_rng(1)
    values = (rng.standard_normal((70, 2, 90)) * scale).astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        values += 1j * rng.permutation(values)
    for matrix in (values[:, 0].copy(), values[:, 0], values[:, 0].T, values[::2, 1, ::3]):
        squares = np.abs(matrix).astype(np.float64) ** 2
        of_rows, of_columns = tall_matrices.squared_norms(matrix)
        np.testing.assert_allclose(of_rows, squares.sum(axis=1), rtol=1e-6)
        np.testing.assert_allclose(of_columns, squares.sum(axis=0), rtol=1e-6)
        of_columns = tall_matrices.column_squared_norms(np.ascontiguousarray(matrix))
        np.testing.assert_allclose(of_columns, squares.sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_weighted_squares_are_those_of_a_loop(dtype, scale, monkeypatch):
    monkeypatch.setattr(tall_matrices, "PART_ENTRIES", 70)
    matrix, weights = scale * example(dtype, (20, 5)), np.arange(10.0).reshape(5, 2)
    matrix = matrix.astype(dtype)
    wanted = [
        [sum(w * abs(complex(x)) ** 2 for w, x in zip(of, row, strict=True)) for of in weights.T]
        for row in matrix
    ]
    np.testing.assert_allclose(weighted_squares(matrix, weights), wanted, rtol=1e-6)
    np.testing.assert_allclose(weighted_squares(matrix, weights[:, 1]), np.array(wanted)[:, 1], rtol=1e-6)
    assert weighted_squares(matrix[:, :0], np.zeros(0)).tolist() == [0] * 20


SHAPE = (2500, 40)


def example(dtype, shape=SHAPE):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (values if np.issubdtype(dtype, np.complexfloating) else values.real).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_gram_matrices_are_those_of_the_whole_matrix_in_double_precision(dtype):
    matrix = example(dtype)
    wide = matrix.astype(np.result_type(dtype, np.float64))
    exact = wide.conj().T @ wide
    with ThreadExecutor(2) as executor:
        for found in (tall_matrices.gram(matrix), frame_gram(matrix, executor)):
            assert found.dtype == wide.dtype
            assert found == pytest.approx(exact, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_the_normal_product_reads_each_block_once_and_adds_up_in_double_precision(dtype):
    matrix, right = example(dtype), example(dtype, (SHAPE[1], 5))
    blocks, read = row_parts(SHAPE), []

    def read_block(rows):
        read.append(rows)
        return matrix[rows]

    with ThreadExecutor(1) as executor:
        found = tall_matrices.normal_product(read_block, blocks, right, executor)
    assert read == blocks
    parts = [(matrix[rows] @ right).conj().T @ matrix[rows] for rows in blocks]
    total = np.sum([part.astype(found.dtype) for part in parts], axis=0)
    assert found.dtype == np.result_type(dtype, np.float64)
    assert found.shape == (SHAPE[1], 5)
    assert found == pytest.approx(total.conj().T, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", ["independent", "of very different lengths", "dependent", "zero"])
def test_the_factorisation_is_orthonormal_and_exact_for_any_columns(dtype, kind, monkeypatch):
    columns = gaussian(np.random.default_rng(0), (50, 5), dtype)
    if kind == "of very different lengths":
        columns *= np.array([1e6, 1e3, 1, 1e-3, 1e-6], columns.real.dtype)
    if kind == "dependent":
        columns[:, 3] = columns[:, 1] + 1e-5 * columns[:, 3]
    if kind == "zero":
        columns[:, 2] = 0
    wide = columns.astype(np.result_type(dtype, np.float64))
    # All rows at once, and a long matrix by parts.
    for rows in (50, 7):
        monkeypatch.setattr(tall_matrices, "PART_ENTRIES", 5 * rows)
        q, r = tall_qr(columns)
        lengths = np.maximum(np.linalg.norm(wide, axis=0), 1e-300)
        assert (np.abs(q @ r - wide) / lengths).max() < 1e-14
        assert np.abs(q.conj().T @ q - np.eye(5)).max() < 1e-13
        assert not np.tril(r, -1).any()
        in_place = wide.copy()
        own, _ = tall_qr(in_place, in_place=True)
        assert own is in_place
        assert np.array_equal(own, q)
