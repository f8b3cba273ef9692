"""What the tests of the command line share: a small stack, and the program in this process."""

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from tests.stacks import write_stack
from usdenoise.cli import main

_RNG = np.random.default_rng(4)
IQ = (_RNG.standard_normal((40, 12, 10)) + 1j * _RNG.standard_normal((40, 12, 10))).astype(np.complex64)
QUICK = (
    "--rank=3", "--estimator=iterations=2", "--estimator=patience=0", "--low-cutoff=0", "--high-cutoff=rank",
)  # fmt: skip
REPORT_KEYS = {
    "method", "rank", "sampling", "seed", "low_cutoff", "high_cutoff", "iterations", "passes", "stop_reason",
    "held_out_rmse", "noise_floor", "trace", "singular_values", "timings_s", "peak_memory_bytes", "input",
    "output", "software", "command",
}  # fmt: skip


def write(path: Path, values: NDArray[Any] = IQ, **attributes: Any) -> Path:
    return write_stack(path, values, **attributes)


def write_two(path: Path) -> Path:
    """A file with two stacks."""
    with h5py.File(path, "w") as file:
        file["a"], file["b"] = IQ, IQ
    return path


def cli(*arguments: Any) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def parse(text: str) -> Any:
    """JSON as the standard has it, without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def report_of(*arguments: Any) -> Any:
    """What a command that succeeds prints with --json."""
    done = cli(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return parse(done.stdout)


def refused(result: Result, pattern: str) -> None:
    """Exit code 1, nothing on stdout, one sentence on stderr."""
    assert (result.exit_code, result.stdout) == (1, "")
    (sentence,) = result.stderr.splitlines()
    assert re.match(rf"usdenoise: .*{pattern}", sentence), sentence
