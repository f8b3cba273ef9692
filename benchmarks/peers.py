"""The clutter filter against every SVD that a user would pick instead, on the same stack in the same run.

    pip install -e '.[bench]'
    python -m benchmarks.peers [--shape 200x130x2400] [--real] [--low 20] [--repeats 5] [--json FILE]

Each filter takes the stack out of memory, removes the `low` largest components and gives the filtered stack
and its power Doppler. The stack is our simulator's. Each result is compared with the exact SVD filter's in
double precision and with the true blood power before anything is timed. Timed are the calls alone, in turn
(A B C A B C) after the warm-up that the comparison is; left out are the simulation, each library's own
order of the axes, and the copy of the stack that a filter may overwrite. Memory is that of a process of its
own that makes one call, above what it held with the stack loaded.
"""

import platform
import statistics
import sys
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import svds

from benchmarks.shared import (
    command_line,
    exact_filter,
    exact_script,
    mean_power,
    medians,
    phantom,
    shape_text,
    timed_in_turn,
    with_peak,
    write_json,
)
from tests.programs import python
from usdenoise.baselines import randomized_svd
from usdenoise.blood.metrics import correlation
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.estimate.estimate import truncated_svd
from usdenoise.jobs import clutter_filters
from usdenoise.jobs.compare import relative_distance
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline.denoise import denoise
from usdenoise.system.resources import available_threads

LOSS = 1e-3
BEYOND = 8


def ours(stack, low):
    result = denoise(stack, axes="zxt", rank=low + BEYOND, low_cutoff=low, high_cutoff="none", in_place=True)
    return result.acquisition.iq, result.power_doppler


def default(stack, low):
    result = denoise(stack, axes="zxt", low_cutoff=low, high_cutoff="none", in_place=True)
    return result.acquisition.iq, result.power_doppler


def confusius(stack, low):
    from confusius.iq.clutter_filters import clutter_filter_svd_from_indices

    filtered = clutter_filter_svd_from_indices(stack, low_cutoff=low)
    return filtered, power(filtered, 0)


def scikit_learn(stack, low):
    from sklearn.utils.extmath import randomized_svd as sklearn_svd

    matrix = stack.reshape(-1, stack.shape[-1])
    left, singular, right = sklearn_svd(matrix, low, random_state=0)
    filtered = matrix - (left * singular) @ right
    return filtered, power(filtered, 1)


def scipy_svds(stack, low):
    matrix = stack.reshape(-1, stack.shape[-1])
    left, singular, right = svds(matrix, low, rng=np.random.default_rng(0))
    filtered = matrix - (left * singular) @ right
    return filtered, power(filtered, 1)


def gram_eigh(stack, low):
    matrix = stack.reshape(-1, stack.shape[-1])
    n = matrix.shape[1]
    right = eigh(matrix.conj().T @ matrix, subset_by_index=[n - low, n - 1])[1]
    filtered = matrix - (matrix @ right) @ right.conj().T
    return filtered, power(filtered, 1)


def script(stack, low):
    """The exact script, which overwrites the stack."""
    matrix = stack.reshape(-1, stack.shape[-1])
    return matrix, exact_script(matrix, low, filtered=matrix) / matrix.shape[1]


def short_randomized(stack, low):
    """The shortest randomized SVD that anybody would use: ten columns more, three power passes."""
    matrix = stack.reshape(-1, stack.shape[-1])
    rng = np.random.default_rng(0)
    test = rng.standard_normal((matrix.shape[1], low + 10)).astype(matrix.dtype)
    for _ in range(3):
        test = np.linalg.qr(matrix.conj().T @ (matrix @ test))[0]
    left = np.linalg.qr(matrix @ test)[0]
    turn, singular, right = np.linalg.svd(left.conj().T @ matrix, full_matrices=False)
    filtered = matrix - (left @ (turn[:, :low] * singular[:low])) @ right[:low]
    return filtered, power(filtered, 1)


def own_svd(stack, low):
    return _own(stack, low, lambda matrix, executor: truncated_svd(matrix, low, executor))


def own_rsvd(stack, low):
    rng = np.random.default_rng(0)
    return _own(stack, low, lambda matrix, executor: randomized_svd(matrix, low, executor, rng))


def _own(stack, low, factorise):
    matrix, grid = stack.reshape(-1, stack.shape[-1]), Neighbourhood.whole(stack.shape[:-1])
    options = DenoiseOptions(rank=low, low_cutoff=low, high_cutoff="none")
    with ThreadExecutor() as executor:
        model = factorise(matrix, executor)
        # What `usdenoise compare` does with the components of a baseline, its blood map included.
        return matrix, clutter_filters.keep_band(matrix, grid, options, executor, model).power


def power(filtered, axis):
    return np.mean(filtered.real**2 + filtered.imag**2, axis=axis)


