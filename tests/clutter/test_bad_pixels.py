"""Pixels that are clipped: masked and named, in scans, blocks and sessions; bright ones stay."""

import numpy as np
import pytest

import usdenoise
from tests.conftest import all_frames
from tests.sessions.scans import LENGTH, scan
from usdenoise.blood.metrics import correlation
from usdenoise.clutter.bad_pixels import coherence, part_extremes, power_after, saturated_pixels
from usdenoise.phantom import PhantomSettings


@pytest.fixture(scope="module")
def made():
    """A phantom, (t, z, x), and its true blood power."""
    terms = all_frames(PhantomSettings((48, 44, 120), frame_rate_hz=500.0, seed=20))[1]
    return terms.iq, np.mean(np.abs(terms.blood) ** 2, axis=0, dtype=np.float64)


def clipped(stack, share, dtype=np.int16):
    """I and Q as integers, clipped so that a share of the pixels is at times, and which pixels these are."""
    peak = np.maximum(np.abs(stack.real), np.abs(stack.imag)).max(axis=0)
    info = np.iinfo(dtype)
    parts = [np.round(part * info.max / np.quantile(peak, 1 - share)) for part in (stack.real, stack.imag)]
    is_clipped = np.any([(part > info.max) | (part < info.min) for part in parts], axis=(0, 1))
    i, q = (np.clip(part, info.min, info.max) for part in parts)
    return (i + 1j * q).astype(np.complex64), is_clipped


def codes(result):
    return [doubt.code for doubt in result.doubts]


@pytest.mark.parametrize(("share", "scale"), [(0.01, 1e-6), (0.05, 1.0)])
def test_clipped_pixels_are_masked_and_a_doubt(made, share, scale):
    stack, is_clipped = clipped(made[0], share)
    found = usdenoise.denoise((scale * stack).astype(np.complex64), axes="tzx")
    assert codes(found) == ["saturation"]
    assert (found.bad_pixels.saturated & ~is_clipped).sum() <= 2
    assert (is_clipped & ~found.bad_pixels.saturated).sum() <= 2
    assert not found.blood_power[found.bad_pixels.saturated].any()
    assert found.bad_pixels.n_pixels == 0
    assert correlation(found.blood_power[~is_clipped], made[1][~is_clipped]) > 0.85


def wrapped(stack, share, bits):
    """I and Q as integers of some bits, which wrap around in a share of the pixels, and which pixels these are."""
    peak, half = np.maximum(np.abs(stack.real), np.abs(stack.imag)).max(axis=0), 2 ** (bits - 1)
    parts = [np.round(part * (half - 1) / np.quantile(peak, 1 - share)) for part in (stack.real, stack.imag)]
    is_wrapped = np.any([np.abs(part + 0.5) > half for part in parts], axis=(0, 1))
    i, q = ((part + half) % (2 * half) - half for part in parts)
    return (i + 1j * q).astype(np.complex64), is_wrapped


