"""Windows of a long acquisition: frames a second, against confusius' SVD filter window by window.

    pip install -e '.[bench]'
    python -m tests.benchmarks.windows [--shape 128x128x3000] [--window 300] [--stride 30] [--repeats 3]

Each window is copied out of memory, filtered and turned into power Doppler; files and the simulation are left out. Before
anything is timed, the mean power Doppler over the windows is compared with the true blood power: it must correlate as well
as the one of confusius, which removes as many components, or better. Timed are the three in turn; the medians are shown.
"""

import argparse
import statistics
import time

import numpy as np

from tests.benchmarks.peers import LOSS, phantom, power
from usdenoise.images.metrics import correlation
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="128x128x3000")
    parser.add_argument("--window", type=int, default=300)
    parser.add_argument("--stride", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    shape = tuple(int(part) for part in arguments.shape.split("x"))
    stack, truth = phantom(shape, False, arguments.seed)
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
    seconds = {name: [] for name in runs}
    for _ in range(arguments.repeats):
        for name, (run, _) in runs.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    print(
        f"{arguments.shape}, windows of {arguments.window}, {low} components; correlation {found:.4f}, {peer:.4f}"
    )
    for name, (_, windows) in runs.items():
        median = statistics.median(seconds[name])
        filtered = sum(window.n_frames for window in windows)
        print(
            f"{name:<22} {len(windows):>4} windows {median:>7.2f} s {filtered / median:>7.0f} frames a second"
        )


if __name__ == "__main__":
    main()
