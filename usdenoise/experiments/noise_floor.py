"""The noise floor: the error that the noise leaves in the least-squares fits of the problems."""

from collections.abc import Sequence

import numpy as np

from usdenoise.experiments.instances import Instance

OFFSET = 1e-2
"""Distance of the fit's start from the planted factor, relative to its norm, times the square root of the noise."""

TOLERANCE = 1e-6
"""Relative change of the squared residuals at which the fit ends. With 1e-12 it took 16 times as long, and the errors
differed in the third digit."""


def noise_floor(instances: Sequence[Instance]) -> float:
    """Return the median over the problems of the relative error of their least-squares fits.

    That is the minimax level of the paper, sigma sqrt(n r log n / m) / ||M*||, times a constant of the setting. None of
    the compared methods takes part in it.

    Parameters
    ----------
    instances : sequence of Instance
        The problem of every seed.
    """
    return float(np.median([least_squares_error(instance) for instance in instances]))


def least_squares_error(instance: Instance) -> float:
    """Return the relative error of the minimiser of the loss at the search rank that is nearest to M*.

    A Levenberg-Marquardt method (:func:`scipy.optimize.least_squares`) minimises the loss from the planted factor.
    The start is moved a little, because the gradient of a column of zeros is zero.

    Parameters
    ----------
    instance : Instance
        Problem with its planted factor.
    """
    from scipy.optimize import least_squares

    factor = instance.factor
    shape, dtype = factor.shape, factor.dtype
    rng = np.random.default_rng(0)
    noise = float(np.sqrt(np.sum(instance.loss.residuals(instance.truth) ** 2)))
    start = np.ascontiguousarray(factor).reshape(-1).view(np.float64).copy()
    start += OFFSET * np.sqrt(noise) * np.linalg.norm(start) * rng.standard_normal(start.size)

    def residuals(
        flat: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        x = flat.view(dtype).reshape(shape)
        # In units of the noise, so that the tolerances are relative to it.
        return instance.loss.residuals(x @ x.conj().T) / noise

    fit = least_squares(residuals, start, method="lm", xtol=1e-12, ftol=TOLERANCE, gtol=1e-12)
    x = np.ascontiguousarray(fit.x).view(dtype).reshape(shape)
    return float(np.linalg.norm(x @ x.conj().T - instance.truth) / np.linalg.norm(instance.truth))
