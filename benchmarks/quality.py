"""The default run against the full SVD, on phantoms: a table of docs/evidence.md.

    python -m benchmarks.quality [--full] [--seeds 2] [--json FILE]
    python -m benchmarks.quality --full-size SEED

For every size, clutter and noise level and seed the stack is filtered by the full SVD with the cutoff that
fits the truth best (the oracle), and by the default run at the sampling rates with that same cutoff; then
with the automatic one, from the samples alone, without clutter, with missing data, and at random shapes and
scales. A figure is the share of cases that meet the aim, the median and the worst. --full adds stacks of
2400 x 200 x 130; --full-size makes a table of such stacks alone, at every level. Before anything is compared,
the package's SVD filter is asserted to be numpy's on the first stack.
"""

import itertools
import platform
import time
from pathlib import Path

import numpy as np

from benchmarks.shared import command_line, exact_filter, mean_power, oracle, phantom, write_json
from usdenoise import UsdenoiseError, denoise
from usdenoise.blood.metrics import correlation
from usdenoise.phantom import PhantomSettings
from usdenoise.system.resources import available_threads

SIZES = ((64, 64, 100), (64, 64, 200), (100, 80, 600))
FULL = (200, 130, 2400)
CLUTTER_DB, NOISE_DB = (30, 40, 50, 60), (6, 0, -6)
SAMPLING = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
OPTIONS = {"axes": "zxt"}


class Rows:
    """Collected figures: name -> (aim, whether larger is better, values)."""

    def __init__(self):
        self.rows = {}

    def add(self, name, aim, value, larger=True):
        self.rows.setdefault(name, (aim, larger, []))[2].append(float(value))

    def print(self):
        print(f"{'measure':<58} {'aim':>6} {'met':>7} {'median':>8} {'worst':>8} {'cases':>6}")
        for name, (aim, larger, values) in self.rows.items():
            values = np.array(values)
            met = np.mean(values >= aim if larger else values <= aim)
            worst = values.min() if larger else values.max()
            print(
                f"{name:<58} {aim:>6g} {100 * met:>6.1f}% {np.median(values):>8.3f} {worst:>8.3f} {len(values):>6}"
            )


def terms(shape, seed):
    """Unit tissue, blood and noise as Casorati-ordered stacks, and the true blood power."""
    rate = 1000.0 if shape[-1] > 300 else 500.0
    settings = PhantomSettings(shape, rate, clutter_to_blood_db=0, blood_to_noise_db=0, seed=seed)
    _, *stacks = phantom(settings, ("tissue", "blood", "noise"))
    return stacks, mean_power(stacks[1])


def mixed(tissue, blood, noise, clutter_db, noise_db):
    """A stack with tissue so far over blood, and blood over noise."""
    return tissue * np.float32(10 ** (clutter_db / 20)) + blood + noise * np.float32(10 ** (-noise_db / 20))


