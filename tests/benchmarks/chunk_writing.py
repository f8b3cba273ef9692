"""Chunks written straight into an HDF5 file, against three ways through h5py.

    python -m tests.benchmarks.chunk_writing [--frames 1200] [--repeats 9] [--folder DIR]

The stack is 200 x 130 pixels of complex64, in memory one row a pixel, in the file one frame after the other. Every
file is made, written and closed within its time, and is given to the disk before the next one is timed. Before
anything is timed all files are read again and compared with the stack. The ways take turns, A B C D A B C D, after
one warm-up; the medians and the median of the ratios round by round are shown.

- directly: reserve_dataset and write_chunks, as a result file is written.
- h5py: the whole array in one assignment, into a file with h5py's own settings.
- h5py, as results: the same in a file of create_file, which has no chunk cache and writes through Python.
- h5py, by chunks: write_direct_chunk in a file of create_file, while another thread puts the next chunk in order.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np

from usdenoise.completion.starts import gaussian
from usdenoise.formats.hdf5.hdf5_chunks import (
    reserve_dataset,
    whole_chunk,
    write_chunks,
    write_chunks_plainly,
)
from usdenoise.formats.hdf5.hdf5_writing import create_file
from usdenoise.formats.layout import chunk_shape
from usdenoise.system.blas_threads import available_threads

PIXELS = (200, 130)


def directly(path, values, chunks):
    with create_file(path) as file:
        _, places = reserve_dataset(file, "iq", values.shape, values.dtype, chunks)
    write_chunks(path, places, chunks, values, values.dtype)


def with_h5py(path, values, chunks):
    with h5py.File(path, "w") as file:
        dataset, _ = reserve_dataset(file, "iq", values.shape, values.dtype, chunks)
        write_chunks_plainly(dataset, values)


def with_h5py_as_results(path, values, chunks):
    with create_file(path) as file:
        dataset, _ = reserve_dataset(file, "iq", values.shape, values.dtype, chunks)
        write_chunks_plainly(dataset, values)


def with_h5py_by_chunks(path, values, chunks):
    with create_file(path) as file, ThreadPoolExecutor(1) as ahead:
        dataset, places = reserve_dataset(file, "iq", values.shape, values.dtype, chunks)
        coming = ahead.submit(whole_chunk, values, places[0][0], chunks, values.dtype)
        for (first, _), following in zip(places, [*places[1:], None], strict=True):
            chunk = coming.result()
            if following is not None:
                coming = ahead.submit(whole_chunk, values, following[0], chunks, values.dtype)
            dataset.id.write_direct_chunk(first, chunk)


WAYS = {
    "directly": directly,
    "h5py": with_h5py,
    "h5py, as results": with_h5py_as_results,
    "h5py, by chunks": with_h5py_by_chunks,
}


def seconds(way, path, values, chunks):
    path.unlink(missing_ok=True)
    os.sync()
    began = time.perf_counter()
    way(path, values, chunks)
    return time.perf_counter() - began


def check(path, values):
    with h5py.File(path) as file:
        for start in range(0, len(values), 100):
            assert np.array_equal(file["iq"][start : start + 100], values[start : start + 100])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1200)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="where the files are written; default: the temporary one")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    values = np.moveaxis(gaussian(rng, (*PIXELS, arguments.frames), np.complex64), -1, 0)
    chunks = chunk_shape(values.shape, "tzx", values.itemsize)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "stack.h5"
        for way in WAYS.values():
            seconds(way, path, values, chunks)
            check(path, values)
        rounds = [
            [seconds(way, path, values, chunks) for way in WAYS.values()] for _ in range(arguments.repeats)
        ]
    print(f"{platform.machine()}, {available_threads()} threads, h5py {h5py.__version__}")
    print(
        f"{' x '.join(str(n) for n in values.shape)} complex64, {values.nbytes / 2**20:.0f} MiB, chunks of "
        f"{' x '.join(str(n) for n in chunks)}, median of {arguments.repeats}"
    )
    print(f"{'way':<17} {'time (s)':>8} {'over directly':>14}")
    for place, name in enumerate(WAYS):
        median = statistics.median(times[place] for times in rounds)
        ratio = statistics.median(times[place] / times[0] for times in rounds)
        print(f"{name:<17} {median:>8.3f} {ratio:>14.2f}")


if __name__ == "__main__":
    main()
