"""A job that fails while it writes: what it still does, and what it leaves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import usdenoise.jobs.run_job as run_job
from tests.jobs.inputs import stack, write_npy
from usdenoise.errors import OutputError
from usdenoise.progress import Progress


@pytest.mark.usefixtures("no_pictures")
def test_a_second_run_of_the_same_results_is_refused_and_another_one_is_not(tmp_path: Path) -> None:
    path, other = write_npy(tmp_path), tmp_path / "y.npy"
    np.save(other, stack(seed=1))
    arguments: dict[str, Any] = {"reading": {"axes": "tzx"}, "overwrite": True}

    class Second(Progress):
        def stage(self, name: str) -> None:
            if name == "write":
                with pytest.raises(OutputError, match=f"another .* '{path.stem}' is writing to the folder"):
                    run_job.run(path, tmp_path / "out", **arguments)
                run_job.run(other, tmp_path / "out", **arguments)

    run_job.run(path, tmp_path / "out", **arguments, watcher=Second())
    assert len(list((tmp_path / "out").glob("*_report.json"))) == 2
    assert not list((tmp_path / "out").glob(".*"))
