"""``usdenoise simulate``: what it prints and what the file holds."""

import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.cli.shared import cli, parse, refused, report_of
from usdenoise import load

SMALL = ("--shape", "16x12x20")
REALISM = {"noise_correlation_pixels": 1.5, "attenuation_db": 10.0, "max_speed_mm_s": 15.0}
REALISM |= {"thin_vessels": 2, "capillary_db": -8.0}


def test_a_summary_and_a_file(tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    result = cli("simulate", out, *SMALL)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.search("^phantom +z 16, x 12, t 20, complex, seed 0$", result.stdout, re.MULTILINE)
    assert re.search(f"^wrote +{re.escape(str(out))}$", result.stdout, re.MULTILINE)
    with h5py.File(out) as file:
        assert file["iq"].shape == (20, 16, 12)
        assert file["iq"].dtype == np.complex64
        assert sorted(file["truth"]) == ["blood_power", "noise_power", "velocity", "vessel_mask"]
        assert parse(file.attrs["usdenoise_provenance"])["parameters"]["seed"] == 0
    assert os.listdir(tmp_path) == ["p.h5"]
    quiet = cli("simulate", tmp_path / "q.h5", *SMALL, "-q")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")


def test_a_session_shows_its_progress(tmp_path: Path) -> None:
    done = cli("simulate", tmp_path / "s", "--session", 3, *SMALL)
    assert done.stderr.splitlines() == [f"{n} of 3 blocks are simulated" for n in (1, 2, 3)]
    quiet = cli("simulate", tmp_path / "q", "--session", 3, *SMALL, "-q")
    assert (quiet.exit_code, quiet.stderr) == (0, "")


def test_an_existing_file_or_a_wrong_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    out.write_text("precious")
    refused(cli("simulate", out, *SMALL), r"p\.h5 exists; give --overwrite to replace it")
    assert out.read_text() == "precious"
    refused(cli("simulate", out / "p.h5", *SMALL), "p\\.h5")
    assert cli("simulate", out, *SMALL, "--overwrite").exit_code == 0
    assert load(out).iq.shape == (20, 16, 12)


def test_settings_of_realistic_scans_are_in_the_json_and_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    options = [text for key, value in REALISM.items() for text in ("--set", f"{key}={value}")]
    rates = ("--frame-rate", 250, "--noise-gain", 20, "--seed", 3)
    result = cli("simulate", out, *SMALL, *rates, *options, "--json")
    assert result.stdout.count("\n") == 1
    summary = parse(result.stdout)
    assert (summary["path"], summary["shape"], summary["seed"]) == (str(out), [16, 12, 20], 3)
    assert 0 < summary["vessel_fraction"] < 1
    with h5py.File(out) as file:
        parameters = parse(file.attrs["usdenoise_provenance"])["parameters"]
        assert file["truth/capillary_mask"][()].any()
        decibels = 10 * np.log10(file["truth/noise_power"][:, 0])
    for settings in (summary, parameters):
        assert {name: settings[name] for name in REALISM} == REALISM
    assert decibels[-1] - decibels[0] == pytest.approx(20.0, abs=1e-4)
    assert cli("info", out).exit_code == 0
    assert load(out).frame_rate_hz == summary["frame_rate_hz"] == 250
    # Without noise it is JSON, too.
    report_of("simulate", out, *SMALL, "--blood-to-noise", "inf", "--overwrite")
    with h5py.File(out) as file:
        parse(file.attrs["usdenoise_provenance"])


@pytest.mark.parametrize("flags", [(), ("--set", "real=true")])
def test_terms_add_up(flags: tuple[str, ...], tmp_path: Path) -> None:
    cli("simulate", tmp_path / "p.h5", *SMALL, "--set", "terms=true", *flags)
    with h5py.File(tmp_path / "p.h5") as file:
        assert file["iq"].dtype == file["truth/blood"].dtype == (np.float32 if flags else np.complex64)
        terms = sum(file[f"truth/{name}"][()].astype(np.complex128) for name in ("tissue", "blood", "noise"))
        np.testing.assert_allclose(file["iq"][()], terms, rtol=1e-5, atol=1e-5 * np.abs(terms).max())
        blood_power = np.mean(np.abs(file["truth/blood"][()]) ** 2, axis=0)
        np.testing.assert_allclose(file["truth/blood_power"][()], blood_power, rtol=1e-4)


def test_volumes(tmp_path: Path) -> None:
    assert cli("simulate", tmp_path / "p.h5", "--shape", "10x9x8x12").exit_code == 0
    acquisition = load(tmp_path / "p.h5")
    assert (acquisition.axes, acquisition.iq.shape) == ("tzxy", (12, 10, 9, 8))
    assert set(acquisition.spacing_mm) == {"z", "x", "y"}
