"""What the benchmarks share: their command line, calls timed in turn, memory, and phantoms."""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import cherk, zherk

from usdenoise.blood.metrics import correlation
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom
from usdenoise.system.resources import peak_memory_bytes, release_freed_memory


def command_line(doc, *files, **options):
    """Parse the command line of a benchmark.

    `doc` is its docstring, `files` are the names of paths that have to be given. An option is given with its default,
    which says its type: False for a switch, a tuple for a shape as in 200x130x2400, a list for one that may be
    repeated. An option without a default has a type in its place.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    for name in files:
        parser.add_argument(name, type=Path)
    for name, default in options.items():
        flag = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(flag, type=default)
        elif isinstance(default, list):
            parser.add_argument(flag, action="append", default=default)
        else:
            read = _shape if isinstance(default, tuple) else type(default)
            parser.add_argument(flag, type=read, default=default)
    return parser.parse_args()


def _shape(text):
    return tuple(int(part) for part in text.split("x"))


def shape_text(shape):
    return "x".join(str(n) for n in shape)


def seeds_of(arguments):
    return range(arguments.first_seed, arguments.first_seed + arguments.seeds)


def timed_in_turn(calls, repeats, prepare=lambda name: None):
    """Seconds of each call by its name, timed A B C A B C.

    `prepare` is called with the name before each call, untimed. What it returns, if anything, is the call's argument.
    """
    times = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            given = prepare(name)
            times[name].append(seconds_of(call, *([] if given is None else [given]))[1])
            del given
    return times


def seconds_of(call, *arguments, **settings):
    """What a call returns, and the seconds that it took, once."""
    began = time.perf_counter()
    result = call(*arguments, **settings)
    return result, time.perf_counter() - began


def medians(times):
    return {name: statistics.median(values) for name, values in times.items()}


def median_ratio(first, second):
    """The median of the ratios of two lists of seconds, pair by pair."""
    return statistics.median(a / b for a, b in zip(first, second, strict=True))


def with_peak(call, *arguments):
    """What a call returns, and the bytes at its peak over what the process held before."""
    release_freed_memory()
    # The kernel forgets the peak so far.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory_bytes()
    result = call(*arguments)
    return result, max(peak_memory_bytes() - before, 1)


def phantom(settings, terms):
    """A phantom, and some of its terms (of iq, tissue, blood and noise) as stacks, time last."""
    shape = settings.shape
    with ThreadExecutor() as executor:
        made = Phantom(settings, executor)
        stacks = [np.empty(shape, np.float32 if settings.real else np.complex64) for _ in terms]
        start = 0
        for block in made.parts(frames_a_part=64):
            stop = start + len(block.iq)
            for stack, term in zip(stacks, terms, strict=True):
                stack[..., start:stop] = np.moveaxis(getattr(block, term), 0, -1)
            start = stop
    return made, *stacks


def mean_power(stack):
    """Mean power over the frames, in double precision."""
    return np.mean(np.abs(stack) ** 2, axis=-1, dtype=np.float64)


def without_medians(power):
    """Power Doppler minus the median of each depth, at least 0: what a script does about noise that grows with depth."""
    return np.maximum(power - np.median(power, axis=1, keepdims=True), 0)


def leading_right(matrix, rank):
    """The leading right singular vectors of a matrix, largest first, from its Gram matrix in double precision."""
    wide = np.result_type(matrix, np.float64)
    gram = sum(block.conj().T @ block for block in _blocks(matrix, wide))
    n = len(gram)
    return eigh(gram, subset_by_index=[n - rank, n - 1])[1][:, ::-1]


def _blocks(matrix, dtype):
    return (matrix[start : start + 1000].astype(dtype) for start in range(0, len(matrix), 1000))


def full_svd_powers(stack, rank):
    """The full SVD's power Dopplers, times the number of frames, with 0 to rank - 1 components removed."""
    matrix = stack.reshape(-1, stack.shape[-1])
    right, powers = leading_right(matrix, rank - 1), []
    # At 60 dB what is left is a millionth of the total: single precision would not tell it.
    for block in _blocks(matrix, right.dtype):
        total = np.sum(np.abs(block) ** 2, axis=1, keepdims=True)
        powers.append(np.hstack([total, total - np.cumsum(np.abs(block @ right) ** 2, axis=1)]))
    return np.concatenate(powers).T.reshape(rank, *stack.shape[:-1])


def exact_filter(stack, low):
    """The Casorati matrix without its leading components, filtered in double precision."""
    matrix = stack.reshape(-1, stack.shape[-1])
    right = leading_right(matrix, low)
    blocks = [block - (block @ right) @ right.conj().T for block in _blocks(matrix, right.dtype)]
    return np.concatenate([block.astype(matrix.dtype) for block in blocks])


def exact_script(pixels, low, single=False, filtered=None):
    """Power, times the number of frames, of pixels without their leading components: what a user would script.

    `pixels` is (n_pixels, n_frames) complex64. Half of the Gram matrix is summed in double precision, or in single. The
    filtered pixels go to `filtered`, if that is given; it may be `pixels`.
    """
    n, kind, add = pixels.shape[1], np.complex64 if single else np.complex128, cherk if single else zherk
    gram = np.zeros((n, n), kind, order="F")
    for start in range(0, len(pixels), 2048):
        rows = pixels[start : start + 2048].T.astype(kind, order="F")
        add(1.0, rows, beta=1.0, c=gram, trans=0, lower=1, overwrite_c=1)
    vectors = eigh(gram, lower=True, subset_by_index=[n - low, n - 1], check_finite=False)[1]
    vectors = np.ascontiguousarray(vectors.conj().astype(pixels.dtype))
    adjoint = np.ascontiguousarray(vectors.conj().T)
    power = np.zeros(len(pixels), np.float32)
    for start in range(0, len(pixels), 1024):
        part = slice(start, start + 1024)
        rest = pixels[part] - (pixels[part] @ vectors) @ adjoint
        power[part] = np.einsum("ij,ij->i", rest.view(np.float32), rest.view(np.float32))
        if filtered is not None:
            filtered[part] = rest
    return power


def oracle(stack, truth, rank):
    """The cutoff at which the full SVD fits the truth best, and the correlation at every cutoff below the rank."""
    scores = [correlation(power, truth) for power in full_svd_powers(stack, rank)]
    return int(np.argmax(scores)), scores


def print_figures(title, rows):
    """Print the mean and the range of each figure over rows of the same figures."""
    print(f"{title}, {len(rows)} cases", flush=True)
    for key in rows[0]:
        values = np.array([row[key] for row in rows], float)
        print(f"  {key}: mean {values.mean():.4g}, {values.min():.4g} to {values.max():.4g}", flush=True)


def write_json(path, record):
    """Write a record where the command line gave a path for it."""
    if path is not None:
        path.write_text(json.dumps(record, indent=2))
