"""Faults in some blocks of a session leave the others as they are, and are found."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import all_frames
from tests.sessions.scans import LENGTH, RATE_HZ, Scan, scan
from usdenoise import Session, SessionResult, session
from usdenoise.errors import InputError, OptionError
from usdenoise.phantom import PhantomSettings
from usdenoise.sessions import filter_session, online_session

N_BLOCKS = 16


@pytest.fixture(scope="module")
def sound() -> tuple[Scan, SessionResult]:
    """A session without a fault."""
    made = scan(N_BLOCKS, seed=4)
    return made, session(made.stack, LENGTH)


def noise(rng: np.random.Generator, shape: tuple[int, ...], rms: float) -> NDArray[np.complex64]:
    """Complex white noise."""
    values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (values * rms / np.sqrt(2)).astype(np.complex64)


def clipped(values: NDArray[Any], level: Any) -> NDArray[Any]:
    """Values whose real and imaginary parts are limited."""
    limited: NDArray[Any] = np.clip(values.real, -level, level) + 1j * np.clip(values.imag, -level, level)
    return limited


def with_fault(made: Scan, kind: str, blocks: list[int], share: float) -> NDArray[np.complex64]:
    """The frames of a session with a fault in some of its blocks, or in some of their pixels."""
    iq, rng = made.iq.copy(), np.random.default_rng(1)
    rms = float(np.sqrt(np.mean(np.abs(iq) ** 2)))
    pixels = rng.permutation(iq[0].size)[: max(1, round(share * iq[0].size))]
    for block in blocks:
        frames = iq[block * LENGTH : (block + 1) * LENGTH].reshape(LENGTH, -1)
        some = frames[:, pixels]
        if kind == "white noise":
            frames += noise(rng, frames.shape, rms * 10 ** (-17 / 20))
        elif kind == "no contact":
            frames[:] = noise(rng, frames.shape, 1.0)
        elif kind == "artefact":
            frames[:, pixels] += noise(rng, some.shape, rms * 10 ** (-17 / 20))
        elif kind == "clipping":
            frames[:, pixels] = clipped(some, 0.6 * np.median(np.abs(some), axis=0))
        else:
            frames[:, pixels] = {"missing": np.nan, "zero": 0}[kind]
    return iq


BAD = {
    "white noise": ([1, 5, 8, 12], 1.0),
    "no contact": ([0, 4, 5, 9, 14], 1.0),
    "artefact": ([3], 0.05),
    "clipping": ([6, 11], 0.02),
    # In half of the blocks, and in more.
    "noise in half": ([0, 2, 3, 7, 8, 10, 13, 14], 1.0),
    "missing": ([0, 1, 2, 4, 5, 7, 8, 10, 13], 1.0),
    "zero": ([3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15], 1.0),
}


SIMILAR = ("white noise",)
"""Cases of the slow run."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SIMILAR)) for kind in BAD]
)
def test_blocks_with_a_fault_are_bad_and_leave_the_others(kind, sound):
    made, wanted = sound
    blocks, share = BAD[kind]
    what = "white noise" if kind == "noise in half" else kind
    found = session(replace(made.stack, iq=with_fault(made, what, blocks, share)), LENGTH)
    assert np.flatnonzero(found.bad).tolist() == blocks
    assert abs(found.low_cutoff - wanted.low_cutoff) <= 1
    compare(found, wanted, made, np.setdiff1d(np.arange(N_BLOCKS), blocks))
    # Which half is unusual is not known; that there are no data is.
    is_doubtful = "bad-blocks" in {doubt.code for doubt in found.doubts}
    assert is_doubtful == (len(blocks) >= N_BLOCKS / 2 and kind not in ("missing", "zero"))


@pytest.mark.parametrize(
    "bursts", [pytest.param((1, 5, 6, 9, 14), marks=pytest.mark.slow), (0, 2, 3, 6, 9, 11, 12, 14)]
)
def test_bursts_of_motion_leave_the_calm_blocks(bursts, sound):
    _, wanted = sound
    made = scan(N_BLOCKS, seed=4, bursts=bursts)
    found = session(made.stack, LENGTH)
    assert np.flatnonzero(found.bad).tolist() == list(bursts)
    compare(found, wanted, made, np.setdiff1d(np.arange(N_BLOCKS), bursts))
    assert ("bad-blocks" in {doubt.code for doubt in found.doubts}) == (len(bursts) == 8)


