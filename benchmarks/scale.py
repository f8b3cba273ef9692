"""Memory and time against the size of a stack, in memory, from the disk and on Dask: tables of benchmarks/RECORDS.md.

    python -m benchmarks.scale FOLDER [--ways memory,disk,dask] [--against pixels,frames,rank,chunks]

The stacks are three components of tissue over white noise, complex64, as Zarr without compression in FOLDER, 0.3 GB at
most. Each way runs in a process of its own, whose peak is told; with Dask also that of the larger of two workers. The power
images of all ways are compared before a time is printed.
"""

import json

import numpy as np
import zarr

from benchmarks.shared import command_line
from tests.programs import python

SIZES = {
    "pixels": [(64, 32, 2400), (64, 64, 2400), (128, 64, 2400), (128, 128, 2400)],
    "frames": [(128, 64, 600), (128, 64, 1200), (128, 64, 2400), (128, 64, 4800)],
    "rank": [(128, 64, 2400)],
    "chunks": [(128, 64, 2400)],
}
RANKS = (12, 25, 50, 100)
CHUNKS = {
    "frames": (10**9, 10**9, 100),
    "pixels": (16, 16, 10**9),
    "both": (32, 32, 600),
    "whole": (10**9,) * 3,
}

ONE = """
import json, sys, time
from pathlib import Path
import numpy as np, usdenoise
path, way, rank, out = sys.argv[1:]
options = {} if rank == "auto" else {"rank": int(rank)}
started = time.perf_counter()
if way == "dask":
    import dask.array as da
    from usdenoise.jobs.workers import dask_client
if __name__ == "__main__":
    if way == "dask":
        with dask_client("2") as client:
            import os
            began = time.perf_counter()
            stack = da.from_zarr(path, "iq")
            result = usdenoise.denoise(stack, axes="zxt", **options)
            seconds = time.perf_counter() - began
            peaks = client.run(lambda: __import__("resource").getrusage(0).ru_maxrss)
            workers = max(peaks.values()) / 1024
    else:
        from usdenoise.files.recordings import lines_recording
        from usdenoise.files.open_input import open_input
        from usdenoise.options.denoise_options import make_options
        from usdenoise.pipeline.denoise import denoise_frames
        from usdenoise.pipeline.recording import array_recording
        scratch, chosen = None if way == "memory" else Path(out).parent, make_options(None, **options)
        began = time.perf_counter()
        with open_input(path, {"axes": "zxt"}) as source:
            if scratch is None:
                recording, target = array_recording(source.read(), chosen.precision, in_place=True)
            else:
                lines = source.read_lines(scratch)
                recording, target = lines_recording(source, lines), lines.reshape(len(lines), -1)
        result = denoise_frames(recording, chosen, target=target)
        seconds = time.perf_counter() - began
        workers = 0
    status = Path("/proc/self/status").read_text()
    # Unlike ru_maxrss, this starts from nothing in a new program.
    own = int(status.split("VmHWM:")[1].split()[0]) / 1024
    np.save(out, result.power_doppler)
    print(json.dumps({"s": seconds, "own": own, "worker": workers, "rank": result.options.rank}))
"""


def make(path, shape, chunks, seed=0):
    """A stack of three components of tissue, 40 dB over noise."""
    rng = np.random.default_rng(seed)
    n, t = shape[0] * shape[1], shape[2]
    chunks = tuple(min(a, b) for a, b in zip(chunks, shape, strict=True))
    array = zarr.open_group(path, mode="w").create_array(
        "iq", shape=shape, chunks=chunks, dtype=np.complex64, compressors=None
    )
    time = np.arange(t) / t
    waves = np.stack([np.ones(t), time, np.sin(9 * time)])
    left = rng.standard_normal((n, 3)) * [100, 30, 10]
    for start in range(0, shape[0], 16):
        rows = slice(start * shape[1], min(start + 16, shape[0]) * shape[1])
        block = left[rows] @ waves + rng.standard_normal((rows.stop - rows.start, t, 2)) @ [1, 1j]
        array[start : start + 16] = block.reshape(-1, *shape[1:])


def measure(folder, path, way, rank):
    out = folder / f"{way}.npy"
    made = python(ONE, path, way, rank, out, timeout_s=None)
    if made.returncode:
        raise SystemExit(made.stderr[-2000:])
    return json.loads(made.stdout.splitlines()[-1]), np.load(out)


def main():
    arguments = command_line(__doc__, "folder", ways="memory,disk,dask", against=",".join(SIZES))
    folder = arguments.folder
    for name in arguments.against.split(","):
        for shape in SIZES[name]:
            for layout in CHUNKS if name == "chunks" else ["both"]:
                path = folder / "scale.zarr"
                make(path, shape, CHUNKS[layout])
                for rank in RANKS if name == "rank" else ["auto"]:
                    reference = None
                    for way in arguments.ways.split(","):
                        found, power = measure(folder, path, way, rank)
                        reference = power if reference is None else reference
                        assert np.linalg.norm(power - reference) < 1e-4 * np.linalg.norm(reference)
                        print(
                            f"{name}: {shape}, chunks {layout}, rank {found['rank']}, {way}: {found['s']:.2f} s, "
                            f"own peak {found['own']:.0f} MiB, worker {found['worker']:.0f} MiB",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
