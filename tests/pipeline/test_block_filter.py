"""The filter of a block of frames and the combination of blocks, against slow loops."""

from itertools import pairwise

import numpy as np
import pytest

from tests.reference import loops
from tests.reference.matrices import low_rank_and_noise
from usdenoise.linalg.lag_sums import quarter_edges
from usdenoise.pipeline.block_filter import BlockFilter, filter_block
from usdenoise.pipeline.combination import combine, lag_sums_of
from usdenoise.pipeline.frame_sources import ArrayBlock

EDGES = {"one": (0, 40), "even": (0, 20, 40), "short": (0, 2, 3, 30, 40)}


def filtered(matrix, plan, edges, order="C"):
    """The filtered matrix, and the combined measures of its blocks."""
    frames = np.asarray(matrix.T, order=order)
    out = np.empty_like(frames)
    blocks = [
        ArrayBlock(start, stop, frames[start:stop], frames.dtype, "x", out[start:stop])
        for start, stop in pairwise(edges)
    ]
    parts = [filter_block(block, np.isfinite(block.values).all(), plan, False)[0] for block in blocks]
    return out.T, combine(parts, plan)


def basis(matrix, k):
    wide = matrix.astype(np.result_type(matrix.dtype, np.float64))
    return np.linalg.svd(wide, full_matrices=False)[0][:, :k].astype(matrix.dtype)


def lags_by_loops(rows, n_lags):
    return loops.lag_sums(rows, n_lags, quarter_edges(rows.shape[1]))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_stack_in_blocks_is_filtered_as_by_a_slow_loop(dtype, edges, order, scale):
    matrix = low_rank_and_noise(dtype) * np.dtype(dtype).type(scale)
    u = basis(matrix, 6)
    plan = BlockFilter(spatial=u, low=4, high=6, n_lags=5, n_frames=40)
    out, measures = filtered(matrix, plan, edges, order)
    wide = matrix.astype(np.complex128)
    expected = np.empty_like(wide)
    for t in range(40):
        x = wide[:, t]
        expected[:, t] = x - sum(u[:, k] * np.vdot(u[:, k], x) for k in range(4))
    size = np.abs(matrix).max()
    assert np.abs(out - expected).max() < 2e-5 * size
    assert measures.power == pytest.approx(np.sum(np.abs(expected) ** 2, axis=1), rel=1e-3)
    assert np.array_equal(measures.kept_power, measures.power)
    assert measures.coefficients == pytest.approx((u.conj().T @ wide).T, abs=float(2e-3 * size))
    lags, loop = lag_sums_of(measures, plan).sums, lags_by_loops(expected, 5)
    assert np.abs(lags - loop).max() < 1e-3 * np.abs(loop).max()


@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
def test_missing_entries_are_filled_by_least_squares_over_the_observed_pixels(edges):
    matrix = low_rank_and_noise(np.complex64, noise=0.0)
    truth, rng = matrix.copy(), np.random.default_rng(1)
    u, missing = basis(matrix, 6), rng.random(matrix.shape) < 0.1
    missing[:, 7] = True
    holes = np.where(missing, np.nan, matrix)
    model = np.zeros((40, 6), np.complex64)
    model[7] = 5 + 1j
    plan = BlockFilter(spatial=u, low=2, high=6, n_lags=3, n_frames=40, model=model, has_gaps=True)
    out, measures = filtered(holes, plan, edges)
    a = (u.conj().T @ truth).T
    # A frame without an observed pixel keeps the coefficients of the estimate.
    a[7] = model[7]
    assert measures.coefficients == pytest.approx(a, abs=float(1e-4 * np.abs(a).max()))
    band = u[:, 2:] @ a[:, 2:].T
    assert np.abs(out - band).max() < 1e-3 * np.abs(band).max()
    observed = np.where(missing, 0, band)
    assert measures.power == pytest.approx(np.sum(np.abs(observed) ** 2, axis=1), rel=1e-2)
    seen = lag_sums_of(measures, plan)
    counts = lags_by_loops((~missing).astype(float), 3)
    assert np.array_equal(seen.counts, counts.real)
    loop = lags_by_loops(observed.astype(complex), 3)
    assert np.abs(seen.sums - loop).max() < 1e-2 * np.abs(loop).max()
    assert measures.n_unobserved == missing.sum()


