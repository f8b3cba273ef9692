"""The elements of a MATLAB file of version 5 to 7, one a variable (MathWorks, MAT-File Format, 2019)."""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_COMPLEX_FLAG = 0x08


@dataclass(frozen=True)
class Element:
    """A variable in its file.

    Attributes
    ----------
    start : int
        First byte.
    n_bytes : int
        Number of bytes, including the tag.
    is_complex : bool
        Whether its values are complex.
    """

    start: int
    n_bytes: int
    is_complex: bool


def elements(path: Path) -> list[Element]:
    """Return the variables of a file, in its order; none for a file of version 4.

    Raises
    ------
    ValueError
        If a tag is damaged, or the file ends within a variable.
    """
    arrays = []
    end = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        # scipy takes a file as version 4 if one of its first 4 bytes is zero, whatever its header contains.
        if 0 in header[:4]:
            return []
        order = "<" if header[126:128] == b"IM" else ">"
        start = HEADER_BYTES
        while start + 8 <= end:
            file.seek(start)
            kind, length = struct.unpack(order + "II", file.read(8))
            if kind not in (_MATRIX, _COMPRESSED) or start + 8 + length > end:
                raise ValueError(f"element of type {kind} and {length} bytes")
            head = file.read(min(length, 256))
            if kind == _COMPRESSED:
                head = zlib.decompressobj().decompress(head, 24)[8:]
            (flags,) = struct.unpack_from(order + "I", head, 8)
            arrays.append(Element(start, 8 + length, bool(flags >> 8 & _COMPLEX_FLAG)))
            start += 8 + length
    return arrays
