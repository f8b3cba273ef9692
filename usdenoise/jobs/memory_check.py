"""Whether the memory is enough for a job, before anything large is read."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.errors import UsdenoiseError
from usdenoise.formats.loading import describe
from usdenoise.system.memory import address_space_bytes, address_space_limit

_IDLE_BYTES, _STACKS = 256 << 20, 2.0
"""Bytes of a job without its stack, and bytes per byte of the stack. On stacks of 128 MB the peak of every method was
120 to 180 MB above twice the stack, libraries included; 256 MiB leaves a margin."""

_THREAD_ADDRESSES = 128 << 20
"""Addresses that the allocator and BLAS reserve for a thread; most of them are never touched."""


def expected_bytes(path: Path, reading: Mapping[str, Any], precision: str) -> int:
    """Return the memory of a job on all frames of a file, from the file's headers.

    Parameters
    ----------
    path : Path
        The acquisition.
    reading : mapping
        Fields of :class:`usdenoise.formats.loading.ReadOptions`.
    precision : str
        "single" or "double".

    Returns
    -------
    int
        Bytes; those of a job on an empty file where this one cannot be read.
    """
    try:
        chosen = describe(path, **reading).chosen
    except UsdenoiseError:
        chosen = None
    if chosen is None:
        return _IDLE_BYTES
    stored = np.dtype(chosen.dtype)
    one = (16 if stored.kind == "c" else 8) // (1 if precision == "double" else 2)
    return int(_IDLE_BYTES + _STACKS * math.prod(chosen.shape) * max(one, stored.itemsize))


def check_address_space(path: Path, reading: Mapping[str, Any], precision: str, threads: int) -> None:
    """Check that a job fits where the address space is limited (``ulimit -v``).

    A BLAS that runs out of addresses ends the process without a message, so this is checked beforehand.

    Parameters
    ----------
    path, reading, precision
        As for :func:`expected_bytes`.
    threads : int
        Threads of the job.

    Raises
    ------
    MemoryError
        If the job may not fit.
    """
    limit, taken = address_space_limit(), address_space_bytes()
    if math.isinf(limit) or not taken:
        return
    if taken + expected_bytes(path, reading, precision) + threads * _THREAD_ADDRESSES > limit:
        raise MemoryError
