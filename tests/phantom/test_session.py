"""Sessions of many blocks: what stays the same for hours, and what changes from block to block."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.cli.shared import cli, refused
from tests.phantom.powers import mean_power
from usdenoise import load
from usdenoise.errors import OptionError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings, Terms
from usdenoise.phantom.motion_and_noise import image_motion

SESSION = PhantomSettings((32, 28, 6), frame_rate_hz=500.0, seed=3, session=20)


def block_terms(settings: PhantomSettings, block: int) -> Terms:
    with ThreadExecutor() as executor:
        first = block * settings.frames_a_block
        return Phantom(settings, executor).frames(np.arange(first, first + settings.frames_a_block))


def test_vessels_and_tissue_are_there_after_hours() -> None:
    """The blocks are 3 minutes apart, and so an hour long."""
    settings = replace(SESSION, block_interval_s=180.3)
    with ThreadExecutor() as executor:
        phantom = Phantom(settings, executor)
        blocks = [phantom.frames(np.arange(block * 6, block * 6 + 6)) for block in range(settings.n_blocks)]
    tissue = np.array([np.mean(np.abs(block.tissue) ** 2) for block in blocks])
    blood = np.array([np.mean(np.abs(block.blood[:, phantom.mask]) ** 2) for block in blocks])
    assert tissue.max() < 1.5 * tissue.min()
    assert blood.mean() == pytest.approx(1, rel=0.1)
    assert blood.min() > 0.5
    # It drifts: tissue of one block is not that of another.
    first, last = (blocks[k].tissue[0].ravel() for k in (0, -1))
    likeness = abs(np.vdot(first, last)) / (np.linalg.norm(first) * np.linalg.norm(last))
    assert 0.3 < likeness < 0.99


@pytest.mark.slow
def test_an_activation_raises_the_blood_of_the_left_half_in_five_of_ten_blocks() -> None:
    active = replace(SESSION, activation=10.0)
    for block, rise in ((0, 1.0), (4, 1.0), (5, 1.1), (9, 1.1), (10, 1.0), (19, 1.1)):
        rest, found = (block_terms(settings, block) for settings in (SESSION, active))
        before, after = mean_power(rest.blood), mean_power(found.blood)
        assert after[:, :14] == pytest.approx(rise * before[:, :14], rel=1e-4)
        assert after[:, 14:] == pytest.approx(before[:, 14:], rel=1e-6)
        assert np.array_equal(rest.tissue, found.tissue)
        assert np.array_equal(rest.noise, found.noise)


def test_locked_motion_follows_each_onset_and_nothing_else() -> None:
    settings = replace(SESSION, block_interval_s=0.6, locked_motion=(1.5, 2.0))
    moved = [image_motion(settings, frame)[:2] / [0.8, 0.6] for frame in range(settings.n_frames)]
    seconds = np.array([settings.seconds(frame) for frame in range(settings.n_frames)])
    since = np.where(seconds < 3.0, -1, (seconds - 3.0) % 6.0)
    wanted = np.where((since >= 0) & (since <= 2), 1.5 * np.sin(np.pi * since / 2) ** 2, 0)
    np.testing.assert_allclose(moved, np.stack([wanted, wanted], axis=1), atol=1e-9)
    assert wanted.max() > 1.2


def test_the_gain_rises_and_falls_once() -> None:
    drifting = replace(SESSION, gain_drift_db=2.0)
    for block, gain_db in ((0, 0.0), (5, 1.0), (15, -1.0)):
        rest, found = (block_terms(settings, block) for settings in (SESSION, drifting))
        for before, after in ((rest.tissue, found.tissue), (rest.blood, found.blood)):
            assert after[0] == pytest.approx(10 ** (gain_db / 20) * before[0], rel=1e-4)
        assert np.array_equal(rest.noise, found.noise)


def test_the_image_moves_in_the_blocks_of_a_burst_alone() -> None:
    moving = replace(SESSION, burst_blocks=(2,), jerk_pixels=3.0)
    for block in (1, 2, 3):
        rest, found = (block_terms(settings, block) for settings in (SESSION, moving))
        change = np.mean(np.abs(found.tissue - rest.tissue) ** 2, axis=(1, 2)) / np.mean(
            np.abs(rest.tissue) ** 2
        )
        # Out and back within the block.
        assert change[[0, -1]] == pytest.approx([0, 0], abs=1e-3)
        assert change.max() > 0.5 if block == 2 else change.max() < 1e-3


def test_a_session_is_one_file_or_one_for_each_block(tmp_path: Path) -> None:
    keys = ("block_interval_s=0.1", "activation=20", "burst_blocks=3,7", "jerk_pixels=1", "bad_frames=5")
    options: list[Any] = ["--shape", "16x12x20", "--session", 11, "--frame-rate", 500]
    options += [text for key in keys for text in ("--set", key)]
    assert cli("simulate", tmp_path / "long.h5", *options).exit_code == 0
    result = cli("simulate", tmp_path / "blocks", *options)
    assert "11 blocks" in result.stdout
    names = [f"block_{block:02}.h5" for block in range(11)]
    assert sorted(path.name for path in (tmp_path / "blocks").iterdir()) == names
    whole = load(tmp_path / "long.h5")
    assert whole.iq.shape == (220, 16, 12)
    found = []
    with h5py.File(tmp_path / "long.h5") as long:
        for block, name in enumerate(names):
            assert np.array_equal(load(tmp_path / "blocks" / name).iq, whole.iq[block * 20 : block * 20 + 20])
            with h5py.File(tmp_path / "blocks" / name) as file:
                assert file["iq"].attrs["start_s"] == pytest.approx(0.1 * block)
                for name_of_truth in ("block_blood_power", "blood_rise", "start_s", "is_burst"):
                    assert np.array_equal(
                        file["truth"][name_of_truth][0], long["truth"][name_of_truth][block]
                    )
                assert file["truth/blood_power"][()] == pytest.approx(long["truth/block_blood_power"][block])
                found += [int(number) + 20 * block for number in file["truth/bad_frames"]]
        assert found == long["truth/bad_frames"][()].tolist()
        assert np.flatnonzero(long["truth/is_burst"]).tolist() == [3, 7]
        assert long["truth/blood_rise"][5, :, :6] == pytest.approx(np.full((16, 6), 0.2))
        assert long["truth/blood_power"][()] == pytest.approx(
            long["truth/block_blood_power"][()].mean(axis=0), rel=1e-5
        )
    refused(cli("simulate", tmp_path / "blocks", *options), r"block_00\.h5 exists; give --overwrite")


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": 10},
        {"session": 4, "burst_blocks": (1, 4), "jerk_pixels": 1},
        {"session": 4, "burst_blocks": (1,)},
        {"session": 4, "block_interval_s": 0.1},
    ],
)
def test_an_impossible_session_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        PhantomSettings(**settings)
