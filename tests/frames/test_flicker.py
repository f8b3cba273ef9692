"""Gain and phase of single lines or depths that flicker: measured on the tissue, and divided out everywhere."""

import dask.array as da
import numpy as np
import pytest

import usdenoise
from tests.conftest import all_frames
from tests.sessions.scans import LENGTH, scan
from usdenoise.blood.metrics import correlation
from usdenoise.frames.gains import calibrated, find_flicker, line_gains
from usdenoise.phantom import PhantomSettings


@pytest.fixture(scope="module")
def made():
    """A phantom, (t, z, x), and its true blood power."""
    terms = all_frames(PhantomSettings((56, 40, 160), frame_rate_hz=500.0, seed=11))[1]
    return terms.iq, np.mean(np.abs(terms.blood) ** 2, axis=0, dtype=np.float64)


@pytest.fixture(scope="module")
def clean(made):
    """The result of the phantom."""
    return usdenoise.denoise(made[0], axes="tzx")


def flickering(stack, spread, axis, kind, seed=0):
    """The stack whose lines (axis 2) or depths (axis 1) have a gain or a phase of their own in each frame."""
    noise = spread * np.random.default_rng(seed).standard_normal(
        [n if other in (0, axis) else 1 for other, n in enumerate(stack.shape)]
    )
    gain = 1 + noise if kind == "gain" else np.exp(1j * noise)
    return (stack * gain).astype(stack.dtype)


def codes(result):
    return [doubt.code for doubt in result.doubts]


@pytest.mark.parametrize(("axis", "kind", "spread", "scale"), [
    (2, "gain", 0.01, 1e-6), (2, "phase", 0.04, 1), (1, "gain", 0.04, 1e6),
])  # fmt: skip
def test_the_map_is_as_without_the_flicker(made, clean, axis, kind, spread, scale):
    stack, truth = made
    stack = (scale * flickering(stack, spread, axis, kind)).astype(np.complex64)
    found = usdenoise.denoise(stack, axes="tzx")
    assert correlation(found.blood_power, truth) > correlation(clean.blood_power, truth) - 0.03
    assert [flicker.axis for flicker in found.flickers[:1]] == [axis - 1]
    assert found.flickers[0].spread == pytest.approx(spread, rel=0.2)
    assert "flicker" not in codes(found)
    assert clean.flickers == ()


def test_what_cannot_be_divided_out_is_a_doubt(made):
    stack = flickering(made[0], 0.02, 2, "gain")
    found = usdenoise.denoise(da.from_array(stack, chunks=(80, -1, -1)), axes="tzx")
    assert "flicker" in codes(found)
    assert found.flickers == ()


def test_nothing_flickers_without_tissue():
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((120, 32, 32)) + 1j * rng.standard_normal((120, 32, 32))
    assert usdenoise.denoise(noise.astype(np.complex64), axes="tzx").flickers == ()
    values = rng.standard_normal((400, 100))
    right = np.linalg.svd(values, full_matrices=False)[2][:6].T
    assert find_flicker(values, np.arange(400), (20, 20), right) is None


def test_gains_equal_a_textbook_loop():
    rng = np.random.default_rng(1)
    shape, n = (5, 4), 6
    left = np.linalg.qr(rng.standard_normal((20, 2)) + 1j * rng.standard_normal((20, 2)))[0]
    x = (rng.standard_normal((n, 2)) + 1j) @ left.T + 0.01 * rng.standard_normal((n, 20))
    x[2, 7] = np.nan
    seen = np.nan_to_num(x)
    gains = line_gains(x, left, shape, axis=1)
    for t in range(n):
        tissue = left @ (left.conj().T @ seen[t])
        for line in range(4):
            pixels = [z * 4 + line for z in range(5) if np.isfinite(x[t, z * 4 + line])]
            top = sum(tissue[p].conj() * seen[t, p] for p in pixels)
            assert gains[t, line] == pytest.approx(top / sum(abs(tissue[p]) ** 2 for p in pixels))


def test_a_block_calibrates_itself(made):
    stack, _ = made
    x = flickering(stack, 0.03, 2, "phase").reshape(160, -1)
    found = calibrated(x, (56, 40), axis=1)
    left, still, before = (
        np.sum(np.linalg.svd(frames, compute_uv=False)[12:] ** 2)
        for frames in (found, stack.reshape(160, -1), x)
    )
    assert left < 1.1 * still < 0.1 * before


def test_blocks_of_sessions_and_live_ones_are_calibrated():
    still = scan(8)
    stack = flickering(still.iq, 0.02, 2, "gain")
    clean = usdenoise.session(still.stack, LENGTH)
    found = usdenoise.session(stack, LENGTH, axes="tzx", frame_rate=500.0)
    truth = still.blood_power.mean(axis=0)
    assert correlation(found.mean_blood_power, truth) > correlation(clean.mean_blood_power, truth) - 0.03
    live = usdenoise.Session(axes="tzx", frame_rate=500.0)
    for block in np.split(stack, 8):
        update = live.add(block)
    assert correlation(update.mean_blood_power, truth) > correlation(clean.mean_blood_power, truth) - 0.05
