"""The filter of a chunk, and the sum of the measures of chunks, against slow loops."""

import pickle
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from tests.reference import loops
from tests.reference.matrices import SERIAL, low_rank_and_noise
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import clutter_projection
from usdenoise.frames.alignment import Reference, mean_envelope
from usdenoise.linalg.lag_sums import quarter_edges
from usdenoise.pipeline.filter_chunk import PartOfBlock, filter_chunk, filter_chunks
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import ArrayFrames, Chunk
from usdenoise.stack.arrays import unpack

GRID = Neighbourhood.whole((300,))


def projection(n_lags):
    """The effect of no filter, over some lags."""
    found = clutter_projection(np.zeros((8 * (n_lags - 1), 0)))
    assert found.n_lags == n_lags
    return found


def cut(frames, edges):
    """Chunks of a block."""
    whole = ArrayFrames(frames, "tz", frames.dtype, "x")
    return [Chunk(first, whole.cut(first, stop)) for first, stop in pairwise(edges)]


def filtered(matrix, clutter, edges, order="C", excluded=None, executor=SERIAL):
    """The filtered matrix, and the measures of all of its chunks."""
    frames = np.asarray(matrix.T, order=order)
    excluded = np.zeros(len(frames), bool) if excluded is None else excluded
    out = np.empty_like(frames)
    return out.T, filter_chunks(cut(frames, edges), clutter, excluded, executor, out)


def basis(matrix, k):
    wide = matrix.astype(np.result_type(matrix.dtype, np.float64))
    return np.linalg.svd(wide, full_matrices=False)[0][:, :k].astype(matrix.dtype)


def lags_by_loops(rows, n_lags):
    return loops.lag_sums(rows, n_lags, quarter_edges(rows.shape[1]))


@pytest.mark.parametrize(("dtype", "order", "scale"), [
    (np.float32, "C", 1e-6), (np.complex64, "F", 1e-6), (np.float32, "F", 1e6), (np.complex64, "C", 1e6)
])  # fmt: skip
def test_a_stack_of_any_scale_is_filtered_as_by_a_slow_loop(dtype, order, scale):
    matrix = low_rank_and_noise(dtype) * np.dtype(dtype).type(scale)
    u = basis(matrix, 6)
    plan = Clutter(left=u, low=4, high=6, projection=projection(5), grid=GRID)
    out, measures = filtered(matrix, plan, (0, 2, 3, 30, 40), order)
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
    lags, loop = measures.lag_sums(GRID.mask).sums, lags_by_loops(expected, 5)
    assert np.abs(lags - loop).max() < 1e-3 * np.abs(loop).max()


@pytest.mark.parametrize(("n_frames", "n_removed"), [(47, 0), (48, 1), (95, 1), (96, 2), (240, 3)])
def test_a_short_block_loses_fewer_temporal_components(n_frames, n_removed):
    matrix = low_rank_and_noise(np.complex64, (300, n_frames))
    plan = Clutter(left=basis(matrix, 4), low=3, high=3, grid=GRID, n_temporal=3)
    out, measures = filtered(matrix, plan, (0, n_frames))
    v = measures.temporal
    assert v.shape == (n_frames, n_removed)
    assert np.abs(v.conj().T @ v - np.eye(n_removed)).max(initial=0) < 1e-5
    assert np.abs(out @ v.conj()).max(initial=0) < 1e-4 * np.abs(out).max() * n_frames


N, SHAPE, N_LAGS = 100, (9, 7), 5
"""Frames, image and lags of the blocks below."""

UNEVEN = {"one": (0, 100), "two": (0, 37, 100), "short": (0, 1, 3, 4, 52, 53, 90, 100)}
"""Some chunks are shorter than the lags, and one is an excluded frame alone."""

CASES = {
    "whole": {},
    "excluded": {"excluded": True},
    "gaps": {"gaps": True},
    "gaps without a model": {"gaps": True, "has_model": False},
    "given coefficients": {"gaps": True, "excluded": True, "is_given": True},
    "mask": {"masked": True},
    "components only": {"gaps": True, "excluded": True, "keeps_residual": False},
    "everything": {"gaps": True, "excluded": True, "masked": True},
}

WITHIN_EVERYTHING = ("excluded", "mask", "gaps without a model")
"""Cases of the slow run, where the temporal components are new alone."""


def example(dtype, case, n_temporal=0):
    """Frames, their clutter, the excluded frames, and what a slow loop makes of them."""
    x, clutter, excluded = block_of(dtype, case, n_temporal)
    return x, clutter, excluded, loop_result(np.iscomplexobj(x), case, n_temporal)


@cache
def loop_result(is_complex, case, n_temporal):
    """The result of the slow loop, in double precision."""
    block = block_of(np.complex128 if is_complex else np.float64, case, n_temporal)
    return loops.filter_chunk(*block, N_LAGS)


