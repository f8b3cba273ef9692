"""Words of the command line: `usdenoise run` reads options of every kind from them."""

from typing import Any

import pytest

from usdenoise.cli import flags, main
from usdenoise.options import DenoiseOptions, Display, Output, ReadOptions

WORDS: list[tuple[type[Any], str, dict[str, Any]]] = [
    (DenoiseOptions, "", {}),
    (DenoiseOptions, "--rank=12 --low-cutoff=3 --high-cutoff=rank --seed=7 --threads=2",
     {"rank": 12, "low_cutoff": 3, "high_cutoff": "rank", "seed": 7, "threads": 2}),
    (DenoiseOptions, "--bad-frames=3,17,40 --method=scaledgd --estimator=ridge=0.30000000000000004 --estimator=step=1e-07",
     {"bad_frames": (3, 17, 40), "method": "scaledgd", "ridge": 0.1 + 0.2, "step": 1e-7}),
    (DenoiseOptions, "--bad-frames=keep --estimator=init=small --estimator=patience=0 --estimator=refit=none",
     {"bad_frames": "keep", "init": "small", "patience": 0, "refit": "none"}),
    (Display, "--dynamic-range=-20.5,3.0 --figure-format=png,svg",
     {"dynamic_range": (-20.5, 3.0), "figure_formats": ("png", "svg")}),
    (Display, "--dynamic-range=30.0", {"dynamic_range": 30.0}),
    (Output, "--products=power,velocity --no-stack --nifti",
     {"products": ("power", "velocity"), "stack": False, "nifti": True}),
    (Output, "--as=IQ_1", {"stack_name": "IQ_1"}),
    (ReadOptions, "--frames=2:40:3 --spacing=0.1,0.3333333333333333 --axes=tzx",
     {"frames": slice(2, 40, 3), "spacing_mm": (0.1, 1 / 3), "axes": "tzx"}),
    (ReadOptions, "--frames=:7 --frame-rate=333.3333333333333 --dataset=a/=b,c",
     {"frames": slice(None, 7), "frame_rate_hz": 1e3 / 3, "dataset": "a/=b,c"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "words", "values"), WORDS, ids=str)
def test_run_reads_the_words(kind: type[Any], words: str, values: dict[str, Any]) -> None:
    options = kind(**values)
    run = main.get_command(main.make_context("usdenoise", ["run"], resilient_parsing=True), "run")
    parsed = run.make_context("run", [*words.split(), "x.h5"]).params
    kinds = {DenoiseOptions: "options", Display: "display", Output: "output", ReadOptions: "reading"}
    found = flags.job_arguments(parsed)[kinds[kind]]
    assert (ReadOptions(**found) if kind is ReadOptions else found) == options
