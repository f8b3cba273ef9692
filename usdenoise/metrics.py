"""Figures of merit of a filtered stack."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def correlation(power: NDArray[Any], truth: NDArray[Any]) -> float:
    """Pearson correlation of two power images over their pixels, on the linear scale.

    Parameters
    ----------
    power, truth : arrays of one shape
        Power Doppler and the true blood power, or two power Dopplers.

    Returns
    -------
    float
        In [-1, 1]; 0 where one of them is constant.
    """
    a = power.astype(np.float64).reshape(-1)
    b = truth.astype(np.float64).reshape(-1)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale > 0 else 0.0
