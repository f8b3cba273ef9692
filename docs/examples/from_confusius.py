"""From beamformed IQ of ConfUSIus to a map with its positions. Needs the package confusius.

python docs/examples/from_confusius.py [GROUP.zarr] writes from_confusius.png and power.zarr to the current folder.
"""

import sys
from pathlib import Path

import confusius
import numpy as np
from confusius.xarray import create_voxeldata
from matplotlib.figure import Figure

import usdenoise

SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"


def write_sample(path: Path) -> None:
    """Write the sample data as ConfUSIus would: time, elevation k, depth j and lateral i, 3 mm below the probe."""
    stack = usdenoise.load(SAMPLE)
    spacing = (0.4, stack.spacing_mm["z"], stack.spacing_mm["x"])
    attributes = {"transmit_frequency": stack.center_frequency_hz, "beamforming_sound_velocity": 1540.0}
    data = create_voxeldata(
        stack.iq[:, None],
        dims=("time", "k", "j", "i"),
        dt=1 / stack.frame_rate_hz,
        spacing=spacing,
        origin=(0.0, 3.0, -spacing[2] * stack.iq.shape[2] / 2),
        name="iq",
        attrs=attributes,
    )
    confusius.save(data, path)


def main(path: Path) -> None:
    """Filter the group, draw the blood map over its positions in mm, and save the map for ConfUSIus."""
    iq = confusius.load(path).compute()
    result = usdenoise.denoise(iq)
    power = result.blood_power
    print(power.dims, result.cutoff_sentence)
    confusius.save(power, "power.zarr", mode="w")
    flat = power.isel(k=0)
    figure = Figure(figsize=(5, 5), layout="constrained")
    ax = figure.subplots()
    levels = 10 * np.log10((flat / flat.max()).clip(min=1e-3))
    drawn = ax.pcolormesh(flat["x"], flat["y"], levels, cmap="hot")
    ax.set(xlabel="x (mm)", ylabel="depth y (mm)", aspect="equal")
    ax.invert_yaxis()
    figure.colorbar(drawn, label="blood power (dB)")
    figure.savefig("from_confusius.png", dpi=120)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        if not Path("iq.zarr").exists():
            write_sample(Path("iq.zarr"))
        main(Path("iq.zarr"))
