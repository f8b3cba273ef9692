"""An acquisition that is open: its stack is described, and read whole or in blocks of frames, in one opening."""

import errno
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError, UnreadableError, check_path
from usdenoise.files import hdf5_reading, iconeus, matlab_reading, numpy_files, zarr_files
from usdenoise.files.contents import Contents, Stack, choose, first_bytes, guard, readable
from usdenoise.files.input_files import ICONEUS, check_unchanged, file_state, header_path, sha256
from usdenoise.files.layout import FrameNumbers, FrameReader, OnPart, frame_slice, storage_dtype
from usdenoise.files.stored import Dtype, in_a_row, n_selected
from usdenoise.frames.data_checks import axes_with_time, guess_axes, time_is_last
from usdenoise.linalg.array_library import Numbers
from usdenoise.options import ReadOptions
from usdenoise.options.denoise_options import reading_options
from usdenoise.pipeline.recording import STORAGE
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import check_not_power
from usdenoise.stack.geometry import Geometry, as_frames, check_axes, check_order, shape_text
from usdenoise.stack.labels import FROM_TIMES, frame_rate
from usdenoise.stack.metadata import Metadata, implausible, interpret, with_options, without_implausible
from usdenoise.system.resources import run_in_background
from usdenoise.system.text import beyond

MOST_RUNS = 5
"""Most runs of unwritten frames that are named."""


@contextmanager
def open_input(
    path: str | Path, reading: Mapping[str, object] | None = None, dtype: str | None = None
) -> Iterator["Input"]:
    """Open an acquisition, choose its stack, and yield it as an :class:`Input`.

    The file stays open in the context, and an array that cannot be read in parts stays in memory once it was read:
    end the context, or close the input, after the last frame is read.

    Parameters
    ----------
    path : str or Path
        File or folder of the acquisition, as for :func:`usdenoise.load`.
    reading : mapping, optional
        Fields of :class:`usdenoise.options.ReadOptions`; by default none.
    dtype : str, optional
        "single" or "double" converts the values to that precision; by default the precision of the file is kept.

    Raises
    ------
    InputError
        For the same reasons as :func:`usdenoise.load`.
    OptionError
        For the same reasons as :func:`usdenoise.load`.

    Examples
    --------
    From the root of the repository:

    >>> from usdenoise.files.open_input import open_input
    >>> with open_input("sample_data/phantom.h5", {"frames": slice(0, 100)}) as source:
    ...     source.shape, source.axes, source.read(0, 20).iq.shape
    ((100, 72, 56), 'tzx', (20, 72, 56))
    """
    if not isinstance(dtype, str | None) or dtype not in (None, "single", "double"):
        raise OptionError(f"dtype is {dtype!r}, and must be 'single', 'double' or None")
    check_path(path)
    file = StoredFile.at(Path(path), reading or {}, dtype)
    with ExitStack() as files:
        # Arrays that were read whole are freed when the input is closed.
        yield Input(file, files.enter_context(open_contents(file.path, file.how)), files.close)


@dataclass(frozen=True)
class StoredFile:
    """A file that a process can open.

    Attributes
    ----------
    path : Path
        File or folder of the acquisition.
    how : ReadOptions
        How it is read.
    precision : str or None
        "single" or "double" if the values are converted.
    state : mapping
        Size and modification time of the file, or of those in its folder, when it was opened first (see
        :func:`usdenoise.files.input_files.file_state`).
    """

    path: Path
    how: ReadOptions
    precision: str | None
    state: Mapping[str, int]

    @classmethod
    def at(cls, path: Path, reading: Mapping[str, object], precision: str | None) -> "StoredFile":
        """Return a file with its current state; `reading` has fields of ReadOptions."""
        return cls(path, reading_options(reading), precision, file_state(path) or {})


READERS = {
    iconeus.read_iconeus: iconeus.DAMAGED,
    hdf5_reading.read_hdf5: hdf5_reading.DAMAGED,
    matlab_reading.read_matlab: matlab_reading.DAMAGED,
    numpy_files.read_npy: numpy_files.DAMAGED,
    numpy_files.read_npz: numpy_files.DAMAGED,
    zarr_files.read_zarr: zarr_files.DAMAGED,
}
"""Reader of each format -> its message on a damaged file, as for :func:`usdenoise.files.contents.guard`.

A reader opens a file or a folder of one format, and lists its contents; it returns None for another format.
The first reader that knows the format of a file reads it. To read a new format, write a module with such a function. Add it
here, its suffix to SUFFIXES of :mod:`usdenoise.files.input_files`, and its name to the sentence on unknown content.
"""


