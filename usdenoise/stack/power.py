"""Whether an array is power Doppler or an envelope, which no clutter filter can filter."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_power(slabs: Iterable[NDArray[Any]]) -> bool:
    """Return whether the finite values of some slabs of a stack are real and not negative, and not all 0.

    Parameters
    ----------
    slabs : iterable of arrays
        The slabs; none is looked at after the first negative value.
    """
    has_values = False
    for values in slabs:
        if np.iscomplexobj(values):
            return False
        finite = values[np.isfinite(values)]
        if finite.size and finite.min() < 0:
            return False
        has_values = has_values or bool(finite.any())
    return has_values
