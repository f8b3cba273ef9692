"""Windows of a long acquisition: frames a second, against confusius' SVD filter window by window.

    pip install -e '.[bench]'
    python -m tests.benchmarks.windows [--shape 128x128x3000] [--window 300] [--stride 30] [--repeats 3]

Each window is copied out of memory, filtered and turned into power Doppler; files and the simulation are left out. Before
anything is timed, the mean power Doppler over the windows is compared with the true blood power: it must correlate as well
as the one of confusius, which removes as many components, or better. Timed are the three in turn; the medians are shown.
"""

import statistics

import numpy as np

from tests.benchmarks.peers import LOSS, power, simulated
from tests.benchmarks.shared import command_line, medians, shape_text, timed_in_turn
from usdenoise.blood.metrics import correlation
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.windows import cut_into_windows, filter_windows
from usdenoise.stack.acquisition import Acquisition


def ours(frames, windows):
    """Power Doppler and low cutoff of each window, everything automatic."""

    def read(start, stop):
        return Acquisition(frames[start:stop].copy(), "tzx")

    results = [filtered.result for filtered in filter_windows(read, windows, DenoiseOptions())]
    return [result.power_doppler for result in results], [result.options.low_cutoff for result in results]


def confusius(frames, windows, low):
    from confusius.iq.clutter_filters import clutter_filter_svd_from_indices

    cut = (frames[window.start : window.stop, None].copy() for window in windows)
    return [power(clutter_filter_svd_from_indices(part, low_cutoff=low)[:, 0], 0) for part in cut]


def main():
    arguments = command_line(__doc__, shape=(128, 128, 3000), window=300, stride=30, repeats=3, seed=7)
    shape = arguments.shape
    stack, truth = simulated(shape, False, arguments.seed)
    frames = np.ascontiguousarray(np.moveaxis(stack, -1, 0))
    del stack
    apart = cut_into_windows(shape[-1], arguments.window)
    overlapping = cut_into_windows(shape[-1], arguments.window, arguments.stride)
    images, lows = ours(frames, apart)
    low = int(statistics.median(lows))
    found = correlation(np.mean(images, axis=0).ravel(), truth.ravel())
    peer = correlation(np.mean(confusius(frames, apart, low), axis=0).ravel(), truth.ravel())
    assert found > peer - LOSS, f"correlation {found:.4f} against {peer:.4f}"
    runs = {
        "usdenoise, apart": (lambda: ours(frames, apart), apart),
        "confusius, apart": (lambda: confusius(frames, apart, low), apart),
        f"usdenoise, stride {arguments.stride}": (lambda: ours(frames, overlapping), overlapping),
    }
    seconds = medians(timed_in_turn({name: run for name, (run, _) in runs.items()}, arguments.repeats))
    print(
        f"{shape_text(shape)}, windows of {arguments.window}, {low} components; correlation {found:.4f}, {peer:.4f}"
    )
    for name, (_, windows) in runs.items():
        filtered = sum(window.n_frames for window in windows)
        print(
            f"{name:<22} {len(windows):>4} windows {seconds[name]:>7.2f} s {filtered / seconds[name]:>7.0f} frames a second"
        )


if __name__ == "__main__":
    main()
