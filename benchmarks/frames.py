"""Bad frames that are found, and the picture without them: a table of benchmarks/RECORDS.md.

    python -m benchmarks.frames [--seeds 20] [--first-seed 500]

Each phantom of 200 and of 600 frames is filtered without disturbances, with interference on 5 or 20 frames, and without
these frames. That the interference has the level it should have is asserted before anything is compared.
"""

from dataclasses import replace

import numpy as np

from benchmarks.shared import command_line, mean_power, phantom, print_figures, seeds_of
from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.phantom import PhantomSettings

SIZES = {(48, 40, 200): 5, (48, 40, 600): 20}
LEVELS = (3.0, 0.3)


def compared(settings, n_bad, level, clean, stack, truth):
    made, disturbed = phantom(replace(settings, bad_frames=n_bad, bad_frame_level=level), ("iq",))
    bad = made.bad_frames
    added = np.sqrt(np.mean(np.abs((disturbed - stack)[..., bad]) ** 2) / np.mean(np.abs(stack) ** 2))
    assert abs(added / level - 1) < 0.1, added
    result = denoise(disturbed, axes="zxt")
    found = [frame.frame for frame in result.frame_quality.bad]
    good = np.setdiff1d(np.arange(settings.n_frames), bad)
    without = denoise(np.ascontiguousarray(stack[..., good]), axes="zxt")
    power, blood = (
        correlation(getattr(result, name).astype(float), truth)
        - correlation(getattr(without, name).astype(float), truth)
        for name in ("power_doppler", "blood_power")
    )
    return {
        "taken of the clean scan": len(clean.frame_quality.bad),
        "missed": len(np.setdiff1d(bad, found)),
        "good taken": len(np.setdiff1d(found, bad)),
        "power": power,
        "blood": blood,
        "ratio": result.fit_quality.held_out_ratio,
        "cutoff": abs(result.options.low_cutoff - clean.options.low_cutoff),
    }


def main():
    arguments = command_line(__doc__, seeds=20, first_seed=500)
    for shape, n_bad in SIZES.items():
        rows = {level: [] for level in LEVELS}
        for seed in seeds_of(arguments):
            settings = PhantomSettings(shape, frame_rate_hz=500.0, seed=seed)
            _, stack, blood = phantom(settings, ("iq", "blood"))
            clean = denoise(stack, axes="zxt")
            for level in LEVELS:
                rows[level].append(compared(settings, n_bad, level, clean, stack, mean_power(blood)))
        for level, figures in rows.items():
            print_figures(f"{shape[-1]} frames, level {level:g}", figures)


if __name__ == "__main__":
    main()