@contextmanager
def open_contents(path: Path, read_options: ReadOptions) -> Iterator[Contents]:
    """Open a file or a folder of any known format, and list its contents.

    Raises
    ------
    InputError
        If the path is missing, unreadable, damaged, or of no known format.
    """
    check_path(path)
    with readable(path):
        try:
            head = first_bytes(path)
        except OSError as error:
            if path.is_symlink() and not path.exists():
                raise UnreadableError(
                    f"{path} is a link to {os.readlink(path)}, which does not exist; fetch the content, such as with "
                    "`datalad get`, or put it back"
                ) from error
            is_missing = isinstance(error, FileNotFoundError)
            reason = "does not exist" if is_missing else f"cannot be read ({error.strerror})"
            is_address = re.match(r"\w\w+:/", str(path))
            remedy = "it is an address: download it, and give the copy" if is_address else "check the path"
            raise UnreadableError(f"{path} {reason}; {remedy}") from error
        if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        for reader, damaged in READERS.items():
            with guard(path, damaged):
                contents = reader(path, read_options)
            if contents is not None:
                break
        else:
            raise _of_no_format(path, head)
    with closing(contents):
        yield replace(contents, damaged=damaged)


def _of_no_format(path: Path, head: bytes) -> InputError:
    """Return the error for a file or a folder of no known format; `head` has its first bytes."""
    if os.path.isdir(path):
        return InputError(
            f"{path} is a folder but not a Zarr group; use `usdenoise session` for the blocks of one recording, or "
            "`usdenoise batch` for scans"
        )
    if not head:
        return InputError(f"{path} is empty; check how it was written")
    if head.startswith(b"version https://git-lfs"):
        return UnreadableError(
            f"{path} is a pointer of Git LFS without its content; fetch it with `git lfs pull`"
        )
    if re.match(rb"PK\x03\x04|\x1f\x8b\x08|.{257}ustar", head, re.DOTALL):
        return InputError(f"{path} is an archive (ZIP, tar or gzip); unpack it, and give what was in it")
    is_alone = path.suffix.lower() == ICONEUS
    needed = f" (an Iconeus recording needs {header_path(path).name} beside it)" if is_alone else ""
    return InputError(
        f"{path} has unknown content{needed}; usdenoise reads HDF5, MATLAB, UFF, zea, NumPy, Zarr and Iconeus IQ: "
        "check the path, or convert the stack to HDF5"
    )


