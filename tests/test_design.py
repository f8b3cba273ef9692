"""The design holds: who may import whom, style, types, and options that are declared once."""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from click.testing import CliRunner

from usdenoise.cli import main
from usdenoise.options import DenoiseOptions
from usdenoise.options.declaration import Option, flag
from usdenoise.recipe.denoise import denoise

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
    found = re.search(rf"^ +(?:-\w, )?{flag(name)} (.*?)(?=^ +-|\Z)", run_help, re.MULTILINE | re.DOTALL)
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


PHASES = (
    "check_entries",
    "check_frames",
    "estimate_components",
    "draw_pixel_subset",
    "fit_sample",
    "choose_low_cutoff",
    "fit_all_pixels",
    "filter_by_place",
    "remove_clutter",
    "map_blood",
    "keep_band",
    "judge_picture",
    "judge_fit",
)


def test_the_array_goes_through_its_rooms_and_each_phase_once() -> None:
    calls: list[tuple[str, str]] = []
    package = str(ROOT / "usdenoise")

    def follow(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            room = Path(frame.f_code.co_filename).relative_to(package).parts[0]
            calls.append((room, frame.f_code.co_name))

    stack = np.random.default_rng(0).standard_normal((40, 30, 60)).astype(np.float32)
    # Imports are no part of the way, and so is the thread pool.
    denoise(stack, axes="zxt", threads=1)
    sys.setprofile(follow)
    try:
        denoise(stack, axes="zxt", threads=1)
    finally:
        sys.setprofile(None)
    rooms = {room for room, _ in calls}
    # The system is asked for memory and threads; errors.py checks the names of options.
    assert rooms - {"system", "errors.py"} == {
        "recipe",
        "frames",
        "components",
        "clutter",
        "blood",
        "completion",
        "linalg",
        "stack",
        "options",
    }
    counts = Counter(name for _, name in calls)
    assert {phase: counts[phase] for phase in PHASES} == dict.fromkeys(PHASES, 1)
