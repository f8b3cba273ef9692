"""The function matlab/usdenoise.m, in GNU Octave: an array in, the command line, arrays out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from tests.formats.test_results import IQ, VOLUMES
from usdenoise import denoise

pytestmark = pytest.mark.skipif(
    shutil.which("octave") is None and not os.environ.get("CI"), reason="GNU Octave is not installed"
)

FOLDER = Path(__file__).parents[2] / "matlab"


def octave(folder: Path, program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a folder whose temporary files are its own."""
    (folder / "temporary").mkdir(exist_ok=True)
    setting = {
        **os.environ,
        "TMPDIR": str(folder / "temporary"),
        "USDENOISE_COMMAND": f"'{sys.executable}' -m usdenoise",
    }
    done = subprocess.run(
        ["octave", "--no-gui", "--quiet", "--eval", f"addpath('{FOLDER}'); {program}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=setting,
    )
    assert list((folder / "temporary").iterdir()) == []
    return done


def test_arrays_come_back_as_from_python(tmp_path: Path) -> None:
    images, volumes = IQ.transpose(1, 2, 0), VOLUMES.transpose(1, 2, 3, 0).astype(np.complex128)
    scipy.io.savemat(tmp_path / "in.mat", {"images": images, "volumes": volumes})
    done = octave(
        tmp_path,
        """
        load in.mat
        [iq, power, report] = usdenoise(images, 'FrameRate', 250, 'LowCutoff', 1, 'Rank', 3, 'Spacing', [0.05 0.1], ...
                                        'Seed', 4);
        assert(report.low_cutoff, 1); assert(report.rank, 3); assert(report.seed, 4);
        assert(class(iq), 'single'); assert(size(iq), size(images));
        [all, power_3d] = usdenoise(volumes, 'LowCutoff', 1, 'Rank', 3, 'KeepFactors', true);
        assert(class(all), 'double');
        save('-v7', 'out.mat', 'iq', 'power', 'all', 'power_3d');
        """,
    )
    assert done.returncode == 0, done.stderr
    out = scipy.io.loadmat(tmp_path / "out.mat")
    result = denoise(images, axes="zxt", low_cutoff=1, rank=3, seed=4)
    np.testing.assert_allclose(out["iq"], result.acquisition.iq, rtol=1e-5)
    np.testing.assert_allclose(out["power"], result.power_doppler, rtol=1e-5)
    whole = denoise(volumes, axes="zxyt", low_cutoff=1, rank=3)
    np.testing.assert_allclose(out["power_3d"], whole.power_doppler, rtol=1e-4)
    assert out["all"].shape == volumes.shape


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("usdenoise(x, 'LowCutoff', 40, 'Rank', 3)", "low_cutoff 40 must be below rank 3; raise --rank or lower"),
        ("usdenoise(x, 'LowCutof', 4)", "No such option '--low-cutof'"),
        ("usdenoise(x(:, :, 1))", "IQ must be a numeric array of depth x lateral x frames"),
        ("usdenoise(x, 'LowCutoff')", "options are pairs of a name and a value"),
        ("usdenoise(x, 'LowCutoff', {})", "the value of 'LowCutoff' must be text, real numbers or true"),
        ("usdenoise(x, 'a b', 1)", "'a b' is no name of an option"),
        ("usdenoise(x, 'Method', '$HOME')", "has a character that a command line takes apart"),
        ("usdenoise(x, 'Command', 'no-such-command')", "no-such-command did not run"),
    ],
)  # fmt: skip
def test_a_failure_is_an_error_with_its_sentence(call: str, says: str, tmp_path: Path) -> None:
    done = octave(
        tmp_path, f"x = randn(6, 5, 40); try, {call}; catch problem, printf('%s', problem.message); end"
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert "usdenoise:" not in done.stdout
    assert "Traceback" not in done.stdout


def test_the_help_has_an_example_that_runs(tmp_path: Path) -> None:
    text = octave(tmp_path, "help usdenoise").stdout
    assert "Clutter-filter an ultrafast-ultrasound Doppler stack" in text
    lines = (FOLDER / "usdenoise.m").read_text().split("%   Example\n")[1].split("%\n")[0].splitlines()
    program = "\n".join(line.lstrip("% ") for line in lines if "imagesc" not in line)
    assert "usdenoise(IQ" in program
    done = octave(tmp_path, f"randn('seed', 1);\n{program}\nprintf('%d %d %d', size(iq))")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "40 30 100"
