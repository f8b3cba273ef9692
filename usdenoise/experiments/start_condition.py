"""The condition of the paper's theorem on the start, measured for every start."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from usdenoise.experiments.conventions import STARTS
from usdenoise.experiments.instances import Instance


def condition_of_starts(
    draw: Callable[[np.random.Generator], Instance], seeds: Sequence[int], smallest: float
) -> dict[str, Any]:
    """Return both sides of the condition |A(X0 X0^T - M*)|^2 <= rho^2 (1 - delta) lambda_r^2, by start.

    A is the linear map of the measurements, scaled so that the loss without noise is the left side. The paper has
    rho < 1 and delta > 0, so the right side is at most lambda_r^2, which is given.

    Parameters
    ----------
    draw : callable
        Function that draws a problem from a generator.
    seeds : sequence of int
        Seeds of the generators.
    smallest : float
        Smallest nonzero eigenvalue lambda_r of M*.

    Returns
    -------
    dict
        "condition of the theorem" has the largest possible right side, and for each start the medians of the left
        side and of the relative error, the number of problems that satisfy the condition, and the number of columns
        of X0 that are not zero in each problem.
    """
    numbers: dict[str, Any] = {"largest_right_side": smallest**2}
    instances = [draw(np.random.default_rng(seed)) for seed in seeds]
    for start in STARTS:
        left, error, columns = [], [], []
        for instance in instances:
            factor = instance.starts[start]()
            off = factor @ factor.conj().T - instance.truth
            left.append(float(np.sum(instance.loss.measure(off) ** 2)))
            columns.append(int(np.count_nonzero(np.linalg.norm(factor, axis=0) > 0)))
            error.append(float(np.linalg.norm(off) / np.linalg.norm(instance.truth)))
        numbers[start.value] = {
            "left_side": float(np.median(left)),
            "relative_error": float(np.median(error)),
            "nonzero_columns": columns,
            "problems_that_satisfy_it": sum(side <= smallest**2 for side in left),
        }
    return {"condition of the theorem": numbers}
