"""The distributions install and run, and the recipes in packaging/ name what pyproject.toml names."""

import re
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_conda_recipe_has_the_dependencies_of_the_project() -> None:
    listed = (ROOT / "packaging/conda/meta.yaml").read_text().split("  run:\n")[1].split("\n\n")[0]
    lines = (line.strip("- ").replace(" ", "") for line in listed.splitlines())
    found = {line.replace("matplotlib-base", "matplotlib") for line in lines}
    assert found == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}


def test_the_containers_and_the_readme_install_extras_that_exist() -> None:
    named = re.findall(r"pip install (?:-e )?'\.\[([\w,]+)\]'", (ROOT / "README.md").read_text())
    assert named
    for name in ("Dockerfile", "usdenoise.def"):
        (extras,) = re.findall(r"/opt/usdenoise\[(.*?)\]", (ROOT / "packaging" / name).read_text())
        named.append(extras)
    assert {extra for extras in named for extra in extras.split(",")} <= set(PROJECT["optional-dependencies"])


BUILD = """
import sys
from hatchling import build

for make in (build.build_wheel, build.build_sdist):
    print(make(sys.argv[1]))
"""


@pytest.mark.slow
def test_distributions_install_and_filter_the_sample_data(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "--quiet"]
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    subprocess.run([*install, *tools], check=True)
    how = {"check": True, "capture_output": True, "text": True}
    built = subprocess.run([python, "-c", BUILD, tmp_path], cwd=ROOT, **how)
    names = [name for name in built.stdout.split() if name.endswith((".whl", ".tar.gz"))]
    assert len(names) == 2
    for name, more in zip(names, ((), ("--force-reinstall", "--no-deps")), strict=True):
        subprocess.run([*install, *more, tmp_path / name], check=True)
        program, out = tmp_path / "venv/bin/usdenoise", tmp_path / f"out of {name}"
        command = [program, "run", ROOT / "sample_data/phantom.h5", "-o", out, "-q"]
        subprocess.run(command, check=True, cwd=tmp_path)
        assert (out / "phantom_power_doppler.png").is_file()
