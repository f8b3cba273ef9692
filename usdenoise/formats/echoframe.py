"""EchoFrame's .dat files, whose shape is given by ScanParameters.mat in the same folder.

A file begins with five 64-bit numbers. The second is the header's length in bytes, the third the number of blocks,
and the fifth the bytes of padding after each block. Blocks of complex64 (volumes, x, 1, z) follow. (Layout:
ConfUSIus.)
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from usdenoise.errors import InputError
from usdenoise.formats.contents import Contents, Found, arranged
from usdenoise.formats.file_values import in_file
from usdenoise.formats.hdf5.hdf5_items import member
from usdenoise.formats.hdf5.hdf5_metadata import numbers, small_number
from usdenoise.formats.hdf5.hdf5_reading import open_file
from usdenoise.formats.stored import concatenated
from usdenoise.options.reading_options import ReadOptions
from usdenoise.stack.coordinates import pitch

PARAMETERS = "ScanParameters.mat"
_HEADER = struct.Struct("<5Q")

DAMAGED = "is truncated or corrupt: it cannot be read as a file of EchoFrame; copy it again"


def recognise(path: Path, head: bytes) -> bool:
    """Check whether the first bytes of a file are those of an EchoFrame file of this length."""
    if len(head) < _HEADER.size:
        return False
    _, header_size, n_blocks, _, padding = _HEADER.unpack_from(head)
    size = path.stat().st_size
    return bool(
        _HEADER.size <= header_size <= 1 << 20 and 0 < n_blocks <= 1 << 32 and padding < max(size, 1 << 20)
    )


@contextmanager
def open_contents(path: Path, how: ReadOptions) -> Iterator[Contents]:
    """Open an EchoFrame file, whose one stack is read only where it is used.

    Parameters
    ----------
    path : Path
        The .dat file.
    how : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If ScanParameters.mat is missing or does not give the shape, or if the .dat file is shorter than its header
        and this shape say.
    """
    parameters = path.parent / PARAMETERS
    if not parameters.exists():
        raise InputError(
            f"{path} looks like a file of EchoFrame, but {PARAMETERS}, which gives its shape, is not in the same "
            "folder; put it there"
        )
    with open_file(parameters) as file:
        shape, found = _parameters(file, path)
    with path.open("rb") as raw:
        _, header_size, n_blocks, _, padding = _HEADER.unpack(raw.read(_HEADER.size))
    n_volumes, n_x, n_z = shape
    block_bytes = n_volumes * n_x * n_z * 8
    needed = header_size + n_blocks * (block_bytes + padding) - padding
    size = path.stat().st_size
    if size < needed:
        raise InputError(
            f"{path} is truncated: {n_blocks} blocks of {n_volumes} x {n_x} x {n_z} need {needed} bytes, but it "
            f"holds {size}; copy it again, or check that {PARAMETERS} belongs to it"
        )
    step = block_bytes + padding
    starts = range(header_size, header_size + n_blocks * step, step)
    blocks = [in_file(path, at, shape, np.dtype("<c8")) for at in starts]
    stack = arranged(
        "iq",
        concatenated(blocks, 0),
        how.n_axes,
        layout=f"EchoFrame, {n_blocks} blocks",
        metadata=lambda: found,
    )
    yield Contents("EchoFrame .dat", () if stack is None else (stack,), {"iq": "3-D complex64"})


def _parameters(file: h5py.File, path: Path) -> tuple[tuple[int, int, int], Found]:
    axes = {"x": numbers(member(file, "ReconSpec/xAxis")), "z": numbers(member(file, "ReconSpec/zAxis"))}
    n_volumes = numbers(member(file, "ReceiveSpec/nRepeats"))
    if n_volumes is None or any(axis is None for axis in axes.values()) or not 0 < n_volumes[0] < 1 << 31:
        raise InputError(
            f"{PARAMETERS} next to {path} lacks ReconSpec/xAxis, ReconSpec/zAxis or ReceiveSpec/nRepeats, which give "
            "the shape of the stack; check that it is the right file"
        )
    cropped = small_number(member(file, "ReconSpec/cropBF"))
    region = numbers(member(file, "ReconSpec/croppingROI"))
    if cropped and region is not None and len(region) == 4:
        first_z, last_z, first_x, last_x = (int(edge) for edge in region)
        # The edges count from 1 as in MATLAB, and the last pixel belongs to the region.
        axes = {"x": axes["x"][first_x - 1 : last_x], "z": axes["z"][first_z - 1 : last_z]}
    shape = (int(n_volumes[0]), len(axes["x"]), len(axes["z"]))
    found: dict[str, tuple[Any, str]] = {"axes": ("txz", "layout of EchoFrame")}
    place = f"{PARAMETERS}: "
    spacing = {letter: pitch(axis, 1.0) for letter, axis in axes.items()}
    if all(spacing.values()):
        found["spacing_mm"] = (spacing, place + "ReconSpec/xAxis and zAxis in mm")
    for key, name in (("center_frequency_hz", "ProbeSpec/Fc"), ("sound_speed_m_s", "ReconSpec/c0")):
        value = small_number(member(file, name))
        if value is not None:
            found[key] = (value, place + name)
    microseconds, angles = (
        small_number(member(file, "ReceiveSpec/transmitReceiveTimeMus")),
        member(file, "TransmitSpec/steerX"),
    )
    if microseconds and isinstance(angles, h5py.Dataset) and angles.size:
        rate = 1e6 / microseconds / angles.size
        found["frame_rate_hz"] = (rate, place + "ReceiveSpec/transmitReceiveTimeMus and the number of angles")
    return shape, found
