"""The condition of the paper's theorem on the start, measured for both starts."""

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
        "condition of the theorem" has, for each start, the median of the left side and of its part in the
        relative error of the start, and the largest possible right side.
    """
    numbers: dict[str, Any] = {"largest_right_side": smallest**2}
    instances = [draw(np.random.default_rng(seed)) for seed in seeds]
    for start in STARTS:
        left, error = [], []
        for instance in instances:
            factor = instance.starts[start]()
            off = factor @ factor.conj().T - instance.truth
            left.append(float(np.sum(instance.loss.measure(off) ** 2)))
            error.append(float(np.linalg.norm(off) / np.linalg.norm(instance.truth)))
        numbers[start.value] = {
            "left_side": float(np.median(left)),
            "relative_error": float(np.median(error)),
            "problems_that_satisfy_it": sum(side <= smallest**2 for side in left),
        }
    return {"condition of the theorem": numbers}
