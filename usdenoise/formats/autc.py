"""AUTC's bf*part*.dat files: blocks of frames, each with a header.

A header is ten 32-bit numbers: index from 1, number of items, n_z, n_x, n_frames, and five unused ones. The values
follow as complex64 (n_x, n_z, n_frames). (Layout: ConfUSIus.) A folder of parts is one acquisition, and its blocks
are in the order of their indices.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from usdenoise.errors import InputError
from usdenoise.formats.contents import Contents, arranged
from usdenoise.formats.file_values import in_file
from usdenoise.formats.stored import StoredArray, concatenated
from usdenoise.options.reading_options import ReadOptions

PATTERN = "bf*part*.dat"
_HEADER = struct.Struct("<10i")
_MOST_PIXELS = 1 << 24

DAMAGED = "is truncated or corrupt: it cannot be read as a file of AUTC; copy it again"


def recognise(head: bytes) -> bool:
    """Check whether the first bytes of a file are a header of AUTC."""
    if len(head) < _HEADER.size:
        return False
    index, _, n_z, n_x, n_frames, *_ = _HEADER.unpack_from(head)
    return bool(0 < index < 1 << 24 and min(n_z, n_x, n_frames) > 0 and n_z * n_x < _MOST_PIXELS)


@contextmanager
def open_contents(path: Path, how: ReadOptions) -> Iterator[Contents]:
    """Open an AUTC file or a folder of them, whose one stack is read only where it is used.

    Parameters
    ----------
    path : Path
        The file or the folder.
    how : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If a part is truncated, if there is no block of frames, or if blocks differ in their number of pixels.
    """
    parts = sorted(path.glob(PATTERN)) if path.is_dir() else [path]
    blocks: list[tuple[int, StoredArray]] = []
    for part in parts:
        blocks += _blocks(part)
    blocks.sort(key=lambda block: block[0])
    if not blocks:
        raise InputError(f"{path} holds no block of frames; check how it was written")
    if len({block.shape[:2] for _, block in blocks}) != 1:
        raise InputError(
            f"the blocks of {path} differ in their number of pixels; check that they belong together"
        )
    siblings = len(list(path.parent.glob(PATTERN))) if path.is_file() else 1
    notes = (
        (f"{path.name} is one of {siblings} parts; give the folder instead to read them all",)
        if siblings > 1
        else ()
    )
    stack = arranged(
        "iq",
        concatenated([block for _, block in blocks], 2),
        how.n_axes,
        layout=f"AUTC, {len(blocks)} blocks",
        metadata=lambda: {"axes": ("xzt", "layout of AUTC")},
        assumptions=notes,
    )
    yield Contents("AUTC .dat", () if stack is None else (stack,), {"iq": "3-D complex64"})


def _blocks(path: Path) -> list[tuple[int, StoredArray]]:
    """Return the blocks of one file with their indices."""
    size, position = path.stat().st_size, 0
    if size == 0:
        return []
    blocks = []
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            head = file.read(_HEADER.size)
            if not recognise(head):
                raise InputError(
                    f"{path} is truncated or corrupt: at byte {position} there is no header of an AUTC block; "
                    "copy it again"
                )
            index, _, n_z, n_x, n_frames, *_ = _HEADER.unpack(head)
            end = position + _HEADER.size + n_x * n_z * n_frames * 8
            if end > size:
                raise InputError(
                    f"{path} is truncated: block {index} of {n_x} x {n_z} x {n_frames} ends at byte {end}, but the "
                    f"file at {size}; copy it again"
                )
            values = in_file(path, position + _HEADER.size, (n_x, n_z, n_frames), np.dtype("<c8"))
            blocks.append((index, values))
            position = end
    return blocks