def pick(contents: Contents, path: Path, read_options: ReadOptions) -> tuple[Stack, Metadata]:
    """Choose the stack of an opened file, and check that the file holds all of it.

    Parameters
    ----------
    contents : Contents
        The possible stacks of the file.
    path : Path
        The file, for error messages.
    read_options : ReadOptions
        Reading options.
    """
    with guard(path, contents.damaged):
        stack = choose(contents, read_options.dataset, str(path))
        metadata = interpret(stack.metadata())
        stack.array.check()
        stack, metadata, read_options = _in_blocks(stack, metadata, read_options)
        array = stack.array
    guarded = guard(path, contents.damaged)
    fill, written = array.fill and guarded(array.fill), array.written and guarded(array.written)
    stack = replace(stack, array=replace(array, read=guarded(array.read), fill=fill, written=written))
    metadata = _with_axes(metadata, stack, path, read_options)
    axes, shape = metadata.values["axes"], stack.array.shape
    stack = _written(stack, axes.index("t"), read_options.frames, str(path))
    n_frames, length = stack.array.shape[axes.index("t")], stack.block_frames
    selected, notes = read_options.frames, list(stack.assumptions)
    if selected is None and length is not None:
        selected = slice(0, length)
        notes.append(
            f"frames 0 to {length - 1} are read, the first of {n_frames // length} blocks; choose another by its frames, "
            f"such as {length}:{2 * length}, or filter all blocks with `usdenoise session`"
        )
    notes += beyond(selected, n_frames, "frames", "stack")
    stack = replace(stack, frames=frame_slice(selected, n_frames), assumptions=tuple(notes))
    metadata = _with_times(metadata, shape[axes.index("t")], stack.frames)
    metadata = without_implausible(metadata, slice(stack.frames.start, stack.frames.stop))
    if read_options.dataset is None and stack.array.dtype.kind != "c":
        slow = stack.array.slow
        slabs = (stack.array.at(slow, number) for number in (0, stack.array.shape[slow] // 2))
        check_not_power(slabs, f"'{stack.name}' in {path}", "name it with {dataset}")
    return stack, metadata


def _in_blocks(
    stack: Stack, metadata: Metadata, read_options: ReadOptions
) -> tuple[Stack, Metadata, ReadOptions]:
    """Return a stack whose blocks, along an axis b, are in a row along t, and its axes without b where they are from."""
    axes, shape = read_options.axes or metadata.values.get("axes", ""), stack.array.shape
    if not {*"bt"} < {*axes} or len(axes) != len(shape):
        return stack, metadata, read_options
    block, time, others = axes.index("b"), axes.index("t"), axes.replace("b", "", 1)
    layout = ", ".join(filter(None, (stack.layout, f"{shape[block]} blocks of {shape[time]} frames")))
    length = shape[time] if shape[block] > 1 else None
    stack = replace(stack, array=in_a_row(stack.array, block, time), layout=layout, block_frames=length)
    if read_options.axes is not None:
        return stack, metadata, replace(read_options, axes=others)
    return stack, replace(metadata, values={**metadata.values, "axes": others}), read_options


def _with_axes(metadata: Metadata, stack: Stack, path: Path, read_options: ReadOptions) -> Metadata:
    """Return metadata with the axes of a stack: from the options, the file, its format, its times, the data or the shape."""
    shape, time_last, guessed_from = stack.array.shape, stack.time_last, "assumed"
    n_times = len(metadata.coordinates["t"].values) if "t" in metadata.coordinates else 0
    if time_last is None and shape.count(n_times) == 1 and n_times in (shape[0], shape[-1]):
        time_last = n_times == shape[-1]
    if time_last is None and read_options.axes is None and "axes" not in metadata.values:
        # Damage is reported when the stack is read.
        with suppress(InputError), readable(path):
            time_last = time_is_last(shape, stack.array.read)
        guessed_from = "assumed" if time_last is None else "the data"
    metadata = with_options(metadata, read_options, guess_axes(shape, time_last), guessed_from)
    check_axes(metadata.values["axes"], shape)
    return metadata


class Input:
    """The stack of an open file, and the state of the files that it is read from.

    :func:`open_input` makes it.

    Attributes
    ----------
    file : StoredFile
        The file, how it is read, and its state when it was opened.
    path, state
        The same as in `file`.
    container : str
        Format of the file, in words.
    is_read_whole : bool
        Whether it lets arrays only be read whole.
    stack : Stack
        The stack in its file: name, shape of all frames, stored type.
    metadata : Metadata
        Axes and scales of the stack.
    axes : str
        Axis letters, in the file's order.
    dtype : numpy.dtype
        Type of the values that are read.
    frames : slice
        The selected frames of the file: start, stop and a positive step.
    n_frames : int
        Number of selected frames.
    shape : tuple of int
        Shape of the selected frames, in the file's order.
    """

    def __init__(self, file: StoredFile, contents: Contents, close: Callable[[], None]) -> None:
        self.file, self.path, self.state, self._close = file, file.path, file.state, close
        self._frames_read = 0
        self.container, self.is_read_whole = contents.container, contents.is_read_whole
        self.stack, self.metadata = pick(contents, file.path, file.how)
        stored = self.stack.array
        self.axes: str = self.metadata.values["axes"]
        self.dtype: Dtype = storage_dtype(stored.dtype)
        if file.precision is not None:
            self.dtype = np.dtype(STORAGE[file.precision, stored.dtype.kind == "c"])
        self._reader = FrameReader(stored, self.axes, self.dtype, self.stack.name)
        time = self._time = self._reader.time
        self.frames = self.stack.frames
        self.n_frames = len(range(self.frames.start, self.frames.stop, self.frames.step))
        self.shape = (*stored.shape[:time], self.n_frames, *stored.shape[time + 1 :])

    @property
    def passes(self) -> float:
        """Passes over the stack so far in this process, one for the digest."""
        return 1 + self._frames_read / self.n_frames

    @property
    def time_of_first_frame(self) -> float:
        """Time of the first selected frame after the first frame of the file, in units of the frame step."""
        return float(self.frames.start / self.frames.step)

    @property
    def duration(self) -> float:
        """Time of all frames of the file, selected or not, in units of the frame step."""
        return float(self.stack.array.shape[self._time] / self.frames.step)

    @property
    def block_edges(self) -> NDArray[np.intp]:
        """The first selected frame of each block of the file, and the number of selected frames."""
        n_frames = self.stack.array.shape[self._time]
        firsts = np.arange(0, n_frames, self.stack.block_frames or n_frames)
        numbers = -(-(firsts - self.frames.start) // self.frames.step)
        return np.unique(np.append(np.clip(numbers, 0, self.n_frames), self.n_frames))

    def read(self, start: int = 0, stop: int | None = None, on_part: OnPart | None = None) -> Acquisition:
        """Read the selected frames [start, stop) as an acquisition; frame 0 is the first selected one.

        Parameters
        ----------
        start : int
            First frame to read; 0 by default.
        stop : int, optional
            Frame after the last one to read; by default the number of selected frames.
        on_part : callable, optional
            Called with the number of bytes that are read, and of all frames to read.
        """
        stop = self.n_frames if stop is None else stop
        geometry = self.geometry_of(start, stop)
        return Acquisition.of(geometry, self._read(self._in_file(start, stop), None, on_part))

    def read_lines(self, scratch: Path, on_part: OnPart | None = None) -> Numbers:
        """Read the selected frames into a temporary file, see :meth:`usdenoise.files.layout.FrameReader.read_lines`."""
        self._frames_read += self.n_frames
        return self._reader.read_lines(self._in_file(0, self.n_frames), scratch, on_part)

    def _read(self, frames: FrameNumbers, dtype: Dtype | None, on_part: OnPart | None = None) -> Numbers:
        """Return frames by their numbers in the file, axes in its order."""
        self._frames_read += n_selected(frames) if isinstance(frames, slice) else len(frames)
        return replace(self._reader, dtype=dtype or self.dtype).read(frames, on_part)

    @property
    def is_in_frame_order(self) -> bool:
        """Whether blocks of frames can be read one after the other without reading anything twice."""
        return self.is_read_whole or self._reader.is_in_frame_order

    def read_chunk(self, start: int, stop: int, dtype: Dtype | None = None) -> Numbers:
        """Read the selected frames [start, stop) as a chunk.

        Parameters
        ----------
        start, stop : int
            First frame to read, and the one after the last.
        dtype : numpy.dtype, optional
            Type of the values; by default the same as in :meth:`read`.

        Returns
        -------
        (stop - start, n_pixels) array
            The frames, pixels in the order z, x, y; C-contiguous, or Fortran-contiguous if time is the fastest axis of the
            file.
        """
        return self._chunk(self._in_file(start, stop), dtype)

    def pick(self, numbers: NDArray[np.intp], dtype: Dtype | None = None) -> Numbers:
        """Read a few of the selected frames as a chunk; :attr:`passes` counts them.

        Parameters
        ----------
        numbers : (n,) array of int
            Numbers of the frames, increasing.
        dtype : numpy.dtype, optional
            Type of the values; by default `dtype` of the input.
        """
        return self._chunk(self.frames.start + np.asarray(numbers, np.intp) * self.frames.step, dtype)

    def _chunk(self, in_file: FrameNumbers, dtype: Dtype | None) -> Numbers:
        frames: Numbers = as_frames(self._read(in_file, dtype), self.axes)
        return frames

    def _in_file(self, start: int, stop: int) -> slice:
        """Return the selected frames [start, stop) in the numbers of the file."""
        first, step = self.frames.start, self.frames.step
        return slice(first + start * step, first + (stop - 1) * step + 1, step)

    def close(self) -> None:
        """Close the file, and free an array of it that had to be read whole. Nothing can be read afterwards."""
        self._close()
        del self.stack, self._reader

    def digest_in_background(self) -> Future[str]:
        """Compute the SHA-256 digest of all files in a thread, and return its future.

        Its result raises an InputError if a file has changed since it was opened.
        """

        def digest() -> str:
            file_hash = sha256(self.path)
            self.check_unchanged()
            return file_hash

        return run_in_background(digest)

    def check_unchanged(self) -> None:
        """Check that none of the files has changed since they were opened.

        Raises
        ------
        InputError
            If one has.
        """
        check_unchanged(self.path, self.state)

    @property
    def geometry(self) -> Geometry:
        """Axes, shape and scales of the selected frames, without their values."""
        return self.geometry_of(0, self.n_frames)

    def geometry_of(self, start: int, stop: int) -> Geometry:
        """Return the geometry of the selected frames [start, stop)."""
        values, stack, frames = dict(self.metadata.values), self.stack, self._in_file(start, stop)
        if "frame_rate_hz" in values:
            # With every step-th frame selected, the time between frames is `step` times as long.
            values["frame_rate_hz"] /= self.frames.step
        return Geometry(
            **values,
            shape=(*self.shape[: self._time], stop - start, *self.shape[self._time + 1 :]),
            dtype=self.dtype,
            name=stack.name,
            stored_dtype=stack.array.dtype,
            assumptions=self._assumptions(),
            attributes=self.metadata.attributes,
            coordinates={
                letter: coordinate[frames] if letter == "t" else coordinate
                for letter, coordinate in self.metadata.coordinates.items()
            },
            form=stack.form,
        )

    def _assumptions(self) -> tuple[str, ...]:
        stack, sources = self.stack, self.metadata.sources
        assumptions = [*stack.assumptions]
        if sources["axes"] in ("assumed", "the data"):
            others = axes_with_time(self._time, len(self.axes))[1:]
            why = " by the data: neighbours along t are most alike" if sources["axes"] == "the data" else ""
            assumptions.append(
                f"the axes of '{stack.name}' ({shape_text(stack.array.shape)}) are read as {self.axes}{why}; the data do "
                f"not tell it from {', '.join(others)}: set the axes if this is wrong"
            )
        if stack.array.dtype.kind != "c":
            assumptions.append(
                f"the values of '{stack.name}' are real and are read as RF; if they are I and Q side by side along an axis, "
                "reshape them to an axis of length 2, or save a complex array"
            )
        if self.metadata.contradiction:
            assumptions.append(self.metadata.contradiction)
        if "assumed" in sources.get("spacing_mm", ""):
            assumptions.append(
                f"the pixel pitch is from the {sources['spacing_mm']}; set the spacing if it is wrong"
            )
        return (*assumptions, *self.metadata.notes)


def _written(stack: Stack, time: int, frames: slice | None, path: str) -> Stack:
    """Return a stack that ends with its last frame that was written, with a sentence on the frames that were not.

    Unwritten frames between other ones are zero or NaN in the file, and are excluded as such.

    Parameters
    ----------
    stack : Stack
        The stack.
    time : int
        Its axis of frames.
    frames : slice or None
        The frames that the user selects; none of the other frames is in the sentence.
    path : str
        Path of the file, for the message.
    """
    array = stack.array
    is_written, n_frames = array.written_along(time), array.shape[time]
    if is_written.all():
        return stack
    numbers = np.flatnonzero(is_written)
    if len(numbers) > 1 and not is_written[-1]:
        # The last chunk that was written may end with frames that were not.
        def is_empty(frame: int) -> bool:
            return not np.nan_to_num(array.at(time, frame)).any()

        stop = int(numbers[-1]) + 1
        length = array.chunk_length(time)
        last_chunk = range((stop - 1) // length * length, stop)
        is_written[last_chunk.start + bisect_left(last_chunk, True, key=is_empty) :] = False
        numbers = np.flatnonzero(is_written)
    if len(numbers) < 2:
        raise InputError(
            f"'{stack.name}' in {path} has {n_frames} frames by its header, but {len(numbers)} of them are complete: it is "
            "truncated, or its recording stopped; write it again"
        )
    stop = int(numbers[-1]) + 1
    first, last, _ = (frames or slice(None)).indices(n_frames)
    edges = np.flatnonzero(np.diff(is_written[first:last], prepend=True, append=True))
    runs = [f"{a} to {b - 1}" if b - a > 1 else f"{a}" for a, b in (first + edges.reshape(-1, 2)).tolist()]
    named = ", ".join(runs[:MOST_RUNS]) + " and others" * (len(runs) > MOST_RUNS)
    n_empty = n_frames - np.count_nonzero(is_written)
    note = f"frames {named} of '{stack.name}' were never written ({n_empty} of {n_frames}); they are excluded"
    shape = (*array.shape[:time], stop, *array.shape[time + 1 :])
    assumptions = (*stack.assumptions, note) if runs else stack.assumptions
    return replace(stack, array=replace(array, shape=shape), assumptions=assumptions)


def _with_times(metadata: Metadata, n_frames: int, frames: slice) -> Metadata:
    """Return metadata with the frame rate of the selected frames if only their times are even, and check their order.

    Times of another axis, which the user has called something else, are dropped.
    """
    times = metadata.coordinates.get("t")
    if times is None:
        return metadata
    if len(times.values) != n_frames:
        is_of_times = metadata.sources.get("frame_rate_hz") == f"file: {FROM_TIMES}"
        return metadata.without("t", *(["frame_rate_hz"] if is_of_times else []))
    check_order(
        times.values[frames],
        "write the file again in the order of time (in xarray: sortby), choose {frames}, or give {frame_rate_hz} if "
        "the frames are in order and their times wrong",
    )
    rate = frame_rate(times.values[frames.start : frames.stop])
    if rate and "frame_rate_hz" not in metadata.values and not implausible("frame_rate_hz", rate, FROM_TIMES):
        return metadata.with_value("frame_rate_hz", rate, FROM_TIMES)
    return metadata
