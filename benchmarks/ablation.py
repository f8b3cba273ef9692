"""What each stage of the default estimate brings: a table of benchmarks/RECORDS.md.

    python -m benchmarks.ablation [--seeds 4] [--first-seed 700]

Phantoms of 64 x 64 pixels and 200 frames, tissue 40 and 60 dB over blood, blood 6 dB over noise, complete and with a tenth
of the entries missing in blocks of 8 pixels and 20 frames. The cutoff is the one with which the full SVD of the
complete stack fits the truth best. The stages are the start from a few pixels alone, and the eta-decay
iterations after it, each without and with the refit. A case has no figures where the sample does not
determine the components that are removed. That the last stage is the default run is asserted
before anything is compared.
"""

import itertools

import numpy as np

from benchmarks.quality import mixed, terms
from benchmarks.shared import command_line, oracle, print_figures, seeds_of
from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.errors import OptionError

SHAPE = (64, 64, 200)
CLUTTER_DB, BLOOD_TO_NOISE_DB = (40, 60), 6
SAMPLING = (0.5, 0.2, 0.1, 0.05)
STAGES = {"start": {"iterations": 0}, "+ eta-decay": {}}


def with_holes(stack, seed):
    """The stack with a tenth of its entries missing, in blocks of neighbouring pixels and frames."""
    rng = np.random.default_rng(seed)
    holed = stack.copy()
    blocks = holed.reshape(SHAPE[0], SHAPE[1] // 8, 8, SHAPE[2] // 20, 20)
    missing = rng.random((SHAPE[0], SHAPE[1] // 8, SHAPE[2] // 20)) < 0.1
    blocks[missing[:, :, None, :, None] & np.ones((1, 1, 8, 1, 20), bool)] = np.nan
    return holed


def run(stack, truth, cutoff, sampling, stage, refit):
    given = {"sampling": sampling, "low_cutoff": cutoff, "refit": refit, **STAGES[stage]}
    try:
        result = denoise(stack, axes="zxt", **given)
    except OptionError:
        return None
    ratio = result.fit_quality.held_out_ratio
    return {
        "held-out ratio": np.nan if ratio is None else ratio,
        "correlation": correlation(result.power_doppler.astype(float), truth),
        "iterations": 0 if result.solution is None else result.solution.iterations,
    }


def stages(stack, truth, cutoff, best, sampling, refit):
    """Figures of each stage, or of none where the sample does not determine the components that are removed."""
    found = {stage: run(stack, truth, cutoff, sampling, stage, refit) for stage in STAGES}
    if any(row is None for row in found.values()):
        return {}
    default = denoise(stack, axes="zxt", sampling=sampling, low_cutoff=cutoff, refit=refit)
    assert correlation(default.power_doppler.astype(float), truth) == found["+ eta-decay"]["correlation"]
    return {stage: {**row, "loss": best - row["correlation"]} for stage, row in found.items()}


def main():
    arguments = command_line(__doc__, seeds=4, first_seed=700)
    rows = {}
    for seed, clutter in itertools.product(seeds_of(arguments), CLUTTER_DB):
        (tissue, blood, noise), truth = terms(SHAPE, seed)
        stack = mixed(tissue, blood, noise, clutter, BLOOD_TO_NOISE_DB)
        cutoff, scores = oracle(stack, truth, 60)
        data = {"complete": stack, "missing": with_holes(stack, seed)}
        for name, sampling, refit in itertools.product(data, SAMPLING, ("none", "all")):
            found = stages(data[name], truth, cutoff, scores[cutoff], sampling, refit)
            for stage, figures in found.items():
                case = f"{clutter} dB, {name}, sampling {sampling:g}, refit {refit}, {stage}"
                rows.setdefault(case, []).append(figures)
        print(f"seed {seed}, {clutter} dB is done", flush=True)
    for case, figures in rows.items():
        print_figures(case, figures)


if __name__ == "__main__":
    main()
