"""The blocks of a session in files: which files, and the recording of their blocks."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, NoStackError, OptionError, check_path
from usdenoise.files.iconeus import frames_a_block
from usdenoise.files.input_files import (
    KnownContents,
    acquisition_files,
    check_unchanged,
    is_zarr,
    natural_key,
)
from usdenoise.files.open_input import Input
from usdenoise.files.recordings import FileFrames, StoredFile, last_file
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.doubts import Doubt
from usdenoise.pipeline.recording import Block, Chunk, Recording, Window, working_type
from usdenoise.sessions.blocks import (
    NO_STARTS,
    OR_IGNORE,
    OR_SKIP,
    FileTime,
    check_alike,
    check_interval,
    is_against_times,
    start_times,
    time_notes,
    windows_of,
)
from usdenoise.stack.geometry import Geometry


@dataclass(frozen=True)
class _BlockFile:
    """A file of blocks: its path, axes, frames, time and windows; or why it is not read, and whether it has a time slot."""

    path: Path
    stored_file: StoredFile | None = None
    geometry: Geometry | None = None
    n_frames: int = 0
    time: FileTime | None = None
    windows: Sequence[Window] = (Window(0, 0, False),)
    problem: str = ""
    takes_time: bool = True


class BlocksOfFiles:
    """The recording of one or several files, of which one is open at a time; a context.

    Parameters
    ----------
    paths : sequence of Path
        The files, in the order of time.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    precision : str
        "single" or "double".
    options : SessionOptions
        The options of the session. Without a window each file is a block. Without an interval the times come from the
        files. If a file has no time, blocks follow each other.

    Attributes
    ----------
    recording : Recording
        The blocks.
    n_frames : int
        Frames of all files.
    states : dict
        Size and modification time of the files of each path.

    Raises
    ------
    InputError
        If a file cannot be read or differs from the other files, and bad files are not skipped.
    OptionError
        If the window is longer than a file.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        reading: Mapping[str, Any],
        precision: str,
        options: SessionOptions,
    ) -> None:
        self._reading, self._precision, self.options = reading, precision, options
        self._window, self._stride = options.window, options.stride
        self._n_paths = len(paths)
        self._known_files: dict[tuple[int, int], Path] = {}
        self._contents = KnownContents()
        self.states: dict[str, Any] = {}
        with ExitStack() as opened:
            opened.callback(last_file.close)
            files = [self._look_into(path) for path in paths]
            usual = _usual_geometry(files)
            if usual is None:
                raise InputError(f"none of {len(paths)} files can be read; the first one: {files[0].problem}")
            files = [self._if_alike(file, usual) for file in files]
            if usual.frame_rate_hz:
                self._frame_time = 1 / usual.frame_rate_hz
            self._files = [file for file in files if file.takes_time]
            dtype, blocks = working_type(usual, precision), list[Block]()
            for number, file in enumerate(self._files):
                offset = 0.0 if file.time is None else file.time.offset
                for window in file.windows:
                    chunks = []
                    if file.stored_file is not None and not file.problem:
                        frames = FileFrames(file.stored_file, window.start, window.stop, dtype)
                        chunks = [Chunk(0, frames)]
                    blocks.append(
                        Block(
                            chunks=chunks,
                            window=window,
                            start_s=offset + window.start,
                            name=file.path.name,
                            file=number,
                            problem=file.problem,
                        )
                    )
            self.n_frames: int = sum(file.n_frames for file in files)
            self.recording = Recording(usual, dtype, blocks, self._frame_time)
            starts = self._set_times(options.block_interval_s)
            self._check_order()
            if options.block_interval_s is None:
                self._check_no_overlap(starts)
            notes = [f"{file.problem}; it is ignored" for file in files if not file.takes_time]
            own = [
                f"{file.path.name}: {note}"
                for file in files
                if file.geometry is not None
                for note in file.geometry.assumptions
                if note not in usual.assumptions
            ]
            notes += own[:1] + [f"{len(own) - 1} similar notes on other files"][: len(own) > 1]
            if options.block_interval_s is None:
                # The blocks of one file have no times of their own.
                notes += [NO_STARTS] if len(files) == 1 and frames_a_block(paths[0]) else []
                notes += time_notes([file.time for file in files if file.time is not None], usual)
            geometry = replace(usual, assumptions=(*usual.assumptions, *notes))
            self.recording = replace(self.recording, geometry=geometry)
            if len(paths) == 1:
                # It stays open for its blocks.
                opened.pop_all()

    def _look_into(self, path: Path) -> _BlockFile:
        """Return the description of a file from its header, or why it cannot be read, if bad files are skipped."""
        try:
            self._check_new(path)
            # By default all blocks of a file are read, not the first one.
            reading = {**self._reading, "frames": self._reading.get("frames") or slice(None)}
            stored_file = StoredFile.at(path, reading, self._precision)
            with last_file.opened(stored_file) as source:
                geometry = source.geometry
                original = self._contents.copy_of(path) if self._n_paths > 1 else None
                # Recordings that failed may all be zero.
                if original is not None and source.read_chunk(0, min(2, source.n_frames)).any():
                    raise NoStackError(f"{path} is a copy of {original}", remedy="remove one of them")
                self._frame_time = float(source.frames.step)
                windows = self._windows(source)
                self.states[str(path)] = source.state
                return _BlockFile(
                    path,
                    stored_file,
                    geometry,
                    source.n_frames,
                    FileTime.of(geometry, source.time_of_first_frame, source.duration),
                    windows,
                )
        except (InputError, OptionError) as error:
            return self._skipped(path, error)

    def _windows(self, source: Input) -> list[Window]:
        """Return the windows of a file, none of which has frames of two blocks of the file."""
        windows: list[Window] = []
        edges, length = source.block_edges.tolist(), self._window
        longest = max(stop - first for first, stop in pairwise(edges))
        if source.stack.block_frames is not None and length is not None and length > longest:
            raise OptionError(
                f"window {length} is longer than the blocks of {longest} frames of the file",
                remedy="lower {window}",
            )
        for first, stop in pairwise(edges):
            n_frames = stop - first
            if length is None or (n_frames < length and len(edges) > 2):
                cut = [Window(0, n_frames, length is None)]
            else:
                cut = windows_of(n_frames, length, self._stride)
            windows += [
                replace(window, start=first + window.start, stop=first + window.stop) for window in cut
            ]
        return windows

    def _if_alike(self, file: _BlockFile, usual: Geometry) -> _BlockFile:
        """Return a file, or why it is not read, if it differs from the other files and bad files are skipped."""
        try:
            if file.geometry is not None:
                check_alike(file.geometry, usual, file.path)
        except InputError as error:
            del self.states[str(file.path)]
            return self._skipped(file.path, error)
        return file

    def _skipped(self, path: Path, error: InputError | OptionError) -> _BlockFile:
        """Return why a file is not read, or raise the error if bad files are not skipped."""
        if self._n_paths == 1:
            raise error
        takes_time = not isinstance(error, NoStackError)
        located = error.at(path.name, OR_SKIP if takes_time else OR_IGNORE)
        if not self.options.skip_bad_files:
            raise located from error
        return _BlockFile(path, problem=located.cause, takes_time=takes_time)

    def _check_new(self, path: Path) -> None:
        """Check that no file before is the same one, under this name or another."""
        try:
            status = path.stat()
        except OSError:
            # It is reported when it is opened.
            return
        identity = (status.st_dev, status.st_ino)
        if identity in self._known_files:
            raise NoStackError(
                f"{path} is the same file as {self._known_files[identity]}", remedy="name it once"
            )
        self._known_files[identity] = path

    def _set_times(self, interval: float | None) -> NDArray[np.float64]:
        """Set the times of the first frames of the blocks, and return the times of the files."""
        times, is_one_file = [file.time for file in self._files], len(self._files) == 1
        starts = start_times(times, self._frame_time, interval)
        # A missing block has no frames, and its time is the middle of its time slot.
        middle = np.median([file.time.offset + file.n_frames / 2 for file in self._files if file.time])
        usual = float(np.median([time.duration for time in times if time]))
        has_windows = is_one_file or any(len(file.windows) > 1 for file in self._files)
        step = (self._stride or self._window or usual) if has_windows else usual
        check_interval(interval, self.recording.geometry.frame_rate_hz, step)
        blocks = self.recording.blocks
        for index, block in enumerate(blocks):
            begin = starts[block.file] + (middle if block.problem else block.start_s) * self._frame_time
            if interval is not None and has_windows:
                begin = index * interval
            blocks[index] = replace(block, start_s=float(begin))
        return starts

    def _check_order(self) -> None:
        blocks = self.recording.blocks
        times = [block.start_s for block in blocks]
        if times != sorted(times):
            later = next(n for n in range(1, len(times)) if times[n] < times[n - 1])
            raise InputError(
                f"{blocks[later].name} begins before the previous file",
                remedy="name the files in the order of time, or give {block_interval_s}",
            )

    def _check_no_overlap(self, starts: NDArray[np.float64]) -> None:
        """Check that no file begins before the frames of the file in front of it end; a frame may be rounded away."""
        read = [(file, start) for file, start in zip(self._files, starts, strict=True) if file.time]
        for (before, begin), (later, start) in pairwise(read):
            assert before.time is not None
            duration = before.time.duration * self._frame_time
            if start - begin < duration - self._frame_time:
                raise InputError(
                    f"{later.path.name} begins {start - begin:g} s after {before.path.name}, which lasts {duration:g} s",
                    remedy="correct the times in the files, or give {block_interval_s}",
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        last_file.close()

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons to doubt the order of the blocks: no file has a start, and the files were written in another order."""
        read = [file for file in self._files if file.time is not None and str(file.path) in self.states]
        written = [self.states[str(file.path)]["mtime_ns"] for file in read]
        has_starts = any(file.time is not None and file.time.start_s is not None for file in read)
        if has_starts or not is_against_times(written):
            return ()
        sentence = (
            f"the names of the blocks ({read[0].path.name} first, {read[-1].path.name} last) and the times at which files "
            "were written have different orders; name the files in the order of time if the names are wrong"
        )
        return (Doubt("block-order", sentence),)

    def path_of(self, number: int) -> Path:
        """Return the file of a block."""
        return self._files[self.recording.blocks[number].file].path

    def geometry_of(self, number: int) -> Geometry:
        """Return the geometry of a block, with the metadata of its file."""
        block = self.recording.blocks[number]
        with last_file.opened(self._stored_file(block)) as source:
            return source.geometry_of(block.window.start, block.window.stop)

    def _stored_file(self, block: Block) -> StoredFile:
        stored_file = self._files[block.file].stored_file
        assert stored_file is not None
        return stored_file

    @property
    def passes(self) -> float | None:
        """Passes over the frames of the only file so far, one for the digest."""
        with last_file.opened(self._stored_file(self.recording.blocks[0])) as source:
            return source.passes

    def check_unchanged(self) -> None:
        """Check that no file has changed since it was opened first.

        Raises
        ------
        InputError
            If one has.
        """
        for path, state in self.states.items():
            check_unchanged(Path(path), state)


def block_files(
    paths: str | Path | Sequence[str | Path], output: Path, patterns: Sequence[str] = ()
) -> list[Path]:
    """Return the files of the blocks of a session: the files of a folder in natural order, or the named files.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, and folders to search.
    output : Path
        A folder to skip.
    patterns : sequence of str
        Shell patterns that the names of files in folders must match; by default the suffixes of the known formats.

    Raises
    ------
    InputError
        If there is none.
    OptionError
        If the results would be among them, or one is an array.
    """
    files: list[Path] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        if not isinstance(path, str | Path):
            raise OptionError(
                "blocks in memory must be one stack", remedy="join the arrays along time, and give {window}"
            )
        check_path(path)
        input_path = Path(path)
        if input_path.is_dir() and not is_zarr(input_path):
            check_apart(input_path, output)
            inside = acquisition_files(input_path, output, patterns)
            files += sorted(inside, key=lambda file: natural_key(str(file)))
        else:
            files.append(input_path)
    if not files:
        raise InputError("no block file was found", remedy="name files or a folder, or give {patterns}")
    return files


def check_apart(input_folder: Path, output: Path) -> None:
    """Check that the folder of the results is not the folder of the blocks."""
    if input_folder.resolve() == output.resolve():
        raise OptionError(
            f"the output folder must differ from the input folder '{input_folder}'",
            remedy="choose another one",
        )


def only_folder(paths: Sequence[Any]) -> Path:
    """Return the only one of the paths, the folder in which the blocks of a live session appear."""
    if len(paths) != 1 or not isinstance(paths[0], str | Path):
        raise OptionError(
            "a live session requires one folder, in which the blocks appear; name only this folder"
        )
    return Path(paths[0])


def with_own_window(
    options: SessionOptions, paths: Sequence[Path], reading: Mapping[str, Any]
) -> SessionOptions:
    """Return the options of a session whose window is a block of its files, if they hold several and no window is given."""
    length = None if options.window is not None else frames_a_block(paths[0])
    if length is None:
        return options
    step = getattr(reading.get("frames"), "step", None) or 1
    return replace(options, window=-(-length // step))


def _usual_geometry(files: Sequence[_BlockFile]) -> Geometry | None:
    """Return the geometry of the first file that can be read, or of the next one if only the first has another image."""
    known = [file.geometry for file in files if file.geometry is not None]
    images = [(geometry.axes, geometry.shape_in(geometry.spatial_axes)) for geometry in known]
    is_first_unlike = len(images) > 2 and images[0] not in images[1:]
    return known[is_first_unlike] if known else None
