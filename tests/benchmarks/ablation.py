"""What each stage of the default estimate brings: the table of docs/quality.md.

    python -m tests.benchmarks.ablation [--seeds 4] [--first-seed 700]

Phantoms of 64 x 64 pixels and 200 frames, tissue 40 and 60 dB over blood, blood 6 dB over noise, complete and with a tenth
of the entries missing in blocks of 8 pixels and 20 frames. The cutoff is the one with which the full SVD of the
complete stack fits the truth best. The stages are the start from a few pixels alone, the posterior sweep after it, and
the eta-decay iterations after that, each without and with the refit. A case has no figures where the sample does not
determine the components that are removed. That the last stage is the default run is asserted
before anything is compared.
"""

from contextlib import contextmanager

import numpy as np

from tests.benchmarks.quality import terms
from tests.benchmarks.shared import command_line, oracle, seeds_of
from usdenoise import denoise
from usdenoise.components import sample_fit
from usdenoise.errors import OptionError
from usdenoise.images.metrics import correlation

SHAPE = (64, 64, 200)
CLUTTER_DB, BLOOD_TO_NOISE_DB = (40, 60), 6
SAMPLING = (0.5, 0.2, 0.1, 0.05)
STAGES = {"start": (False, 0), "+ sweep": (True, 0), "+ eta-decay": (True, None)}


@contextmanager
def sweep(wanted):
    """Run with or without the posterior sweep."""
    kept = sample_fit.posterior_sweep
    if not wanted:
        sample_fit.posterior_sweep = lambda problem, right, variances, noise: (right, variances, None, 0)
    try:
        yield
    finally:
        sample_fit.posterior_sweep = kept


def with_holes(stack, seed):
    """The stack with a tenth of its entries missing, in blocks of neighbouring pixels and frames."""
    rng = np.random.default_rng(seed)
    holed = stack.copy()
    blocks = holed.reshape(SHAPE[0], SHAPE[1] // 8, 8, SHAPE[2] // 20, 20)
    missing = rng.random((SHAPE[0], SHAPE[1] // 8, SHAPE[2] // 20)) < 0.1
    blocks[missing[:, :, None, :, None] & np.ones((1, 1, 8, 1, 20), bool)] = np.nan
    return holed


def run(stack, truth, cutoff, sampling, stage, refit):
    swept, iterations = STAGES[stage]
    given = {} if iterations is None else {"iterations": iterations}
    with sweep(swept):
        try:
            result = denoise(stack, axes="zxt", sampling=sampling, low_cutoff=cutoff, refit=refit, **given)
        except OptionError:
            return None
    ratio = result.fit_quality.held_out_ratio
    done = 0 if result.solution is None else result.solution.iterations
    return np.nan if ratio is None else ratio, correlation(result.power_doppler.astype(float), truth), done


def main():
    arguments = command_line(__doc__, seeds=4, first_seed=700)
    found = {}
    for seed in seeds_of(arguments):
        (tissue, blood, noise), truth = terms(SHAPE, seed)
        for clutter in CLUTTER_DB:
            stack = tissue * 10 ** (clutter / 20) + blood + noise * 10 ** (-BLOOD_TO_NOISE_DB / 20)
            cutoff, scores = oracle(stack, truth, 60)
            for name, data in (("complete", stack), ("missing", with_holes(stack, seed))):
                for sampling in SAMPLING:
                    for refit in ("none", "all"):
                        for stage in STAGES:
                            figures = run(data, truth, cutoff, sampling, stage, refit)
                            if figures is None:
                                break
                            ratio, fit, done = figures
                            key = clutter, name, sampling, refit, stage
                            found.setdefault(key, []).append((ratio, scores[cutoff] - fit, done))
                        if figures is not None:
                            default = denoise(
                                data, axes="zxt", sampling=sampling, low_cutoff=cutoff, refit=refit
                            )
                            assert correlation(default.power_doppler.astype(float), truth) == fit
        print(f"seed {seed} is done", flush=True)
    for key, values in found.items():
        ratio, loss, done = np.array(values).T
        print(
            "{} dB, {}, sampling {:g}, refit {}, {}: ".format(*key)
            + f"ratio {ratio.mean():.3f} ({ratio.max():.3f}), loss {loss.mean():.4f} ({loss.max():.4f}), "
            f"iterations {done.min():.0f} to {done.max():.0f}"
        )


if __name__ == "__main__":
    main()