FILTERS = {
    "usdenoise": ours,
    "usdenoise, rank auto": default,
    "confusius, indices": confusius,
    "exact script, 20 lines": script,
    "complex64 Gram + eigh(subset)": gram_eigh,
    "randomized, 3 passes, numpy": short_randomized,
    "scipy svds": scipy_svds,
    "our svd": own_svd,
    "our rsvd": own_rsvd,
}
REAL_FILTERS = {**FILTERS, "scikit-learn randomized_svd": scikit_learn}


def layout(name, stack):
    """A fresh copy in the order that the filter's library uses."""
    if name.startswith("confusius"):
        return np.ascontiguousarray(np.moveaxis(stack, -1, 0)[:, None])
    return stack.copy()


def back(name, filtered, shape):
    """The Casorati matrix of what a filter returned."""
    if name.startswith("confusius"):
        filtered = np.moveaxis(filtered[:, 0], 0, -1)
    return np.ascontiguousarray(filtered).reshape(-1, shape[-1])


def simulated(shape, real, seed):
    """A simulated stack (z, x, t) and its true blood power."""
    _, stack, blood = phantom(PhantomSettings(shape, 1000.0, real=real, seed=seed), ("iq", "blood"))
    return stack, mean_power(blood)


def memory(name, path, low):
    """Peak of a process that makes one call, above what it held before it."""
    code = "from benchmarks import peers; peers.measure()"
    done = python(code, name, path, low, timeout_s=None)
    done.check_returncode()
    return int(done.stdout)


def measure():
    name, path, low = sys.argv[1], sys.argv[2], int(sys.argv[3])
    small = np.random.default_rng(0).standard_normal((12, 12, 64)).astype(np.load(path, mmap_mode="r").dtype)
    REAL_FILTERS[name](layout(name, small), 3)
    stack = layout(name, np.load(path))
    print(with_peak(REAL_FILTERS[name], stack, low)[1])


def main():
    arguments = command_line(
        __doc__, shape=(200, 130, 2400), real=False, low=20, repeats=5, seed=7, skip=[], json=Path
    )
    shape, low = arguments.shape, arguments.low
    stack, truth = simulated(shape, arguments.real, arguments.seed)
    exact = exact_filter(stack, low)
    best = correlation(power(exact, 1), truth.reshape(-1))
    # scikit-learn has no complex numbers, and the script no real ones.
    chosen = (
        [name for name in REAL_FILTERS if REAL_FILTERS[name] is not script] if arguments.real else FILTERS
    )
    names = [name for name in chosen if name not in arguments.skip]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "stack.npy", stack)
        for name in names:
            filtered, image = REAL_FILTERS[name](layout(name, stack), low)
            image = np.asarray(image).reshape(-1)
            distance = relative_distance(back(name, filtered, shape), exact)
            found = correlation(image, truth.reshape(-1))
            assert found >= best - LOSS, f"{name}: correlation {found:.4f} against {best:.4f}"
            assert name.startswith("usdenoise") or distance < 0.2, f"{name}: distance {distance:.2g}"
            rows[name] = {"correlation": found, "distance": distance}
            del filtered
            rows[name]["memory_stacks"] = memory(name, Path(folder) / "stack.npy", low) / stack.nbytes
    del exact
    calls = {name: partial(REAL_FILTERS[name], low=low) for name in names}
    times = timed_in_turn(calls, arguments.repeats, lambda name: layout(name, stack))
    reference = medians(times)["usdenoise"]
    kind = "float32" if arguments.real else "complex64"
    print(f"{shape_text(shape)} {kind}, {low} components removed, median of {arguments.repeats}")
    print(f"exact SVD filter's correlation with the true blood power {best:.4f}")
    print(f"{'filter':<30} {'seconds':>8} {'ratio':>6} {'stacks':>7} {'corr':>7} {'to SVD':>8}")
    for name in names:
        row = rows[name]
        row |= {"seconds": times[name], "median_s": statistics.median(times[name])}
        row["ratio"] = row["median_s"] / reference
        print(
            f"{name:<30} {row['median_s']:>8.2f} {row['ratio']:>6.1f} {row['memory_stacks']:>7.2f}"
            f" {row['correlation']:>7.4f} {row['distance']:>8.1e}"
        )
    software = {name: version(name) for name in ("numpy", "scipy", "confusius", "scikit-learn")}
    machine = {"processors": available_threads(), "machine": platform.machine()}
    print(", ".join(f"{name} {number}" for name, number in {**software, **machine}.items()))
    report = {"shape": shape, "type": kind, "low": low, "exact_correlation": best, "rows": rows}
    write_json(arguments.json, {**report, "software": software, "machine": machine})


if __name__ == "__main__":
    main()
