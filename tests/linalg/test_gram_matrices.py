"""Gram matrices and products with them, against the same products written out."""

import numpy as np
import pytest

from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.tall_matrices import frame_gram, gram, normal_product, row_parts

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
        for found in (gram(matrix), frame_gram(matrix, executor, wide.dtype)):
            assert found.dtype == wide.dtype
            assert found == pytest.approx(exact, rel=1e-12, abs=1e-9)
        assert frame_gram(matrix, executor, dtype) == pytest.approx(exact, rel=1e-5, abs=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_the_normal_product_reads_each_block_once_and_adds_up_in_double_precision(dtype):
    matrix, right = example(dtype), example(dtype, (SHAPE[1], 5))
    blocks, read = row_parts(SHAPE), []

    def read_block(rows):
        read.append(rows)
        return matrix[rows]

    with ThreadExecutor(1) as executor:
        found = normal_product(read_block, blocks, right, executor)
    assert read == blocks
    parts = [(matrix[rows] @ right).conj().T @ matrix[rows] for rows in blocks]
    total = np.sum([part.astype(found.dtype) for part in parts], axis=0)
    assert found.dtype == np.result_type(dtype, np.float64)
    assert found.shape == (SHAPE[1], 5)
    assert found == pytest.approx(total.conj().T, rel=1e-12)
