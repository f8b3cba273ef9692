"""Conversion of a stack to another precision, in which every finite value must stay finite."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError


@contextmanager
def checked_conversion(values: NDArray[Any], dtype: Any, name: str) -> Iterator[None]:
    """Check that a conversion within the context makes no finite value infinite.

    An infinite entry would count as unobserved.

    Parameters
    ----------
    values : array
        The values that are converted.
    dtype : numpy.dtype
        The type to which they are converted.
    name : str
        Name of the stack, for the message.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError as error:
        largest = max(
            float(np.max(np.abs(part), where=np.isfinite(part), initial=0.0))
            for part in (values.real, values.imag)
        )
        limit = np.finfo(dtype)
        precision = {4: "single", 8: "double"}[limit.dtype.itemsize]
        raise InputError(
            f"'{name}' holds a value of magnitude {largest:.3g}, and {precision} precision ends at "
            f"{float(limit.max):.3g}; scale the stack first"
        ) from error
