"""Motion of the image: the default run against the full SVD, a table of benchmarks/RECORDS.md.

    python -m benchmarks.motion [--seeds 20] [--first-seed 500]

Each phantom of 200 and of 600 frames has a jerk of 1.5 pixels over a tenth of the frames, a drift of two pixels, or
breathing of one pixel. A picture may lie anywhere along the path of the image. So each picture is compared
with the mean of the true blood power over the frames and with that of the still scan at six places of the path, and
has the largest correlation. The full SVD has the cutoff at which this is largest. That the image moves as far as it
should is asserted before anything is compared.
"""

from dataclasses import replace

import numpy as np
from scipy.ndimage import shift

from benchmarks.shared import command_line, full_svd_powers, mean_power, phantom, print_figures, seeds_of
from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.phantom import PhantomSettings

SIZES = ((48, 40, 200), (48, 40, 600))
MOTIONS = {
    "jerk of 1.5 pixels": ({"jerk_pixels": 1.5}, 1.5),
    "drift of 2 pixels": ({"drift_pixels": 2.0}, 2.0),
    "breathing of 1 pixel": ({"breathing": (1.0, 1.3)}, 1.0),
}
MOST_REMOVED = 80
PATH = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
DIRECTION = (0.8, 0.6)
"""Direction of every displacement of the simulator, in depth and lateral."""


def agreement(image, truths):
    return max(correlation(np.asarray(image, float), truth) for truth in truths)


def compared(still, motion, pixels):
    settings = replace(still, **motion)
    _, stack, blood = phantom(settings, ("iq", "blood"))
    moved, base = mean_power(blood), mean_power(phantom(still, ("blood",))[1])
    steps = [[pixels * part * axis for axis in DIRECTION] for part in PATH]
    truths = [moved, *(shift(base, step, order=3, mode="nearest") for step in steps)]
    svd = max(agreement(power, truths) for power in full_svd_powers(stack, MOST_REMOVED))
    result = denoise(stack, axes="zxt")
    path = np.ptp(result.frame_quality.curves.displacement, axis=0)
    assert np.hypot(*path) > 0.5 * pixels, path
    return {
        "power_doppler": agreement(result.power_doppler, truths) - svd,
        "blood_power": agreement(result.blood_power, truths) - svd,
        "says so": "moves" in result.frame_quality.sentence,
    }


def main():
    arguments = command_line(__doc__, seeds=20, first_seed=500)
    for shape in SIZES:
        for name, (motion, pixels) in MOTIONS.items():
            still = [PhantomSettings(shape, frame_rate_hz=500.0, seed=seed) for seed in seeds_of(arguments)]
            rows = [compared(settings, motion, pixels) for settings in still]
            print_figures(
                f"{shape[-1]} frames, {name}: correlation with the truth, less the best full SVD's", rows
            )


if __name__ == "__main__":
    main()
