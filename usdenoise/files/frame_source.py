"""The blocks of frames of a file, which any process on the same file system can read."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.file_state import check_unchanged, file_state
from usdenoise.files.layout import blocks_of_lines
from usdenoise.files.open_input import Input, open_input
from usdenoise.options.reading_options import ReadOptions, reading_options
from usdenoise.pipeline.frame_sources import ArrayBlock
from usdenoise.stack.frame_blocks import block_edges
from usdenoise.stack.geometry import Geometry


@dataclass(frozen=True)
class StoredFile:
    """A file that a process can open: its absolute path, how it is read, and its state when it was opened first."""

    path: Path
    how: ReadOptions
    precision: str | None
    state: Mapping[str, Any]

    @classmethod
    def at(cls, path: Path, reading: Mapping[str, Any], precision: str | None) -> "StoredFile":
        """Return a file with its current state; `reading` has fields of ReadOptions."""
        return cls(path.absolute(), reading_options(reading), precision, file_state(path) or {})


@dataclass(frozen=True)
class FileBlock:
    """Some frames of a file. A pickled block has no open file, and none where the filtered frames go.

    Attributes
    ----------
    stored_file : StoredFile
        The file.
    start, stop : int
        First frame, and the one after the last, among the selected frames.
    dtype : numpy.dtype
        Type of the values that are read.
    source : Input or None
        The open file; None in a process that has to open it.
    target : (n, n_pixels) array or None
        Where the filtered frames go; None if they are returned.
    """

    stored_file: StoredFile
    start: int
    stop: int
    dtype: np.dtype[Any]
    source: Input | None = None
    target: NDArray[Any] | None = None

    def read(self) -> NDArray[Any]:
        """Return the frames, (stop - start, n_pixels); see :meth:`usdenoise.files.open_input.Input.read_block`."""
        if self.source is not None:
            return self.source.read_block(self.start, self.stop, self.dtype)
        with last_file.opened(self.stored_file) as source:
            return source.read_block(self.start, self.stop, self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": None, "target": None}


class FileFrames:
    """The frames of an open file as blocks.

    Parameters
    ----------
    source : Input
        The open file.
    dtype : numpy.dtype, optional
        Type of the values that are read; by default the type of the input.
    target : (n_frames, n_pixels) array, optional
        Where the filtered frames go; by default nowhere.

    Attributes
    ----------
    stack : Geometry
        Axes, shape and scales of the selected frames.
    dtype : numpy.dtype
        Type of the values of the blocks.
    pixel_axes : str
        Spatial axes in the order in which a block numbers its pixels, the slowest first, as in the file.
    edges : (n_blocks + 1,) int array
        First frame of each block, and the number of frames. No chunk of the file is in two blocks.
    target : (n_frames, n_pixels) array or None
        Where the filtered frames go.

    Examples
    --------
    From the root of the repository:

    >>> with open_input("sample_data/phantom.h5") as source:
    ...     frames = FileFrames(source)
    ...     [block.read().shape for block in frames.items()], frames.pixel_axes
    ([(75, 4032), (75, 4032)], 'zx')
    """

    def __init__(
        self, source: Input, dtype: np.dtype[Any] | None = None, target: NDArray[Any] | None = None
    ) -> None:
        self.stack: Geometry = source.geometry
        self.dtype, self.pixel_axes = dtype or source.dtype, source.pixel_axes
        self.edges = _edges(source)
        self._source, self.target = source, target

    def items(self) -> list[FileBlock]:
        """Return the blocks in the order of time."""
        source = self._source
        stored_file = StoredFile(source.path.absolute(), source.how, source.precision, source.state)
        return [
            FileBlock(
                stored_file,
                start,
                stop,
                self.dtype,
                self._source,
                None if self.target is None else self.target[start:stop],
            )
            for start, stop in pairwise(self.edges.tolist())
        ]


@dataclass(frozen=True)
class LineBlock(ArrayBlock):
    """Frames stored pixel after pixel. The filtered frames overwrite them, frame after frame."""

    def read(self) -> NDArray[Any]:
        """Return a copy of the frames, (n, n_pixels): the filter overwrites their memory while it uses them."""
        return super().read().copy(order="K")


class LineFrames:
    """The frames of a file that was read into a temporary file, as blocks that are stored pixel after pixel.

    Parameters
    ----------
    source : Input
        The open file.
    lines : (n_frames, pixels along each axis...) array
        Its frames, from :meth:`usdenoise.files.open_input.Input.read_lines`.

    Attributes
    ----------
    target : (n_frames, n_pixels) array
        The memory of the blocks, in which the filtered frames come frame after frame.
    """

    def __init__(self, source: Input, lines: NDArray[Any]) -> None:
        self.stack: Geometry = source.geometry
        self.dtype, self.pixel_axes = source.dtype, source.pixel_axes
        self._lines, self.target = lines, lines.reshape(len(lines), -1)

    def items(self) -> list[LineBlock]:
        """Return the blocks in the order of time."""
        blocks = [
            (start, lines.reshape(-1, lines.shape[-1]).T) for start, lines in blocks_of_lines(self._lines)
        ]
        return [
            LineBlock(
                start,
                start + len(frames),
                frames,
                self.dtype,
                self.stack.name,
                self.target[start : start + len(frames)],
            )
            for start, frames in blocks
        ]


def _edges(source: Input) -> NDArray[np.intp]:
    """Return the first frame of each block, and the number of frames."""
    n_frames, frames, length = source.n_frames, source.frames, source.chunk_frames
    starts = np.arange(frames.start // length, -(-frames.stop // length)) * length
    # The first selected frame of each chunk.
    firsts = np.unique(-(-np.maximum(starts - frames.start, 0) // frames.step))
    firsts = firsts[firsts < n_frames]
    return block_edges(n_frames, source.geometry.n_pixels, firsts)


class _LastFile:
    """The file of which this process has read a block last; it stays open until another one is read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stored_file: StoredFile | None = None
        self._files = ExitStack()
        self._source: Input

    @contextmanager
    def opened(self, stored_file: StoredFile) -> Iterator[Input]:
        """Yield an open file, for one thread at a time."""
        with self._lock:
            if self._stored_file != stored_file:
                self._close()
                self._source = self._files.enter_context(
                    open_input(stored_file.path, vars(stored_file.how), stored_file.precision)
                )
                # The file may have been written again since.
                check_unchanged(stored_file.path, stored_file.state)
                self._stored_file = stored_file
            yield self._source

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._stored_file = None
        self._files.close()


last_file = _LastFile()