@pytest.mark.slow
def test_clipping_in_a_third_of_the_blocks_does_not_spoil_the_estimate() -> None:
    levels = {"clutter_to_blood_db": 45, "blood_to_noise_db": 0, "thin_vessels": 3}
    settings = PhantomSettings((24, 24, LENGTH), RATE_HZ, session=N_BLOCKS, seed=2, **levels)
    _, terms = all_frames(settings)
    truth, blocks = np.mean(np.abs(terms.blood) ** 2, axis=0), [1, 4, 6, 9, 10, 14]
    made = Scan(terms.iq, truth)
    found = session(replace(made.stack, iq=with_fault(made, "clipping", blocks, 0.18)), LENGTH)
    assert np.flatnonzero(found.bad).tolist() == blocks
    # Without the fault it is 0.89, and with some of these blocks in the estimate 0.52.
    assert np.corrcoef(found.mean_blood_power.ravel(), truth.ravel())[0, 1] > 0.8


@pytest.mark.parametrize("kind", ["missing", pytest.param("zero", marks=pytest.mark.slow)])
def test_pixels_without_data_in_half_of_the_blocks_do_not_count(kind, sound):
    made, wanted = sound
    iq = with_fault(made, kind, list(range(1, N_BLOCKS, 2)), 0.1)
    missing = ~np.isfinite(iq[LENGTH]) | (iq[LENGTH] == 0)
    found = session(replace(made.stack, iq=iq), LENGTH)
    assert not found.bad.any()
    for series in (found.blood_power, found.power_doppler):
        assert np.isnan(series[1::2, missing]).all()
        assert np.isfinite(series[::2]).all()
        assert np.isfinite(series[:, ~missing]).all()
    compare(found, wanted, made, np.arange(N_BLOCKS))
    power = found.means["power_doppler"]
    assert power[missing] == pytest.approx(wanted.means["power_doppler"][missing], rel=0.35)
    assert found.tsnr[missing].mean() == pytest.approx(wanted.tsnr[missing].mean(), rel=0.4)


def compare(found: SessionResult, wanted: SessionResult, made: Scan, good: NDArray[Any]) -> None:
    """The mean map and the blood of good blocks are as in the session without a fault."""
    maps = found.mean_blood_power, wanted.mean_blood_power
    assert np.corrcoef(*(image.ravel() for image in maps))[0, 1] > 0.98
    vessels = made.blood_power[0] > 0
    known = np.isfinite(found.blood_power[good]) & vessels
    series = (np.where(known, own.blood_power[good], 0).sum(axis=(1, 2)) for own in (found, wanted))
    np.testing.assert_allclose(*series, rtol=0.1)


def test_integers_are_aligned_and_have_pixels_without_data_as_floats_do(sound):
    made, _ = sound
    values = np.rint(10 * with_fault(made, "zero", [3, 8], 0.1).real).astype(np.int16)
    values[5 * LENGTH :] *= 2
    both = (values, values.astype(np.float32))
    found, wanted = (session(each, LENGTH, axes="tzx", frame_rate=500.0) for each in both)
    assert any(block.is_scaled for block in found.block_records)
    assert np.isnan(found.blood_power[3]).any()
    np.testing.assert_array_equal(found.blood_power, wanted.blood_power)


def test_the_only_good_block_is_displaced_without_the_noise_of_a_pixel() -> None:
    """It is mapped as a scan. The other block has too many copies of a frame."""
    iq = scan(2, blood=3.0, shape=(40, 36), resolution=1.5).iq
    iq[:LENGTH] = np.roll(iq[:LENGTH], 3, axis=2)
    iq[10:60] = iq[9]
    about = {"axes": "tzx", "frame_rate": RATE_HZ, "spacing": (0.1, 0.2), "window": LENGTH, "low_cutoff": 4}
    sound = session(iq, **about)
    iq[:, 20, 12] += 300 * (np.random.default_rng(3).standard_normal((2 * LENGTH, 2)) @ [1, 1j])
    found = session(iq, **about)
    for result in (sound, found):
        assert result.bad.tolist() == [True, False]
        assert abs(result.block_records[1].shift_pixels[1]) == pytest.approx(1.5, abs=0.1)
    has_signal = found.means["noise_power"] > 0
    assert np.argwhere(~has_signal & (sound.means["noise_power"] > 0)).tolist() == [[20, 12]]
    maps = [result.means["blood_power"][has_signal] for result in (found, sound)]
    assert np.corrcoef(*maps)[0, 1] > 0.99


