"""Power and correlation of the terms of a phantom."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mean_power(term: NDArray[Any]) -> NDArray[np.float64]:
    """The power of each pixel, its mean over the frames."""
    return np.mean(np.abs(term.astype(np.complex128)) ** 2, axis=0)


def correlation(first: NDArray[Any], second: NDArray[Any]) -> Any:
    """The complex correlation coefficient over all values."""
    first, second = first.astype(np.complex128), second.astype(np.complex128)
    norm = np.sqrt(np.mean(np.abs(first) ** 2) * np.mean(np.abs(second) ** 2))
    return np.mean(np.conj(first) * second) / norm
