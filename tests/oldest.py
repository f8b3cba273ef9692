"""Run the tests with the oldest versions of the dependencies that pyproject.toml allows, in a new virtual environment.

    python -m tests.oldest                     # the whole suite
    python -m tests.oldest tests/files -x    # arguments of pytest

Warnings of old versions about their own dependencies are no failures. ConfUSIus requires newer versions than the package, so
the tests that import it are left out.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORTS_CONFUSIUS = re.compile(
    r"^(?:import|from) (?:confusius|tests\.files\.test_neighbours)\b", re.MULTILINE
)


def main(arguments: list[str]) -> int:
    """Install, run pytest, and return its exit status."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for text in project["optional-dependencies"]["test"] if "confusius" not in text]
    oldest = [re.sub(r"(\[.*\])?>=", "==", text) for text in (*project["dependencies"], *extras)]
    tests = (ROOT / "tests").rglob("test_*.py")
    left_out = [f"--ignore={path}" for path in tests if IMPORTS_CONFUSIUS.search(path.read_text())]
    with tempfile.TemporaryDirectory() as folder:
        constraint = Path(folder) / "constraint.txt"
        constraint.write_text("\n".join(oldest) + "\n")
        venv.create(Path(folder) / "venv", with_pip=True)
        python = Path(folder) / "venv/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-q", "-c", constraint, ROOT, *extras], check=True)
        subprocess.run([python, "-m", "pip", "list"], check=True)
        warnings = ("-W", "default::DeprecationWarning", "-W", "default::PendingDeprecationWarning")
        command = [python, "-m", "pytest", "-q", *warnings, *left_out, *arguments]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
