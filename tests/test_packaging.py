"""The recipes in packaging/ name what pyproject.toml names."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_conda_recipe_has_the_dependencies_of_the_project() -> None:
    text = (ROOT / "packaging/conda/meta.yaml").read_text()
    listed = text.split("  run:\n")[1].split("\n\n")[0]
    found = {
        line.strip("- ").replace(" ", "").replace("matplotlib-base", "matplotlib")
        for line in listed.splitlines()
    }
    assert found == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}


def test_the_containers_install_extras_that_exist() -> None:
    for name in ("Dockerfile", "usdenoise.def"):
        (extras,) = re.findall(r"/opt/usdenoise\[(.*?)\]", (ROOT / "packaging" / name).read_text())
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_readme_installs_extras_that_exist() -> None:
    named = re.findall(r"pip install (?:-e )?'\.\[([\w,]+)\]'", (ROOT / "README.md").read_text())
    assert named
    for extras in named:
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
