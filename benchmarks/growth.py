"""Time and memory of the default filter against pixels, frames, rank and sampling, next to the SVD's.

    python -m benchmarks.growth [--repeats 3] [--json FILE]

Stacks are low-rank plus noise, complex64, with singular values over 40 dB; each filter's components are
compared with the truth before it is timed. Every point is the median of the repeats in memory, and the
exponent is the slope of log seconds against log size. Memory is the peak of the first, compared call over what
the process held before it; the stack itself is not counted. The SVD is left out above 2400 frames, where its
Gram matrix takes minutes.
"""

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.shared import command_line, medians, timed_in_turn, with_peak, write_json
from usdenoise.completion.problem import gaussian
from usdenoise.linalg.tall_matrices import orthonormal
from usdenoise.pipeline.denoise import denoise

SVD_FRAMES, CLUTTER = 2400, 10
USUAL = {"pixels": 8000, "frames": 1200, "rank": 30, "sampling": 0.5}
SWEEPS = {
    "frames": (300, 600, 1200, 2400, 4800, 9600),
    "pixels": (2000, 4000, 8000, 16000, 32000),
    "rank": (15, 30, 60, 100),
    "sampling": (0.2, 0.3, 0.4, 0.5, 0.8),
}


def stack(pixels, frames):
    """Ten components over 40 dB and noise, and the clutter's temporal subspace."""
    rng = np.random.default_rng(0)
    left = gaussian(rng, (pixels, CLUTTER), np.complex64)
    right = orthonormal(gaussian(rng, (frames, CLUTTER), np.complex128)).astype(np.complex64)
    scaled = left * (np.sqrt(frames) * np.logspace(2, 0, CLUTTER)).astype(np.float32)
    iq = np.empty((pixels, frames), np.complex64)
    for start in range(0, pixels, 1000):
        rows = slice(start, min(start + 1000, pixels))
        noise = gaussian(rng, (rows.stop - rows.start, frames), np.complex64)
        iq[rows] = scaled[rows] @ right.conj().T + np.float32(0.3) * noise
    return iq.reshape(pixels, 1, frames), right


def run(iq, method, rank, sampling):
    return denoise(
        iq, axes="zxt", method=method, rank=rank, sampling=sampling, low_cutoff=CLUTTER, in_place=True
    )


def measured(size, methods, repeats):
    """Seconds and the peak in MiB of each method on a stack of that size, whose clutter it has found."""
    iq, truth = stack(size["pixels"], size["frames"])
    calls, peaks = {}, {}
    for method in methods:
        rank = CLUTTER if method == "svd" else size["rank"]
        calls[method] = partial(run, method=method, rank=rank, sampling=size["sampling"])
        # Libraries and compiled code are not counted.
        calls[method](iq[:500].copy())
        result, peak = with_peak(calls[method], iq.copy())
        peaks[method] = peak / 2**20
        found = result.model.right[:, :CLUTTER]
        lost = np.linalg.norm(truth - found @ (found.conj().T @ truth), 2)
        assert lost < 0.1, f"the clutter subspace is off by {lost:.2g}"
        del result
    seconds = medians(timed_in_turn(calls, repeats, lambda _: iq.copy()))
    return {method: {"seconds": seconds[method], "mebibytes": peaks[method]} for method in methods}


def slope(sizes, values):
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main():
    arguments = command_line(__doc__, repeats=3, json=Path)
    report = {}
    for what, sizes in SWEEPS.items():
        for value in sizes:
            size = {**USUAL, what: value}
            both = what in ("frames", "pixels") and size["frames"] <= SVD_FRAMES
            found = measured(size, ["eta-decay", "svd"] if both else ["eta-decay"], arguments.repeats)
            for method, figures in found.items():
                report.setdefault(f"{what}, {method}", []).append({"size": value, **figures})
    for name, rows in report.items():
        sizes = [row["size"] for row in rows]
        for figure, digits in (("seconds", 2), ("mebibytes", 0)):
            values = [row[figure] for row in rows]
            # The last four points: the first ones are start-up.
            exponents = (
                f"exponent {slope(sizes[-4:], values[-4:]):5.2f} ({slope(sizes, values):.2f} over all)"
            )
            line = "  ".join(f"{n:g}: {value:.{digits}f}" for n, value in zip(sizes, values, strict=True))
            print(f"{name:<20} {figure:<9} {exponents}  {line}", flush=True)
    write_json(arguments.json, report)


if __name__ == "__main__":
    main()