def holes(stack, seed):
    """10 % of the frames dropped, 5 % of the pixels dead, 1 % of the rest NaN."""
    rng = np.random.default_rng(seed)
    n_z, n_x, n_frames = stack.shape
    broken = stack.copy()
    broken[..., rng.choice(n_frames, n_frames // 10, replace=False)] = np.nan
    dead = rng.random((n_z, n_x)) < 0.05
    broken[dead] = np.nan
    broken[rng.random(stack.shape) < 0.01] = np.nan
    return broken, ~dead


def against_the_svd(stack, truth, rank):
    """The best cutoff of the full SVD, and a function that runs `denoise`: its result and correlation over the SVD's."""
    best, scores = oracle(stack, truth, rank)

    def run(**options):
        result = denoise(stack, **options, **OPTIONS)
        return result, correlation(result.power_doppler, truth) / scores[best]

    return best, run


def one_stack(rows, stack, truth, label):
    best, run = against_the_svd(
        stack, truth, min(64, stack.shape[-1] // 2) if stack.shape[-1] < 2400 else 100
    )
    for sampling in SAMPLING:
        result, ratio = run(sampling=sampling, low_cutoff=best)
        held_out = result.fit_quality.held_out_ratio
        rows.add("refit all: correlation over the full SVD's", 0.99, ratio)
        rows.add("passes over the samples", 12, result.solution.passes, larger=False)
        if held_out is not None:
            rows.add("held-out error over what is allowed", 1.1, held_out, larger=False)
    for sampling, aim in ((0.5, 0.97), (0.25, 0.9)):
        _, ratio = run(sampling=sampling, low_cutoff=best, refit="none")
        rows.add(f"refit none, sampling {sampling}, {label}", aim, ratio)
    rows.add(f"automatic cutoff over the best, {label}", 0.97, run()[1])
    broken, seen = holes(stack, 0)

    def fit(data, **options):
        result = denoise(data, low_cutoff=best, **options, **OPTIONS)
        return correlation(result.power_doppler[seen], truth[seen])

    ours = fit(broken)
    rows.add("missing data: correlation over the complete stack's", 0.98, ours / fit(stack))
    # What nobody recorded nobody can show: the full SVD of the other frames, with nothing missing in them.
    recorded = np.ascontiguousarray(stack[..., np.isfinite(broken[seen]).any(axis=0)])
    svd = fit(recorded, method="svd")
    rows.add("missing data: over the full SVD's of the recorded frames", 0.98, ours / svd)


def full_size(rows, seed):
    """Stacks of 2400 x 200 x 130 at every level, with the best cutoff and with the automatic one."""
    (tissue, blood, noise), truth = terms(FULL, seed)
    for clutter_db, noise_db in itertools.product(CLUTTER_DB, NOISE_DB):
        best, run = against_the_svd(mixed(tissue, blood, noise, clutter_db, noise_db), truth, 100)
        for sampling in (0.5, 0.2):
            _, ratio = run(sampling=sampling, low_cutoff=best)
            rows.add(f"sampling {sampling}, cutoff of the SVD", 0.99, ratio)
        result, ratio = run()
        rows.add("automatic cutoff", 0.97, ratio)
        held_out = result.fit_quality.held_out_ratio
        rows.add("held-out error over what is allowed", 1.1, held_out, larger=False)
        low = result.options.low_cutoff
        print(f"{clutter_db} dB, {noise_db} dB: best {best}, automatic {low}, {ratio:.4f}", flush=True)


def random_configurations(rows, count):
    """Random shapes, ranks, samplings, spectra and scales, integers among them: nothing may diverge."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        n_z, n_x, n_frames = rng.integers(4, 40), rng.integers(4, 40), rng.integers(8, 120)
        true_rank = int(rng.integers(1, 12))
        fall = rng.uniform(0, 3)
        left, right = (
            rng.standard_normal((n, true_rank)) + 1j * rng.standard_normal((n, true_rank))
            for n in (n_z * n_x, n_frames)
        )
        matrix = (left * np.logspace(0, -fall, true_rank)) @ right.T
        matrix = matrix + 10 ** rng.uniform(-4, 0) * rng.standard_normal(matrix.shape)
        stack = (matrix * 10 ** rng.uniform(-6, 6)).reshape(n_z, n_x, n_frames).astype(np.complex64)
        if rng.random() < 0.2:
            stack = np.round(stack.real / np.abs(stack).max() * 3000).astype(np.int16)
        options = {
            "rank": int(rng.integers(1, 16)) if rng.random() < 0.5 else "auto",
            "sampling": float(rng.uniform(0.1, 1)),
            "init": str(rng.choice(["pixels", "spectral", "random"])),
            "refit": str(rng.choice(["all", "none"])),
        }
        try:
            bad = not np.isfinite(denoise(stack, **options, **OPTIONS).acquisition.iq).all()
        except UsdenoiseError as error:
            bad = "diverged" in str(error)
        rows.add("random configurations that diverge or are not finite", 0, bad, larger=False)


def main():
    arguments = command_line(
        __doc__, full=False, seeds=2, first_seed=100, configurations=300, json=Path, full_size=int
    )
    began, rows, checked = time.perf_counter(), Rows(), False
    if arguments.full_size is not None:
        full_size(rows, arguments.full_size)
        rows.print()
        return
    cases = [(size, seed) for size in SIZES for seed in range(arguments.seeds)]
    cases += [(FULL, 0)] if arguments.full else []
    for shape, seed in cases:
        (tissue, blood, noise), truth = terms(shape, arguments.first_seed + seed)
        levels = itertools.product(CLUTTER_DB, NOISE_DB) if shape != FULL else ((40, 6), (60, -6))
        for clutter_db, noise_db in levels:
            stack = mixed(tissue, blood, noise, clutter_db, noise_db)
            if not checked:
                ours = denoise(stack, method="svd", rank=20, low_cutoff=8, **OPTIONS).power_doppler
                direct = mean_power(exact_filter(stack, 8)).reshape(shape[:2])
                assert np.linalg.norm(ours - direct) < 1e-3 * np.linalg.norm(direct)
                checked = True
            one_stack(rows, stack, truth, f"{shape[-1]} frames")
        for noise_db in NOISE_DB:
            stack = blood + noise * np.float32(10 ** (-noise_db / 20))
            removed = denoise(stack, **OPTIONS).options.low_cutoff
            rows.add("components removed where there is no clutter", 1, removed, larger=False)
        print(f"{shape} seed {seed}: {time.perf_counter() - began:.0f} s so far", flush=True)
    random_configurations(rows, arguments.configurations)
    print(f"\n{platform.machine()}, {available_threads()} threads, numpy {np.__version__}")
    rows.print()
    write_json(arguments.json, rows.rows)


if __name__ == "__main__":
    main()
