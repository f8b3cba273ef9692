"""`usdenoise run` from a file to files, against reading and writing the same bytes with h5py alone.

    python -m benchmarks.file_to_file PHANTOM.h5 [--repeats 5]

Both are commands of their own, timed whole, interpreter and imports included, in turn after one warm-up that
fills the page cache; the medians and the median of the ratios pair by pair are shown, and the least processor
times. With a small phantom (64x64x400) these are mostly start-up, pictures and page. Neither finds a file of its own
to replace, or one still on its way to the disk. Before anything is timed the run's power Doppler is compared with the
truth in the file. Memory is the peak of the run over that of an interpreter that does nothing, and over one that has
loaded the libraries.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from benchmarks.shared import command_line, median_ratio, medians, timed_in_turn
from tests.programs import python
from usdenoise.blood.metrics import correlation

PLAIN = """
import sys, h5py
with h5py.File(sys.argv[1]) as file:
    values = file["iq"][()]
with h5py.File(sys.argv[2], "w") as file:
    file["iq"] = values
"""
PEAK = "\nfrom usdenoise.system.resources import peak_memory_bytes; print(peak_memory_bytes())"
LIBRARIES = """
import usdenoise.jobs.run_job, matplotlib.figure, matplotlib.backends.backend_agg, scipy.linalg, threadpoolctl
"""


def run(used, *command):
    """Run a command, and append its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def remove(written):
    if written.exists():
        (shutil.rmtree if written.is_dir() else Path.unlink)(written)
    os.sync()


def main():
    arguments = command_line(__doc__, "phantom", repeats=5)
    with h5py.File(arguments.phantom) as file:
        stack = file["iq"].id.get_storage_size()
        truth = file["truth/blood_power"][()]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        copy = Path(folder) / "plain.h5"
        ours = (sys.executable, "-m", "usdenoise", "run", arguments.phantom, "-o", out, "-qq")
        plain = (sys.executable, "-c", PLAIN, arguments.phantom, copy)
        used = {out: [], copy: []}
        ours, plain = partial(run, used[out], *ours), partial(run, used[copy], *plain)
        ours()
        plain()
        report = json.loads((out / f"{arguments.phantom.stem}_report.json").read_text())
        with h5py.File(report["output"]["denoised"]) as file:
            found = correlation(file["power_doppler"][()], truth)
        assert found > 0.9, f"the run's correlation with the true blood power is {found:.3f}"
        times = timed_in_turn({out: ours, copy: plain}, arguments.repeats, remove)
        report = json.loads((out / f"{arguments.phantom.stem}_report.json").read_text())
    middle, ratio = medians(times), median_ratio(times[out], times[copy])
    bare, loaded = (int(python(code).stdout) for code in (PEAK, LIBRARIES + PEAK))
    peak = report["peak_memory_bytes"]
    print(f"{arguments.phantom.name}, {stack / 2**20:.0f} MiB, correlation with the truth {found:.4f}")
    print(f"usdenoise run {middle[out]:.2f} s, h5py alone {middle[copy]:.2f} s, ratio {ratio:.2f}")
    least, of_plain = min(used[out]), min(used[copy])
    print(f"processor time {least:.2f} s and {of_plain:.2f} s, ratio {least / of_plain:.1f}")
    print("  " + ", ".join(f"{name} {value:.2f} s" for name, value in report["timings_s"].items()))
    print(
        f"peak memory {peak / 2**20:.0f} MiB: {(peak - bare) / stack:.2f} stacks over an idle interpreter, "
        f"{(peak - loaded) / stack:.2f} over one with the libraries"
    )
    assert np.isfinite(ratio)


if __name__ == "__main__":
    main()
