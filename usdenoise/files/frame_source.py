"""Recordings of files, whose frames any process on the same file system can read."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.file_state import check_unchanged, file_state
from usdenoise.files.layout import chunks_of_lines
from usdenoise.files.open_input import Input, open_input
from usdenoise.options.reading_options import ReadOptions, reading_options
from usdenoise.pipeline.recording import ArrayFrames, Chunk, Here, Recording, chunk_edges


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
class FileFrames:
    """Frames of a file.

    Attributes
    ----------
    stored_file : StoredFile
        The file.
    first, stop : int
        First frame, and the one after the last, among the selected frames.
    dtype : numpy.dtype
        Type of the values that are read.
    source : Here
        The open file. Another process opens the file itself; by default this one, too.
    """

    stored_file: StoredFile
    first: int
    stop: int
    dtype: np.dtype[Any]
    source: Here = field(default_factory=Here, compare=False)

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.stop - self.first

    def read(self) -> NDArray[Any]:
        """Return all frames as a chunk."""
        with self._opened() as source:
            return source.read_chunk(self.first, self.stop, self.dtype)

    def pick(self, numbers: NDArray[np.intp]) -> NDArray[Any]:
        """Return some frames as a chunk."""
        with self._opened() as source:
            return source.pick(self.first + numbers, self.dtype)

    def cut(self, first: int, stop: int) -> "FileFrames":
        """Return the frames [first, stop)."""
        return replace(self, first=self.first + first, stop=self.first + stop)

    @contextmanager
    def _opened(self) -> Iterator[Input]:
        if self.source.value is not None:
            yield self.source.value
            return
        with last_file.opened(self.stored_file) as source:
            yield source


def file_recording(source: Input) -> Recording:
    """Return the recording of an open file, which each pass reads again; no storage chunk is in two chunks.

    Examples
    --------
    From the root of the repository:

    >>> with open_input("sample_data/phantom.h5") as source:
    ...     [chunk.read().shape for chunk in file_recording(source).chunks]
    [(75, 4032), (75, 4032)]
    """
    stored_file = StoredFile(source.path.absolute(), source.how, source.precision, source.state)
    n_frames, frames, length = source.n_frames, source.frames, source.chunk_frames
    starts = np.arange(frames.start // length, -(-frames.stop // length)) * length
    # The first selected frame of each storage chunk.
    firsts = np.unique(-(-np.maximum(starts - frames.start, 0) // frames.step))
    edges = chunk_edges(n_frames, source.geometry.n_pixels, firsts[firsts < n_frames])
    chunks = [
        Chunk(first, FileFrames(stored_file, first, stop, source.dtype, Here(source)))
        for first, stop in pairwise(edges.tolist())
    ]
    return Recording.of_chunks(source.geometry, source.dtype, chunks)


def lines_recording(source: Input, lines: NDArray[Any]) -> Recording:
    """Return the recording of a file that was read into a temporary file, stored pixel after pixel.

    Parameters
    ----------
    source : Input
        The file.
    lines : (n_frames, pixels along each axis...) array
        Its frames, from :meth:`usdenoise.files.open_input.Input.read_lines`. The filtered frames may overwrite them, frame
        after frame: each chunk is copied when it is read.
    """
    geometry, dtype = source.geometry, source.dtype
    axes = geometry.pixel_axes + "t"
    chunks = [
        Chunk(first, ArrayFrames(values, axes, dtype, geometry.name, is_copied=True))
        for first, values in chunks_of_lines(lines)
    ]
    return Recording.of_chunks(geometry, dtype, chunks)


class _LastFile:
    """The file of which this process has read a chunk last; it stays open until another one is read."""

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