def test_blocks_count_as_much_as_they_have_frames(sound: tuple[Scan, SessionResult]) -> None:
    made, wanted = sound
    iq, rng = made.iq.copy(), np.random.default_rng(2)
    for block in (2, 7, 13):
        iq[block * LENGTH + rng.permutation(LENGTH)[: LENGTH * 9 // 10]] = np.nan
    found = session(replace(made.stack, iq=iq), LENGTH, bad_frames="keep")
    power, alone = found.power_doppler.astype(float), found.means["power_doppler"]
    frames = np.full(N_BLOCKS, LENGTH)
    frames[[2, 7, 13]] = LENGTH - LENGTH * 9 // 10
    good = ~found.bad
    weighted = np.tensordot(frames[good], power[good], 1) / frames[good].sum()
    np.testing.assert_allclose(alone, weighted, rtol=1e-4)
    assert np.corrcoef(found.mean_blood_power.ravel(), wanted.mean_blood_power.ravel())[0, 1] > 0.98


def test_little_memory_takes_fewer_blocks_side_by_side_or_is_refused(sound, monkeypatch):
    made, wanted = sound
    # About what the sample and one block take.
    enough = 2.1 * 1200 * made.iq[0].nbytes + 4 * LENGTH * made.iq[0].nbytes
    monkeypatch.setattr(filter_session, "available_bytes", lambda: enough)
    found = session(made.stack, LENGTH, threads=2)
    np.testing.assert_allclose(found.blood_power, wanted.blood_power, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(filter_session, "available_bytes", lambda: enough / 2)
    with pytest.raises(InputError, match="memory"):
        session(made.stack, LENGTH)


def test_a_live_session_without_memory_for_its_first_block_is_refused(sound, monkeypatch):
    block = sound[0].blocks[0]
    monkeypatch.setattr(online_session, "available_bytes", lambda: 10 * block.nbytes)
    with pytest.raises(OptionError, match="memory"):
        Session(axes="tzx").add(block)


def test_frames_without_tissue_do_not_change_the_level_of_a_block() -> None:
    made = scan(8, seed=5)
    iq = made.iq.copy().reshape(8, LENGTH, *made.iq.shape[1:])
    wanted = session(made.iq, LENGTH, axes="tzx", frame_rate=500.0)
    rng = np.random.default_rng(6)
    noise = rng.standard_normal((*iq.shape, 2)).astype(np.float32).view(np.complex64)[..., 0] / np.sqrt(2)
    n_zero = LENGTH * 6 // 10
    for dark, empty in (
        ([2, 5], noise[:, :30]),
        (range(8), noise[:, :30]),
        ([3, 4], np.zeros_like(iq[:, :n_zero])),
    ):
        late = iq.copy()
        late[list(dark), : empty.shape[1]] = empty[list(dark)]
        found = session(late.reshape(made.iq.shape), LENGTH, axes="tzx", frame_rate=500.0)
        assert not found.bad.any()
        ratios = found.power_doppler.sum(axis=(1, 2)) / wanted.power_doppler.sum(axis=(1, 2))
        np.testing.assert_allclose(ratios, 1, atol=0.1)


def test_two_positions_with_as_many_blocks_are_a_doubt(sound: tuple[Scan, SessionResult]) -> None:
    """The image of the session is a mixture of both, and which one is meant is not known."""
    (made, wanted), sentence = sound, "not like the image of the session"
    iq = np.concatenate([made.iq[: 8 * LENGTH], scan(8, seed=7).iq])
    found = session(replace(made.stack, iq=iq), LENGTH)
    assert any(sentence in doubt.sentence for doubt in found.doubts)
    assert not any(sentence in doubt.sentence for doubt in wanted.doubts)
