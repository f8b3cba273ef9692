"""The same stack with several low cutoffs, and the one that is chosen automatically.

python docs/examples/choosing_a_cutoff.py [FILE] writes choosing_a_cutoff.png to the current folder.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import usdenoise

SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"


def main(path: Path) -> None:
    """Draw too low a cutoff, the automatic one, and too high a cutoff side by side."""
    stack = usdenoise.load(path)
    chosen = usdenoise.denoise(stack)
    automatic = int(chosen.options.low_cutoff)
    print(f"{automatic} components removed, {chosen.cutoff_certainty}: {chosen.cutoff_sentence}")
    cutoffs = [max(1, automatic // 4), automatic, min(2 * automatic + 8, stack.n_frames // 2)]
    figure = Figure(figsize=(12, 5), layout="constrained")
    subplots = figure.subplots(1, 3)
    for ax, low in zip(subplots, cutoffs, strict=True):
        result = chosen if low == automatic else usdenoise.denoise(stack, low_cutoff=low)
        usdenoise.plot(result, ax=ax, dynamic_range_db=30, colorbar=ax is subplots[-1])
        ax.set_title(f"{low} removed" + (" (automatic)" if low == automatic else ""))
    figure.savefig("choosing_a_cutoff.png", dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE)
