"""One small stack in every kind of input that is read from several files."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.stacks import low_rank

SHAPE = (24, 12, 10)
"""Frames, lateral and axial pixels of the stacks."""


def stack(seed: int = 0) -> Any:
    """Three components over noise, time first."""
    return low_rank(SHAPE, seed=seed)


def write_npy(folder: Path, seed: int = 0) -> Path:
    np.save(folder / "scan.npy", stack(seed))
    return folder / "scan.npy"


def write_zarr(folder: Path, seed: int = 0) -> Path:
    import zarr

    root = zarr.open_group(folder / "scan.zarr", mode="w")
    array = root.create_array(
        "iq",
        shape=SHAPE,
        chunks=(6, 12, 10),
        dtype="c8",
        dimension_names=("time", "x", "z"),
        compressors=None,
    )
    array[...] = stack(seed)
    return folder / "scan.zarr"


def write_autc(folder: Path, seed: int = 0) -> Path:
    values = stack(seed).transpose(1, 2, 0)
    (folder / "scan").mkdir(exist_ok=True)
    for number, block in enumerate(np.split(values, 2, axis=2)):
        header = struct.pack("<10i", number + 1, block.size, SHAPE[2], SHAPE[1], block.shape[2], *[0] * 5)
        path = folder / f"scan/bf0part{number:03d}.dat"
        path.write_bytes(header + np.ascontiguousarray(block).tobytes())
    return folder / "scan"


def write_echoframe(folder: Path, seed: int = 0) -> Path:
    values = stack(seed)
    header = struct.pack("<5Q", 1, 40, 1, values.size, 0)
    (folder / "scan.dat").write_bytes(header + values.tobytes())
    with h5py.File(folder / "ScanParameters.mat", "w") as file:
        file["ReconSpec/xAxis"], file["ReconSpec/zAxis"] = 0.1 * np.arange(12), 0.05 * np.arange(10)
        file["ReceiveSpec/nRepeats"] = np.array([SHAPE[0]], np.int32)
    return folder / "scan.dat"


def write_virtual(folder: Path, seed: int = 0) -> Path:
    layout = h5py.VirtualLayout(SHAPE, "c8")
    for number, part in enumerate(np.split(stack(seed), 2)):
        with h5py.File(folder / f"part{number}.hdf", "w") as file:
            file["iq"] = part
        layout[12 * number : 12 * number + 12] = h5py.VirtualSource(f"part{number}.hdf", "iq", part.shape)
    with h5py.File(folder / "scan.h5", "w") as file:
        file.create_virtual_dataset("iq", layout).attrs["axes"] = "txz"
    return folder / "scan.h5"


def write_external(folder: Path, seed: int = 0) -> Path:
    (folder / "scan.raw").write_bytes(stack(seed).tobytes())
    with h5py.File(folder / "scan.h5", "w") as file:
        whole = [(str(folder / "scan.raw"), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("iq", SHAPE, "c8", external=whole).attrs["axes"] = "txz"
    return folder / "scan.h5"


WRITERS: dict[str, tuple[Callable[..., Path], str]] = {
    "Zarr": (write_zarr, "scan.zarr/iq/c/2/0/0"),
    "AUTC": (write_autc, "scan/bf0part001.dat"),
    "EchoFrame": (write_echoframe, "ScanParameters.mat"),
    "HDF5, virtual": (write_virtual, "part1.hdf"),
    "HDF5, external": (write_external, "scan.raw"),
}
"""Kind of input -> what writes it into a folder, and one of its files apart from the one that is named."""
