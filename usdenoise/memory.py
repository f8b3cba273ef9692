"""How much memory a job will want, whether this process may take it, and what it gives back."""

import ctypes
import math
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.errors import UsdenoiseError
from usdenoise.formats.reading import describe

# Measured on stacks of 128 MB: 120 to 180 MB over twice the stack with the libraries, whatever the method.
_ALONE_BYTES, _STACKS = 256 << 20, 2.0
_THREAD_ADDRESSES = 128 << 20
"""Addresses, most of them never touched, that the allocator and BLAS set aside for a thread."""


def expected_bytes(path: Path, reading: Mapping[str, Any], precision: str) -> int:
    """Memory that a job on a file will want, by its headers; for an unreadable file, what an idle job takes."""
    try:
        chosen = describe(path, **reading).chosen
    except UsdenoiseError:
        chosen = None
    if chosen is None:
        return _ALONE_BYTES
    stored = np.dtype(chosen.dtype)
    one = (16 if stored.kind == "c" else 8) // (1 if precision == "double" else 2)
    return int(_ALONE_BYTES + _STACKS * math.prod(chosen.shape) * max(one, stored.itemsize))


def check_address_space(path: Path, reading: Mapping[str, Any], precision: str, threads: int) -> None:
    """Look ahead where the address space is limited (ulimit -v): a BLAS that runs out ends the process.

    Raises
    ------
    MemoryError
        If a job on the file may not fit.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    taken = pages("self", 0) * resource.getpagesize()
    if limit == resource.RLIM_INFINITY or not taken:
        return
    if taken + expected_bytes(path, reading, precision) + threads * _THREAD_ADDRESSES > limit:
        raise MemoryError


def give_back() -> None:
    """Return to the system what was freed, where the C library can: it keeps some of it for later otherwise."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def pages(pid: int | str, column: int) -> int:
    """A column of /proc/PID/statm: 0 for the address space, 1 for what is resident; 0 where there is none."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[column])
    except (OSError, IndexError, ValueError):
        return 0
