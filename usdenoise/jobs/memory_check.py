"""Whether the memory is enough for a job, and where its stack goes if not, before anything large is read."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.errors import InputError, OptionError, UsdenoiseError
from usdenoise.files.loading import describe
from usdenoise.files.open_input import Input
from usdenoise.jobs.job import Job
from usdenoise.system.memory import available_bytes

_IDLE_BYTES, _STACKS = 256 << 20, 2.0
"""Bytes of a job without its stack, and bytes per byte of the stack. On stacks of 128 MB the peak of every method was
120 to 180 MB above twice the stack, libraries included; 256 MiB leaves a margin."""

_CHUNKS = 4
"""Chunks that are in memory at a time while a file is read. With one chunk of 94 MiB the peak was 370 MiB."""


def expected_bytes(path: Path, reading: Mapping[str, Any], precision: str) -> int:
    """Return the memory of a job on all frames of a file, from the file's headers.

    Parameters
    ----------
    path : Path
        The acquisition.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    precision : str
        "single" or "double".

    Returns
    -------
    int
        Bytes; for an unreadable file, the bytes of a job on an empty file.
    """
    try:
        chosen = describe(path, **reading).chosen
    except UsdenoiseError:
        chosen = None
    return _IDLE_BYTES if chosen is None else _job_bytes(chosen.shape, np.dtype(chosen.dtype), precision)


def _job_bytes(shape: Sequence[int], stored: np.dtype[Any], precision: str) -> int:
    return int(_IDLE_BYTES + _STACKS * _array_bytes(shape, stored, precision))


def _array_bytes(shape: Sequence[int], stored: np.dtype[Any], precision: str) -> int:
    one = (16 if stored.kind == "c" else 8) // (1 if precision == "double" else 2)
    return math.prod(shape) * max(one, stored.itemsize)


def _bytes_of(source: Input, job: Job) -> int:
    stored = source.stack.array
    return _job_bytes(stored.shape, stored.dtype, job.options.precision)


def scratch_folder(source: Input, job: Job) -> Path | None:
    """Return the folder of a temporary file for the stack of a job that does not fit into memory; None if it fits.

    Parameters
    ----------
    source : Input
        The open acquisition.
    job : Job
        Contains the bytes that the job may use; by default the free memory of the system.

    Raises
    ------
    InputError
        If the stack does not fit and its file cannot be read in parts, or in too large ones.
    OptionError
        If it does not fit and the method needs all of it in memory.
    """
    most = available_bytes() if job.memory is None else job.memory
    if _bytes_of(source, job) <= most:
        return None
    if source.is_read_whole:
        raise InputError(
            f"{source.path} does not fit into {most / 2**20:.0f} MiB of memory, and "
            f"{source.container} files cannot be read in blocks",
            remedy="save it as HDF5, MATLAB 7.3 or Zarr, or raise {memory}",
        )
    stored = source.stack.array
    chunk = _array_bytes(stored.chunks or (), stored.dtype, job.options.precision)
    if job.dask is None and _CHUNKS * chunk > max(most, _IDLE_BYTES):
        raise InputError(
            f"{source.path} does not fit into {most / 2**20:.0f} MiB of memory, and {_CHUNKS} of "
            f"its chunks of {chunk / 2**20:.0f} MiB are held at a time",
            remedy="save it in smaller chunks, or raise {memory}",
        )
    if job.options.method == "svd":
        raise OptionError(
            f"svd requires the whole stack in memory, and {source.path} does not fit into "
            f"{most / 2**20:.0f} MiB",
            option="method",
            remedy="choose another method, or raise {memory}",
        )
    return job.folder
