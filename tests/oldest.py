"""Run the tests with the oldest versions of the dependencies that pyproject.toml allows.

    python -m tests.oldest                     # a new virtual environment, and the whole suite
    python -m tests.oldest tests/formats -x    # arguments are those of pytest
    python -m tests.oldest --newest            # the newest versions instead

The Python is the one that runs this module. That old versions warn of what newer ones of their own dependencies will
drop is no failure. ConfUSIus needs newer versions than the package: with the oldest ones the tests that import it are
left out.
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
_BOUND = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[a-z,]+\])?>=([0-9.]+)")


_TOO_NEW = "confusius"
_IMPORTS_IT = re.compile(rf"^(?:import|from) (?:{_TOO_NEW}|tests\.formats\.test_neighbours)\b", re.MULTILINE)


def without_confusius(project: dict[str, object]) -> tuple[list[str], list[str]]:
    """What the other tests need, and the arguments that leave out those that import ConfUSIus."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    needed = [text for text in extras["test"] if not text.startswith(_TOO_NEW)]
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if _IMPORTS_IT.search(path.read_text())]
    return needed, [
        f"--ignore={path.relative_to(ROOT)}" for path in [*paths, ROOT / "tests/jobs/test_examples.py"]
    ]


def lower_bounds(project: dict[str, object]) -> list[str]:
    """The pins NAME==VERSION of what the package and its tests need, each at its lower bound."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    required = project["dependencies"]
    assert isinstance(required, list)
    pins = {}
    for requirement in (*required, *extras["test"]):
        if requirement.startswith(_TOO_NEW):
            continue
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
        needed, left_out = ([f"{ROOT}[test]"], []) if newest else without_confusius(project)
        venv.create(Path(work) / "venv", with_pip=True)
        python = Path(work) / "venv" / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--constraint", constraint, str(ROOT), *needed], check=True
        )
        subprocess.run([python, "-m", "pip", "list", "--disable-pip-version-check"], check=True)
        given = [argument for argument in arguments if argument != "--newest"]
        command = [python, "-m", "pytest", "-q", *(() if newest else _OLD_WARNINGS), *left_out, *given]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
