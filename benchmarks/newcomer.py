"""`--preset paper` against the same work as a newcomer writes it with scipy.sparse.

    python -m benchmarks.newcomer [--pixels 3250] [--frames 2400] [--iterations 30]

Float32, rank 100, half of the entries, spectral start included. The newcomer gathers a row of U and one of V for
every sampled entry, which takes 38 GB at 26000 pixels: fewer pixels by default. Both factorisations have to
agree on the sampled entries before the seconds are shown. One run each.
"""

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import svds

from benchmarks.shared import command_line, seconds_of
from usdenoise import denoise
from usdenoise.completion.problem import gaussian
from usdenoise.stack.sampling import draw_entries

RANK, SAMPLING, TAU, DECAY = 100, 0.5, 0.32, 0.05


def newcomer(matrix, rows, columns, iterations):
    values = matrix[rows, columns]
    density = len(values) / matrix.size
    alpha = TAU * matrix.size / 2
    start = scipy.sparse.csr_matrix((values, (rows, columns)), matrix.shape)
    left, singular, right = svds(start / density, RANK)
    u, v = left * np.sqrt(singular), right.conj().T * np.sqrt(singular)
    first = None
    identity = np.eye(RANK, dtype=matrix.dtype)
    for iteration in range(iterations):
        residual = np.sum(u[rows] * v[columns].conj(), axis=1) - values
        first = np.sqrt(np.mean(np.abs(residual) ** 2)) if iteration == 0 else first
        eta = first * DECAY**iteration
        sparse = scipy.sparse.csr_matrix((2 / len(values) * residual, (rows, columns)), matrix.shape)
        step_u = sparse @ v @ np.linalg.inv(v.conj().T @ v + eta * identity)
        step_v = sparse.conj().T @ u @ np.linalg.inv(u.conj().T @ u + eta * identity)
        u, v = u - alpha * step_u, v - alpha * step_v
    return u @ v.conj().T


def main():
    arguments = command_line(__doc__, pixels=3250, frames=2400, iterations=30)
    shape = (arguments.pixels, arguments.frames)
    rng = np.random.default_rng(0)
    matrix = gaussian(rng, (shape[0], 40), np.float32) @ gaussian(rng, (40, shape[1]), np.float32)
    matrix += 0.1 * gaussian(rng, shape, np.float32)
    stack = matrix.reshape(shape[0], 1, shape[1])
    denoise(stack[:600, :, :300].copy(), axes="zxt", preset="paper", rank=20, iterations=2)
    paper = {
        "axes": "zxt",
        "preset": "paper",
        "alpha": TAU * matrix.size / 2,
        "iterations": arguments.iterations,
    }
    mask = draw_entries(shape, SAMPLING, 0).mask(slice(0, shape[0]))
    rows, columns = np.nonzero(mask)
    result, ours = seconds_of(denoise, stack, **paper)
    theirs, other = seconds_of(newcomer, matrix, rows, columns, arguments.iterations)
    a, b_h = result.model.band(0, RANK)
    difference = np.sqrt(np.mean((a @ b_h - theirs)[mask] ** 2))
    assert difference < 0.02 * np.sqrt(np.mean(matrix[mask] ** 2)), difference
    print(f"{shape[0]} x {shape[1]} float32, rank {RANK}, {arguments.iterations} iterations")
    print(f"usdenoise {ours:.1f} s, scipy.sparse {other:.1f} s, ratio {other / ours:.1f}")


if __name__ == "__main__":
    main()
