"""Some frames of a file as an acquisition, which any process on the same file system can read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.frame_source import StoredFile, last_file
from usdenoise.pipeline.frame_sources import frames_as_stack
from usdenoise.pipeline.inspection import SCALES
from usdenoise.pipeline.windows import Window
from usdenoise.sessions.blocks import in_order
from usdenoise.stack.acquisition import Acquisition


@dataclass(frozen=True)
class FileWindow:
    """Some frames of a file, a :class:`usdenoise.sessions.blocks.BlockReader`.

    Attributes
    ----------
    stored_file : StoredFile
        The file.
    window : Window
        The frames among those that are selected.
    """

    stored_file: StoredFile
    window: Window

    def read(self) -> Acquisition:
        """Return the frames."""
        with last_file.opened(self.stored_file) as source:
            return source.read(self.window.start, self.window.stop)

    def read_frames(self, numbers: NDArray[np.intp]) -> NDArray[Any]:
        """Return some frames, (n, pixels along each axis...) in the order t, z, x, y; `numbers` increase from 0."""
        with last_file.opened(self.stored_file) as source:
            rows = source.read_frames(self.window.start + numbers)
            _check_power(rows, self.stored_file.path)
            return frames_as_stack(rows, source.geometry, source.pixel_axes, in_order(source.geometry))


def _check_power(frames: NDArray[Any], path: Path) -> None:
    """Check that the power of frames fits in single precision, before they are estimated together with other blocks."""
    magnitudes = np.abs(frames)
    largest = np.max(magnitudes, where=np.isfinite(magnitudes), initial=0)
    if largest > SCALES[1]:
        raise InputError(
            f"the largest magnitude in {path} is {largest:.3g}, and its power must fit in single precision",
            remedy=f"scale the stack to at most {SCALES[1]:g}",
        )
