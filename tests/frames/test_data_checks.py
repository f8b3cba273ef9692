"""Doubts about what was read: the step of its values, angles that were not compounded, frames that are there twice, blocks
read as an axis of space, and stacks that were filtered before."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import usdenoise
from tests.cli.shared import cli
from tests.conftest import all_frames
from tests.files.layouts import in_order
from tests.stacks import write_stack
from usdenoise.frames.data_checks import order_doubts, value_step
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline.denoise import denoise

ABOUT_ORDER = ("axes", "frame-order", "filtered-before", "values")


@pytest.fixture(scope="module")
def iq():
    return all_frames(PhantomSettings((40, 36, 99), seed=81))[1].iq


def doubts(stack, axes="tzx"):
    """Doubts about the order: code -> sentence."""
    found = {doubt.code: doubt.sentence for doubt in denoise(stack, axes=axes).doubts}
    return {code: found[code] for code in ABOUT_ORDER if code in found}


@cache
def seen_at(angle):
    """Each angle has a speckle of its own."""
    return all_frames(PhantomSettings((24, 20, 99), seed=90 + angle))[1].iq


def angles(n):
    return np.stack([seen_at(frame % n)[frame] for frame in range(99)])


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_angles_that_were_not_compounded_repeat(n):
    found = doubts(angles(n))
    assert f"period {n}," in found["frame-order"]
    assert f"0::{n}" in found["frame-order"]


def test_a_session_of_such_angles_and_one_of_usual_frames(iq):
    def codes(stack):
        return [doubt.code for doubt in usdenoise.session(stack, 33, axes="tzx").doubts]

    assert "frame-order" in codes(angles(2))
    assert "frame-order" not in codes(iq)


@pytest.mark.parametrize("times", [2, 3])
def test_frames_that_are_there_several_times(iq, times):
    assert f"0::{times}" in doubts(np.repeat(iq[:60], times, axis=0))["frame-order"]


@pytest.mark.usefixtures("no_pictures")
def test_recordings_that_were_joined(iq, tmp_path):
    other = all_frames(PhantomSettings((40, 36, 99), seed=82))[1].iq
    joined = np.concatenate([iq[:60], 0.5 * other[:40], iq[60:]])
    assert "from frame 60, 100 on" in doubts(joined)["frame-order"]
    # A burst that passes, and a frame of another recording, are no join.
    single = iq.copy()
    single[30], single[50:53] = other[30], other[50:53]
    assert not doubts(single)
    found = usdenoise.session(np.concatenate([iq[:50], other[:49]]), 33, axes="tzx").doubts
    sentence = {one.code: one.sentence for one in found}["frame-order"]
    assert "in one block the tissue is another one from frame 17 on" in sentence
    # In a command, and by the numbers of the frames that were read
    path = write_stack(tmp_path / "x.h5", joined[:80], axes="tzx", frame_rate_hz=500.0)
    done = cli("run", path, "-o", tmp_path / "out", "--products", "blood", "--bad-frames", "3,4,5")
    assert done.exit_code == 0
    assert "the tissue is another one from frame 60 on" in " ".join(done.stderr.split())


def test_the_real_or_the_imaginary_part_of_iq_alone():
    settings = PhantomSettings((64, 30, 40), frame_rate_hz=500.0, seed=3)
    whole, rf = (all_frames(replace(settings, real=real))[1].iq for real in (False, True))
    for part in (whole.real, whole.imag):
        assert "half of the power is missing" in doubts(np.ascontiguousarray(part))["values"]
        assert "values" in doubts(np.ascontiguousarray(part.transpose(2, 0, 1)), "xtz")
    assert not doubts(rf)
    # RF with four samples a cycle
    spectrum = np.fft.fft(whole, axis=1)
    fine = np.concatenate([spectrum[:, :32], np.zeros((40, 192, 30)), spectrum[:, 32:]], axis=1)
    carrier = np.exp(0.5j * np.pi * np.arange(256))[:, None]
    assert not doubts((np.fft.ifft(fine, axis=1) * carrier).real.astype(np.float32))


def test_blocks_and_ensembles_are_no_axis_of_space():
    settings = PhantomSettings((24, 20, 12), seed=7, session=10, block_interval_s=0.5)
    blocks = all_frames(settings)[1].iq.reshape(10, 12, 24, 20)
    for stack, axes, letter in (
        (blocks, "tzxy", "z"),
        (blocks.transpose(0, 2, 1, 3), "tzxy", "x"),
        (blocks.transpose(2, 3, 1, 0), "zxyt", "y"),
    ):
        assert doubts(np.ascontiguousarray(stack), axes)["axes"].startswith(f"{letter} looks like frames")
    # Depth that is sampled finely is none.
    volume = all_frames(PhantomSettings((20, 16, 12, 64), seed=8))[1].iq
    assert not doubts(volume, "tzxy")
    fine = np.repeat(volume[:, :12], 3, axis=1)
    fine = (np.roll(fine, 1, axis=1) + fine + np.roll(fine, -1, axis=1)) / 3
    assert not doubts(fine.astype(np.complex64), "tzxy")


def test_a_stack_that_was_filtered_before(iq):
    first = denoise(iq, axes="tzx")
    assert not first.doubts
    assert list(doubts(first.stack)) == ["filtered-before"]
    # Tissue that turns evenly is not static either, and is tissue.
    turning = iq * np.exp(0.4j * np.pi * np.arange(len(iq)))[:, None, None]
    assert not doubts(turning.astype(np.complex64))


@pytest.mark.slow
def test_usual_stacks_are_in_order():
    for more in ({"jerk_pixels": 1.5, "bad_frames": 4}, {"breathing": (1.0, 0.2), "real": True}):
        assert not doubts(all_frames(PhantomSettings((40, 36, 120), seed=6, **more))[1].iq)
    _, terms = all_frames(PhantomSettings((40, 36, 120), seed=6))
    assert not doubts(terms.blood + terms.noise)
    assert not doubts(terms.noise)


def test_the_step_of_values_is_found() -> None:
    random = np.random.default_rng(0)
    counts = random.integers(-500, 500, 400) + 1j * random.integers(-500, 500, 400)
    assert value_step((0.3 * counts).astype(np.complex64)) == pytest.approx(0.3, rel=1e-5)
    assert value_step((1e-4 * random.integers(-32768, 32768, 9000)).astype(np.float32)) == pytest.approx(1e-4)
    assert value_step(np.where(counts.real > 400, np.nan, counts.real)) == 1
    # Values of floating-point numbers are multiples of a step that does not count
    assert value_step(random.standard_normal(400).astype(np.float32)) < 1e-6
    assert value_step(np.full(9, 3.0)) == value_step(np.full(9, np.nan)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_copies_of_a_frame_are_as_alike_as_they_can_be(seed):
    rng = np.random.default_rng(seed)
    frame = rng.standard_normal((24, 20)) + 1j * rng.standard_normal((24, 20))
    # Rounding decides on which side of 0 their unlikeness is
    doubts = order_doubts(np.repeat(frame[None], 60, axis=0).reshape(60, -1), "tzx", (24, 20))
    assert "frame-order" not in {code for code, _ in doubts}


@pytest.mark.parametrize("axes", ["tzx", "txz", "ztx", "xtz", "zxt", "xzt"])
def test_time_is_found_along_each_axis(iq, axes):
    stack = in_order(axes, iq)
    found = dict(order_doubts(stack.reshape(len(stack), -1), "tzx", stack.shape[1:]))
    # Data do not tell depth from the other axis of space
    named = {} if axes[0] == "t" else {axes, axes.translate(str.maketrans("zx", "xz"))}
    assert {*re.findall("'([tzx]{3})'", found.get("axes", ""))} == {*named, *(["tzx"] if named else [])}
