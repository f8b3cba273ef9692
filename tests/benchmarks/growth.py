"""Time and memory of the default filter against pixels, frames, rank and sampling, next to the SVD's.

    python -m tests.benchmarks.growth [--repeats 3] [--json FILE]

Stacks are low-rank plus noise, complex64, with singular values over 40 dB; each filter's components are
compared with the truth before it is timed. Every point is the median of the repeats in memory, and the
exponent is the slope of log seconds against log size. Memory is the peak of the first, compared call over what
the process held before it; the stack itself is not counted. The SVD is left out above 2400 frames, where its
Gram matrix takes minutes.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np

from tests.benchmarks.shared import command_line, medians, timed_in_turn, with_peak
from usdenoise.completion.starts import gaussian
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.recipe.denoise import denoise

SVD_FRAMES = 2400
PIXELS, FRAMES, RANK, SAMPLING, CLUTTER = 8000, 1200, 30, 0.5, 10
SWEEPS = {
    "frames": [{"frames": n} for n in (300, 600, 1200, 2400, 4800, 9600)],
    "pixels": [{"pixels": n} for n in (2000, 4000, 8000, 16000, 32000)],
    "rank": [{"rank": n} for n in (15, 30, 60, 100)],
    "sampling": [{"sampling": p} for p in (0.2, 0.3, 0.4, 0.5, 0.8)],
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


def check(result, truth):
    found = result.model.right[:, :CLUTTER]
    lost = np.linalg.norm(truth - found @ (found.conj().T @ truth), 2)
    assert lost < 0.1, f"the clutter subspace is off by {lost:.2g}"


def slope(sizes, seconds):
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main():
    arguments = command_line(__doc__, repeats=3, json=Path)
    report = {}
    for what, points in SWEEPS.items():
        methods = ["eta-decay", "svd"] if what in ("frames", "pixels") else ["eta-decay"]
        times = {method: [] for method in methods}
        memory = {method: [] for method in methods}
        sizes = [point[what] for point in points]
        for point in points:
            size = {"pixels": PIXELS, "frames": FRAMES, "rank": RANK, "sampling": SAMPLING, **point}
            iq, truth = stack(size["pixels"], size["frames"])
            possible = [name for name in methods if name != "svd" or size["frames"] <= SVD_FRAMES]
            calls = {}
            for method in possible:
                rank = size["rank"] if method == "eta-decay" else CLUTTER
                calls[method] = partial(run, method=method, rank=rank, sampling=size["sampling"])
                # Libraries and compiled code are not counted.
                calls[method](iq[:500].copy())
                own = iq.copy()
                result, peak = with_peak(calls[method], own)
                memory[method].append(peak / 2**20)
                check(result, truth)
                del own, result
            measured = medians(timed_in_turn(calls, arguments.repeats, lambda _, iq=iq: iq.copy()))
            for method in possible:
                times[method].append(measured[method])
        for method in methods:
            # The last four points: the first ones are start-up.
            done = sizes[: len(times[method])]
            exponent, whole = slope(done[-4:], times[method][-4:]), slope(done, times[method])
            grown = slope(done[-4:], memory[method][-4:])
            report[f"{what}, {method}"] = {
                "sizes": done,
                "seconds": times[method],
                "exponent": exponent,
                "mebibytes": memory[method],
                "memory_exponent": grown,
            }
            for name, values, text in (
                ("s", times[method], f"exponent {exponent:5.2f} ({whole:.2f} over all)"),
                ("MiB", memory[method], f"exponent {grown:5.2f}"),
            ):
                digits = 2 if name == "s" else 0
                line = "  ".join(
                    f"{size:g}: {value:.{digits}f}" for size, value in zip(done, values, strict=True)
                )
                print(f"{what:<9} {method:<10} {name:<4} {text}  {line}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
