"""Compressed chunks of Zarr that expand to more than they should.

zarr expands a chunk to its end, or to what the chunk itself says, and only then compares it with the metadata of the
array. The size is looked up here first: in the header of the chunk where the compressor writes one, otherwise the
chunk is expanded, as far as the metadata allow.
"""

import bz2
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from usdenoise.errors import InputError
from usdenoise.formats.damage import HARMLESS_BYTES, MAX_EXPANSION
from usdenoise.formats.stored import Index

_SLACK_BYTES = 1 << 12

_GZIP = 16 + zlib.MAX_WBITS
"""Window size by which zlib expects the header of gzip."""


class ExpansionCheck:
    """Check of the chunks of an array, each once. The chunks within a shard are not checked.

    Parameters
    ----------
    array : zarr.Array
        The array, in a folder.
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self._folder = Path(array.store.root) / array.path
        self._done: set[tuple[int, ...]] = set()
        compressors = [] if array.shards else [_name(codec) for codec in array.compressors]
        self._size_of = _SIZES.get(compressors[-1]) if compressors else None
        # A filter may change the size of the values, for example from integers to floats.
        self._allowed = 2 * math.prod(array.chunks) * np.dtype(array.dtype).itemsize + _SLACK_BYTES

    def __call__(self, index: Index) -> None:
        """Check the chunks of the entries that are going to be read.

        Raises
        ------
        InputError
            If a chunk expands to more than the metadata of the array say.
        """
        array = self._array
        if self._size_of is None:
            return
        lengths = zip(index, array.chunks, strict=True)
        for place in product(*(range(part.start // n, -(-part.stop // n)) for part, n in lengths)):
            if place in self._done:
                continue
            file = self._folder / array.metadata.encode_chunk_key(place)
            if file.is_file() and self._size_of(file, self._allowed) > self._allowed:
                raise InputError(
                    f"the chunk {file} expands to more than the {self._allowed // 2} bytes of a chunk, so it is "
                    "corrupt; write it again"
                )
            self._done.add(place)


def _name(codec: Any) -> str:
    # Codecs of version 3 are those of zarr, those of version 2 of numcodecs.
    return str(getattr(codec, "codec_id", None) or codec.to_dict()["name"])


def _streamed(stream: Callable[[], Any], ratio: float) -> Callable[[Path, int], int]:
    """Return what counts the bytes that a stream expands to, from the size at which it could become large."""

    def size(path: Path, allowed: int) -> int:
        n_bytes, could_be_large = 0, path.stat().st_size * ratio > HARMLESS_BYTES
        packed = path.read_bytes() if could_be_large else b""
        # zarr finds damage itself, at the same place.
        with suppress(OSError, EOFError, zlib.error, lzma.LZMAError):
            # A file may hold several streams, one after the other.
            while packed and n_bytes <= allowed:
                expander = stream()
                n_bytes += len(expander.decompress(packed, allowed + 1 - n_bytes))
                packed = expander.unused_data
        return n_bytes

    return size


def _written_at(place: int) -> Callable[[Path, int], int]:
    """Return what reads the expanded size from four bytes of a chunk's header."""

    def size(path: Path, allowed: int) -> int:
        with path.open("rb") as file:
            head = file.read(place + 4)
        return int(struct.unpack_from("<I", head, place)[0]) if len(head) == place + 4 else 0

    return size


def _zstd_size(path: Path, allowed: int) -> int:
    """Return the content size in the header of a frame of zstd (RFC 8878); 0 where it has none."""
    with path.open("rb") as file:
        head = file.read(18)
    if len(head) < 18 or head[:4] != b"\x28\xb5\x2f\xfd":
        return 0
    flags = head[4]
    has_no_window = bool(flags >> 5 & 1)
    start = 5 + (not has_no_window) + (0, 1, 2, 4)[flags & 3]
    width = (int(has_no_window), 2, 4, 8)[flags >> 6]
    return int.from_bytes(head[start : start + width], "little")


_SIZES: Mapping[str, Callable[[Path, int], int]] = MappingProxyType(
    {
        "gzip": _streamed(partial(zlib.decompressobj, _GZIP), MAX_EXPANSION),
        "zlib": _streamed(zlib.decompressobj, MAX_EXPANSION),
        "bz2": _streamed(bz2.BZ2Decompressor, math.inf),
        "lzma": _streamed(lzma.LZMADecompressor, math.inf),
        "zstd": _zstd_size,
        "blosc": _written_at(4),
        "lz4": _written_at(0),
    }
)
"""Name of a compressor -> what returns the size to which a chunk expands, or any size above the allowed one."""
