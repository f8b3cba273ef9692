"""IQ recordings of Iconeus scanners: a .raw file of bare values, and its header in a .hraw file beside it.

The values are little-endian complex64 with the axes block, frame, angle, x (lateral), y (elevation) and z (depth). The
header is an HDF5 file with the numbered fields F1 to F13.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.contents import Contents, Stack, describe_array
from usdenoise.files.input_files import ICONEUS, ICONEUS_HEADER, header_path, is_iconeus
from usdenoise.files.stored import Index, StoredArray
from usdenoise.linalg.array_library import Numbers
from usdenoise.options import ReadOptions
from usdenoise.stack.geometry import Coordinate
from usdenoise.stack.labels import Found

DAMAGED = "cannot be read, as its header (.hraw) is damaged; copy both files again"
_LEGACY_BYTES = 117
"""Bytes before the values in files of the legacy format."""


@dataclass(frozen=True)
class _Header:
    """Shape and scales of a recording.

    `shape` is that of a block: frames, angles, x, y and z; `offset` the number of bytes before the values; `fields` has the
    other values by the numbers of their fields.
    """

    shape: tuple[int, int, int, int, int]
    n_blocks: int
    offset: int
    fields: dict[int, NDArray[np.float64]]


def read_iconeus(path: Path, read_options: ReadOptions) -> Contents | None:
    """Open a recording; return None for a file of another format.

    Its blocks are one stack, one after the other. Angles of a frame are compounded.

    Parameters
    ----------
    path : Path
        The .raw file.
    read_options : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If the file ends within its first block.
    """
    if not is_iconeus(path):
        if path.suffix.lower() == ICONEUS_HEADER:
            raise InputError(f"{path} is the header of an Iconeus recording; give the {ICONEUS} file")
        return None
    header = _read_header(path)
    n_frames, n_angles, *lengths = header.shape
    block_bytes = 8 * int(np.prod(header.shape, dtype=object))
    held = os.path.getsize(path) - header.offset
    n_blocks = min(held // block_bytes, header.n_blocks)
    if n_blocks < 1:
        raise InputError(f"{path} is truncated: a block has {block_bytes} bytes by its header; copy it again")
    kept = [axis for axis in range(3) if axis != 1 or lengths[1] > 1]
    letters = "".join("xyz"[axis] for axis in kept)

    def read(index: Index) -> Numbers:
        # The file is mapped again for each slab: pages that were read count as memory of this process.
        whole = np.memmap(path, "<c8", "r", header.offset, (n_blocks * n_frames, *header.shape[1:]))
        spatial = dict(zip(kept, index[1:], strict=True))
        values = whole[(index[0], slice(None), *(spatial.get(axis, 0) for axis in range(3)))]
        # The sum over angles is the compound image; the mean has the scale of one angle.
        return np.array(values[:, 0] if n_angles == 1 else values.mean(1), np.complex64)

    shape = (n_blocks * n_frames, *(lengths[axis] for axis in kept))
    array = StoredArray(shape, np.dtype(np.complex64), read)
    words = [f"{n_blocks} blocks of {n_frames} frames"] if n_blocks > 1 else []
    notes = []
    if n_angles > 1:
        words.append(f"mean of {n_angles} angles")
        notes.append(f"the {n_angles} angles of each frame are compounded: their mean is filtered")
    if n_blocks < header.n_blocks:
        notes.append(
            f"{n_blocks} of {header.n_blocks} blocks are complete: the recording stopped, or its copy is truncated"
        )
    if (extra := held - header.n_blocks * block_bytes) > 0:
        notes.append(f"the recording has {extra} bytes more than its header specifies; they are not read")
    stack = Stack(
        "iq",
        array,
        layout=", ".join(words),
        time_last=False,
        metadata=lambda: _header_metadata(header, "t" + letters, header_path(path).name),
        assumptions=tuple(notes),
        block_frames=n_frames if n_blocks > 1 else None,
    )
    return Contents("Iconeus IQ", (stack,), {"iq": describe_array(array)})


def _read_header(path: Path) -> _Header:
    fields: dict[int, NDArray[np.float64]] = {}
    with h5py.File(header_path(path), "r") as file:
        for number in (1, 2, 3, 4, 6, 8, 9, 11, 12):
            if f"F{number}" not in file and number not in (9, 11):
                continue
            # Each number is stored as 1005 * number of the field * value + 72.
            stored = np.asarray(file[f"F{number}"][()], np.float64).reshape(-1)
            fields[number] = (stored - 72) / (1005 * number)
    n_x, n_y, n_z, n_angles, n_frames = (round(float(value)) for value in fields[9][:5])
    n_blocks = round(float(fields[11][0]))
    if min(n_x, n_y, n_z, n_angles, n_frames, n_blocks) < 1:
        raise ValueError("a length below 1")
    offset = _LEGACY_BYTES if 12 in fields and fields[12][0] > 0.5 else 0
    return _Header((n_frames, n_angles, n_x, n_y, n_z), n_blocks, offset, fields)


def _header_metadata(header: _Header, axes: str, name: str) -> Found:
    fields, n_z = header.fields, header.shape[-1]
    pitches = fields.get(8, np.empty(0))[:3]
    spacing = {letter: float(f"{pitch:.7g}") for letter, pitch in zip("xyz", pitches, strict=False)}
    coordinates: dict[str, Coordinate] = {}
    if "y" not in axes and "y" in spacing:
        coordinates["y"] = Coordinate(np.zeros(1), None, {"voxdim": spacing["y"]})
    if 6 in fields and "z" in spacing:
        near, far = fields[6][:2]
        # The depths are those of the image, from its first pixel or its edge.
        if abs(far - near - n_z * spacing["z"]) <= 1.5 * spacing["z"]:
            coordinates["z"] = Coordinate(near + spacing["z"] * np.arange(n_z))
    scales = {"frame_rate_hz": (4, 1.0), "center_frequency_hz": (1, 1e6), "sound_speed_m_s": (3, 1.0)}
    scales["pulse_repetition_frequency"] = (2, 1.0)
    return {
        "axes": (axes, "layout of Iconeus"),
        "spacing_mm": (spacing, f"F8 of {name}"),
        "coordinates": (coordinates, f"F6 and F8 of {name}"),
        **{
            key: (float(f"{unit * fields[number][0]:.9g}"), f"F{number} of {name}")
            for key, (number, unit) in scales.items()
            if number in fields
        },
    }
