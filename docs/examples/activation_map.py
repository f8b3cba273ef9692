"""A session that ends in an activation map: blocks, one series of blood power, a general linear model, t values.

python docs/examples/activation_map.py writes activation_map.png, the blocks and the results to the current folder.
"""

import subprocess
import sys

import confusius
import numpy as np
import pandas as pd
from confusius.glm import FirstLevelModel
from matplotlib.figure import Figure

N_BLOCKS, BLOCK_S = 30, 0.6
DESIGN = pd.DataFrame(
    {"trial_type": "on", "onset": np.arange(5, N_BLOCKS, 10) * BLOCK_S, "duration": 5 * BLOCK_S}
)
"""Five blocks at rest, five active, and so on. In the simulation the left half of the image is active."""


def usdenoise(*arguments: str) -> None:
    """Run a command of usdenoise, as in a terminal."""
    subprocess.run([sys.executable, "-m", "usdenoise", *arguments], check=True)


def main() -> None:
    """Simulate 30 blocks, two with a burst of motion, filter them, fit the design, and draw the t values."""
    phantom = ["--shape", "36x32x100", "--frame-rate", "250", "--session", f"{N_BLOCKS}"]
    for setting in ("max_speed_mm_s=20", "activation=30", "burst_blocks=7,18", "jerk_pixels=1.5"):
        phantom += ["--set", setting]
    usdenoise("simulate", "blocks", *phantom, "--set", f"block_interval_s={BLOCK_S}", "--overwrite")
    usdenoise("session", "blocks", "-o", "results", "--nifti", "--overwrite")

    table = pd.read_csv("results/blocks_blocks.tsv", sep="\t")
    blood = confusius.load("results/blocks_blood.nii.gz").compute()
    # The times of NIfTI are those at which blocks begin. A block stands for its middle, which the table has.
    at = blood["time"].attrs | {"volume_acquisition_reference": "center"}
    blood = blood.assign_coords(time=("time", table["time"], at))
    # A column for each bad block takes it out of the fit, and a block without data with it.
    confounds = table[["time", "motion"]].fillna(0)
    for block in np.flatnonzero(table["bad"]):
        confounds[f"bad_{block}"] = (table.index == block).astype(float)
    model = FirstLevelModel(drift_model="polynomial", noise_model="ols")
    model.fit(blood.fillna(0), DESIGN, confounds)
    t_values = model.compute_contrast("on", output_type="statistic").squeeze().values

    mean = blood.values.squeeze()[table["bad"].to_numpy() == 0].mean(axis=0)
    in_vessels = mean > 0.1 * mean.max()
    found = (t_values > 3) & in_vessels
    shares = [
        np.sum(half) / np.sum(of)
        for half, of in zip(np.hsplit(found, 2), np.hsplit(in_vessels, 2), strict=True)
    ]
    print("t > 3 in {:.0%} of the vessels of the active half, and in {:.0%} of the other".format(*shares))
    draw(mean, np.where(found, t_values, np.nan))


def draw(mean: np.ndarray, found: np.ndarray) -> None:
    """Draw t values over the blood map, and write the picture."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    ax = figure.subplots()
    ax.imshow(10 * np.log10(np.maximum(mean / mean.max(), 1e-3)), cmap="gray", vmin=-20)
    figure.colorbar(ax.imshow(found, cmap="autumn", vmin=3), ax=ax, label="t")
    ax.axvline(mean.shape[1] / 2 - 0.5, color="c", linestyle=":")
    ax.set(title="activation left of the line", xlabel="lateral (pixels)", ylabel="depth (pixels)")
    figure.savefig("activation_map.png", dpi=120)


if __name__ == "__main__":
    main()
