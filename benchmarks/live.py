"""Seconds from a block file to its picture, while a process of its own writes blocks at a steady rate.

    python -m benchmarks.live [--shape 128x128x300] [--blocks 120] [--interval 0.6]

The writer puts each file under another name and renames it. A block's delay is from the rename to the line that says
that its picture is there. The series at the end is compared with that of `usdenoise session` on the same folder.
"""

import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import h5py
import numpy as np

from benchmarks.shared import command_line, shape_text

N_MADE = 12
"""Blocks that are simulated; they come forwards and backwards."""

WRITER = """
import os, sys, time
from pathlib import Path
source, folder, n, interval = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
blocks = [path.read_bytes() for path in sorted(source.glob("*.h5"))]
order = [*range(len(blocks)), *range(len(blocks) - 2, 0, -1)]
began = time.time()
for number in range(n):
    time.sleep(max(0.0, began + number * interval - time.time()))
    place = folder / f"block_{number:05d}.h5"
    waiting = place.with_suffix(".waiting")
    waiting.write_bytes(blocks[order[number % len(order)]])
    os.rename(waiting, place)
    print(number, time.time(), flush=True)
"""


def usdenoise(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "usdenoise", *map(str, arguments)]


def main() -> None:
    asked = command_line(__doc__, shape=(128, 128, 300), blocks=120, interval=0.6)
    shape = shape_text(asked.shape)
    with tempfile.TemporaryDirectory() as place:
        source, folder, out = (Path(place) / name for name in ("made", "scan", "out"))
        folder.mkdir()
        subprocess.run(
            usdenoise("simulate", source, "--shape", shape, "--frame-rate", 500, "--session", N_MADE, "-q"),
            check=True,
        )
        for path in source.glob("*.h5"):
            # Blocks that come twice have no time of their own.
            with h5py.File(path, "r+") as file:
                for item in (file, *file.values()):
                    item.attrs.pop("start_s", None)
        job = subprocess.Popen(
            usdenoise("session", folder, "-o", out, "--live", "--until-idle", 10),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        shown: dict[int, float] = {}
        memory: list[int] = []

        def watch() -> None:
            assert job.stderr is not None
            for line in job.stderr:
                if found := re.match(r"block (\d+) ", line):
                    shown[int(found[1])] = time.time()
                    status = Path(f"/proc/{job.pid}/status").read_text()
                    memory.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024)  # type: ignore[index]

        watching = threading.Thread(target=watch)
        watching.start()
        time.sleep(3)
        arguments = [sys.executable, "-c", WRITER, source, folder, str(asked.blocks), str(asked.interval)]
        written = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True).stdout
        assert job.wait() == 0
        watching.join()
        times = {int(number): float(at) for number, at in (line.split() for line in written.splitlines())}
        assert shown.keys() == times.keys(), "not every block was shown"
        plain = Path(place) / "plain"
        subprocess.run(usdenoise("session", folder, "-o", plain, "--skip-bad-files", "-q"), check=True)
        with h5py.File(out / "scan_sequence.h5") as one, h5py.File(plain / "scan_sequence.h5") as other:
            assert all(np.array_equal(one[name][()], other[name][()], equal_nan=True) for name in other)
        delays = np.array([shown[number] - times[number] for number in sorted(times)])
        print(f"{shape}, {asked.blocks} blocks, one every {asked.interval:g} s")
        for name, some in {
            "all": delays,
            "first 20": delays[:20],
            "last half": delays[len(delays) // 2 :],
        }.items():
            print(f"  {name:10} median {np.median(some):.2f} s, largest {some.max():.2f} s")
        parts = [memory[int(part * (len(memory) - 1))] for part in (0.1, 0.5, 1)]
        print(f"  memory (MiB) after a tenth, half, all of the blocks: {', '.join(map(str, parts))}")


if __name__ == "__main__":
    main()
