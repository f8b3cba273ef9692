"""What was measured of the blocks of a session, one file a block, so that a session that was stopped goes on."""

import json
import os
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from usdenoise.errors import OutputError
from usdenoise.files.output_folder import remove
from usdenoise.sessions.measured_block import BlockFindings, MeasuredBlock
from usdenoise.system.plain_records import from_plain, plain
from usdenoise.system.provenance import to_json

_KEY = "session.json"


class SpectraStore:
    """A folder of the spectra of blocks.

    Parameters
    ----------
    folder : Path
        The folder. It is made; if it was made for another key it is emptied.
    key : str
        Text on everything that the spectra depend on.

    Raises
    ------
    OutputError
        If the folder holds something else.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        place = folder / _KEY
        try:
            is_same = place.read_text() == key
        except (OSError, ValueError):
            is_same = False
        if is_same:
            return
        is_empty = folder.is_dir() and not any(folder.iterdir())
        if os.path.lexists(folder) and not self.is_in(folder) and not is_empty:
            raise OutputError(
                f"{folder} is not a folder of spectra, so it is not replaced",
                remedy="move it away, or choose another output folder",
            )
        remove(folder)
        folder.mkdir(parents=True)
        waiting = place.with_suffix(".partial")
        waiting.write_text(key)
        os.replace(waiting, place)

    def put(self, number: int, block: MeasuredBlock) -> None:
        """Store the findings and the arrays of a block, whole or not at all."""
        place = self._place(number)
        waiting = place.with_suffix(".partial")
        with h5py.File(waiting, "w") as file:
            for name, values in block.arrays.items():
                file[name] = values
            file.attrs["findings"] = to_json(plain(block.findings))
        os.replace(waiting, place)

    def has(self, number: int) -> bool:
        """Return whether a block is stored."""
        return self._place(number).exists()

    def array(self, number: int, name: str) -> NDArray[Any]:
        """Return an array of a stored block."""
        with h5py.File(self._place(number)) as file:
            values: NDArray[Any] = file[name][()]
        return values

    def findings(self, number: int) -> BlockFindings:
        """Return the findings of a stored block."""
        with h5py.File(self._place(number)) as file:
            return from_plain(BlockFindings, json.loads(file.attrs["findings"]))

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Return whether a folder is that of a store."""
        return (folder / _KEY).exists()

    @staticmethod
    def remove(folder: Path) -> None:
        """Remove the folder of a store, if it is there."""
        remove(folder)

    def _place(self, number: int) -> Path:
        return self.folder / f"block_{number:05d}.h5"
