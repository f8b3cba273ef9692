"""Writing of phantom files: a simulated stack with its truth."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from usdenoise.formats.hdf5.hdf5_writing import create_file


def write_phantom(
    path: Path,
    blocks: Iterable[Mapping[str, NDArray[Any]]],
    n_frames: int,
    truth: Mapping[str, NDArray[Any]],
    attributes: Mapping[str, Any],
    provenance: str,
) -> None:
    """Write a simulated stack block by block, time first, with its truth in the group truth.

    Parameters
    ----------
    path : Path
        The HDF5 file to write.
    blocks : iterable of mappings
        Consecutive frames: name -> (n, n_z, n_x[, n_y]) array. "iq" is the stack; the terms that it is the sum of
        may have any other name, and are written to truth/.
    n_frames : int
        Number of frames of all blocks together.
    truth : mapping
        Name -> array of the spatial shape, written after the last block. The arrays may be filled while the blocks
        are made.
    attributes : mapping
        Attributes of the stack.
    provenance : str
        JSON text on the software and the options that made the file.
    """
    with create_file(path) as file:
        start = 0
        for block in blocks:
            for name, values in block.items():
                place = name if name == "iq" else f"truth/{name}"
                if place not in file:
                    file.create_dataset(place, shape=(n_frames, *values.shape[1:]), dtype=values.dtype)
                file[place][start : start + len(values)] = values
            start += len(block["iq"])
        for name, values in truth.items():
            file.create_dataset(f"truth/{name}", data=values)
        file["iq"].attrs.update(attributes)
        file.attrs["usdenoise_provenance"] = provenance
