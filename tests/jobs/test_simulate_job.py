"""Files of phantoms have the truth, and a session is one file or one for each block."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.cli.shared import cli, refused
from tests.conftest import all_frames
from tests.phantom.terms import mean_power
from usdenoise import load
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.phantom import PhantomSettings

QUIET = PhantomSettings((12, 10, 20), frame_rate_hz=500.0, seed=3)


def test_the_file_has_the_numbers_of_the_bad_frames(tmp_path):
    simulate_to_file(tmp_path / "x.h5", replace(QUIET, bad_frames=3))
    simulate_to_file(tmp_path / "y.h5", QUIET)
    with h5py.File(tmp_path / "x.h5") as file, h5py.File(tmp_path / "y.h5") as other:
        assert file["truth/bad_frames"].shape == (3,)
        assert "bad_frames" not in other["truth"]


def test_the_truth_in_the_file_has_attenuation_noise_and_capillaries(tmp_path):
    levels = {"attenuation_db": 12.0, "capillary_db": -3.0, "noise_gain_db": 6.0}
    settings = PhantomSettings((24, 20, 10), seed=2, **levels)
    assert simulate_to_file(tmp_path / "p.h5", settings)["attenuation_db"] == 12.0
    phantom, terms = all_frames(settings)
    with h5py.File(tmp_path / "p.h5") as file:
        truth = {name: values[()] for name, values in file["truth"].items()}
    np.testing.assert_allclose(truth["blood_power"], mean_power(terms.blood), rtol=1e-4)
    assert truth["noise_power"].dtype == np.float32
    assert np.array_equal(truth["noise_power"], phantom.noise_power)
    assert np.array_equal(truth["capillary_mask"], phantom.capillary_mask)
    assert truth["capillary_mask"].dtype == bool


def test_a_session_is_one_file_or_one_for_each_block(tmp_path: Path) -> None:
    keys = ("block_interval_s=0.1", "activation=20", "burst_blocks=3,7", "jerk_pixels=1", "bad_frames=5")
    options: list[Any] = ["--shape", "16x12x20", "--session", 11, "--frame-rate", 500]
    options += [text for key in keys for text in ("--set", key)]
    assert cli("simulate", tmp_path / "long.h5", *options).exit_code == 0
    assert "11 blocks" in cli("simulate", tmp_path / "blocks", *options).stdout
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
                for each in ("block_blood_power", "blood_rise", "start_s", "is_burst"):
                    assert np.array_equal(file["truth"][each][0], long["truth"][each][block])
                assert file["truth/blood_power"][()] == pytest.approx(long["truth/block_blood_power"][block])
                found += [int(number) + 20 * block for number in file["truth/bad_frames"]]
        assert found == long["truth/bad_frames"][()].tolist()
        assert np.flatnonzero(long["truth/is_burst"]).tolist() == [3, 7]
        assert long["truth/blood_rise"][5, :, :6] == pytest.approx(np.full((16, 6), 0.2))
        mean = long["truth/block_blood_power"][()].mean(axis=0)
        assert long["truth/blood_power"][()] == pytest.approx(mean, rel=1e-5)
    refused(cli("simulate", tmp_path / "blocks", *options), r"block_00\.h5 exists; give --overwrite")
