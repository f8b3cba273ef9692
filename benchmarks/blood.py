"""The blood map against power Doppler and the full SVD, on phantoms with known blood: a table of docs/evidence.md.

    python -m benchmarks.blood [--seeds 3] [--first-seed 300] [--noise-alone] [--removed] [--json FILE]

Each phantom is filtered by the default run and by the full SVD at the cutoff that suits the truth best. Of the SVD's
stack both the power Doppler and the blood map are measured, so that the default run takes no credit for the map, and
the power Doppler minus the median of each depth, the simplest remedy.
With --noise-alone, only the noise map of stacks of nothing but noise is measured, with twelve components removed.
With --removed, only the share of the blood power that the filter removed is, for cutoffs from 3 to 60: the truth, the
estimate, and the blood map over the truth where the axial flow is slow, as in transverse vessels, and where it is fast.
Before anything is compared, the full SVD's power Doppler is asserted to be numpy's on the first stack.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.shared import (
    command_line,
    mean_power,
    oracle,
    phantom,
    print_figures,
    seeds_of,
    without_medians,
    write_json,
)
from usdenoise import denoise
from usdenoise.blood.metrics import correlation, detection_auc
from usdenoise.phantom import PhantomSettings

SIZES = ((100, 80, 400), (80, 64, 200))
CLUTTER = 10 ** (40 / 20)
GAIN_DB = 20.0
ROWS = (
    "default: power Doppler",
    "default: blood map",
    "full SVD, best cutoff: power Doppler",
    "the same minus the median of each depth",
    "full SVD, best cutoff: blood map",
)


def phantoms(shape, seed):
    """Mask, tissue 40 dB over blood, blood, white noise and noise correlated over one pixel, both of unit power."""
    white = PhantomSettings(shape, clutter_to_blood_db=40.0, blood_to_noise_db=0.0, seed=seed)
    made, *terms = phantom(white, ("tissue", "blood", "noise"))
    _, correlated = phantom(replace(white, noise_correlation_pixels=1.0), ("noise",))
    return made.mask, *terms, correlated


def amplitude(shape, bottom_db, gain_db):
    depth = np.linspace(0, 1, shape[0])[:, None, None]
    return (10 ** ((bottom_db - gain_db * (1 - depth)) / 20)).astype(np.float32)


def measures(image, truth, mask):
    image = image.astype(np.float64)
    return {
        "correlation": correlation(image, truth),
        "auc": detection_auc(image, mask),
        "error": float(np.linalg.norm(image - truth) / np.linalg.norm(truth)),
        "slope": float((image * truth).sum() / (truth * truth).sum()),
    }


def compared(stack, truth, mask):
    """Measures of the default run and of the full SVD at its best cutoff, of power Doppler and blood map."""
    ours = denoise(stack, axes="zxt")
    best, scores = oracle(stack, truth, min(64, stack.shape[-1] // 2))
    svd = denoise(stack, axes="zxt", method="svd", rank=best + 1, low_cutoff=best)
    assert abs(correlation(svd.power_doppler, truth) - scores[best]) < 1e-3
    images = (
        ours.power_doppler,
        ours.blood_power,
        svd.power_doppler,
        without_medians(svd.power_doppler),
        svd.blood_power,
    )
    rows = {row: measures(image, truth, mask) for row, image in zip(ROWS, images, strict=True)}
    rows["removed"] = {"default": ours.options.low_cutoff, "full SVD": best}
    return rows


CASES = {
    "blood 10 dB over white noise": ("white", -10.0, 0.0),
    "white noise 6 dB over blood at the bottom, 20 dB less at the top": ("white", 6.0, GAIN_DB),
    "white noise 6 dB over blood": ("white", 6.0, 0.0),
    "correlated noise 6 dB over blood at the bottom, 20 dB less at the top": ("correlated", 6.0, GAIN_DB),
    "correlated noise 6 dB over blood": ("correlated", 6.0, 0.0),
}


def without_blood(tissue, noises, level):
    """The largest value and the 99th percentile of maps without blood, in standard errors of the noise power."""
    rows = {}
    n_frames = tissue.shape[-1]
    for name, noise in noises.items():
        for what, stack in (
            (f"{name} noise only", noise),
            (f"tissue and {name} noise", tissue + noise * level),
        ):
            power = 1.0 if stack is noise else float(level.max()) ** 2
            found = denoise(stack, axes="zxt").blood_power / (power / np.sqrt(n_frames))
            rows[what] = {"max": float(found.max()), "p99": float(np.percentile(found, 99))}
    return rows


def step_and_rate(tissue, blood, noise, mask):
    """How a step of 10 % in blood power reads, and the slope at a fourth of the frame rate over the full rate's."""
    rows = {}
    gain = np.ones(blood.shape[:2], np.float32)
    gain[:, : blood.shape[1] // 2] = 1.1
    left = mask & (gain > 1)
    for name, level in (("10 dB over noise", -10), ("6 dB over noise", -6), ("6 dB below noise", 6)):
        noisy = tissue + noise * np.float32(10 ** (level / 20))
        full = denoise(noisy + blood, axes="zxt")
        louder = denoise(
            noisy + blood * np.sqrt(gain)[..., None], axes="zxt", low_cutoff=full.options.low_cutoff
        )
        fourth = denoise(np.ascontiguousarray((noisy + blood)[..., ::4]), axes="zxt")
        slope = float((fourth.blood_power * full.blood_power).sum() / (full.blood_power**2).sum())
        rows[name] = {
            "step": float(louder.blood_power[left].sum() / full.blood_power[left].sum()),
            "slope": slope,
        }
    return rows


def one_phantom(shape, seed):
    mask, tissue, blood, white, correlated = phantoms(shape, seed)
    truth = mean_power(blood)
    noises = {"white": white, "correlated": correlated}
    record = {"shape": shape, "seed": seed, "cases": {}}
    for name, (kind, bottom_db, gain_db) in CASES.items():
        stack = tissue + blood + noises[kind] * amplitude(shape, bottom_db, gain_db)
        rows = compared(stack, truth, mask)
        record["cases"][name] = rows
        figures = " ".join(f"{value:.3f}" for value in rows["default: blood map"].values())
        print(f"{shape} {seed} {name}: {figures}", flush=True)
    record["without blood"] = without_blood(tissue, noises, amplitude(shape, 6.0, 0.0))
    record["step and rate"] = step_and_rate(tissue, blood, white, mask)
    print(record["without blood"], record["step and rate"], flush=True)
    return record


def table(records):
    """Print each measure over the phantoms, and what noise costs and the blood map gains."""
    quiet, blood_map = "blood 10 dB over white noise", "default: blood map"
    for name in CASES:
        cases = [record["cases"][name] for record in records]
        for row in ROWS:
            print_figures(f"{name}: {row}", [case[row] for case in cases])
        losses = [
            {"loss": record["cases"][quiet][blood_map]["correlation"] - case[blood_map]["correlation"]}
            for record, case in zip(records, cases, strict=True)
        ]
        print_figures(f"{name}: correlation lost against low noise", losses)
    still = [record["cases"][quiet] for record in records]
    gains = [
        {"gain": case[blood_map]["correlation"] - case["default: power Doppler"]["correlation"]}
        for case in still
    ]
    print_figures("low noise: blood map over power Doppler", gains)


NOISE_SHAPES = (
    (80, 64, 200),
    (80, 64, 30),
    (64, 48, 600),
    (40, 32, 2400),
    (24, 20, 18, 60),
    (16, 20, 18, 200),
)
NOISE_PIXELS = (0.0, 0.5, 1.0, 1.5)


def noise_alone(seeds):
    """Print rows of the noise map over the truth, and the largest value of the blood map, in stacks of noise."""
    largest = []
    for shape in NOISE_SHAPES:
        for gain_db in (0.0, GAIN_DB):
            for pixels in NOISE_PIXELS:
                rows = []
                for seed in seeds:
                    settings = PhantomSettings(
                        shape, noise_gain_db=gain_db, noise_correlation_pixels=pixels, seed=seed
                    )
                    made, noise = phantom(settings, ("noise",))
                    found = denoise(noise, axes="zxt" if len(shape) == 3 else "zxyt", low_cutoff=12)
                    ratio = (found.noise_power / made.noise_power).reshape(shape[0], -1)
                    rows.append(ratio.mean(axis=1))
                    largest.append(float((found.blood_power / made.noise_power).max() * np.sqrt(shape[-1])))
                mean = np.mean(rows, axis=0)
                inner = mean[2:-2]
                outer = " ".join(f"{value:.3f}" for value in (*mean[:2], *mean[-2:]))
                print(
                    f"{shape}, gain {gain_db:g} dB, correlated over {pixels:g} pixels: mean {mean.mean():.3f}, rows "
                    f"{inner.min():.3f} to {inner.max():.3f}, first and last two {outer}",
                    flush=True,
                )
    within = np.mean(np.array(largest) <= 6)
    print(f"largest blood: at most 6 standard errors in {100 * within:.1f} %, largest {max(largest):.1f}")


REMOVED_AT = (3, 5, 8, 12, 16, 24, 40, 60, "auto")


def removed_blood(shape, seed):
    """Print the removed share of the blood power and its estimate; slow and fast are halves of the vessel pixels."""
    settings = PhantomSettings(
        shape, clutter_to_blood_db=45.0, blood_to_noise_db=3.0, thin_vessels=6, seed=seed
    )
    made, iq, blood = phantom(settings, ("iq", "blood"))
    truth = mean_power(blood)
    speed = np.abs(made.velocity_mm_s)
    fast = made.mask & (speed > np.median(speed[made.mask]))
    groups = {"vessels": made.mask, "slow": made.mask & ~fast, "fast": fast}
    for cutoff in REMOVED_AT:
        found = denoise(iq, axes="zxt", low_cutoff=cutoff)
        # The filter is a projection, and tissue and noise are uncorrelated with the blood.
        kept = np.mean((found.stack * blood.conj()).real, axis=-1, dtype=np.float64)
        shares = {name: 1 - kept[group].sum() / truth[group].sum() for name, group in groups.items()}
        maps = {name: found.blood_power[group].sum() / truth[group].sum() for name, group in groups.items()}
        estimate = found.picture_quality.lost_share
        print(
            f"{shape} {seed} cutoff {cutoff} ({found.low_cutoff}): estimate",
            f"{0.0 if estimate is None else estimate:.2f},",
            *(f"{name} removed {shares[name]:.2f} map {maps[name]:.2f}," for name in groups),
            [doubt.code for doubt in found.doubts],
            flush=True,
        )


def main():
    arguments = command_line(__doc__, seeds=3, first_seed=300, noise_alone=False, removed=False, json=Path)
    if arguments.noise_alone:
        noise_alone(seeds_of(arguments))
        return
    if arguments.removed:
        for seed in seeds_of(arguments):
            removed_blood(SIZES[0], seed)
        return
    records = [one_phantom(shape, seed) for shape in SIZES for seed in seeds_of(arguments)]
    table(records)
    write_json(arguments.json, records)


if __name__ == "__main__":
    main()
