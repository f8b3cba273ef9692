"""From a file to a first picture.

python docs/examples/first_picture.py [FILE] writes first_picture.png to the current folder.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import usdenoise

SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"


def main(path: Path) -> None:
    """Filter a file, print the processing, and draw the power Doppler next to the blood map."""
    result = usdenoise.denoise(usdenoise.load(path))
    print(result.cutoff_sentence)
    print(result.verdict)
    figure = Figure(figsize=(9, 5), layout="constrained")
    subplots = figure.subplots(1, 2)
    for ax, image in zip(subplots, ("power_doppler", "blood_power"), strict=True):
        usdenoise.plot(result, image, ax=ax)
        ax.set_title(image.replace("_", " "))
    figure.savefig("first_picture.png", dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE)
