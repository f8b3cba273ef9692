"""What a shorter switch interval of the interpreter gains while files are hashed and libraries are loaded.

    python -m tests.benchmarks.switch_interval [--shape 200x130x2400] [--pairs 5]

A stack is denoised while a background thread runs Python code, as a job does while it hashes its input and loads the
libraries that draw. Timed in turn, A B A B, with and without the short interval; both give the same result. The
medians and the median of the ratios pair by pair are shown. Making the stack is left out.
"""

import argparse
import statistics
import threading
import time
from contextlib import nullcontext

import numpy as np

from usdenoise import denoise
from usdenoise.system.switch_interval import SHORT_INTERVAL_S, short_switch_interval


def seconds(stack, context):
    """Time of a run next to a thread that runs Python code, and its power Doppler."""
    ended = threading.Event()

    def busy():
        number = 0
        while not ended.is_set():
            number += sum(range(100))

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        with context:
            began = time.perf_counter()
            result = denoise(stack, axes="zxt", rank=28, low_cutoff=20)
            return time.perf_counter() - began, result.power_doppler
    finally:
        ended.set()
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="200x130x2400")
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    shape = tuple(int(n) for n in given.shape.split("x"))
    rng = np.random.default_rng(0)
    stack = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    stack += 100 * np.exp(1j * np.linspace(0, 1, shape[-1])).astype(np.complex64)
    denoise(stack[:40, :40], axes="zxt", rank=28, low_cutoff=20)
    plain, short = [], []
    for _ in range(given.pairs):
        one, first = seconds(stack, nullcontext())
        other, second = seconds(stack, short_switch_interval())
        assert np.array_equal(first, second)
        plain.append(one)
        short.append(other)
    ratio = statistics.median(a / b for a, b in zip(plain, short, strict=True))
    print(f"switch interval as it is: {statistics.median(plain):.3f} s")
    print(
        f"switch interval {SHORT_INTERVAL_S * 1e3:g} ms: {statistics.median(short):.3f} s, {ratio:.2f} times faster"
    )


if __name__ == "__main__":
    main()
