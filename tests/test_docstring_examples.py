"""The examples in docstrings run, and show what they say."""

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import usdenoise

ROOT = Path(__file__).parents[1]

WITH_EXAMPLES = (
    *(
        "Acquisition",
        "DenoiseOptions",
        "DenoiseResult",
        "Display",
        "Output",
        "UsdenoiseError",
        "axial_velocity",
    ),
    *("signed_power", "compare", "denoise", "directional_power", "load", "plot", "power_doppler", "run"),
    *("run_batch", "save"),
)
"""Public names whose docstrings must hold an example."""


def home(name: str) -> str:
    """The module that defines a public name, which may be below the one that offers it."""
    value = getattr(usdenoise, name)
    defined = inspect.isfunction(value) or inspect.isclass(value)
    return value.__module__ if defined else usdenoise._HOMES[name]


NAMES = ("blood.metrics", "xarray", "stack.given_stack", "stack.sampling", "files.open_input")
OTHERS = {f"usdenoise.{name}" for name in NAMES}
"""Modules that have examples, apart from those of the public names."""

MODULES = sorted({*map(home, usdenoise._HOMES), *OTHERS})


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testmod(import_module(name))
    assert result.failed == 0
    assert result.attempted > 0 or name not in {*OTHERS, *map(home, WITH_EXAMPLES)}
