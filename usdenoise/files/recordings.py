"""Acquisitions of files: read or described in one call, or as recordings whose frames any process can read."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from threading import Lock
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.contents import MAX_METADATA_ITEMS, Candidate, guard, known_first
from usdenoise.files.input_files import check_unchanged
from usdenoise.files.layout import chunks_of_lines
from usdenoise.files.open_input import Input, StoredFile, open_contents, open_input, pick
from usdenoise.files.stored import Dtype
from usdenoise.linalg.array_library import Numbers
from usdenoise.options import DenoiseOptions
from usdenoise.options.denoise_options import LoadKeywords, reading_options
from usdenoise.options.job_options import shows_options
from usdenoise.pipeline.devices import HOST, cupy_on
from usdenoise.pipeline.recording import ArrayFrames, Chunk, ProcessLocal, Recording, chunk_edges
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.metadata import Metadata, possible_scales

MOST_SHOWN = 20
"""Most scalars of a file that are shown as possible scales."""


@dataclass(frozen=True)
class FileDescription:
    """Description of a file, as ``usdenoise info`` shows it.

    Attributes
    ----------
    path : str
        Path of the file.
    container : str
        Format of the file, in words.
    candidates : tuple of Candidate
        All datasets or variables that could be the stack.
    chosen : Candidate or None
        The one that would be read; None if `problem` contains the reason why none would be.
    problem : InputError or None
        Why the file cannot be read; None if it can be.
    metadata : Metadata
        Axes and scales of the chosen one.
    notes : tuple of str
        Assumptions about the layout of the chosen one; none by default.
    possible_scales : tuple of tuple of str
        At most MOST_SHOWN scalars of the file, as by :func:`usdenoise.stack.metadata.possible_scales`; none by default.
    """

    path: str
    container: str
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None = None
    problem: InputError | None = None
    metadata: Metadata = field(default_factory=Metadata)
    notes: tuple[str, ...] = ()
    possible_scales: tuple[tuple[str, str, str], ...] = ()


@shows_options
def load(
    path: str | Path,
    *,
    dtype: str | None = None,
    dataset: str | None = None,
    frames: slice | None = None,
    device: str = "cpu",
    on_part: Callable[[int, int], None] | None = None,
    **keywords: Unpack[LoadKeywords],
) -> Acquisition:
    """Read an acquisition from a file or a folder.

    Parameters
    ----------
    path : str or Path
        HDF5 file (of h5py, MATLAB 7.3, UFF, zea or usdenoise), MATLAB file before 7.3, .npy or .npz file,
        Zarr group, or .raw file of Iconeus with its header.
    dtype : str, optional
        "single" or "double" converts the values to that precision. By default floats and complex numbers keep
        the precision of the file, except half floats; these and integers become float32.
    dataset : str, optional
        Name of the stack in the file. By default it is the only dataset that can be a stack.
    axes : str, optional
        Axis letters (z depth, x lateral, y elevation, t frames) in the file's own order, which for .mat files is
        MATLAB's order. By default they come from the file, or are guessed from the shape.
    frames : slice, optional
        Frames to read, counted from 0; by default all, or the first block of a recording of Iconeus.
    frame_rate : float, optional
        Frames per second after compounding; by default the file's.
    spacing : float or sequence of float, optional
        Pixel pitch in mm: one number for all spatial axes, or one for each in the file's order. By default the file's.
    center_frequency : float, optional
        Centre frequency of the received signal in Hz; by default the file's.
    device : str
        "cuda" or "cuda:N" copies the stack to a GPU, as an array of CuPy (needs the extra `gpu`); by default it is an array
        of NumPy.
    on_part : callable, optional
        Called with the number of bytes that are read, and of the whole stack.
    **keywords
        Axes and scales. `frame_rate_hz`, `spacing_mm` and `center_frequency_hz` are the same as the names without units.
        Another name raises an OptionError that lists these.

    Returns
    -------
    Acquisition
        The stack with its metadata, axes in the file's own order. Pixels are in the order z, x, y in memory: frame after
        frame, or pixel after pixel if time is the fastest axis of the file.

    Raises
    ------
    InputError
        If the file is missing, damaged or of an unknown format, if it does not hold exactly one possible
        stack, or if that stack is power Doppler, which has no phase left to filter by.
    OptionError
        If an option is unknown, or `dtype` or `frames` is of another kind.

    Examples
    --------
    From the root of the repository:

    >>> import usdenoise
    >>> acquisition = usdenoise.load("sample_data/phantom.h5")
    >>> acquisition.iq.shape, acquisition.axes, acquisition.frame_rate_hz
    ((150, 72, 56), 'tzx', 500.0)

    Every second of the first 100 frames, in double precision:

    >>> acquisition = usdenoise.load("sample_data/phantom.h5", frames=slice(0, 100, 2), dtype="double")
    >>> acquisition.iq.shape, acquisition.iq.dtype, acquisition.frame_rate_hz
    ((50, 72, 56), dtype('complex128'), 250.0)
    """
    device = DenoiseOptions.declared["device"].checked(device)
    with open_input(path, {"dataset": dataset, "frames": frames, **keywords}, dtype) as source:
        if source.metadata.contradiction:
            warnings.warn(source.metadata.contradiction, stacklevel=2)
        stack = source.read(on_part=on_part)
    if device == HOST:
        return stack
    return replace(stack, iq=cupy_on(device).asarray(stack.iq))


def describe(path: str | Path, **options: object) -> FileDescription:
    """Describe the contents of a file, and how :func:`load` would read it, from its headers alone.

    Parameters
    ----------
    path, **options
        File and reading options, as for :func:`load`.

    Returns
    -------
    FileDescription
        The possible stacks and the chosen one. If none can be chosen, its `problem` is the error.

    Raises
    ------
    InputError
        If the file is missing, damaged or of an unknown format.
    """
    path, read_options = Path(path), reading_options(options)
    with open_contents(path, read_options) as contents:
        candidates = tuple(stack.candidate for stack in contents.stacks)
        description = FileDescription(str(path), contents.container, candidates)
        try:
            stack, metadata = pick(contents, path, read_options)
        except InputError as error:
            return replace(description, problem=error)
        description = replace(description, chosen=stack.candidate, metadata=metadata, notes=stack.assumptions)
        scalars = {**metadata.attributes}
        for name in known_first(contents.arrays):
            array = contents.arrays[name]
            if np.prod(array.shape, dtype=object) <= MAX_METADATA_ITEMS and array.dtype.kind in "fiu":
                with suppress(InputError), guard(path, contents.damaged):
                    array.check()
                    scalars[name] = array.everything()
        possible = islice(possible_scales(metadata, scalars), MOST_SHOWN)
        return replace(description, possible_scales=tuple(possible))


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
    source : ProcessLocal
        The open file. Another process opens the file itself; by default this one, too.
    """

    stored_file: StoredFile
    first: int
    stop: int
    dtype: Dtype
    source: ProcessLocal[Input] = field(default_factory=ProcessLocal, compare=False)

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.stop - self.first

    def read(self) -> Numbers:
        """Return all frames as a chunk."""
        with self._opened() as source:
            return source.read_chunk(self.first, self.stop, self.dtype)

    def pick(self, numbers: NDArray[np.intp]) -> Numbers:
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


