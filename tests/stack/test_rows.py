"""Rows of arrays, of files and of Dask arrays: every pass, against the same by hand."""

from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from tests.reference.matrices import SERIAL, casorati_matrix, low_rank_and_noise
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.dask_rows import check_chunks
from usdenoise.stack.file_rows import FileRows
from usdenoise.stack.rows import ArrayRows, check_entries
from usdenoise.stack.sampling import spread_rows
from usdenoise.system.row_file import RawFile, RowFile

SHAPE = (20, 15)
LIKE = da.zeros((*SHAPE, 40), chunks=(7, 15, 25), dtype=np.complex64)


@pytest.mark.parametrize("threads", [1, 3])
def test_check_entries_marks_and_zeroes_what_is_not_finite(threads, monkeypatch):
    # Several blocks, some of them whole.
    monkeypatch.setattr("usdenoise.stack.rows.BLOCK_ENTRIES", 19 * 7)
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((600, 19)) + 1j).astype(np.complex64)
    clean = matrix.copy()
    bad = rng.random(matrix.shape) < 0.01
    bad[100:200] = False
    matrix[bad] = np.resize([np.nan, np.inf, complex(0, -np.inf), complex(1, np.nan)], bad.sum())
    with ThreadExecutor(threads) as executor:
        rows, energy = check_entries(ArrayRows(matrix, None, executor))
        again, same = check_entries(ArrayRows(matrix, None, executor))
    assert rows.n_unobserved == bad.sum()
    assert np.array_equal(rows.observed_mask(slice(None)), ~bad)
    assert np.array_equal(rows.take(slice(3, 40)).observed_mask(slice(2, 9)), ~bad[5:12])
    assert np.array_equal(matrix, np.where(bad, 0, clean))
    expected = [sum(abs(complex(value)) ** 2 for value in row) for row in matrix]
    np.testing.assert_allclose(energy, expected, rtol=1e-6)
    assert np.array_equal(same, energy)
    assert (again.observed, again.n_unobserved) == (None, 0)


def row_file(folder: Path, matrix: np.ndarray, held_bytes: int = 0) -> RowFile:
    """A matrix in a file."""
    raw = RawFile.create(folder, matrix.nbytes, is_dropped=True)
    rows = RowFile(raw, matrix.shape[1], matrix.dtype, np.arange(len(matrix)), held_bytes)
    rows[:] = matrix
    return rows


def all_kinds(matrix, missing, folder):
    """The same rows of an array, of a file, and of a Dask array in chunks."""
    stack = np.where(missing, np.nan, matrix).reshape(*SHAPE, -1)
    lazy = Acquisition(da.from_array(stack, chunks=(7, 15, 25)), "zxt")
    return (
        casorati_matrix(matrix.copy(), missing if missing.any() else None),
        check_entries(FileRows(row_file(folder, stack.reshape(matrix.shape)), None, SERIAL))[0],
        check_chunks(lazy, matrix.dtype, SERIAL, [np.arange(0, 300, 7)])[0],
    )


