"""A walk over the tags of a version 5 MATLAB file, before scipy reads it.

scipy looks the type of an element up in a table without a check of its length, so a damaged tag can end
the process. What is wrong is found here first. (Layout: MathWorks, MAT-File Format, 2019.)
"""

import struct
import zlib
from pathlib import Path
from typing import BinaryIO

_NUMERIC = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18})
_MATRIX, _COMPRESSED = 14, 15
_HEAD_BYTES = 4096
# mxCELL, mxSTRUCT, mxOBJECT and the like hold further matrices, whose elements are not walked.
_FIRST_PLAIN_CLASS = 4


class DamagedTagError(ValueError):
    """An element has a type or a length that the format does not have."""


def check_tags(path: Path) -> None:
    """Check the types and lengths of the elements of a version 5 file; other versions pass.

    In compressed elements the tags within the first few kilobytes are checked; their checksum guards the
    rest.

    Raises
    ------
    DamagedTagError
        If a type is unknown, or an element runs past the end of its file or matrix.
    """
    with path.open("rb") as file:
        header = file.read(128)
        if not header.startswith(b"MATLAB 5.0"):
            return
        order = "<" if header[126:128] == b"IM" else ">"
        end = path.stat().st_size
        position = 128
        while position + 8 <= end:
            file.seek(position)
            kind, length = struct.unpack(order + "II", file.read(8))
            if kind not in (_MATRIX, _COMPRESSED) or position + 8 + length > end:
                raise DamagedTagError(f"element of type {kind} and {length} bytes")
            if kind == _MATRIX:
                _check_matrix(file, position + 8, position + 8 + length, order)
            else:
                _check_compressed(file.read(min(length, _HEAD_BYTES)), order)
            position += 8 + length


def _check_matrix(file: BinaryIO, position: int, end: int, order: str) -> None:
    plain = True
    number = 0
    while position + 8 <= end and (plain or number < 3):
        file.seek(position)
        tag = file.read(16)
        size = _element(tag, order)
        if number == 0:
            plain = tag[8 if order == "<" else 11] >= _FIRST_PLAIN_CLASS
        if position + size > end + 7:
            raise DamagedTagError("an element runs past the end of its matrix")
        position += size
        number += 1


def _check_compressed(packed: bytes, order: str) -> None:
    head = zlib.decompressobj().decompress(packed, 1 << 16)
    if len(head) < 24:
        return
    kind, _ = struct.unpack(order + "II", head[:8])
    if kind != _MATRIX:
        raise DamagedTagError(f"compressed element of type {kind}")
    position, number, plain = 8, 0, True
    while position + 16 <= len(head) and (plain or number < 3):
        tag = head[position : position + 16]
        if number == 0:
            plain = tag[8 if order == "<" else 11] >= _FIRST_PLAIN_CLASS
        position += _element(tag, order)
        number += 1


def _element(tag: bytes, order: str) -> int:
    """Bytes of an element with its tag and padding; a small element keeps its data in the tag."""
    kind, length = struct.unpack(order + "II", tag[:8])
    if kind >> 16:
        kind, length, size = kind & 0xFFFF, kind >> 16, 8
        if length > 4:
            raise DamagedTagError(f"small element of {length} bytes")
    else:
        size = 8 + -(-length // 8) * 8
    if kind not in _NUMERIC | {_MATRIX}:
        raise DamagedTagError(f"element of type {kind}")
    return size
