"""The design holds: who may import whom, style, types, and options that are declared once."""

import ast
import io
import re
import subprocess
import sys
import threading
import tokenize
import tomllib
from collections import Counter
from pathlib import Path
from types import FrameType

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
    """What --help says on one option, in one line."""
    found = re.search(rf"^ +(?:-\w, )?{flag(name)} (.*?)(?=^  -|\Z)", run_help, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{flag(name)} is not in run --help"
    return " ".join(found[1].split())


@pytest.mark.parametrize("option", DenoiseOptions.declared.values(), ids=lambda option: option.name)
def test_every_option_has_a_flag_that_shows_its_default(option: Option, run_help: str) -> None:
    text = entry(run_help, option.name)
    if option.default is None or option.default is False:
        assert "[default:" not in text
    else:
        assert f"[default: {option.default}]" in text
    for choice in option.choices:
        assert re.search(rf"[\[|]{re.escape(choice)}[\]|]", text)


SHARED = (
    "dataset", "axes", "frames", "frame-rate", "spacing", "preset", "dynamic-range", "db-factor", "overwrite",
    "json", "quiet", "verbose", "output",
)  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_every_shared_option_of_the_contract_is_there(name: str, run_help: str) -> None:
    assert f"--{name}" in run_help


SOURCES = sorted((ROOT / "usdenoise").rglob("*.py"))
MOST_ENTRIES = 24


def test_the_house_has_few_rooms_and_floors() -> None:
    entries = [path for path in (ROOT / "usdenoise").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")
    # Every room is on a floor, and no import is excepted.
    rooms = {path.stem for path in entries if not path.stem.startswith("__") and path.suffix in ("", ".py")}
    assert {room.removeprefix("usdenoise.") for row in layers["layers"] for room in row.split(" | ")} == rooms
    assert not any("ignore_imports" in contract for contract in contracts)


def test_files_of_different_rooms_have_different_names() -> None:
    names = Counter(path.name for path in SOURCES if not path.name.startswith("__"))
    # A command of the command line is a module of its own name, and a room may have that name as well.
    assert [name for name, count in names.items() if count > 1] == []


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


BUDGETS = {
    ".": 140,
    "batch": 869,
    "blood": 727,
    "cli": 1542,
    "clutter": 459,
    "comparison": 1051,
    "completion": 836,
    "components": 494,
    "experiments": 1362,
    "formats": 3898,
    "frames": 561,
    "jobs": 3099,
    "linalg": 299,
    "options": 857,
    "phantom": 570,
    "pictures": 1101,
    "recipe": 592,
    "sessions": 360,
    "stack": 1820,
    "system": 575,
}
"""Most code lines of each room, without docstrings, comments and blank lines. Whoever raises one says why in the commit."""


def code_lines(path: Path) -> int:
    silent = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    source = path.read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_no_room_grows_beyond_its_budget() -> None:
    rooms: Counter[str] = Counter()
    for path in SOURCES:
        parts = path.relative_to(ROOT / "usdenoise").parts
        rooms[parts[0] if len(parts) > 1 else "."] += code_lines(path)
    assert rooms.keys() == BUDGETS.keys()
    assert {room: lines for room, lines in rooms.items() if lines > BUDGETS[room]} == {}


def test_the_page_on_the_house_names_rooms_and_files_that_are_there() -> None:
    page = (ROOT / "docs/house.md").read_text()
    table = page.partition("| room |")[2].partition("\n\n")[0]
    rooms = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = set(re.findall(r"`([\w.]+)`", " ".join(rooms)))
    assert named == {*BUDGETS, "errors.py"} - {"."}
    files = set(re.findall(r"`([\w/]+/[\w.]+\.\w+)`", page))
    assert len(files) > 30
    assert [
        file for file in sorted(files) if not any((ROOT / top / file).exists() for top in ("usdenoise", "."))
    ] == []


MOST_HOPS = 12


def test_a_scan_takes_the_documented_way(phantom_file: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/house.md").read_text()
    hops = re.findall(r"^\d+\. `([\w/]+\.py)`, `(\w+)`", page, re.MULTILINE)
    assert 8 <= len(hops) <= MOST_HOPS
    package = str(ROOT / "usdenoise")
    seen: list[tuple[str, str]] = []

    def follow(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(package):
            hop = (str(Path(name).relative_to(package)), frame.f_code.co_name)
            if hop in hops and hop not in seen:
                seen.append(hop)

    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        done = CliRunner().invoke(
            main, ["run", str(phantom_file), "-o", str(tmp_path), "-q", "--threads", "1"]
        )
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert done.exit_code == 0
    assert seen == hops
