"""One small stack in an HDF5 file, and in a folder of several files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.files.layouts import confusius, npy
from tests.stacks import low_rank, write_stack

SHAPE = (24, 12, 10)
"""Frames, axial and lateral pixels of the stacks."""


def stack(seed: int = 0) -> Any:
    """Three components over noise, time first."""
    return low_rank(SHAPE, seed=seed)


def write_npy(folder: Path, seed: int = 0) -> Path:
    return npy(stack(seed))(folder)


def write_zarr(folder: Path, seed: int = 0) -> Path:
    return confusius(stack(seed))(folder)


def write_h5(folder: Path, seed: int = 0) -> Path:
    return write_stack(folder / "x.h5", stack(seed), axes="tzx")


WRITERS: dict[str, tuple[Callable[..., Path], str]] = {
    "Zarr": (write_zarr, "x.zarr/iq/c/2/0/0/0"),
    "HDF5": (write_h5, "x.h5"),
}
"""Kind of input -> what writes it into a folder, and one of its files, where it can be apart from the one that is named."""
