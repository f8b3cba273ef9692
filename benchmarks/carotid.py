"""A human carotid in vivo: the default run next to the full SVD at four cutoffs, for docs/first-scan.md.

    python -m benchmarks.carotid carotid_iq.raw docs/images/carotid.png

The data are viewer/data/carotid/doppler/carotid_iq.raw of https://github.com/clariusdev/raw (BSD 3-Clause): colour-Doppler
IQ before the wall filter. A header of 28 bytes precedes int16 pairs in the order lines, depths, shots.
"""

import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import h5py
import imageio.v3 as iio
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

N_LINES, N_DEPTHS, N_SHOTS = 104, 352, 12
HEADER_BYTES = 28
RANGE_DB = 25
SVD_CUTOFFS = (2, 1, 3, 4)
BACKGROUND_DEPTHS = slice(250, 340)


def in_vessel() -> np.ndarray:
    """Return the pixels well inside the vessel: a band drawn by hand on the power Doppler."""
    depth, line = np.mgrid[:N_DEPTHS, :N_LINES]
    return (depth > 70 + 0.4 * line) & (depth < 150 + 0.2 * line)


def run(path: Path, out: Path, *options: str) -> Path:
    """Run the program on a file, and return the beginning of the names of its results."""
    line = [sys.executable, "-m", "usdenoise", "run", str(path), "--axes", "zxt", "-o", str(out), *options]
    print("usdenoise", *line[3:])
    subprocess.run(line, check=True)
    return out / path.stem


def image(stem: Path, name: str) -> np.ndarray:
    return iio.imread(f"{stem}_{name}.tif")


def decibels(power: np.ndarray) -> np.ndarray:
    return 10 * np.log10(np.maximum(power / power.max(), 1e-9))


def contrast_db(power: np.ndarray) -> float:
    """Return the mean power in the vessel over the mean power below it."""
    return 10 * np.log10(power[in_vessel()].mean() / power[BACKGROUND_DEPTHS].mean())


def draw(panels: dict[str, np.ndarray], path: Path) -> None:
    figure = Figure(figsize=(4, 4.5), layout="constrained")
    for number, (label, power) in enumerate(panels.items()):
        ax = figure.add_subplot(2, 3, number + 1)
        drawn = ax.imshow(decibels(power), cmap="inferno", vmin=-RANGE_DB, vmax=0, aspect="auto")
        ax.set_title(label, fontsize=8)
        ax.tick_params(labelsize=7, labelleft=number % 3 == 0, labelbottom=number >= 3)
        ax.set_xticks([0, 50, 100])
        if number % 3 == 0:
            ax.set_ylabel("depth (samples)", fontsize=8)
        if number >= 3:
            ax.set_xlabel("line", fontsize=8)
    bar = figure.colorbar(drawn, ax=figure.axes, location="bottom", aspect=40, pad=0.02)
    bar.set_label("dB re the maximum of each image", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    drawing = BytesIO()
    figure.savefig(drawing, dpi=200)
    Image.open(drawing).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def main(raw: Path, picture: Path) -> None:
    pairs = np.fromfile(raw, "<i2", offset=HEADER_BYTES).astype("f4")
    iq = pairs.view("c8").reshape(N_LINES, N_DEPTHS, N_SHOTS).transpose(1, 0, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "carotid.npz"
        np.savez(path, iq=iq)
        default = run(path, Path(folder) / "default")
        doppler, blood = image(default, "power_doppler"), image(default, "blood_power")
        with h5py.File(f"{default}_denoised.h5") as file:
            noise = file["noise_power"][()]
        panels = {"usdenoise:\npower Doppler": doppler, "usdenoise:\nblood map": blood}
        for cutoff in SVD_CUTOFFS:
            stem = run(path, Path(folder) / f"svd{cutoff}", "--method", "svd", "--low-cutoff", str(cutoff))
            panels[f"full SVD:\n{cutoff} removed"] = image(stem, "power_doppler")
    draw(panels, picture)
    for label, power in panels.items():
        print(f"{' '.join(label.split()):26} vessel over background {contrast_db(power):5.1f} dB")
    best = panels["full SVD:\n2 removed"]
    print(
        f"difference from it with 2 removed: {np.abs(doppler - best).max() / best.max():.1e} of the maximum"
    )
    print(f"noise map: vessel over background {contrast_db(noise):.1f} dB")
    vessel = in_vessel()
    dark = vessel & (decibels(blood) < -RANGE_DB)
    over = 10 * np.log10(np.median(doppler[dark]) / np.median(doppler[BACKGROUND_DEPTHS]))
    print(f"dark in the blood map: {dark.sum() / vessel.sum():.0%} of the vessel; power Doppler there is")
    print(f"{over:.1f} dB over the background")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
