"""The design: packages and layers, no circular imports, the page of the code, and the reference of what is public."""

import ast
import re
import tomllib
from dataclasses import fields
from pathlib import Path

from usdenoise.report import record
from usdenoise.report.pages import Row

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [
    [name.removeprefix("usdenoise.") for name in row.split(" | ")]
    for contract in CONTRACTS
    if contract["type"] == "layers"
    for row in contract["layers"]
]


def test_every_package_is_in_the_layer_contract() -> None:
    entries = [path for path in (ROOT / "usdenoise").iterdir() if not path.stem.startswith("__")]
    packages = {path.stem for path in entries if path.suffix in ("", ".py")}
    assert {name for row in LAYERS for name in row} == packages
    assert not any("ignore_imports" in contract for contract in CONTRACTS)


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


def test_no_imports_are_circular() -> None:
    # Loading a public name on first use does not import the file that offers it.
    sources = set((ROOT / "usdenoise").rglob("*.py")) - {ROOT / "usdenoise/__init__.py"}
    graph = {path: imported_files(path) for path in sources}
    while leaves := [path for path, targets in graph.items() if not targets & graph.keys()]:
        for path in leaves:
            del graph[path]
    assert {str(path.relative_to(ROOT)) for path in graph} == set()


def test_the_architecture_page_has_the_layers_and_names_files_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.search(r"^\| package \|.*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row.split("|")[1]) for row in rows[1].splitlines()] == LAYERS
    named = set(re.findall(r"`([\w/]+(?:\.(?:py|html|txt)|/))`", page))
    assert len(named) > 40
    places = (ROOT, ROOT / "usdenoise")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


RECORDS = (record.Report, record.BloodRecord, record.FramesRecord, record.BadFrameRecord, record.CutoffRecord,
           record.InputRecord, record.SequenceRecord, record.ActivationRecord, record.BlockRecord, Row)  # fmt: skip


def test_the_reference_names_the_keys_of_the_records() -> None:
    words = set(re.findall(r"\w+", (ROOT / "docs/reference.md").read_text()))
    assert {field.name for each in RECORDS for field in fields(each)} <= words
