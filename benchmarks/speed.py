"""Processor time of sessions and scans against the exact SVD script that a user would write, on one thread in one process.

    python -m benchmarks.speed [--blocks 96] [--made 24] [--clutter-db 40] [--skip-long]

The script (`shared.exact_script`) sums the Gram matrix of a block in double precision, takes its 20 leading eigenvectors,
subtracts them and returns the power: no choice of the cutoff, no quality control, no blood map. With the Gram matrix in
single precision it takes half of the time, and its accuracy is printed beside the others. Each answer is compared with
the truth before anything is timed, which also loads the compiled loops. Times are processor time
(`time.process_time`): the least of some calls counts. Frames a second need an idle machine, and use all of its threads.
"""

import time
from functools import partial

import numpy as np

from benchmarks.sessions import COMMON, Simulated
from benchmarks.shared import command_line, exact_script, mean_power, phantom
from usdenoise import denoise, session
from usdenoise.blood.metrics import correlation
from usdenoise.phantom import PhantomSettings
from usdenoise.system.resources import blas_on_one_thread

LOW, TEST_VECTORS, POWER_ITERATIONS = 20, 30, 2


def randomized_script(pixels, low=LOW):
    """The same by a randomized SVD in NumPy."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(pixels @ rng.standard_normal((pixels.shape[1], TEST_VECTORS)).astype(pixels.dtype))[
        0
    ]
    for _ in range(POWER_ITERATIONS):
        basis = np.linalg.qr(pixels @ np.linalg.qr(pixels.conj().T @ basis)[0])[0]
    turn, singular, right = np.linalg.svd(basis.conj().T @ pixels, full_matrices=False)
    rest = (pixels - (basis @ (turn[:, :low] * singular[:low])) @ right[:low]).view(np.float32)
    return np.einsum("ij,ij->i", rest, rest)


def seconds(call, repeats):
    """Least processor time of a call."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def blocks_of(settings, n_blocks):
    """Blocks of a session, (t, z, x), forwards and backwards through the simulated ones, and their mean blood power."""
    made = Simulated(settings)
    order = [*range(made.n_blocks), *range(made.n_blocks - 2, 0, -1)]
    stack = np.concatenate([made.iq[made.frames(order[number % len(order)])] for number in range(n_blocks)])
    return stack, made.power.mean(axis=0).reshape(stack.shape[1:])


def compare(name, stack, length, truth, least, script):
    """Print the processor time of a session a block over the script's."""
    run = partial(session, stack, length, axes="tzx", threads=1)
    found = run()
    agreement = correlation(found.mean_blood_power.astype(float), truth)
    assert agreement > least, f"{name}: correlation with the truth {agreement:.3f}"
    n_blocks = len(stack) // length
    taken = seconds(run, 2) / n_blocks
    shifted = sum(block.is_shifted for block in found.block_records)
    print(
        f"{name}: {1e3 * taken:.0f} ms a block, {taken / script:.2f} times the script "
        f"(cutoff {found.low_cutoff}, {shifted} of {n_blocks} blocks shifted, correlation with the truth {agreement:.3f})",
        flush=True,
    )
    began = time.perf_counter()
    session(stack, length, axes="tzx")
    print(f"  {len(stack) / (time.perf_counter() - began):.0f} frames a second with all threads", flush=True)


def main():
    asked = command_line(__doc__, blocks=96, made=24, clutter_db=40.0, skip_long=False)
    common = {**COMMON, "session": asked.made, "clutter_to_blood_db": asked.clutter_db}
    with blas_on_one_thread():
        scan = PhantomSettings((128, 128, 300), 500.0, seed=951)
        _, iq, blood = phantom(scan, ("iq", "blood"))
        truth, pixels = mean_power(blood), iq.reshape(-1, iq.shape[-1])
        shape = iq.shape[:-1]
        scripts = {
            "exact": partial(exact_script, low=LOW),
            "single precision": partial(exact_script, low=LOW, single=True),
        }
        found = {
            name: correlation(call(pixels).reshape(shape).astype(float), truth)
            for name, call in scripts.items()
        }
        own = partial(denoise, iq, axes="zxt", threads=1)
        power = correlation(own().power_doppler.astype(float), truth)
        assert power > found["exact"] - 0.01, (power, found)
        script = seconds(partial(exact_script, pixels, LOW), 7)
        print(
            f"128 x 128 x 300: exact script {1e3 * script:.0f} ms, correlation {found['exact']:.3f}",
            flush=True,
        )
        for name, call in (("single precision", scripts["single precision"]), ("denoise", own)):
            value = power if name == "denoise" else found[name]
            taken = seconds(partial(call, pixels) if name != "denoise" else call, 7)
            print(
                f"  {name}: {1e3 * taken:.0f} ms, {taken / script:.2f} times, correlation {value:.3f}",
                flush=True,
            )
        for name, motion in (
            ("still session", {}),
            ("session with a jitter of 0.3 pixels", {"jitter_pixels": 0.3}),
        ):
            stack, truth = blocks_of(
                PhantomSettings((128, 128, 300), seed=952, **common, **motion), asked.blocks
            )
            script = min(script, seconds(partial(exact_script, pixels, LOW), 5))
            compare(name, stack, 300, truth, 0.8, script)
            del stack
        if asked.skip_long:
            return
        _, iq, blood = phantom(PhantomSettings((200, 130, 2400), 1000.0, seed=953), ("iq", "blood"))
        truth, pixels = mean_power(blood), iq.reshape(-1, iq.shape[-1])
        del blood
        own = partial(denoise, iq, axes="zxt", threads=1)
        power = correlation(own().power_doppler.astype(float), truth)
        taken = seconds(own, 3)
        print(f"200 x 130 x 2400: denoise {taken:.2f} s, correlation {power:.3f}", flush=True)
        for name, call in (
            ("exact script", partial(exact_script, low=LOW)),
            ("randomized SVD", randomized_script),
        ):
            began = time.process_time()
            value = correlation(call(pixels).reshape(iq.shape[:-1]).astype(float), truth)
            spent = time.process_time() - began
            assert abs(value - power) < 0.1, (name, value, power)
            print(f"  {name}: {spent:.2f} s, {spent / taken:.2f} times, correlation {value:.3f}", flush=True)


if __name__ == "__main__":
    main()
