"""The picture of the README: true blood power, power Doppler and blood map of a dense phantom, on one scale.

    usdenoise simulate brain.h5 --shape 128x128x600 --seed 4 --set thin_vessels=120 --set capillary_db=-12 \
        --noise-gain 15 --blood-to-noise -3 --clutter-to-blood 50
    python -m benchmarks.readme_picture brain.h5 [--output docs/images/brain.png]

The images are from `usdenoise run brain.h5`, without any option. 0 dB is the 99.9th percentile of the true blood
power in all three. Printed are the correlations of the two images with the truth, on the linear scale, and of power
Doppler minus the median of each depth.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.shared import command_line, without_medians
from usdenoise import denoise, load
from usdenoise.blood.metrics import correlation
from usdenoise.files.hdf5_writing import read_truth

RANGE_DB = 20


def main():
    arguments = command_line(__doc__, "phantom", output=Path("docs/images/brain.png"))
    acquisition = load(arguments.phantom)
    truth = read_truth(arguments.phantom, acquisition).blood_power
    result = denoise(acquisition)
    images = {
        "True blood power": truth,
        "Power Doppler": result.power_doppler,
        "Blood map": result.blood_power,
    }
    height, width = (
        n * result.acquisition.spacing_mm[axis] for n, axis in zip(truth.shape, "zx", strict=True)
    )
    plt.rcParams.update({"font.size": 11, "font.family": "sans-serif"})
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained", sharey=True)
    for panel, (name, image) in zip(panels, images.items(), strict=True):
        level = 10 * np.log10(np.maximum(image / np.percentile(truth, 99.9), 1e-9))
        drawn = panel.imshow(level, "inferno", vmin=-RANGE_DB, vmax=0, extent=(0, width, height, 0))
        panel.set_title(name)
        panel.set_xlabel("Lateral (mm)")
        if image is not truth:
            print(f"{name}: correlation with the true blood power {correlation(image, truth):.3f}")
    remedied = correlation(without_medians(result.power_doppler), truth)
    print(f"Power Doppler minus the median of each depth: {remedied:.3f}")
    panels[0].set_ylabel("Depth (mm)")
    figure.colorbar(drawn, ax=panels, label="Power (dB)", ticks=range(-RANGE_DB, 1, 5), shrink=0.9, pad=0.01)
    figure.savefig(arguments.output, dpi=200)


if __name__ == "__main__":
    main()
