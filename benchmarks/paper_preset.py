"""What the paper's settings reach at full size: distance to the truncated SVD, and memory.

    python -m benchmarks.paper_preset PHANTOM.h5 [--start random --decay 0.5]

PHANTOM.h5 comes from `usdenoise simulate PHANTOM.h5 --shape 200x130x2400 [--set real=true]`. Before it shows a
figure it asserts that the SVD's triplets satisfy M v = s u.
"""

import numpy as np

from benchmarks.shared import command_line, seconds_of
from usdenoise import denoise, load
from usdenoise.estimate.estimate import truncated_svd
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.system.resources import peak_memory_bytes


def distance(first, second):
    """Frobenius norm of the difference of two low-rank matrices, from their factors."""
    left = np.hstack([first.left * first.singular_values, -second.left * second.singular_values])
    right = np.hstack([first.right, second.right])
    triangles = [np.linalg.qr(side.astype(np.result_type(side, np.float64)))[1] for side in (left, right)]
    return float(np.linalg.norm(triangles[0] @ triangles[1].conj().T))


def main():
    arguments = command_line(__doc__, "phantom", start="spectral", decay=0.05, iterations=30)
    acquisition = load(arguments.phantom)
    given = {"init": arguments.start, "decay": arguments.decay, "iterations": arguments.iterations}
    result, elapsed = seconds_of(denoise, acquisition, preset="paper", **given)
    matrix = np.ascontiguousarray(acquisition.frames.T)
    memory = peak_memory_bytes()
    with ThreadExecutor() as executor:
        exact = truncated_svd(matrix, 100, executor)
    for k in (0, 50, 99):
        image = matrix @ exact.right[:, k]
        off = image - exact.singular_values[k] * exact.left[:, k]
        assert np.linalg.norm(off) < 1e-3 * np.linalg.norm(image)
    relative = distance(result.model, exact) / np.linalg.norm(exact.singular_values)
    print(f"{arguments.phantom}: start {arguments.start}, decay {arguments.decay:g}")
    print(f"  relative distance to the rank-100 SVD   {relative:.4f}")
    print(f"  held-out rms over the noise rms         {result.held_out_rmse / result.noise_floor:.2f}")
    print(f"  seconds, start included                 {elapsed:.1f}")
    print(f"  peak memory over the stack's, with a copy of it kept  {memory / matrix.nbytes:.2f}")


if __name__ == "__main__":
    main()
