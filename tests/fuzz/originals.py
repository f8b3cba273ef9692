"""The sound files that are mutated, by reader: small ones, in all the layouts that the reader knows."""

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import scipy.io
import zarr

from tests.formats.layouts import IQ, LAYOUTS, ZXT, Write, in_chunks, writer

Files = dict[str, bytes]
"""Content of each file by its path in a folder."""

CODECS: Mapping[tuple[int, str], Any] = {
    (2, "gzip"): numcodecs.GZip(1),
    (2, "zlib"): numcodecs.Zlib(1),
    (2, "zstd"): numcodecs.Zstd(1),
    (2, "blosc"): numcodecs.Blosc(),
    (2, "lz4"): numcodecs.LZ4(),
    (2, "bz2"): numcodecs.BZ2(),
    (2, "lzma"): numcodecs.LZMA(),
    (3, "gzip"): zarr.codecs.GzipCodec(level=1),
    (3, "zstd"): zarr.codecs.ZstdCodec(level=1),
    (3, "blosc"): zarr.codecs.BloscCodec(),
}
"""Version of Zarr and name -> compressor."""


@writer
def _zarr(folder: Path, version: int, codec: str, shards: bool = False) -> Path:
    zarr.create_array(
        folder / "x.zarr", data=IQ, chunks=(4, 5, 4), shards=(8, 5, 4) if shards else None,
        compressors=[CODECS[version, codec]], zarr_format=version,
    )  # fmt: skip
    return folder / "x.zarr"


def _version_4(folder: Path) -> Path:
    # Version 4 has only matrices of two axes, so it can hold no stack; its reader is there all the same.
    scipy.io.savemat(folder / "x.mat", {"IQ": ZXT.reshape(20, -1), "rate": 500.0}, format="4")
    return folder / "x.mat"


READERS: Mapping[str, tuple[Write, ...]] = {
    "HDF5": (
        *(
            LAYOUTS[name].write
            for name in ("h5py", "h5py, int16 members", "(t, z, x, 2)", "rIQ, iIQ, normValue")
        ),
        in_chunks(compression="gzip"),
        in_chunks(compression="gzip", shuffle=True, fletcher32=True),
        in_chunks(compression="lzf"),
    ),
    "MATLAB 7.3": tuple(
        LAYOUTS[name].write for name in ("PALA v7.3", "IQData v7.3, cell", "IData, QData v7.3, cells")
    ),
    "MATLAB 5": (
        *(
            LAYOUTS[name].write
            for name in (
                "PALA v5 with PData",
                "IQData v5 compressed",
                "IQData v5, cell",
                "IQData v5 compressed, cell",
                "IQData v5, in a struct",
                "IData, QData v5",
            )
        ),
        _version_4,
    ),
    "UFF": tuple(LAYOUTS[name].write for name in ("UFF", "UFF, native complex")),
    "zea": tuple(LAYOUTS[name].write for name in ("zea", "zea, volumes", "zea, older")),
    "NumPy npy": tuple(LAYOUTS[name].write for name in ("npy", "npy, Fortran order")),
    "NumPy npz": tuple(LAYOUTS[name].write for name in ("npz", "npz compressed")),
    "Zarr 3": (
        LAYOUTS["ConfUSIus"].write,
        LAYOUTS["ConfUSIus, volumes"].write,
        *(_zarr(3, codec) for codec in ("gzip", "zstd", "blosc")),
        _zarr(3, "zstd", shards=True),
    ),
    "Zarr 2": (
        LAYOUTS["ConfUSIus, Zarr 2"].write,
        *(_zarr(2, codec) for codec in ("gzip", "zlib", "zstd", "blosc", "lz4", "bz2")),
    ),
}
"""Name of each reader -> what writes its sound files."""


@cache
def originals(reader: str) -> tuple[tuple[Files, str], ...]:
    """The files of each original of a reader, and the path of each by which it is loaded."""
    made = []
    for write in READERS[reader]:
        with tempfile.TemporaryDirectory() as work:
            path = write(Path(work))
            found = sorted(file for file in Path(work).rglob("*") if file.is_file())
            files = {str(file.relative_to(work)): file.read_bytes() for file in found}
            made.append((files, str(path.relative_to(work))))
    return tuple(made)


SHAPE_NUMBERS = frozenset(int(n) for n in (*IQ.shape, IQ.size, IQ.nbytes, np.prod(IQ.shape[1:])))
"""Numbers that stand in headers for the shape of the stack."""
