"""Options as words of the command line: `usdenoise run` reads the same options from them."""

from typing import Any

import pytest

import usdenoise
from usdenoise.cli import flags, main
from usdenoise.jobs.scan_process import as_flags
from usdenoise.options import ReadOptions


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("options", {}),
        ("options", {"rank": 12, "low_cutoff": 3, "high_cutoff": "rank", "seed": 7, "threads": 2}),
        ("options", {"bad_frames": (3, 17, 40), "method": "scaledgd", "ridge": 0.1 + 0.2, "step": 1e-7}),
        ("options", {"bad_frames": "keep", "init": "small", "patience": 0, "refit": "none"}),
        ("display", {"dynamic_range": (-20.5, 3.0), "figure_formats": ("png", "svg")}),
        ("display", {"dynamic_range": 30.0}),
        ("output", {"products": ("power", "velocity"), "stack": False, "nifti": True}),
        ("output", {"stack_name": "IQ_1"}),
        ("reading", {"frames": slice(2, 40, 3), "spacing_mm": (0.1, 1 / 3), "axes": "tzx"}),
        ("reading", {"frames": slice(None, 7), "frame_rate_hz": 1e3 / 3, "dataset": "a/=b,c"}),
    ],
    ids=str,
)
def test_run_reads_the_same_options(kind: str, values: dict[str, Any]) -> None:
    classes = {
        "options": usdenoise.DenoiseOptions,
        "display": usdenoise.Display,
        "output": usdenoise.Output,
        "reading": ReadOptions,
    }
    options = classes[kind](**values)
    words = as_flags(options)
    run = main.get_command(main.make_context("usdenoise", ["run"], resilient_parsing=True), "run")
    assert run is not None
    parsed = run.make_context("run", [*words, "x.h5"]).params
    found = flags.job_arguments(parsed)[kind]
    assert (ReadOptions(**found) if kind == "reading" else found) == options