@cache
def block_of(dtype, case, n_temporal):
    """Frames, their clutter, and the excluded frames."""
    options, rng = CASES[case], np.random.default_rng(3)
    n_pixels = SHAPE[0] * SHAPE[1]

    def draw(*size):
        parts = rng.standard_normal((2, *size))
        return parts[0] + 1j * parts[1] if np.issubdtype(dtype, np.complexfloating) else parts[0]

    mask, excluded = np.ones(SHAPE, bool), np.zeros(N, bool)
    if options.get("masked"):
        mask[:2], mask[5, 3:] = False, False
    u = np.linalg.qr(draw(n_pixels, 6) * mask.reshape(-1, 1))[0]
    courses = draw(N, 6) * [300, 200, 100, 30, 20, 10]
    x, model = courses @ u.T + draw(N, n_pixels), courses + draw(N, 6)
    if options.get("gaps"):
        # Some entries, a frame, and a pixel
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.02] = np.inf
        x[44 if options.get("has_model", True) else slice(0, 0)] = np.nan
        x[:, 30] = np.nan
    if options.get("excluded"):
        excluded[[0, 2, 3, 21, 60, 61]] = True
        x[excluded] = 1e3 * draw(6, n_pixels)
        x[3], x[21, :50] = np.nan, np.inf
    clutter = Clutter(
        left=u.astype(dtype),
        low=3,
        high=5,
        keeps_residual=options.get("keeps_residual", True),
        projection=projection(N_LAGS),
        grid=Neighbourhood(mask),
        model=model.astype(dtype) if options.get("has_model", True) else None,
        is_given=options.get("is_given", False),
        has_gaps=options.get("gaps", False),
        n_temporal=n_temporal,
    )
    return x.astype(dtype), clutter, excluded


def check_equal(measures, out, x, clutter, excluded, wanted):
    mask = clutter.grid.mask.ravel()
    near = 1e-9 if x.real.dtype == np.float64 else 2e-4
    np.testing.assert_allclose(measures.coefficients, wanted.coefficients, atol=300 * near)
    assert out.dtype == x.dtype
    np.testing.assert_allclose(out, wanted.filtered, atol=10 * near)
    np.testing.assert_allclose(measures.power, wanted.power, atol=1e3 * near)
    np.testing.assert_allclose(measures.kept_power, wanted.kept_power, rtol=near, atol=1e3 * near)
    lags = measures.lag_sums(clutter.grid.mask)
    np.testing.assert_allclose(lags.sums, wanted.sums[:, mask], atol=1e3 * near)
    shape = (2, np.count_nonzero(mask), N_LAGS)
    np.testing.assert_array_equal(np.broadcast_to(lags.counts, shape), wanted.counts[:, mask])
    assert measures.n_unobserved == wanted.n_unobserved
    np.testing.assert_array_equal(measures.excluded, excluded)
    finite = np.isfinite(x) & ~excluded[:, None]
    np.testing.assert_array_equal(measures.finite, finite)
    assert measures.n_unused == np.count_nonzero(~finite)
    if measures.observed is not None:
        np.testing.assert_array_equal(unpack(measures.observed, x.shape[1]), np.isfinite(x))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("edges", [
    pytest.param(UNEVEN[name], marks=[pytest.mark.slow] * (name == "two"), id=name) for name in UNEVEN
])  # fmt: skip
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_chunks_of_any_lengths_equal_a_textbook_loop_over_the_block(dtype, case, edges, order):
    x, clutter, excluded, wanted = example(dtype, case)
    x = np.asarray(x, order=order)
    before, out, total = x.copy(), np.empty_like(x), None
    for first, stop in pairwise(edges):
        frames = slice(first, stop)
        part = filter_chunk(x[frames], clutter, excluded[frames], PartOfBlock(first, N), out=out[frames])
        if total is None:
            total = part
        else:
            total.add(part, N)
    np.testing.assert_array_equal(x, before)
    check_equal(total, out, x, clutter, excluded, wanted)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in WITHIN_EVERYTHING)) for case in CASES]
)
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_a_block_without_temporal_components_equals_a_textbook_loop(dtype, case, order):
    x, clutter, excluded, wanted = example(dtype, case, n_temporal=3)
    x = np.asarray(x, order=order)
    out = np.empty_like(x)
    measures = filter_chunk(x, clutter, excluded, PartOfBlock(0, N), out=out)
    check_equal(measures, out, x, clutter, excluded, wanted)
    near = 1e-9 if x.real.dtype == np.float64 else 2e-4
    assert measures.temporal.shape == wanted.temporal.shape == (N, 2)
    both = (v @ v.conj().T for v in (measures.temporal, wanted.temporal))
    np.testing.assert_allclose(*both, atol=near)


