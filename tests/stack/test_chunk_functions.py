"""What is done to one chunk, against the same on the whole matrix."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.matrices import low_rank_and_noise
from usdenoise.errors import InputError
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.stack.chunk_functions import add_measured, as_chunk, as_rows, last_frames, look, measure_chunk


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 39), max_size=8),
    n_lags=st.integers(1, 6),
    share=st.sampled_from([0.0, 0.2]),
    excluded=st.sets(st.integers(0, 39), max_size=5),
    dtype=st.sampled_from([np.float32, np.complex64]),
)
def test_lagged_products_of_chunks_add_up_to_those_of_the_whole(cuts, n_lags, share, excluded, dtype):
    rows = low_rank_and_noise(dtype, (6, 40), rank=3)
    missing = np.random.default_rng(len(cuts)).random(rows.shape) < share
    used = np.ones(40, bool)
    used[list(excluded)] = False
    zeroed = np.where(missing | ~used, 0, rows)
    whole = LagSums.from_rows(zeroed, ~missing if share else None, n_lags, used)
    edges = [0, *sorted(set(cuts)), 40]
    chunks, before, parts = np.where(missing, np.nan, rows), None, []
    for start, stop in pairwise(edges):
        chunk = chunks[:, start:stop]
        # The energy is that of the other chunk.
        parts.append(measure_chunk(chunk, before, 3 * chunk, start, 40, n_lags, ~used if excluded else None))
        before = last_frames(before, chunk, n_lags - 1)
    energy, found = add_measured(parts)
    assert found.sums == pytest.approx(whole.sums, rel=1e-4, abs=1e-4 * np.abs(whole.sums).max())
    assert np.array_equal(*(np.broadcast_to(lags.counts, whole.sums.shape) for lags in (found, whole)))
    expected = 9 * (np.abs(zeroed.astype(complex)) ** 2).sum(axis=1)
    assert energy == pytest.approx(expected, rel=1e-5)


def test_rows_of_a_chunk_and_back():
    stack = np.arange(2 * 3 * 4.0).reshape(2, 3, 4)
    rows = as_rows(stack, (1, 2, 0), np.dtype(np.float32), "iq")
    assert rows.shape == (12, 2)
    assert np.array_equal(rows[5], stack[:, 1, 1])
    assert np.array_equal(as_chunk(rows, (3, 4, 2), (1, 2, 0)), stack)


def test_what_is_not_finite_or_masked_is_unobserved():
    values = np.ma.masked_equal(np.array([[[1.0, 2.0, np.inf, 4.0]], [[5.0, np.nan, 7.0, 8.0]]]), 8)
    rows = as_rows(values, (0, 1, 2), np.dtype(np.float32), "iq")
    picked, energy, n_unobserved, largest = look(rows, np.array([1]))
    assert energy.tolist() == [21.0, 74.0]
    assert n_unobserved.tolist() == [1, 2]
    assert largest == 7
    assert np.array_equal(picked, rows[1:], equal_nan=True)
    with pytest.raises(InputError, match="single precision ends at"):
        as_rows(np.full((1, 1, 2), 1e200), (0, 1, 2), np.dtype(np.float32), "iq")
