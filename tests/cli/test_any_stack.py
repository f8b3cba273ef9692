"""Whatever the stack and the valid options: finite results, or one of our own sentences."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.stacks import write_stack
from usdenoise.cli import main
from usdenoise.files.images import read_tiff

FLAWS = ("none", "constant pixels", "equal frames", "holes", "infinite", "zeros", "one entry", "all equal")
TYPES = ("c8", "c16", "f4", "f8", "f2", "i1", "i2", "u2", "i4", "i8")


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pictures")]


@st.composite
def stacks(draw: st.DrawFn) -> NDArray[Any]:
    """Small stacks, time first, with what goes wrong in real ones."""
    shape = tuple(draw(st.lists(st.integers(2, 9), min_size=3, max_size=4)))
    shape = (draw(st.integers(2, 24)), *shape[1:])
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    values = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    values += draw(st.sampled_from([0, 100])) * rng.standard_normal(shape[1:])
    flaw = draw(st.sampled_from(FLAWS))
    if flaw == "constant pixels":
        values[:, 0] = 3
    elif flaw == "equal frames":
        values[:] = values[0]
    elif flaw == "zeros":
        values[rng.random(shape) < 0.8] = 0
    elif flaw == "one entry":
        values[:] = 0
        values.flat[draw(st.integers(0, values.size - 1))] = 1
    elif flaw == "all equal":
        values[:] = 2
    if dtype.kind in "iu":
        top = np.iinfo(dtype).max
        scaled = values.real * min(top / 8, 1e4) / max(np.abs(values).max(), 1)
        return np.clip(np.rint(scaled), np.iinfo(dtype).min, top).astype(dtype)
    exponent = draw(st.sampled_from([0, -6, 6, -18, 17, -40, -300, 37, 150, 307]))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scaled = (values if dtype.kind == "c" else values.real) * 10.0**exponent
        stored: NDArray[Any] = scaled.astype(dtype)
    if flaw == "holes":
        stored[rng.random(shape) < draw(st.sampled_from([0.05, 0.6]))] = np.nan
    elif flaw == "infinite":
        stored.flat[draw(st.integers(0, stored.size - 1))] = np.inf
    return stored


@st.composite
def options(draw: st.DrawFn) -> list[str]:
    """Options of `run` of which each is valid by itself."""
    choices: dict[str, st.SearchStrategy[Any]] = {
        "--method": st.sampled_from(["eta-decay", "precgd", "scaledgd-lambda", "scaledgd", "gd", "svd"]),
        "--rank": st.sampled_from(["auto", 1, 2, 5]),
        "sampling": st.sampled_from([0.05, 0.2, 0.5, 1]),
        "--seed": st.integers(0, 2**40),
        "iterations": st.integers(0, 6),
        "decay": st.sampled_from([1e-3, 0.5, 1]),
        "damping": st.sampled_from([0, 1e-3, 10]),
        "step": st.sampled_from([0.1, 0.5, 3]),
        "init": st.sampled_from(["pixels", "spectral", "random", "small"]),
        "ridge": st.sampled_from(["auto", 0, 0.5, 100]),
        "patience": st.integers(0, 2),
        "--low-cutoff": st.sampled_from(["auto", 0, 1, 3]),
        "--high-cutoff": st.sampled_from(["rank", "none", 1, 4]),
        "refit": st.sampled_from(["all", "none"]),
        "precision": st.sampled_from(["single", "double"]),
        "--threads": st.sampled_from([1, 2]),
        "--frames": st.sampled_from(["0:2", "::2", "1:"]),
    }
    flags = draw(st.lists(st.sampled_from(sorted(choices)), unique=True, max_size=7))
    words = [(name, draw(choices[name])) for name in flags]
    return [
        word
        for name, value in words
        for word in ((name, str(value)) if name.startswith("-") else ("--estimator", f"{name}={value}"))
    ]


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(stack=stacks(), flags=options())
def test_run_writes_finite_results_or_says_why_not(stack, flags, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    write_stack(folder / "x.h5", stack, axes="tzxy"[: stack.ndim])
    result = CliRunner().invoke(main, ["run", str(folder / "x.h5"), "-o", str(folder / "out"), "-qq", *flags])
    if result.exit_code == 0:
        check_results(folder / "out")
        return
    assert isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in (1, 3), result.output
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("usdenoise: ")
    assert not (folder / "out").exists()


def check_results(folder: Path) -> None:
    with h5py.File(folder / "x_denoised.h5") as file:
        for name in ("iq", "power_doppler", "singular_values"):
            assert np.isfinite(file[name][()]).all(), name
    assert np.isfinite(read_tiff(folder / "x_power_doppler.tif")).all()
    json.loads((folder / "x_report.json").read_text())
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
