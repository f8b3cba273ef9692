"""One long file as a session of short blocks: one image for each, and the power over time.

python docs/examples/a_long_session.py [FILE] writes a_long_session.png to the current folder.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import usdenoise

SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"


def show_progress(done: int, total: int) -> None:
    """Print one line for each block; in a notebook, update a progress bar here."""
    print(f"block {done} of {total}")


def main(path: Path) -> None:
    """Filter blocks of 50 frames, one every 25, and draw their mean power over time."""
    found = usdenoise.session(path, 50, 25, on_block=show_progress)
    pixels = tuple(range(1, found.power_doppler.ndim))
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    ax = figure.subplots()
    for name in ("power_doppler", "blood_power"):
        power = getattr(found, name).mean(axis=pixels)
        ax.plot(found.time, power / power.mean(), "o-", label=name.replace("_", " "))
    ax.set(xlabel=f"time ({found.time_unit})", ylabel="mean power, relative", ylim=(0, None))
    ax.legend()
    figure.savefig("a_long_session.png", dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE)
