"""Run the tests with the oldest versions of the dependencies that pyproject.toml allows.

    python -m tests.oldest                     # a new virtual environment, and the whole suite
    python -m tests.oldest tests/formats -x    # arguments are those of pytest
    python -m tests.oldest --newest            # the newest versions instead

The Python is the one that runs this module. That old versions warn of what newer ones of their own dependencies will
drop is no failure.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
_OLD_WARNINGS = ("-W", "default::DeprecationWarning", "-W", "default::PendingDeprecationWarning")
_BOUND = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)")


def lower_bounds(project: dict[str, object]) -> list[str]:
    """The pins NAME==VERSION of what the package and its tests need, each at its lower bound."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    required = project["dependencies"]
    assert isinstance(required, list)
    pins = {}
    for requirement in (*required, *extras["test"]):
        bound = _BOUND.fullmatch(requirement)
        assert bound is not None, f"{requirement} has no lower bound"
        pins[bound[1]] = bound[2]
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


def main(arguments: list[str]) -> int:
    """Install, run pytest, and return its exit status."""
    newest = "--newest" in arguments
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with tempfile.TemporaryDirectory() as work:
        constraint = Path(work) / "constraint.txt"
        constraint.write_text("" if newest else "\n".join(lower_bounds(project)) + "\n")
        venv.create(Path(work) / "venv", with_pip=True)
        python = Path(work) / "venv" / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--constraint", constraint, f"{ROOT}[test]"], check=True
        )
        subprocess.run([python, "-m", "pip", "list", "--disable-pip-version-check"], check=True)
        given = [argument for argument in arguments if argument != "--newest"]
        command = [python, "-m", "pytest", "-q", *(() if newest else _OLD_WARNINGS), *given]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
