"""One value-and-gradient evaluation against its three bare matrix products.

    python -m benchmarks.evaluation [--pixels 26000] [--frames 2400] [--rank 100] [--repeats 5]

Timed in turn, A B A B, each pair after a warm-up; the medians and the median of the ratios pair by pair are shown.
The bare products are U V^H, R V and R^H U of the same shapes and type on all processors, with R of full
size ready in memory. Sampling the entries and gathering them for the sparse evaluation happen once a run, not
once an evaluation, and are left out.
"""

import platform
import time
from functools import partial

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from benchmarks.shared import command_line, median_ratio, medians, timed_in_turn
from usdenoise.completion.problem import CompletionProblem, gaussian
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.sampling import draw_entries
from usdenoise.system.resources import available_threads


def check(problem, factors, matrix):
    """Assert that the evaluation is right: on its value, and on its gradients in 50 rows and columns."""
    u, v = factors
    evaluation = problem.evaluate(factors)
    m, n = matrix.shape
    loss, gradient_v = 0.0, 0.0
    columns = np.linspace(0, n - 1, 50).astype(int)
    for start in range(0, m, 1000):
        rows = slice(start, min(start + 1000, m))
        residual = np.where(problem.sample.mask(rows), u[rows] @ v.conj().T - matrix[rows], 0)
        loss += float(np.sum(np.abs(residual) ** 2, dtype=np.float64))
        gradient_v = gradient_v + residual[:, columns].conj().T.astype(np.complex128) @ u[rows]
        if start == 0:
            gradient_u = residual[:50] @ v
    scale = 2 / problem.sample.n_fitted
    for ours, direct in (
        (evaluation.gradients[0][:50], scale * gradient_u),
        (evaluation.gradients[1][columns], scale * gradient_v),
    ):
        assert np.abs(ours - direct).max() <= 1e-3 * np.abs(direct).max()
    assert abs(evaluation.value / (loss / problem.sample.n_fitted) - 1) < 1e-5


def against_products(problem, factors, matrix, repeats):
    """Seconds of the evaluation and of the bare products, in turn."""
    u, v = factors

    def products():
        # The executor keeps BLAS on one thread as long as it is open.
        with threadpool_limits(available_threads(), user_api="blas"):
            u @ v.conj().T
            matrix @ v
            u.conj().T @ matrix

    def warm_up(name):
        if name == "ours":
            # The threads of a BLAS keep the processors busy for a while after they have done.
            time.sleep(0.2)
            problem.evaluate(factors)

    products()
    return timed_in_turn({"ours": partial(problem.evaluate, factors), "products": products}, repeats, warm_up)


def main():
    arguments = command_line(__doc__, pixels=26000, frames=2400, rank=100, repeats=5)
    m, n, r = arguments.pixels, arguments.frames, arguments.rank
    print(
        f"{platform.machine()}, {available_threads()} threads, numpy {np.__version__}, scipy {scipy.__version__}"
    )
    print(f"{m} pixels x {n} frames, rank {r}, median of {arguments.repeats}")
    print(f"{'type':<10} {'p':>5} {'kernel':<7} {'ours (s)':>9} {'bare (s)':>9} {'ratio':>6}")
    with ThreadExecutor() as executor:
        for dtype in (np.float32, np.complex64):
            rng = np.random.default_rng(0)
            factors = tuple(gaussian(rng, (length, r), dtype) for length in (m, n))
            matrix = np.empty((m, n), dtype)
            for start in range(0, m, 1000):
                matrix[start : start + 1000] = gaussian(rng, (len(matrix[start : start + 1000]), n), dtype)

            for fraction in (0.5, 0.05):
                problem = CompletionProblem(matrix, draw_entries((m, n), fraction, 0), executor)
                check(problem, factors, matrix)
                times = against_products(problem, factors, matrix, arguments.repeats)
                ours, theirs = medians(times).values()
                ratio = median_ratio(*times.values())
                kernel = "sparse" if problem.is_sparse(r) else "dense"
                print(
                    f"{np.dtype(dtype).name:<10} {fraction:>5} {kernel:<7} {ours:>9.3f} {theirs:>9.3f} {ratio:>6.2f}"
                )
            paths(matrix, executor, arguments.repeats)


def paths(matrix, executor, repeats, fraction=0.05, rank=20):
    """The two evaluations of the same sums, where entries are few."""
    rng = np.random.default_rng(1)
    factors = tuple(gaussian(rng, (length, rank), matrix.dtype) for length in matrix.shape)
    sample = draw_entries(matrix.shape, fraction, 0)
    problems = [CompletionProblem(matrix, sample, executor, kernel) for kernel in ("dense", "sparse")]
    for problem in problems:
        check(problem, factors, matrix)
    times = timed_in_turn({problem: partial(problem.evaluate, factors) for problem in problems}, repeats)
    dense, sparse = medians(times).values()
    ratio = median_ratio(*times.values())
    print(
        f"{matrix.dtype.name:<10} {fraction:>5} rank {rank}: dense {dense:.3f} s, sparse {sparse:.3f} s, "
        f"dense over sparse {ratio:.1f}"
    )


if __name__ == "__main__":
    main()
