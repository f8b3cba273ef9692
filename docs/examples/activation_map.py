"""A session that ends in an activation map: blocks, one series of blood power, t values.

python docs/examples/activation_map.py writes activation_map.png, the blocks and the results to the current folder.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

N_BLOCKS, BLOCK_S = 40, 0.6


def usdenoise(*arguments: str) -> None:
    """Run a command of usdenoise, as in a terminal."""
    subprocess.run([sys.executable, "-m", "usdenoise", *arguments], check=True)


def main() -> None:
    """Simulate 40 blocks that drift, two with a burst of motion, and map where they react to the events."""
    phantom = ["--shape", "40x36x100", "--frame-rate", "250", "--session", f"{N_BLOCKS}"]
    settings = (
        "max_speed_mm_s=20",
        "activation=40",
        "drift_pixels=1",
        "burst_blocks=7,18",
        "jerk_pixels=1.5",
    )
    for setting in (*settings, f"block_interval_s={BLOCK_S}"):
        phantom += ["--set", setting]
    usdenoise("simulate", "blocks", *phantom, "--overwrite")
    # Five blocks at rest, five active, and so on. In the simulation the left half of the image is active.
    rows = [f"{first * BLOCK_S}\t{5 * BLOCK_S}\ton" for first in range(5, N_BLOCKS, 10)]
    Path("events.tsv").write_text("\n".join(["onset\tduration\ttrial_type", *rows]) + "\n")

    usdenoise("session", "blocks", "-o", "results", "--events", "events.tsv", "--overwrite")

    shutil.copy("results/blocks_activation_on.png", "activation_map.png")
    with h5py.File("results/blocks_sequence.h5") as file:
        t, change = file["activation/on/t"][()], file["activation/on/change"][()]
    # The change is NaN outside the vessels.
    in_vessels = np.isfinite(change)
    shares = [
        np.sum(half) / np.sum(of)
        for half, of in zip(np.hsplit((t > 3) & in_vessels, 2), np.hsplit(in_vessels, 2), strict=True)
    ]
    print("t > 3 in {:.0%} of the vessels of the active half, and in {:.0%} of the other".format(*shares))


if __name__ == "__main__":
    main()