@pytest.mark.parametrize("case", ["whole", "excluded", "mask", "gaps", "everything"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_a_block_loses_the_leading_components_of_its_own_frames(dtype, case):
    x, clutter, excluded, _ = example(dtype, case)
    clutter = replace(clutter, low=0, n_own=3)
    out = np.empty_like(x)
    measures = filter_chunk(x, clutter, excluded, PartOfBlock(0, N), out=out)
    # Unobserved entries have the values of the components of all blocks
    mask, finite = clutter.grid.mask.ravel(), np.isfinite(x)
    model = measures.coefficients.astype(np.complex128) @ clutter.left.T
    whole = np.where(finite, x, model)[:, mask]
    whole[excluded] = 0
    v = np.linalg.svd(whole, full_matrices=False)[0][:, :3]
    rest = np.where(finite[:, mask] & ~excluded[:, None], whole - v @ (v.conj().T @ whole), 0)
    near = 1e-9 if x.real.dtype == np.float64 else 2e-4
    power = np.sum(np.abs(rest) ** 2, axis=0)
    np.testing.assert_allclose(measures.power[mask], power, rtol=near, atol=1e3 * near)
    assert measures.own.number == 3
    np.testing.assert_allclose(measures.temporal @ measures.temporal.conj().T, v @ v.conj().T, atol=10 * near)
    kept = np.isfinite(x) & mask & ~excluded[:, None]
    np.testing.assert_allclose(out[kept], rest[kept[:, mask]], atol=1e2 * near)


@pytest.mark.parametrize(("case", "order"), [("whole", "C"), ("gaps", "F"), ("everything", "C")])
def test_a_block_of_a_session_is_filtered_as_it_is_in_the_reference(case, order):
    x, clutter, excluded, _ = example(np.complex64, case)
    x = np.asarray(np.where(np.isfinite(x), x, np.nan), x.dtype, order=order)
    # The block is 2 dB stronger, and a column of its image is not in all blocks, and so not in the components.
    before, inside = x.copy(), np.indices(SHAPE)[1] > 0
    clutter = replace(clutter, left=clutter.left * inside.ravel()[:, None])
    image = mean_envelope(x[~excluded], SHAPE)
    reference = Reference(image * np.float32(10 ** (-2 / 20)), inside)
    alignment = reference.alignment(image)
    aligned = reference.apply(x, alignment)
    assert alignment.is_scaled
    assert alignment.gain_db == pytest.approx(2, abs=1e-3)
    found, wanted = (np.empty(x.shape, x.dtype) for _ in range(2))
    ours = filter_chunk(x, replace(clutter, reference=reference), excluded, PartOfBlock(0, N), out=found)
    expected = filter_chunk(
        np.where(inside.ravel(), aligned, 0), clutter, excluded, PartOfBlock(0, N), out=wanted
    )
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_allclose(ours.sums, expected.sums, atol=1e-2)
    np.testing.assert_array_equal(x, before)
    assert (ours.alignment, expected.alignment) == (alignment, None)


def test_excluded_frames_have_no_part_in_the_gain_of_a_block():
    x, clutter, _, _ = example(np.complex64, "whole")
    # The transmit starts late: a third of the frames are without tissue.
    excluded = np.arange(N) < N // 3
    reference = Reference(mean_envelope(x[~excluded], SHAPE), np.ones(SHAPE, bool))
    clutter = replace(clutter, reference=reference)
    dark = np.where(excluded[:, None], 1e-3 * x, x).astype(x.dtype)
    found, wanted = (filter_chunk(values, clutter, excluded, PartOfBlock(0, N)) for values in (dark, x))
    assert found.alignment == wanted.alignment
    assert abs(found.alignment.gain_db) < 1e-3
    np.testing.assert_allclose(found.sums, wanted.sums, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("case", "order"), [("whole", "F"), ("everything", "C"), ("components only", "F")])
def test_the_filtered_frames_may_take_the_place_of_the_chunk(case, order):
    x, clutter, excluded, _ = example(np.complex64, case, n_temporal=3)
    x, out = np.array(x, order=order), np.empty_like(x, order=order)
    wanted = filter_chunk(x, clutter, excluded, PartOfBlock(0, N), out=out)
    found = filter_chunk(x, clutter, excluded, PartOfBlock(0, N), out=x)
    np.testing.assert_array_equal(x, out)
    np.testing.assert_array_equal(found.sums, wanted.sums)
    np.testing.assert_array_equal(found.kept_power, wanted.kept_power)


class Elsewhere:
    """An executor whose functions run as in another process: they get copies, and so does who calls them."""

    local = SERIAL

    def map(self, function, items, *constants):
        for item in items:
            function_there, item_there, constants_there = pickle.loads(
                pickle.dumps((function, item, constants))
            )
            yield pickle.loads(pickle.dumps(function_there(item_there, *constants_there)))


@pytest.mark.parametrize("case", ["whole", "everything"])
def test_chunks_that_are_filtered_in_another_process_are_the_same(case):
    x, clutter, excluded, _ = example(np.complex64, case)
    (here, expected), (there, found) = (
        filtered(x.T, clutter, UNEVEN["short"], excluded=excluded, executor=executor)
        for executor in (SERIAL, Elsewhere())
    )
    np.testing.assert_array_equal(there, here)
    assert found.filtered is None
    for name in ("power", "kept_power", "coefficients", "sums", "n_unobserved", "finite"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
