"""Measurements of the blocks of a session, one file for each block, so that a stopped session can resume."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OutputError
from usdenoise.files.hdf5_writing import create_file
from usdenoise.files.layout import scratch_array
from usdenoise.files.output_folder import OutputFolder, remove
from usdenoise.linalg.array_library import Numbers
from usdenoise.pipeline.series import BlockLags
from usdenoise.sessions.measured_block import BlockFindings, MeasuredBlock
from usdenoise.system.text import from_plain, plain, to_json

_KEY = "session.json"

LAGS = ("lags", "observed", "temporal")
"""Arrays that a series adds up."""


class BlocksOnDisk:
    """A folder of the measurements of blocks.

    Parameters
    ----------
    folder : Path
        The folder. It is made; if it was made for another key it is emptied.
    key : str
        Text on everything that the measurements depend on.

    Raises
    ------
    OutputError
        If the folder holds something else.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self._key = key
        if self._is_own():
            return
        is_empty = folder.is_dir() and not any(folder.iterdir())
        if os.path.lexists(folder) and not self.is_in(folder) and not is_empty:
            raise OutputError(
                f"{folder} is not a folder of spectra, so it is not replaced",
                remedy="move it away, or choose another output folder",
            )
        remove(folder)
        folder.mkdir(parents=True)
        # A truncated key is the key of no session, and the folder is emptied.
        (folder / _KEY).write_text(key)

    def on_disk(self, shape: tuple[int, int], dtype: np.dtype[np.inexact]) -> Numbers:
        """Return an array in a temporary file of the folder."""
        return scratch_array(self.folder, shape, dtype)

    def put(self, number: int, block: MeasuredBlock) -> None:
        """Store the findings and the arrays of a block, whole or not at all.

        Raises
        ------
        OutputError
            If another session has taken the folder, or the block cannot be written.
        """
        # Not every file system has the locks that keep another session out.
        if not self._is_own():
            raise OutputError(
                f"another session is writing to the folder {self.folder}",
                remedy="wait until it has ended, or choose another output folder",
            )
        with OutputFolder(self.folder, overwrite=True) as outputs:
            with create_file(outputs.reserve(self._place(number).name)) as file:
                if block.lags is not None:
                    file["power"] = block.power
                    for name in LAGS:
                        file[name] = getattr(block.lags, name)
                for name, image in block.images.items():
                    file[name] = image
                file.attrs["findings"] = to_json(plain(block.findings))
            outputs.commit()

    def has(self, number: int) -> bool:
        """Return whether a block is stored."""
        return self._place(number).exists()

    def lags(self, number: int) -> BlockLags:
        """Return what the series adds up of a stored block."""
        with h5py.File(self._place(number)) as file:
            arrays = {name: file[name][()] for name in LAGS}
        found = self.findings(number)
        return BlockLags(**arrays, has_own_noise=found.has_own_noise, has_own_depths=found.has_own_depths)

    def array(self, number: int, name: str) -> NDArray[np.floating]:
        """Return an array of a stored block."""
        with h5py.File(self._place(number)) as file:
            values: NDArray[np.floating] = file[name][()]
        return values

    def findings(self, number: int) -> BlockFindings:
        """Return the findings of a stored block."""
        with h5py.File(self._place(number)) as file:
            return from_plain(BlockFindings, json.loads(file.attrs["findings"]))

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Return whether a folder contains a store."""
        return (folder / _KEY).exists()

    def part(self, number: int) -> "BlocksOnDisk":
        """Return the store of one of several positions, a folder in this one."""
        return BlocksOnDisk(self.folder / f"pose_{number}", self._key)

    def _is_own(self) -> bool:
        try:
            return (self.folder / _KEY).read_text() == self._key
        except (OSError, ValueError):
            return False

    def _place(self, number: int) -> Path:
        return self.folder / f"block_{number:05d}.h5"
