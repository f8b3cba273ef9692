"""`usdenoise.run` of a volume, from file to files, against the exact SVD script that reads the same file, in one process.

    python -m benchmarks.volume [--shape 128x100x80x160] [--repeats 3] [--threads 1]

The script reads the frames in their order, sums the Gram matrix in double precision, subtracts 20 components and returns
the power; it writes nothing. Both are called in turn, after the map was compared with the truth. Processor time
(`time.process_time`): the least counts. Memory is the peak that the report states, over the size of the stack.
"""

import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import scipy.linalg
from scipy.linalg.blas import zherk

from benchmarks.shared import command_line
from usdenoise.blood.metrics import correlation
from usdenoise.jobs.run_job import run
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.options import DenoiseOptions
from usdenoise.phantom import PhantomSettings
from usdenoise.system.resources import blas_on_one_thread

GRAM_PIXELS, FILTERED_PIXELS = 2048, 1024


def script(path, low=20):
    """Power of the frames of a file without their strongest components."""
    with h5py.File(path) as file:
        x = file["iq"][()]
    x = x.reshape(len(x), -1)
    n = len(x)
    gram = np.zeros((n, n), np.complex128, order="F")
    for start in range(0, x.shape[1], GRAM_PIXELS):
        part = x[:, start : start + GRAM_PIXELS].astype(np.complex128, order="F")
        zherk(1.0, part, beta=1.0, c=gram, lower=1, overwrite_c=1)
    vectors = scipy.linalg.eigh(gram, lower=True, subset_by_index=[n - low, n - 1])[1].astype(x.dtype)
    adjoint, power = np.ascontiguousarray(vectors.conj().T), np.zeros(x.shape[1], np.float32)
    for start in range(0, x.shape[1], FILTERED_PIXELS):
        part = x[:, start : start + FILTERED_PIXELS]
        rest = part - vectors @ (adjoint @ part)
        power[start : start + FILTERED_PIXELS] = np.sum(rest.real**2, axis=0) + np.sum(rest.imag**2, axis=0)
    return power / n


def spent(call, *arguments, **keywords):
    began = time.process_time()
    result = call(*arguments, **keywords)
    return time.process_time() - began, result


def main():
    asked = command_line(__doc__, shape="128x100x80x160", repeats=3, threads=1)
    shape = tuple(map(int, asked.shape.split("x")))
    ours, scripts = [], []
    with tempfile.TemporaryDirectory() as folder, blas_on_one_thread():
        path = Path(folder) / "volume.h5"
        simulate_to_file(path, PhantomSettings(shape=shape))
        with h5py.File(path) as file:
            truth = file["truth/blood_power"][()].ravel().astype(float)
        for repeat in range(asked.repeats):
            options, out = DenoiseOptions(threads=asked.threads), Path(folder) / f"out{repeat}"
            taken, report = spent(run, path, out, options=options)
            with h5py.File(report["output"]["denoised"]) as file:
                found = correlation(file["blood_power"][()].ravel().astype(float), truth)
            of_script, power = spent(script, path)
            of_power = correlation(power.astype(float), truth)
            assert found > of_power - 0.02, (found, of_power)
            ours.append(taken)
            scripts.append(of_script)
            stack = np.prod(shape) * 8
            print(
                f"run {taken:.2f} s, script {of_script:.2f} s, peak {report['peak_memory_bytes'] / stack:.2f} stacks; "
                f"correlation {found:.3f}, script {of_power:.3f}; "
                + ", ".join(f"{name} {value:.2f} s" for name, value in report["timings_s"].items()),
                flush=True,
            )
            for file in out.iterdir():
                file.unlink()
    print(f"run takes {min(ours) / min(scripts):.2f} times the processor time of the script")


if __name__ == "__main__":
    main()