@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
def test_excluded_frames_do_not_count_and_have_the_coefficients_of_the_estimate(edges):
    matrix = low_rank_and_noise(np.complex64)
    u, excluded = basis(matrix, 6), np.zeros(40, bool)
    excluded[[0, 2, 3, 21]] = True
    model = np.full((40, 6), 2 - 1j, np.complex64)
    matrix[:, excluded] *= 50
    plan = BlockFilter(spatial=u, low=3, high=6, n_lags=4, n_frames=40, model=model, excluded=excluded)
    out, measures = filtered(matrix, plan, edges)
    rest = matrix - u[:, :3] @ (u[:, :3].conj().T @ matrix)
    assert np.abs(out - rest)[:, ~excluded].max() < 1e-4 * np.abs(rest).max()
    assert np.abs(out[:, excluded] - (u[:, 3:] @ model[0, 3:])[:, None]).max() < 1e-4
    rest[:, excluded] = 0
    assert measures.power == pytest.approx(np.sum(np.abs(rest) ** 2, axis=1), rel=1e-4)
    loop = lags_by_loops(rest.astype(complex), 4)
    assert np.abs(measures.sums - loop).max() < 1e-4 * np.abs(loop).max()


@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
def test_per_pixel_cutoffs_change_the_lagged_products_alone(edges):
    matrix = low_rank_and_noise(np.complex64)
    u = basis(matrix, 6)
    shares = np.random.default_rng(4).random((len(matrix), 4)).astype(np.float32) - 0.5
    plain = BlockFilter(spatial=u, low=3, high=6, n_lags=3, n_frames=40)
    plan = BlockFilter(spatial=u, low=3, high=6, n_lags=3, n_frames=40, further=(1, shares))
    (out, measures), (whole, expected) = (filtered(matrix, each, edges) for each in (plan, plain))
    assert np.array_equal(out, whole)
    assert np.array_equal(measures.power, expected.power)
    a = u.conj().T @ matrix
    rest = whole - sum(shares[:, [k]] * u[:, [k + 1]] * a[[k + 1]] for k in range(4))
    loop = lags_by_loops(rest.astype(complex), 3)
    assert np.abs(measures.sums - loop).max() < 1e-4 * np.abs(loop).max()


def test_the_components_alone_are_kept_on_request():
    matrix = low_rank_and_noise(np.complex64)
    u = basis(matrix, 6)
    plan = BlockFilter(spatial=u, low=2, high=5, keeps_residual=False, n_lags=2, n_frames=40)
    out, measures = filtered(matrix, plan, EDGES["even"])
    band = u[:, 2:5] @ (u[:, 2:5].conj().T @ matrix)
    assert np.abs(out - band).max() < 1e-4 * np.abs(band).max()
    assert measures.kept_power == pytest.approx(np.sum(np.abs(band) ** 2, axis=1), rel=1e-4)


@pytest.mark.parametrize(("low", "n_temporal", "n_removed"), [(3, 2, 2), (3, 5, 3), (0, 2, 0), (3, 0, 0)])
def test_pixels_without_a_signal_become_zero_and_temporal_components_are_removed(low, n_temporal, n_removed):
    """The temporal components are the leading left singular vectors of the coefficients; the rank limits their number."""
    matrix = low_rank_and_noise(np.complex64)
    has_signal = np.arange(len(matrix)) % 3 > 0
    u = np.linalg.qr(basis(matrix, 4) * has_signal[:, None])[0]
    plan = BlockFilter(spatial=u, low=low, high=low, has_signal=has_signal, n_temporal=n_temporal)
    out, measures = filtered(matrix, plan, EDGES["one"])
    a = (u[:, :low].conj().T @ matrix).T
    v = np.linalg.svd(a, full_matrices=False)[0][:, :n_removed]
    rest = ((matrix - u[:, :low] @ a.T) * has_signal[:, None]).T
    rest -= v @ (v.conj().T @ rest)
    assert np.abs(out - rest.T).max() < 1e-4 * np.abs(rest).max()
    assert not out[~has_signal].any()
    assert measures.temporal.shape == (40, n_removed)
