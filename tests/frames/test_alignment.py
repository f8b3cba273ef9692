"""Blocks that are displaced, or have another gain, are aligned; noise and still sessions are not."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sessions.scans import IMAGE, LENGTH, Scan, scan
from usdenoise import Acquisition, SessionResult, session
from usdenoise.frames.alignment import Alignment, Reference, completed, mean_envelope, reference_of, shifted
from usdenoise.linalg.executor import ThreadExecutor

N_BLOCKS = 16


def smooth(seed: Any, shape: tuple[int, ...], width: float = 1.0) -> NDArray[np.complex128]:
    """Complex speckle with a Gaussian spectrum, periodic."""
    rng = np.random.default_rng(seed)
    white = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    squares = sum(f**2 for f in np.ix_(*map(np.fft.fftfreq, shape)))
    return np.fft.ifftn(np.fft.fftn(white) * np.exp(-2 * (np.pi * width) ** 2 * squares))


def moved(images: NDArray[Any], shift: Any) -> NDArray[Any]:
    """Periodic images, along the last axes, that are displaced, by their Fourier transforms."""
    axes = tuple(range(-len(shift), 0))
    frequencies = np.ix_(*map(np.fft.fftfreq, images.shape[-len(shift) :]))
    phase = sum(f * d for f, d in zip(frequencies, shift, strict=True))
    return np.fft.ifftn(np.fft.fftn(images, axes=axes) * np.exp(-2j * np.pi * phase), axes=axes)


def displaced(made: Scan, shifts: Any, gains_db: Any, edge: int = 3) -> Scan:
    """A session whose blocks are displaced and scaled, without the edges that the displacement wraps around."""
    blocks = []
    for block, shift, gain in zip(made.blocks, shifts, gains_db, strict=True):
        blocks.append(10 ** (gain / 20) * moved(block, shift)[:, edge:-edge, edge:-edge])
    inside = made.blood_power[:, edge:-edge, edge:-edge]
    return Scan(np.concatenate(blocks).astype(np.complex64), inside)


@pytest.mark.parametrize("shape", [(20, 17), (12, 9, 11)])
def test_a_shift_is_undone_in_the_middle_of_an_image(shape: tuple[int, ...]) -> None:
    shift = np.array([0.37, -1.42, 0.81][: len(shape)])
    image = smooth(0, shape)
    found = shifted(moved(image, shift)[None], shift)[0]
    inside = (slice(4, -4),) * len(shape)
    scale = np.abs(image).max()
    np.testing.assert_allclose(found[inside], image[inside], atol=0.08 * scale)
    whole = np.round(shift)
    by_whole = shifted(np.roll(image, whole.astype(int), range(len(shape)))[None], whole)[0]
    np.testing.assert_allclose(by_whole[inside], image[inside], atol=1e-9 * scale)


@pytest.mark.parametrize(("dtype", "n_frames"), [(np.float64, 1), (np.complex64, 3)])
def test_the_interpolation_is_a_sinc_under_a_kaiser_window(dtype, n_frames, monkeypatch):
    """Against the sum written out: 12 taps around the place i + d, beyond the edge the mirrored image."""
    rng, d = np.random.default_rng(0), np.array([0.3, -2.7, 0.0])
    frames = rng.standard_normal((n_frames, 9, 14, 2))
    if dtype is np.complex64:
        frames = (frames + 1j * rng.standard_normal(frames.shape)).astype(dtype)

    def value(line: NDArray[Any], place: float) -> Any:
        k = math.floor(place) + np.arange(-5, 7)
        mirrored = k % (2 * len(line))
        inside = np.minimum(mirrored, 2 * len(line) - 1 - mirrored)
        taps = np.sinc(k - place) * np.i0(4 * np.sqrt(1 - np.minimum(np.abs(k - place) / 6, 1) ** 2))
        return taps @ line[inside] / taps.sum()

    wanted = frames.astype(np.result_type(dtype, np.float64))
    for axis in (1, 2):
        along = lambda line, axis=axis: [value(line, i + d[axis - 1]) for i in range(len(line))]  # noqa: E731
        wanted = np.apply_along_axis(along, axis, wanted)
    for compiled_from in (1 << 40, 1):
        monkeypatch.setattr("usdenoise.frames.alignment.PART_ENTRIES", compiled_from)
        np.testing.assert_allclose(shifted(frames, d), wanted, atol=2e-6 if dtype is np.complex64 else 1e-12)


def test_missing_entries_stay_missing_and_do_not_spread() -> None:
    rng = np.random.default_rng(2)
    frames = smooth(3, (20, 20))[None] * (1 + 0.01 * rng.standard_normal((8, 1, 1)))
    whole = shifted(frames, np.array([1.0, -2.0]))
    frames[2, 10:12, 8] = np.nan
    reference = Reference(np.ones((20, 20), np.float32), np.ones((20, 20), bool))
    alignment = Alignment((1.0, -2.0), 0.0, 1.0, is_shifted=True)
    found = reference.apply(frames.reshape(8, -1), alignment).reshape(frames.shape)
    gone = ~np.isfinite(found)
    assert [tuple(place) for place in np.argwhere(gone)] == [(2, 9, 10), (2, 10, 10)]
    np.testing.assert_allclose(found[~gone], whole[~gone], atol=1e-6)


@pytest.mark.parametrize(("dtype", "scale"), [(np.complex64, 1e-6), (np.float64, 1e6)])
def test_missing_entries_are_filled_by_the_components_of_the_others(dtype, scale):
    rng = np.random.default_rng(4)
    right, left = np.cos(np.outer(np.arange(120), np.arange(6)) / 40), rng.standard_normal((6, 2000))
    tissue = (right * 10 ** -np.arange(0, 3, 0.5)) @ left
    noise = 1e-4 * rng.standard_normal(tissue.shape)
    whole = (scale * (tissue + noise)).astype(dtype)
    x, gaps = whole.copy(), rng.random(whole.shape) < 0.05
    gaps[17], gaps[:60, 40:50] = True, True
    # Interference is not in the components.
    x[30:50] += (100 * scale * rng.standard_normal((20, 2000))).astype(dtype)
    x[gaps] = np.nan
    found, missing = completed(x)
    np.testing.assert_array_equal(missing, gaps)
    np.testing.assert_array_equal(found[~gaps], x[~gaps])
    assert np.abs(found[17]).max() < 1e-6 * scale
    calm = gaps.copy()
    calm[[17, *range(30, 50)]], calm[:, 40:50] = False, False
    assert np.sqrt(np.mean(np.abs(found - whole)[calm] ** 2)) < 2e-4 * scale
    assert completed(whole)[0] is whole


def test_the_reference_is_where_most_blocks_are_whatever_a_burst_does() -> None:
    rng = np.random.default_rng(4)
    tissue = np.abs(smooth(5, (48, 40)))
    shifts = 0.4 * rng.standard_normal((12, 2))
    shifts -= np.median(shifts, axis=0)
    images = [np.maximum(moved(tissue, shift).real, 1e-6).astype(np.float32) for shift in shifts]
    images[3] = np.abs(smooth(6, (48, 40))).astype(np.float32)
    with ThreadExecutor(2) as executor:
        reference, alignments = reference_of(images, executor, True, True)
    assert alignments == [reference.alignment(image) for image in images]
    error = np.delete(np.array([alignment.shift for alignment in alignments]) - shifts, 3, axis=0)
    assert np.sqrt(np.mean((error - error.mean(axis=0)) ** 2)) < 0.02
    assert not reference.alignment(images[3]).is_shifted
    assert not reference.mask.all()
    assert reference.mask[4:-4, 4:-4].all()


@pytest.fixture(scope="module")
def still() -> Scan:
    return scan(N_BLOCKS, rise=0.3, shape=(38, 36), seed=11, resolution=0.8)


@pytest.fixture(scope="module")
def still_result(still: Scan) -> SessionResult:
    return session(displaced(still, np.zeros((N_BLOCKS, 2)), np.zeros(N_BLOCKS)).stack, LENGTH)


def drift(pixels: float) -> NDArray[np.float64]:
    return np.linspace(-pixels / 2, pixels / 2, N_BLOCKS)[:, None] * np.array([0.8, 0.6])


@pytest.fixture(scope="module")
def drifting(still: Scan) -> tuple[Scan, SessionResult]:
    made = displaced(still, *MOVES["drift"])
    return made, session(made.stack, LENGTH)


MOVES = {
    "drift": (drift(2.0), np.zeros(N_BLOCKS)),
    "jump": (np.where(np.arange(N_BLOCKS)[:, None] < 8, 0, [0.7, -0.7]), np.zeros(N_BLOCKS)),
    "jitter": (0.3 * np.random.default_rng(8).standard_normal((N_BLOCKS, 2)), np.zeros(N_BLOCKS)),
    "step of the gain": (np.zeros((N_BLOCKS, 2)), np.where(np.arange(N_BLOCKS) < 8, 0, 3.0)),
}


@pytest.mark.parametrize("what", [
    "drift", "step of the gain", *(pytest.param(one, marks=pytest.mark.slow) for one in ("jump", "jitter"))
])  # fmt: skip
def test_sessions_that_move_read_as_still_ones(what, still, still_result, drifting):
    shifts, gains = MOVES[what]
    made = displaced(still, shifts, gains)
    found = drifting[1] if what == "drift" else session(made.stack, LENGTH)
    assert not found.bad.any()
    table = found.blocks
    error = np.stack([table["shift_z"], table["shift_x"]], axis=1) - shifts
    assert np.sqrt(np.mean((error - np.median(error, axis=0)) ** 2)) < 0.05
    assert table["gain"] - np.median(table["gain"]) == pytest.approx(gains - np.median(gains), abs=0.15)
    scale = 10 ** (-np.median(gains) / 10)
    inside = (slice(4, -4), slice(4, -4))
    blood, wanted = scale * found.mean_blood_power[inside], still_result.mean_blood_power[inside]
    assert np.corrcoef(blood.ravel(), wanted.ravel())[0, 1] > 0.94
    assert blood.sum() == pytest.approx(wanted.sum(), rel=0.1)
    unaligned = session(made.stack, LENGTH, registration=False, gain_correction=False)
    # What is not corrected is measured all the same.
    assert not any(block.is_shifted or block.is_scaled for block in unaligned.block_records)
    assert unaligned.blocks["gain"] == pytest.approx(table["gain"], abs=0.5)
    vessels = made.blood_power[0] > 0
    vessels[:, : vessels.shape[1] // 2] = False

    def relative(result: SessionResult) -> NDArray[np.float64]:
        series = result.blood_power[:, vessels].sum(axis=1, dtype=float)
        return series / series.mean()

    differences = [relative(one) - relative(still_result) for one in (found, unaligned)]
    aligned, not_aligned = (np.sqrt(np.mean(difference**2)) for difference in differences)
    assert aligned < min(0.06, not_aligned)


@pytest.mark.slow
def test_a_session_that_moves_reads_the_same_with_missing_entries(drifting):
    made, wanted = drifting
    iq = made.iq.copy()
    iq[np.random.default_rng(9).random(iq.shape) < 0.03] = np.nan
    found = session(replace(made.stack, iq=iq), LENGTH, low_cutoff=wanted.low_cutoff)
    assert any(block.is_shifted for block in found.block_records)
    assert not found.bad.any()
    assert np.corrcoef(found.mean_blood_power.ravel(), wanted.mean_blood_power.ravel())[0, 1] > 0.98
    sums = [np.nansum(one.blood_power, axis=(1, 2)) for one in (found, wanted)]
    np.testing.assert_allclose(*sums, rtol=0.1)


def test_a_still_session_is_not_shifted(still: Scan, still_result: SessionResult) -> None:
    assert not any(block.is_shifted for block in still_result.block_records)
    assert np.abs(still_result.blocks["shift_z"]).max() < 0.03


def test_noise_alone_is_neither_shifted_nor_scaled(noise_alone: SessionResult) -> None:
    assert not any(block.is_shifted or block.is_scaled for block in noise_alone.block_records)


def test_a_gain_of_some_depths_alone_is_divided_out_or_reported(still, still_result):
    made = displaced(still, np.zeros((N_BLOCKS, 2)), np.zeros(N_BLOCKS))
    iq = made.iq.copy()
    iq[5 * LENGTH : 6 * LENGTH] *= 10 ** (0.3 * np.cos(np.pi * np.arange(32) / 31)[:, None] ** 2)
    raised = replace(made.stack, iq=iq)
    found = session(raised, LENGTH)
    assert found.block_records[5].is_scaled
    assert found.block_records[5].gain_range_db == pytest.approx((0, 6), abs=0.7)
    assert not any(block.is_gain_uneven for block in found.block_records)
    assert "bad-blocks" not in [doubt.code for doubt in found.doubts]
    assert not found.bad.any()
    np.testing.assert_allclose(found.blood_power[5].sum(), still_result.blood_power[5].sum(), rtol=0.06)
    blocks = session(raised, LENGTH, gain_correction=False).block_records
    assert [number for number, block in enumerate(blocks) if block.is_gain_uneven] == [5]
    assert not blocks[5].is_scaled


def test_axes_of_another_order_are_aligned_alike(drifting: tuple[Scan, SessionResult]) -> None:
    made, one = drifting[0].stack, drifting[1]
    turned = Acquisition(np.ascontiguousarray(made.iq.transpose(2, 1, 0)), "xzt", frame_rate_hz=500.0)
    other = session(turned, LENGTH)
    np.testing.assert_allclose(one.blocks["shift_x"], other.blocks["shift_x"], atol=1e-6)
    # Sums are made in another order.
    np.testing.assert_allclose(one.mean_blood_power.T, other.mean_blood_power, rtol=0.02, atol=0.02)


def test_the_envelope_leaves_out_what_is_not_finite() -> None:
    frames = np.full((4, 3, 2), 2.0 + 0j)
    frames[1, 0, 0], frames[:, 2, 1] = np.nan, np.inf
    wanted = np.full((3, 2), 2.0)
    wanted[2, 1] = 0
    np.testing.assert_allclose(mean_envelope(frames.reshape(4, -1), (3, 2)), wanted)


def test_a_block_stays_as_it_is_given() -> None:
    image = np.abs(smooth(9, IMAGE)).astype(np.float32)
    block = np.repeat(moved(image, (0.5, 0.5))[None], 20, axis=0).astype(np.complex64)
    before, x = block.copy(), block.reshape(len(block), -1)
    reference = Reference(image, np.ones(IMAGE, bool))
    found = reference.alignment(mean_envelope(x, IMAGE))
    assert found.is_shifted
    aligned = reference.apply(x, found)
    assert not np.shares_memory(aligned, block)
    assert not np.array_equal(aligned, x)
    np.testing.assert_array_equal(block, before)
