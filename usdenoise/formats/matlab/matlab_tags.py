"""Check of the tags of a version 5 MATLAB file, and of the headers of a version 4 one, before scipy reads the file.

scipy uses the type of an element as an index into a table without checking the table's length, so a damaged tag can
end the process. This check finds such a tag first. (Layout: MathWorks, MAT-File Format, 2019.)
"""

import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Literal

_NUMERIC = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18})
_MATRIX, _COMPRESSED = 14, 15
_HEAD_BYTES, _PIECE_BYTES = 4096, 1 << 16
# Classes mxDOUBLE to mxUINT64. Such an array has 4 elements (flags, dimensions, name, real part), or 5 if it is
# complex. Arrays of other classes may hold further matrices.
_NUMBERS, _DEEPEST = range(6, 16), 64
_COMPLEX_FLAG = 0x08


class DamagedTagError(ValueError):
    """An element has a type or a length that the format does not have."""


class _Unpacked:
    """Bytes to which a compressed element expands, a piece at a time, read as from a file."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._left = file, length
        self._zlib = zlib.decompressobj()
        self._ready = b""

    def read(self, count: int) -> bytes:
        pieces = []
        while count:
            if not self._ready:
                packed = self._zlib.unconsumed_tail
                if not packed:
                    packed = self._file.read(min(self._left, _HEAD_BYTES))
                    self._left -= len(packed)
                self._ready = self._zlib.decompress(packed, _PIECE_BYTES)
                if not self._ready and not packed:
                    break
            pieces.append(self._ready[:count])
            count -= len(pieces[-1])
            self._ready = self._ready[len(pieces[-1]) :]
        return b"".join(pieces)

    def seek(self, count: int, whence: Literal[1]) -> None:
        """Skip bytes."""
        while count:
            taken = len(self.read(min(count, _PIECE_BYTES)))
            if not taken:
                return
            count -= taken


def check_tags(path: Path) -> list[tuple[bool, int]]:
    """Check the types and lengths of the elements of a version 5 file, and describe its variables.

    Of a version 4 file the lengths are checked. Files of other versions pass. Of a compressed array of numbers only the
    head is checked, because a checksum guards the rest.

    Returns
    -------
    list of (bool, int)
        For each variable, in the order of the file, whether it is complex, and its bytes once expanded. The list is
        empty for other versions.

    Raises
    ------
    DamagedTagError
        If a type is unknown, or an element runs past the end of its file or matrix.
    """
    variables = []
    with path.open("rb") as file:
        header = file.read(128)
        # scipy takes a file as version 4 if one of its first 4 bytes is zero, whatever its header says.
        if 0 in header[:4]:
            _check_version_4(file, path.stat().st_size)
        if len(header) < 128 or 0 in header[:4]:
            return []
        order = "<" if header[126:128] == b"IM" else ">"
        end = path.stat().st_size
        position = 128
        while position + 8 <= end:
            file.seek(position)
            kind, length = struct.unpack(order + "II", file.read(8))
            if kind not in (_MATRIX, _COMPRESSED) or position + 8 + length > end:
                raise DamagedTagError(f"element of type {kind} and {length} bytes")
            if kind == _MATRIX:
                variables.append((_check_matrix(file, length, order, 0), length))
            else:
                unpacked = _Unpacked(file, length)
                head = unpacked.read(8)
                inner, size = struct.unpack(order + "II", head) if len(head) == 8 else (0, 0)
                if inner != _MATRIX:
                    raise DamagedTagError(f"compressed element of type {inner}")
                variables.append((_check_matrix(unpacked, size, order, 0), size))
            position += 8 + length
    return variables


def _check_version_4(file: BinaryIO, end: int) -> None:
    """Check that the names and the values of a version 4 file are within the file, which scipy takes for granted."""
    position = 0
    while position + 20 <= end:
        file.seek(position)
        head = file.read(20)
        # The first number is below 5000 in the byte order of the file.
        order = "<" if struct.unpack("<I", head[:4])[0] < 5000 else ">"
        kind, n_rows, n_columns, is_complex, n_letters = struct.unpack(order + "5I", head)
        size = (8, 4, 4, 2, 2, 1)[min(kind // 10 % 10, 5)]
        position += 20 + n_letters + n_rows * n_columns * size * (1 + (is_complex == 1))
        if position > end:
            raise DamagedTagError(f"a matrix that ends at byte {position} of {end}")


def _check_matrix(stream: BinaryIO | _Unpacked, length: int, order: str, depth: int) -> bool:
    """Check the elements of one matrix, and return whether it is complex."""
    if depth > _DEEPEST:
        raise DamagedTagError("cells or structs within one another without end")
    kind_of_array, is_complex = 0, False
    left, number = length, 0
    while left >= 8:
        tag = stream.read(8)
        if len(tag) < 8:
            raise DamagedTagError("an element runs past the end of its matrix")
        kind, size, rest = _element(tag, order)
        left -= 8 + rest
        # The last element may lack its padding of up to 7 bytes.
        if left < -7:
            raise DamagedTagError("an element runs past the end of its matrix")
        if number == 0:
            flags = stream.read(min(rest, 8))
            stream.seek(rest - len(flags), 1)
            word = struct.unpack(order + "I", flags[:4])[0] if len(flags) >= 4 else 0
            kind_of_array, is_complex = word & 0xFF, bool(word >> 8 & _COMPLEX_FLAG)
        elif kind == _MATRIX:
            if size:
                _check_matrix(stream, size, order, depth + 1)
        elif number == 3 and depth == 0 and kind_of_array in _NUMBERS and isinstance(stream, _Unpacked):
            return is_complex
        else:
            stream.seek(rest, 1)
        number += 1
    # scipy reads an imaginary part whenever the flag says so, even if the file has none. More elements than it reads do
    # no harm: Octave writes those of a sparse matrix for sparse truth values.
    if kind_of_array in _NUMBERS and number < 4 + is_complex:
        raise DamagedTagError(f"an array of {number} elements")
    stream.seek(max(left, 0), 1)
    return is_complex


def _element(tag: bytes, order: str) -> tuple[int, int, int]:
    """Return the type and length of an element, and its bytes behind the tag; a small one has its data in the tag."""
    kind, length = struct.unpack(order + "II", tag)
    rest = -(-length // 8) * 8
    if kind >> 16:
        kind, length, rest = kind & 0xFFFF, kind >> 16, 0
        if length > 4:
            raise DamagedTagError(f"small element of {length} bytes")
    if kind not in _NUMERIC | {_MATRIX}:
        raise DamagedTagError(f"element of type {kind}")
    # A matrix within a matrix has no padding.
    return kind, length, length if kind == _MATRIX else rest