@pytest.mark.parametrize(("share", "excludes"), [(0.0, False), (0.0, True), (0.1, True)])
def test_all_kinds_of_rows_make_the_same_passes(share, excludes, tmp_path):
    matrix = low_rank_and_noise(np.complex64)
    missing = np.random.default_rng(1).random(matrix.shape) < share
    excluded = np.zeros(matrix.shape[1], bool)
    excluded[[4, 30]] = excludes
    unused = missing | excluded
    data = np.where(unused, 0, matrix)
    like = Acquisition(da.zeros((*SHAPE, 40), chunks=(7, 15, 25)), "zxt")
    rng = np.random.default_rng(2)
    one, other = (
        (
            rng.standard_normal((300, 2)).astype(np.complex64),
            rng.standard_normal((2, 40)).astype(np.complex64),
        )
        for _ in range(2)
    )
    right = np.linalg.qr(low_rank_and_noise(np.complex64, (40, 5)))[0].astype(np.complex64)
    for rows in all_kinds(matrix, missing, tmp_path):
        assert rows.n_unobserved == missing.sum()
        assert rows.largest_part() == np.abs(np.where(missing, 0, matrix).view(np.float32)).max()
        if excludes:
            rows, energy = rows.exclude(excluded)
            left = np.where(missing, 0, np.abs(matrix) ** 2)[:, ~excluded].sum(axis=1)
            assert energy == pytest.approx(left, rel=1e-5)
        assert (rows.n_unused, rows.used_shape) == (unused.sum(), (300, 40 - excluded.sum()))
        some = rows.take(np.array([3, 7, 8]))
        assert np.array_equal(some.values[:], data[[3, 7, 8]])
        picked = rows.pick(np.arange(0, 300, 5))
        assert (picked.shape, picked.dtype) == ((60, 40), matrix.dtype)
        assert np.array_equal(picked.values[8:20, 4:9], data[40:100:5, 4:9])
        assert np.array_equal(picked.pick(np.array([1, 4])).values[:], data[[5, 20]])
        assert np.array_equal(rows.spread(9).values[:], data[spread_rows(len(data), 9)])
        part = (slice(2, 9), slice(4, 6))
        assert np.array_equal(rows.crop(SHAPE, part), data.reshape(*SHAPE, 40)[part])

        left, squares, moments = rows.fit_and_moments(right)
        model = left @ right.conj().T
        if not share:
            assert left == pytest.approx(data @ right, rel=1e-4, abs=1e-3)
        filled = np.where(missing & ~excluded, model, data)
        assert moments == pytest.approx(left.conj().T @ filled, rel=1e-3, abs=1e-3 * np.abs(moments).max())
        assert squares == pytest.approx(left.conj().T @ left, rel=1e-3, abs=1e-3 * np.abs(squares).max())
        assert rows.fit(right)[0] == pytest.approx(left)

        rest = np.where(unused, 0, matrix - one[0] @ one[1])
        lagged = np.where(unused, 0, matrix - one[0] @ one[1] - other[0] @ other[1])
        products = [(lagged[:, lag:] * lagged[:, : 40 - lag].conj()).sum(axis=1) for lag in range(3)]
        before = rows.lag_sums(3, one, np.arange(0, 300, 4))
        rows, power, lags = rows.subtract(one, 3, other)
        assert power == pytest.approx((np.abs(rest) ** 2).sum(axis=1) / rows.n_used_frames, rel=1e-4)
        assert pytest.approx(np.array(products), rel=1e-3, abs=1e-2) == lags.sums.sum(axis=0).T
        measured, lags = rows.measure(3)
        assert measured == pytest.approx(power, rel=1e-5)
        assert before.sums == pytest.approx(lags.sums[:, ::4], rel=1e-4, abs=1e-3)

        rows, power = rows.fill(other)
        product = other[0] @ other[1]
        expected = np.where(unused, product, matrix - one[0] @ one[1]).reshape(like.iq.shape)
        assert np.asarray(rows.as_stack(like)) == pytest.approx(expected, rel=1e-3, abs=1e-3)
        seen = np.where(excluded, 0, np.abs(expected) ** 2).sum(axis=-1).ravel() / rows.n_used_frames
        assert power == pytest.approx(seen, rel=1e-3)
        replaced = np.asarray(rows.fill(other, keep_observed=False)[0].as_stack(like))
        assert replaced == pytest.approx(product.reshape(like.iq.shape), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_rows_that_are_kept_and_put_back(share, tmp_path):
    matrix = low_rank_and_noise(np.complex64)
    rng = np.random.default_rng(1)
    missing = rng.random(matrix.shape) < share
    # The last rows are in chunks of which none is kept.
    pixels = np.flatnonzero(rng.random(300) < 0.4)
    pixels = pixels[pixels < 210]
    data = np.where(missing, 0, matrix)[pixels]
    excluded = np.arange(matrix.shape[1]) == 4
    factors = np.ones((len(pixels), 1), np.complex64), np.ones((1, matrix.shape[1]), np.complex64)
    for rows in all_kinds(matrix, missing, tmp_path):
        third = np.diff(np.where(missing, 0, matrix), n=3, axis=1)
        expected = (np.abs(third) ** 2).sum(axis=1) / (20 * (matrix.shape[1] - 3))
        assert rows.fast_power() == pytest.approx(expected, rel=1e-4)
        kept = rows.keep(pixels)
        assert kept.shape == data.shape
        assert kept.n_unobserved == missing[pixels].sum()
        assert np.array_equal(kept.take(np.arange(len(pixels))).values[:], data)
        rest = kept.exclude(excluded)[0].subtract(factors, 0)[0]
        filled, _ = rest.fill(factors, keep_observed=True)
        whole = rows.put_back(filled, pixels)
        result = np.zeros(matrix.shape, np.complex64)
        result[pixels] = np.where(missing[pixels] | excluded, 1, data - 1)
        stack = whole.as_stack(Acquisition(LIKE, "zxt"))
        assert np.asarray(stack).reshape(matrix.shape) == pytest.approx(result, abs=1e-5)
        assert whole.n_unused == (missing | excluded).sum()
