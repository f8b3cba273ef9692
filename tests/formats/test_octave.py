"""GNU Octave opens our .mat files, and finds the numbers that are in them."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io

from tests.formats.test_results import IQ, OPTIONS, VOLUMES
from usdenoise.formats.matlab import matlab_writing
from usdenoise.jobs import run_job as job
from usdenoise.options.job_options import Output

# Sums with weights see any exchange of axes, of real and imaginary parts, and of signs.
PROGRAM = """
function show(name, x)
  x = double(x);
  w = reshape(cos(1:numel(x)), size(x));
  printf("%s %s %s %.12e %.12e\\n", name, class(x), mat2str(size(x)), sum(real(x(:) .* w(:))), sum(imag(x(:) .* w(:))));
end
"""


def line(name: str, values: Any) -> str:
    """What the program prints of an array: MATLAB numbers its elements along the first axis."""
    values = np.asarray(values)
    flat = values.astype(np.complex128).reshape(-1, order="F") * np.cos(np.arange(1, values.size + 1))
    size = " ".join(str(n) for n in values.shape)
    return f"{name} double [{size}] {flat.real.sum():.12e} {flat.imag.sum():.12e}"


def close(printed: str, expected: str) -> bool:
    """Whether two such lines agree but for the rounding of the sums."""
    (*what, real, imaginary), (*wanted, real_0, imaginary_0) = printed.split(), expected.split()
    got, value = (complex(float(x), float(y)) for x, y in ((real, imaginary), (real_0, imaginary_0)))
    return what == wanted and abs(got - value) < 1e-6 * (abs(value) + 1e-9)


@pytest.mark.skipif(
    shutil.which("octave") is None and not os.environ.get("CI"), reason="GNU Octave is not installed"
)
@pytest.mark.usefixtures("no_pictures")
def test_octave_reads_what_we_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = {"image": IQ.transpose(1, 2, 0), "volume": VOLUMES.transpose(1, 2, 3, 0)}
    script, expected = [PROGRAM], []
    for version in ("v5", "v73"):
        for kind, values in stacks.items():
            path = tmp_path / f"{version}_{kind}.mat"
            scipy.io.savemat(path, {"IQ": values, "UF": {"FrameRateUF": 500.0, "TwFreq": 15.0}})
            limit = 1000 if version == "v73" else matlab_writing.V5_LIMIT_BYTES
            monkeypatch.setattr(matlab_writing, "V5_LIMIT_BYTES", limit)
            report = job.run(
                path,
                tmp_path / "out",
                options=OPTIONS,
                output=Output(keep_factors=True, products=("power", "directional", "velocity")),
            )
            written = Path(report["output"]["denoised"])
            contents = read(written)
            script.append(f's = load("{written}");')
            for name in ("IQ", "power_doppler", "axial_velocity", "directional_power_negative"):
                script.append(f'show("{version} {kind} {name}", s.{name});')
                expected.append(line(f"{version} {kind} {name}", contents[name]))
            # Octave shows text of version 7.3 as its codes.
            script.append(
                "disp(char(s.axes(:)')); disp(char(s.axial_velocity_unit(:)')); disp(size(s.factors.S));"
            )
            expected += [report["input"]["axes"], "mm/s", "   3   1"]
    (tmp_path / "read.m").write_text("1;\n" + "\n".join(script))
    done = subprocess.run(
        ["octave", "--norc", "--no-gui", "--quiet", str(tmp_path / "read.m")],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert len(printed) == len(expected)
    for got, wanted in zip(printed, expected, strict=True):
        assert got.split() == wanted.split() or close(got, wanted), (got, wanted)


def read(path: Path) -> dict[str, Any]:
    """The variables of a file of either version, through other readers than ours."""
    if not h5py.is_hdf5(path):
        return dict(scipy.io.loadmat(path))
    contents = {}
    with h5py.File(path) as file:
        for name, item in file.items():
            if isinstance(item, h5py.Dataset):
                values = item[()].transpose()
                contents[name] = values["real"] + 1j * values["imag"] if values.dtype.names else values
    return contents
