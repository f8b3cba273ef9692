"""A session that ends in an activation map: blocks, one series of blood power, t values, and the course of two regions.

python docs/examples/activation_map.py writes activation_map.png, the blocks and the series to the current folder.
"""

import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import usdenoise

N_BLOCKS, BLOCK_S = 40, 0.6
REGIONS = {"left half": "rect:0,0,40,18", "right half": "rect:0,18,40,36"}


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
    command = [sys.executable, "-m", "usdenoise", "simulate", "blocks", *phantom, "--overwrite"]
    subprocess.run(command, check=True)
    # Five blocks at rest, five active, and so on. In the simulation the left half of the image is active.
    rows = [f"{first * BLOCK_S}\t{5 * BLOCK_S}\ton" for first in range(5, N_BLOCKS, 10)]
    Path("events.tsv").write_text("\n".join(["onset\tduration\ttrial_type", *rows]) + "\n")

    # The same as `usdenoise session blocks -o results --events events.tsv --region ...`
    found = usdenoise.session("blocks", events="events.tsv", regions=REGIONS)
    found.save("series.h5", overwrite=True)

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1, 1.5), layout="constrained")
    found.plot("activation", ax=axes[0])
    found.plot("regions", ax=axes[1])
    figure.savefig("activation_map.png", dpi=110)

    activation = found.activation["on"]
    # The change is NaN outside the vessels.
    in_vessels = np.isfinite(activation.change)
    shares = [
        np.sum(half) / np.sum(of)
        for half, of in zip(
            np.hsplit((activation.t > 3) & in_vessels, 2), np.hsplit(in_vessels, 2), strict=True
        )
    ]
    halves = [int(half.sum()) for half in np.hsplit(activation.active, 2)]
    print(f"significant pixels: {halves[0]} in the active half, {halves[1]} in the other")
    print("t > 3 in {:.0%} of the vessels of the active half, and in {:.0%} of the other".format(*shares))


if __name__ == "__main__":
    main()
