"""Lagged products of rows, against the loop of their definition."""

from itertools import pairwise

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.linalg.lag_sums import (
    boundary_products,
    column_lag_sums,
    half_parts,
    lag_sums,
    pair_counts,
    quarter_edges,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("n_frames", [2, 7, 131])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_sums_equal_the_loop(dtype, n_frames, scale):
    rng = np.random.default_rng(n_frames)
    rows = rng.standard_normal((5, n_frames)) + 1j * rng.standard_normal((5, n_frames))
    rows = (scale * (rows if np.iscomplexobj(dtype()) else rows.real)).astype(dtype)
    n_lags = min(6, n_frames)
    sums = lag_sums(rows, n_lags)
    expected = loops.lag_sums(rows, n_lags, quarter_edges(n_frames))
    tolerance = 1e-5 if rows.real.dtype == np.float32 else 1e-12
    assert sums.dtype == np.result_type(dtype, np.float64)
    np.testing.assert_allclose(sums, expected, rtol=0, atol=tolerance * n_frames * scale**2)
    together = lag_sums(rows, n_lags, [(0, n_frames, 0)])
    np.testing.assert_allclose(
        together[0], expected.sum(axis=0), rtol=0, atol=tolerance * n_frames * scale**2
    )
    assert not together[1].any()
    whole = expected.sum(axis=0, keepdims=True)
    for is_compiled in (False, True):
        for parts, wanted in ((half_parts(n_frames), expected), ([(0, n_frames, 0)], whole)):
            columns = column_lag_sums(rows.T, n_lags, parts, len(wanted), is_compiled)
            assert columns.dtype == sums.dtype
            np.testing.assert_allclose(columns, wanted, rtol=0, atol=tolerance * n_frames * scale**2)


def test_pair_counts_are_the_sums_of_ones():
    for n_frames in (2, 9, 50):
        ones = np.ones((1, n_frames))
        np.testing.assert_array_equal(pair_counts(2, np.ones(n_frames, bool)), lag_sums(ones, 2)[:, 0])


@pytest.mark.parametrize("edges", [(0, 30, 60, 131), (0, 2, 3, 5, 131), (0, 128, 131)])
def test_sums_of_blocks_and_their_boundaries_are_those_of_all_columns(edges):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((4, 131)) + 1j * rng.standard_normal((4, 131))
    n, n_lags = 131, 6
    total = np.zeros((2, 4, n_lags), complex)
    for start, stop in pairwise(edges):
        total += lag_sums(rows[:, start:stop], n_lags, half_parts(n, start, stop))
        before = max(start - n_lags + 1, 0)
        after = rows[:, start : min(start + n_lags - 1, stop)]
        total += boundary_products(rows[:, before:start], after, n_lags, half_parts(n, before, start))
    np.testing.assert_allclose(total, loops.lag_sums(rows, n_lags, quarter_edges(n)), atol=1e-12)
