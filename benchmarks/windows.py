"""Windows of a long acquisition: frames a second, against confusius' SVD filter window by window.

    pip install -e '.[bench]'
    python -m benchmarks.windows [--shape 128x128x3000] [--window 300] [--stride 30] [--repeats 3]

Each window is copied out of memory and filtered; ours are blocks of a session, with their blood power besides; files and
the simulation are left out. Before
anything is timed, the mean power Doppler over the windows is compared with the true blood power: it must correlate as well
as the one of confusius, which removes as many components, or better. Timed are the three in turn; the medians are shown.
"""

import statistics

import numpy as np

import usdenoise
from benchmarks.peers import LOSS, power, simulated
from benchmarks.shared import command_line, medians, shape_text, timed_in_turn
from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.pipeline.recording import cut_into_windows


def ours(frames, window, stride=None):
    """The series of a session of windows, everything automatic."""
    return usdenoise.session(frames, window, stride, axes="tzx")


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
    found = correlation(ours(frames, arguments.window).power_doppler.mean(axis=0).ravel(), truth.ravel())
    # What a user of windows would remove: the median of the cutoffs that suit a window each.
    some = apart[:: max(1, len(apart) // 5)]
    lows = [denoise(frames[part.start : part.stop], axes="tzx").options.low_cutoff for part in some]
    low = int(statistics.median(lows))
    peer = correlation(np.mean(confusius(frames, apart, low), axis=0).ravel(), truth.ravel())
    assert found > peer - LOSS, f"correlation {found:.4f} against {peer:.4f}"
    runs = {
        "usdenoise, apart": (lambda: ours(frames, arguments.window), apart),
        "confusius, apart": (lambda: confusius(frames, apart, low), apart),
        f"usdenoise, stride {arguments.stride}": (
            lambda: ours(frames, arguments.window, arguments.stride),
            overlapping,
        ),
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
