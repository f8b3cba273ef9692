"""Compressed data that expand to far more than they are: the zeros of a stack that is not there."""

import io
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.fuzz.originals import Files

EXPANDED_BYTES = 3 << 28
"""What they expand to. The limit on memory is far below."""

_PIECE = 1 << 24


@cache
def zeros_in_zlib(n_bytes: int = EXPANDED_BYTES, head: bytes = b"", unit: bytes = b"\0") -> bytes:
    """A stream of zlib that expands to `head` and to zeros, or another unit, over and over.

    Every piece is the same compressed block. The checksum is wrong, which shows at the end.
    """
    packer = zlib.compressobj(9)
    front = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = block.compress(unit * (_PIECE // len(unit))) + block.flush(zlib.Z_FULL_FLUSH)
    return front + piece * ((n_bytes - len(head)) // _PIECE) + b"\x03\x00" + bytes(4)


@cache
def zeros_in_gzip(n_bytes: int = EXPANDED_BYTES) -> bytes:
    """A gzip file of zeros. Its checksum is wrong, which shows at its end."""
    stream = zeros_in_zlib(n_bytes)[2:-4]
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + stream + struct.pack("<II", 0, n_bytes & 0xFFFFFFFF)


@cache
def zeros_in_zstd(n_bytes: int = 1 << 30) -> bytes:
    """A zstd file of zeros."""
    import numcodecs

    return bytes(numcodecs.Zstd(1).encode(np.zeros(n_bytes, np.uint8)))


@cache
def zeros_in_blosc(n_bytes: int = 1 << 30) -> bytes:
    """A blosc chunk of zeros."""
    import numcodecs

    return bytes(numcodecs.Blosc("zstd", 1).encode(np.zeros(n_bytes, np.uint8)))


@cache
def zeros_in_bz2(n_bytes: int = 1 << 30) -> bytes:
    """A bz2 file of zeros: streams of 16 MB, one after the other."""
    import bz2

    return bz2.compress(bytes(_PIECE)) * (n_bytes // _PIECE)


def matlab_matrix(shape: tuple[int, ...], n_bytes: int) -> bytes:
    """The head of a matrix of version 5 in single precision, up to its values."""
    dimensions = struct.pack(f"<{len(shape)}i", *shape).ljust(-(-4 * len(shape) // 8) * 8, b"\0")
    inner = struct.pack("<IIII", 6, 8, 7, 0) + struct.pack("<II", 5, 4 * len(shape)) + dimensions
    inner += struct.pack("<HH4s", 1, 2, b"IQ") + struct.pack("<II", 7, n_bytes)
    return struct.pack("<II", 14, len(inner) + n_bytes) + inner


def _in_mat(raw: bytes, rng: np.random.Generator) -> bytes:
    kind = int(rng.integers(6))
    if kind == 0:
        packed = zeros_in_zlib()
    elif kind == 1:
        # A matrix as large as it claims to be.
        n_values = EXPANDED_BYTES // 4 - _PIECE
        head = matlab_matrix((1 << 6, 1 << 6, n_values >> 12), 4 * n_values)
        packed = zeros_in_zlib(4 * n_values + len(head), head)
    elif kind == 2:
        head = matlab_matrix((4, 4, 4), 256)
        packed = zeros_in_zlib(EXPANDED_BYTES + len(head), head)
    else:
        # A cell of nothing but empty elements, one that goes on without end, or one element of text.
        n_bytes = {3: 1 << 26, 4: EXPANDED_BYTES, 5: EXPANDED_BYTES}[kind]
        head = struct.pack("<II", 14, n_bytes) + struct.pack("<IIII", 6, 8, 4 if kind == 5 else 1, 0)
        head += struct.pack("<IIII", 5, 8, 1, 3) + struct.pack("<HH4s", 1, 2, b"IQ")
        if kind == 5:
            head += struct.pack("<II", 16, n_bytes - len(head))
        packed = zeros_in_zlib(n_bytes + len(head), head, b"\0" if kind == 5 else struct.pack("<II", 14, 0))
    return raw[:128] + struct.pack("<II", 15, len(packed)) + packed


def _in_hdf5(raw: bytes, rng: np.random.Generator) -> bytes:
    """Replace the content of a compressed chunk, or add a large compressed dataset that is stored in one chunk."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "x.h5"
        path.write_bytes(raw)
        with h5py.File(path, "r+") as file:
            found: list[Any] = []
            file.visititems(lambda name, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
            victim = found[int(rng.integers(len(found)))]
            name, shape, dtype = victim.name, victim.shape, victim.dtype
            if dtype.hasobject or not shape:
                return raw
            attributes = dict(victim.attrs)
            del file[name]
            if rng.random() < 0.3:
                shape = (1 << 10, 1 << 9, (EXPANDED_BYTES >> 19) // dtype.itemsize)
            # A chunk of a few bytes could not be stored with three million: it is larger than its dataset.
            chunks = shape if np.prod(shape) >= 1 << 12 else (1 << 12, *shape[1:])
            made = file.create_dataset(
                name, shape, dtype, chunks=chunks, maxshape=(None, *shape[1:]), compression="gzip"
            )
            made.attrs.update(attributes)
            made.id.write_direct_chunk((0,) * len(shape), zeros_in_zlib())
        return path.read_bytes()


def _in_npz(raw: bytes, rng: np.random.Generator) -> bytes:
    """Replace a member by one that claims, or only expands to, much more."""
    return npz_of_zeros((12, 5, 4) if rng.random() < 0.5 else (1 << 10, 1 << 9, EXPANDED_BYTES >> 22))


def npz_of_zeros(claimed: tuple[int, ...]) -> bytes:
    """An archive of one array of zeros, which is as large as all bombs and has this shape in its header."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<c8", "fortran_order": False, "shape": claimed})
    # The archive is written with few bytes, and its sizes and its content are those of many.
    packed = zeros_in_zlib(EXPANDED_BYTES + len(head.getvalue()), head.getvalue())[2:-4]
    name, size = b"iq.npy", EXPANDED_BYTES + len(head.getvalue())
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 0, len(packed), size, len(name), 0)
    local = b"PK\x03\x04" + fields + name + packed
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


def expanding(files: Files, rng: np.random.Generator) -> None:
    """Compressed data of a file expand to gigabytes; where nothing is compressed, nothing changes."""
    compressible = [name for name in sorted(files) if _kind(name, files[name])]
    if not compressible:
        return
    name = str(rng.choice(compressible))
    files[name] = {"mat": _in_mat, "hdf5": _in_hdf5, "npz": _in_npz, "chunk": _in_chunk}[
        _kind(name, files[name])
    ](files[name], rng)


def _kind(name: str, raw: bytes) -> str:
    if raw[:4] == b"MATL" and raw[124:128] == b"\x00\x01IM":
        return "mat"
    if b"\x89HDF\r\n\x1a\n" in (raw[:8], raw[512:520]):
        return "hdf5"
    if raw[:4] == b"PK\x03\x04":
        return "npz"
    is_chunk = ".zarr/" in name and not name.rpartition("/")[2].startswith((".z", "zarr.json"))
    return "chunk" if is_chunk else ""


def _in_chunk(raw: bytes, rng: np.random.Generator) -> bytes:
    """Replace a chunk of Zarr by one of the same compressor, which its first bytes show."""
    if raw[:2] == b"\x1f\x8b":
        return zeros_in_gzip()
    if raw[:4] == b"\x28\xb5\x2f\xfd":
        return zeros_in_zstd()
    if raw[:1] == b"\x78":
        return zeros_in_zlib()
    if raw[:2] == b"BZ":
        return zeros_in_bz2()
    if raw[:2] == b"\x02\x01":
        return zeros_in_blosc()
    return struct.pack("<I", (1 << 31) - 8) + raw[4:]
