"""The scripts in docs/examples run, and draw what they say."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import confusius
import imageio.v3 as iio
import numpy as np
import pytest
import scipy.io

from tests.cli.shared import cli
from tests.files.test_neighbours import voxel_data

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
SCRIPTS = {
    "first_picture.py": "as good as the full SVD", "choosing_a_cutoff.py": "components removed",
    "from_confusius.py": "('k', 'j', 'i')", "a_long_session.py": "block 5 of 5",
    "activation_map.py": "of the vessels of the active half",
}  # fmt: skip
SMALLER = {"BLOCK_S = 30": "BLOCK_S = 20", "40x36x100": "40x36x60", "activation=40": "activation=90"}
"""An activation that is as clear in fewer blocks of fewer frames."""


def test_the_xarray_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXAMPLES.parent / "programs.md").read_text()
    program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    data = voxel_data(1)
    monkeypatch.chdir(tmp_path)
    scipy.io.savemat("scan.mat", {"IQ": data.values[:, 0].transpose(1, 2, 0)})
    names = {"data": data}
    exec(program, names)
    assert names["result"].blood_power.dims == ("k", "j", "i")
    assert names["dataset"]["power_doppler"].dims == ("k", "j", "i")


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.name for path in EXAMPLES.glob("*.py")])
def test_an_example_runs(name, tmp_path, monkeypatch, capsys):
    run = subprocess.run

    def run_here(line: list[str], **settings: Any) -> Any:
        """The program in this process: it costs the time of many imports."""
        return cli(*line[3:]) if line[:3] == [sys.executable, "-m", "usdenoise"] else run(line, **settings)

    monkeypatch.setattr(subprocess, "run", run_here)
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.chdir(tmp_path)
    script = (EXAMPLES / name).read_text()
    for given, smaller in SMALLER.items():
        script = script.replace(given, smaller)
    exec(compile(script, name, "exec"), {"__name__": "__main__", "__file__": str(EXAMPLES / name)})
    said = capsys.readouterr().out
    assert SCRIPTS[name] in said
    picture = iio.imread(tmp_path / f"{name.removesuffix('.py')}.png")
    # A drawing has many colours; an empty figure has one.
    assert len(np.unique(picture.view("u4"))) > 50
    if name == "from_confusius.py":
        power = confusius.load(tmp_path / "power.zarr")
        confusius.validation.validate_voxeldata(power)
        assert power.shape == (1, 72, 56)
        assert float(power["y"].min()) == pytest.approx(3.0)
    if name == "activation_map.py":
        active, other = map(int, re.findall(r"(\d+)%", said.splitlines()[-1]))
        assert active > 40
        assert other < 5