def file_recording(source: Input, most_entries: float = 0) -> Recording:
    """Return the recording of an open file, which each pass reads again; no storage chunk is in two chunks.

    Parameters
    ----------
    source : Input
        The file.
    most_entries : float
        As for :func:`usdenoise.pipeline.recording.chunk_edges`; by default no chunk is longer for the sake of its frames.

    Examples
    --------
    From the root of the repository:

    >>> with open_input("sample_data/phantom.h5") as source:
    ...     [chunk.read().shape for chunk in file_recording(source).chunks]
    [(75, 4032), (75, 4032)]
    """
    n_frames, frames, stored = source.n_frames, source.frames, source.stack.array
    length = stored.chunk_length(source.axes.index("t"))
    starts = np.arange(frames.start // length, -(-frames.stop // length)) * length
    # The first selected frame of each storage chunk.
    firsts = np.unique(-(-np.maximum(starts - frames.start, 0) // frames.step))
    edges = chunk_edges(n_frames, source.geometry.n_pixels, firsts[firsts < n_frames], most_entries)
    stored_file, own = replace(source.file, path=source.path.absolute()), ProcessLocal(source)
    parts = [FileFrames(stored_file, *ends, source.dtype, own) for ends in pairwise(edges.tolist())]
    return Recording.of_chunks(source.geometry, source.dtype, [Chunk(part.first, part) for part in parts])


def lines_recording(source: Input, lines: Numbers) -> Recording:
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
                opening = open_input(stored_file.path, vars(stored_file.how), stored_file.precision)
                self._source = self._files.enter_context(opening)
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
