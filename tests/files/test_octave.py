"""GNU Octave: it opens our .mat files, and the function matlab/usdenoise.m runs the command line in it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from tests.files.layouts import v73
from tests.files.matlab_variables import variables
from tests.files.test_matlab_results import ZXT, other_variables
from tests.files.test_results import IQ, OPTIONS, VOLUMES
from usdenoise import denoise, load
from usdenoise.jobs import run_job as job
from usdenoise.options import DenoiseOptions, Output

has_no_octave = shutil.which("octave") is None and not os.environ.get("CI")
needs_octave = pytest.mark.skipif(has_no_octave, reason="GNU Octave is not installed")
pytestmark = [pytest.mark.slow, needs_octave, pytest.mark.usefixtures("no_pictures")]

MATLAB = Path(__file__).parents[2] / "matlab"
IMAGES, VOLUME_SERIES = IQ.transpose(1, 2, 0), VOLUMES.transpose(1, 2, 3, 0)


# What some shell or format takes apart, or in pairs.
HARD = 'a\'b "c" $HOME `id` %PATH% 100% \\ & ; # !~* (é) ^'


def octave(folder: Path, program: str, temporary: str = "temporary") -> str:
    """What a program prints that runs in a folder. Its temporary files are gone."""
    (folder / temporary).mkdir(exist_ok=True)
    setting = {
        **os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / temporary),
        "USDENOISE_COMMAND": f"'{sys.executable}' -m usdenoise",
    }  # fmt: skip
    (folder / "program.m").write_text(f"1;\naddpath('{MATLAB}');\n{program}")
    done = subprocess.run(
        ["octave", "--norc", "--no-gui", "--quiet", "program.m"], capture_output=True, text=True, cwd=folder,
        env=setting,
    )  # fmt: skip
    assert list((folder / temporary).iterdir()) == []
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------- the files that we write


@pytest.mark.parametrize("values", [IMAGES, VOLUME_SERIES], ids=["image", "volume"])
@pytest.mark.parametrize("version", ["5", "7.3"])
def test_octave_reads_what_we_write(version: str, values: NDArray[Any], tmp_path: Path) -> None:
    if version == "5":
        scipy.io.savemat(tmp_path / "x.mat", {"IQ": values, "UF": {"FrameRateUF": 500.0, "TwFreq": 15.0}})
    else:
        v73(IQ=values)(tmp_path)
    output = Output(products=("power", "directional", "velocity"))
    report = job.run(tmp_path / "x.mat", tmp_path / "out", options=OPTIONS, output=output)
    # Octave shows text of version 7.3 as its codes.
    program = """
        s = load('out/x_denoised.mat');
        s.axes = char(s.axes(:)'); s.axial_velocity_unit = char(s.axial_velocity_unit(:)');
        save('-v7', 'back.mat', '-struct', 's');
        """
    octave(tmp_path, program)
    ours, back = (variables(tmp_path / name) for name in ("out/x_denoised.mat", "back.mat"))
    for name in ("IQ", "power_doppler", "axial_velocity", "directional_power_negative"):
        assert back[name].shape == ours[name].shape
        np.testing.assert_array_equal(back[name], ours[name])
    assert (back["axes"], back["axial_velocity_unit"]) == (report["input"]["axes"], "mm/s")


PALA = """
before = load('x.mat'); after = load('out/x_denoised.mat');
IQ = after.IQ; UF = after.UF; PData = after.PData;
assert(isequal(size(IQ), size(before.IQ)));
assert(isequal(UF, before.UF)); assert(isequal(PData, before.PData));
assert(isequal(after.labels, before.labels)); assert(isequal(after.mask, before.mask));
assert(islogical(after.mask)); assert(isequal(after.note, before.note));
power = mean(abs(IQ).^2, 3);
assert(max(abs(power(:) - double(after.power_doppler(:)))) < 1e-4 * max(power(:)));
printf('%d frames at %g Hz', UF.NbFrames, UF.FrameRateUF);
"""


def test_the_next_script_of_pala_finds_its_names(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, **other_variables()})
    job.run(
        tmp_path / "x.mat", tmp_path / "out", options=DenoiseOptions(rank=3, low_cutoff=1, bad_frames="keep")
    )
    assert octave(tmp_path, PALA) == "30 frames at 500 Hz"


# ---------------------------------------------------------------- the function of MATLAB


def test_arrays_come_back_as_from_python(tmp_path: Path) -> None:
    volumes = VOLUME_SERIES.astype(np.complex128)
    scipy.io.savemat(tmp_path / "in.mat", {"images": IMAGES, "volumes": volumes})
    octave(
        tmp_path,
        """
        load in.mat
        [iq, power, report] = usdenoise(images, 'FrameRate', 250, 'LowCutoff', 1, 'Rank', 3, 'Spacing', [0.05 0.1], ...
                                        'Seed', 4);
        assert(report.low_cutoff, 1); assert(report.rank, 3); assert(report.seed, 4);
        assert(class(iq), 'single'); assert(size(iq), size(images));
        [all, power_3d] = usdenoise(volumes, 'LowCutoff', 1, 'Rank', 3);
        assert(class(all), 'double');
        save('-v7', 'out.mat', 'iq', 'power', 'all', 'power_3d');
        """,
    )
    out = scipy.io.loadmat(tmp_path / "out.mat")
    result = denoise(IMAGES, axes="zxt", low_cutoff=1, rank=3, seed=4)
    np.testing.assert_allclose(out["iq"], result.acquisition.iq, rtol=1e-4)
    np.testing.assert_allclose(out["power"], result.power_doppler, rtol=1e-4)
    whole = denoise(volumes, axes="zxyt", low_cutoff=1, rank=3)
    np.testing.assert_allclose(out["power_3d"], whole.power_doppler, rtol=1e-4)
    assert out["all"].shape == volumes.shape


FAILURES = [
        ("usdenoise(x, 'LowCutoff', 40, 'Rank', 3)", "rank 3"),
        ("usdenoise(x, 'LowCutof', 4)", "low-cutoff"),
        ("usdenoise(x(:, :, 1))", "IQ"),
        ("usdenoise(x, 'LowCutoff')", "pairs"),
        ("usdenoise(x, 'LowCutoff', {})", "'LowCutoff'"),
        ("usdenoise(x, 'a b', 1)", "'a b'"),
        ("usdenoise(x, 'Method', '$HOME')", "$HOME"),
        ("usdenoise(x, 'Config', 'none.toml')", "none.toml"),
        ("usdenoise(x, 'Command', 'no-such-command')", "no-such-command"),
        ("usdenoise(x, 'Command', 'true')", "true"),
        ("usdenoise(x, 'Output', 'results')", "'Output'"),
        ("usdenoise(x, 'NoStack', true)", "'NoStack'"),
        ("usdenoise(x, 'Help', true)", "'Help'"),
]  # fmt: skip


def test_a_failure_is_an_error_with_its_sentence(tmp_path: Path) -> None:
    tried = [f"try, {call}; catch problem, printf('%s\\f', problem.message); end" for call, _ in FAILURES]
    printed = octave(tmp_path, "\n".join(["x = randn(6, 5, 40);", *tried]))
    for (call, says), message in zip(FAILURES, printed.removesuffix("\f").split("\f"), strict=True):
        assert says in message, call
        assert "usdenoise:" not in message, call
        assert "Traceback" not in message, call


def test_every_character_of_a_value_arrives(tmp_path: Path) -> None:
    value = f"{HARD} ; touch made ; $(touch made)\n\t\x7f\\"
    (tmp_path / "value.txt").write_bytes(value.encode())
    call = "usdenoise(randn(6, 5, 40), 'Dataset', fileread('value.txt'))"
    printed = octave(tmp_path, f"try, {call}; catch problem, disp(problem.message); end")
    shown = value.replace("\n\t\x7f", r"\n\t\x7f")
    assert printed.partition(" has ")[2].split("'; the")[0] == f"no dataset '{shown}"
    assert not (tmp_path / "made").exists()


def test_every_character_of_a_path_arrives(tmp_path: Path) -> None:
    program = tmp_path / HARD / "usdenoise"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m usdenoise \"$@\"\n")
    program.chmod(0o755)
    (tmp_path / "command.txt").write_bytes(str(program).encode())
    (tmp_path / f"{HARD}.toml").write_text("rank = 7\nlow-cutoff = 1\nestimator = 'sampling=0.75'\n")
    (tmp_path / "config.txt").write_bytes(f"{HARD}.toml".encode())
    printed = octave(
        tmp_path,
        """
        [iq, power, report] = usdenoise(randn(6, 5, 40), 'Command', fileread('command.txt'), 'Rank', 5, 'Rank', 4, ...
                                        'Config', fileread('config.txt'));
        printf('%d %d %g', report.rank, report.low_cutoff, report.sampling);
        """,
        temporary=f"temporary {HARD}",
    )
    # An option wins over the file.
    assert printed == "4 1 0.75"


def test_the_help_has_an_example_that_runs(tmp_path: Path) -> None:
    lines = (MATLAB / "usdenoise.m").read_text().split("%   Example\n")[1].split("%\n")[0].splitlines()
    program = "\n".join(line.lstrip("% ") for line in lines if "imagesc" not in line)
    assert "usdenoise(IQ" in program
    program = f"help usdenoise\nrandn('seed', 1);\n{program}\nprintf('%d %d %d', size(iq))"
    printed = octave(tmp_path, program)
    assert "Clutter-filter an ultrafast-ultrasound Doppler stack" in printed
    assert printed.endswith("40 30 100")


def test_a_block_that_octave_writes_as_the_docs_say(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/live.md").read_text()
    (function,) = re.findall(r"```matlab\n(.*?)```", text, re.DOTALL)
    (tmp_path / "write_block.m").write_text(function)
    octave(tmp_path, "write_block('.', 7, reshape(complex(1:24, 24:-1:1), 2, 3, 4));")
    (path,) = tmp_path.glob("block_*")
    assert path.name == "block_00007.mat"
    read = load(path)
    assert read.axes == "zxt"
    np.testing.assert_array_equal(read.iq.ravel(order="F"), np.arange(1, 25) + 1j * np.arange(24, 0, -1))
