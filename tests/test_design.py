"""The design holds: who may import whom, style, types, and options that are declared once."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from usdenoise.cli import main
from usdenoise.options import DenoiseOptions
from usdenoise.options.declaration import Option, flag

ROOT = Path(__file__).parents[1]


def tool(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).parent / name
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    "command",
    [("lint-imports",), ("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)],
    ids=" ".join,
)
def test_checks_pass(command: tuple[str, ...]) -> None:
    done = tool(*command)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def run_help() -> str:
    result = CliRunner().invoke(main, ["run", "--help"])
    assert result.exit_code == 0
    return result.stdout


def entry(run_help: str, name: str) -> str:
    """What --help says on one option or one key of the estimator, in one line."""
    start = rf"^ +(?:(?:-\w, )?{flag(name)} |{name}=)"
    found = re.search(rf"{start}(.*?)(?=^  \S|^\S|\Z)", run_help, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name} is not in run --help"
    return " ".join(found[1].split())


@pytest.mark.parametrize("option", DenoiseOptions.declared.values(), ids=lambda option: option.name)
def test_every_option_is_in_the_help_with_its_default(option: Option, run_help: str) -> None:
    text = entry(run_help, option.name)
    if option.default is False:
        assert "[default:" not in text
    elif option.default is not None:
        assert f"[default: {option.default}]" in text
    for choice in option.choices:
        assert re.search(rf"\b{re.escape(choice)}\b", text)


SHARED = (
    "dataset", "axes", "frames", "frame-rate", "spacing", "preset", "dynamic-range", "overwrite",
    "json", "quiet", "verbose", "output",
)  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_every_shared_option_of_the_contract_is_there(name: str, run_help: str) -> None:
    assert f"--{name}" in run_help


SOURCES = sorted((ROOT / "usdenoise").rglob("*.py"))


def test_every_package_is_in_the_layer_contract() -> None:
    entries = [path for path in (ROOT / "usdenoise").iterdir() if path.name != "__pycache__"]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")
    packages = {
        path.stem for path in entries if not path.stem.startswith("__") and path.suffix in ("", ".py")
    }
    assert {
        name.removeprefix("usdenoise.") for row in layers["layers"] for name in row.split(" | ")
    } == packages
    assert not any("ignore_imports" in contract for contract in contracts)


def imported_files(path: Path) -> set[Path]:
    """The files of the package that a file imports, also within functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("usdenoise"):
            place = ROOT / node.module.replace(".", "/")
            names = [place / f"{alias.name}.py" for alias in node.names]
            found |= {name for name in names if name.is_file()} or {
                file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()
            }
    return found


def test_no_files_import_each_other_in_a_circle() -> None:
    # Loading a public name on first use is no import of the file that offers it.
    graph = {path: imported_files(path) for path in SOURCES if path != ROOT / "usdenoise/__init__.py"}
    while leaves := [path for path, targets in graph.items() if not targets & graph.keys()]:
        for path in leaves:
            del graph[path]
    assert {str(path.relative_to(ROOT)) for path in graph} == set()


def test_the_page_of_the_code_has_the_layers_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.search(r"^\| package \|.*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert rows is not None
    table = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in rows[1].splitlines()]
    assert table == [[name.removeprefix("usdenoise.") for name in row.split(" | ")] for row in layers]


def test_every_file_on_the_page_of_the_code_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+(?:\.(?:py|html|txt)|/))`", page))
    assert len(named) > 40
    missing = [
        name for name in named if not any((place / name).exists() for place in (ROOT, ROOT / "usdenoise"))
    ]
    assert missing == []
