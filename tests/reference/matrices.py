"""Matrices that many tests share."""

from typing import Any

import numpy as np

from usdenoise.completion.problem import gaussian
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.arrays import pack
from usdenoise.stack.sampling import PixelSample

SERIAL = ThreadExecutor(1)


def low_rank_and_noise(
    dtype: Any, shape: tuple[int, int] = (300, 40), rank: int = 6, noise: float = 0.01, seed: int = 0
) -> Any:
    """A matrix of low rank with singular values over two decades, and white noise."""
    rng = np.random.default_rng(seed)
    u, v = (gaussian(rng, (n, rank), dtype) for n in shape)
    scales = np.logspace(2, 0, rank).astype(u.real.dtype)
    return (u * scales) @ v.conj().T + gaussian(rng, shape, dtype) * u.real.dtype.type(noise)


def casorati_matrix(values: Any, missing: Any = None) -> PixelSample:
    """A Casorati matrix without the entries that are missing, worked through on one thread."""
    if missing is None:
        return PixelSample(values, None, np.arange(len(values)), SERIAL, np.zeros(values.shape[1], bool))
    filled = np.where(missing, 0, values).astype(values.dtype)
    return PixelSample(
        filled, pack(~missing), np.arange(len(values)), SERIAL, np.zeros(values.shape[1], bool)
    )


def with_gaps(stack: Any, seed: int) -> Any:
    """A stack, time first, with a tenth of the entries missing in blocks of 8 pixels and 20 frames."""
    n_frames, height, width = stack.shape
    missing = np.random.default_rng(seed).random((height, width // 8, n_frames // 20)) < 0.1
    holes = missing.repeat(8, axis=1).repeat(20, axis=2).transpose(2, 0, 1)
    return np.where(holes, np.nan, stack).astype(np.complex64)