@pytest.mark.parametrize(("bits", "scale", "n_blocks"), [(16, 1.0, 0), (12, 1e-3, 0), (16, 1.0, 2)])
def test_pixels_that_wrap_around_are_masked_and_named(made, bits, scale, n_blocks):
    stack, is_wrapped = wrapped(made[0], 0.02, bits)
    stack = (scale * stack).astype(np.complex64)
    if n_blocks:
        found = usdenoise.session(stack, len(stack) // n_blocks, axes="tzx", frame_rate=500.0)
        masked, power = found.mean_blood_power == 0, found.mean_blood_power
    else:
        found = usdenoise.denoise(stack, axes="tzx")
        masked, power = found.bad_pixels.saturated, found.blood_power
    assert any("overflow" in doubt.sentence for doubt in found.doubts)
    assert (masked & is_wrapped).sum() > 0.9 * is_wrapped.sum()
    assert correlation(power[~is_wrapped], made[1][~is_wrapped]) > 0.85


def test_a_chunk_without_tissue_has_no_pixels_that_wrap_around(made):
    da = pytest.importorskip("dask.array")
    stack, is_wrapped = wrapped(made[0], 0.02, 16)
    chunks = (len(stack), *stack.shape[1:])
    found = usdenoise.denoise(da.from_array(np.concatenate([0 * stack, stack]), chunks), axes="tzx")
    assert (found.bad_pixels.saturated & is_wrapped).sum() > 0.9 * is_wrapped.sum()


@pytest.mark.parametrize("turn", [0.1, 1.5, np.pi])
def test_integers_that_turn_fast_or_are_noise_do_not_wrap_around(made, turn):
    rng, frames = np.random.default_rng(2), np.arange(100)[:, None, None]
    speckle = made[0][0] * np.exp(1j * turn * frames)
    for stack in (speckle, rng.standard_normal((100, 48, 44, 2)) @ [1, 1j]):
        full = 32767 / max(np.abs(stack.real).max(), np.abs(stack.imag).max())
        integers = np.round(full * stack.real) + 1j * np.round(full * stack.imag)
        found = usdenoise.denoise(integers.astype(np.complex64), axes="tzx")
        assert "saturation" not in codes(found)


def test_bright_pixels_that_are_not_clipped_stay(made):
    stack, _ = clipped(made[0], 0.0)
    assert codes(usdenoise.denoise(stack, axes="tzx")) == []
    bright = made[0].copy()
    bright[:, 10:12, 10:12] += 3 * np.abs(bright).max()
    assert not usdenoise.denoise(bright, axes="tzx").bad_pixels.saturated.any()


def test_pixels_of_frames_that_are_excluded_stay(made):
    stack = made[0].copy()
    most = max(np.abs(stack.real).max(), np.abs(stack.imag).max())
    stack[[30, 31]] = most * (np.sign(stack[[30, 31]].real) + 1j * np.sign(stack[[30, 31]].imag))
    found = usdenoise.denoise(stack, axes="tzx")
    assert found.frame_quality.excluded[[30, 31]].all()
    assert not found.bad_pixels.saturated.any()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_extremes_equal_a_loop(order, dtype):
    rng = np.random.default_rng(0)
    x = np.asarray(
        rng.standard_normal((7, 9)) + (1j * rng.standard_normal((7, 9)) if dtype != np.float32 else 0), dtype
    )
    x[2, 3], x[:, 5] = np.nan, np.nan
    highest, lowest = part_extremes(np.asarray(x, order=order))
    for pixel in range(9):
        parts = [
            v
            for t in range(7)
            if np.isfinite(x[t, pixel])
            for v in ((x[t, pixel].real, x[t, pixel].imag) if dtype != np.float32 else (x[t, pixel],))
        ]
        assert (highest[pixel], lowest[pixel]) == ((max(parts), min(parts)) if parts else (0, 0))


@pytest.mark.parametrize("shape", [(9,), (5, 4), (3, 4, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_power_and_coherence_equal_loops(shape, dtype):
    rng, n, count = np.random.default_rng(len(shape)), 20, int(np.prod(shape))
    x = rng.standard_normal((n, count)) + 1j * rng.standard_normal((n, count))
    x = np.asarray(x if np.issubdtype(dtype, np.complexfloating) else x.real, dtype)
    left = np.linalg.qr(rng.standard_normal((count, 2)))[0].astype(dtype)
    x[3, 1] = np.nan
    used = np.arange(n) != 7
    filtered, power = power_after(x, left, used)
    y = np.where(np.isfinite(x), x, 0)
    y = (y - y @ left.conj() @ left.T) * used[:, None]
    # Sums of n terms of about 1
    tolerance = 8 * n * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(filtered(slice(None)), y, atol=tolerance)
    np.testing.assert_allclose(power, (np.abs(y) ** 2).sum(axis=0), rtol=tolerance)
    pixels = rng.permutation(count)[: count - 2]
    in_time, in_space = coherence(filtered, power, shape, pixels)
    for pixel, along, beside in zip(pixels, in_time, in_space.T, strict=True):
        own = y[:, pixel]
        assert along == pytest.approx(abs(np.vdot(own[:-1], own[1:])) / power[pixel], abs=tolerance)
        place = np.array(np.unravel_index(pixel, shape))
        for axis, share in enumerate(beside):
            shares = []
            for step in (-1, 1):
                other = place + step * (np.arange(len(shape)) == axis)
                if 0 <= other[axis] < shape[axis]:
                    number = np.ravel_multi_index(tuple(other), shape)
                    most = max(power[pixel], power[number])
                    shares.append(abs(np.vdot(own, y[:, number])) / most)
            assert share == pytest.approx(max(shares), abs=tolerance)


def test_a_stack_of_few_levels_is_not_saturated():
    assert not saturated_pixels(np.ones(50), -np.ones(50)).any()
    assert not saturated_pixels(np.zeros(5), np.zeros(5)).any()
    highest = np.concatenate([[1.0] * 4, np.linspace(0.1, 0.9, 96)])
    assert saturated_pixels(highest, -highest).sum() == 4
    # At one extreme alone
    low = np.linspace(-1.2, -0.1, 100)
    for found in (saturated_pixels(highest, low), saturated_pixels(-low, -highest)):
        assert np.flatnonzero(found).tolist() == [0, 1, 2, 3]


def test_pixels_that_clip_in_blocks_of_a_session_are_masked():
    made = scan(8)
    stack, is_clipped = clipped(made.iq, 0.02)
    found = usdenoise.session(stack, LENGTH, axes="tzx", frame_rate=500.0)
    assert "saturation" in codes(found)
    truth = made.blood_power.mean(axis=0)
    shown = found.mean_blood_power != 0
    assert not (shown & is_clipped).sum() > 0.2 * is_clipped.sum()
    assert correlation(found.mean_blood_power[~is_clipped], truth[~is_clipped]) > 0.8
