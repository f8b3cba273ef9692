"""The inputs of a session: which files, the recording of their blocks, and the events."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, NoStackError, OptionError, cause_of, check_path
from usdenoise.files.bids import REQUIRED, events_of_rows, read_events
from usdenoise.files.input_files import KnownContents, acquisition_files, check_unchanged, is_zarr
from usdenoise.files.open_input import Input, StoredFile
from usdenoise.files.recordings import FileFrames, last_file
from usdenoise.options.job_options import PATHS, SessionOptions
from usdenoise.pipeline.recording import Block, Chunk, Recording, Window, working_type
from usdenoise.pipeline.result import Doubt
from usdenoise.sessions import blocks as session_blocks
from usdenoise.sessions.blocks import FileTime
from usdenoise.sessions.design import Event, check_events
from usdenoise.stack.geometry import Geometry
from usdenoise.system.text import beyond

Paths = str | Path | Sequence[str | Path]
"""A file or a folder, or several of them."""

Reading = Mapping[str, object]
"""Fields of :class:`usdenoise.options.ReadOptions`."""


@dataclass(frozen=True, kw_only=True)
class BlockFile:
    """A file of blocks, from its header.

    Attributes
    ----------
    path : Path
        The file.
    stored_file : StoredFile or None
        How it is read; None (the default) if it is not, and so are the next two.
    geometry : Geometry or None
        Its axes and scales.
    time : FileTime or None
        The time that it takes.
    state : dict
        Its size and modification time; empty if it is not read.
    n_frames : int
        Its frames, the selected ones.
    frame_step : float
        Frames of the file from one selected frame to the next.
    windows : sequence of Window
        The frames of its blocks; a file that is not read has one without frames.
    block_frames : float or None
        Frames of each block of a recording of several blocks, in units of the frame step; None (the default) for any other.
    problem : str
        Why it is not read, in words; empty (the default) if it is.
    has_slot : bool
        Whether it has a time slot: a missing block has one, a file that is ignored has none. True by default.
    """

    path: Path
    stored_file: StoredFile | None = None
    geometry: Geometry | None = None
    time: FileTime | None = None
    state: Mapping[str, int] = field(default_factory=dict)
    n_frames: int = 0
    frame_step: float = 1.0
    windows: Sequence[Window] = (Window(0, 0, False),)
    block_frames: float | None = None
    problem: str = ""
    has_slot: bool = True


@dataclass(frozen=True)
class SessionFiles:
    """The files of a session and the recording of their blocks, from :func:`open_session`.

    Attributes
    ----------
    recording : Recording
        The blocks.
    files : tuple of BlockFile
        The files of the blocks, missing ones among them.
    """

    recording: Recording
    files: tuple[BlockFile, ...]

    @property
    def n_frames(self) -> int:
        """Frames of all files."""
        return sum(file.n_frames for file in self.files)

    @property
    def states(self) -> dict[str, dict[str, int]]:
        """Path -> size and modification time of each file that is read."""
        return {str(file.path): dict(file.state) for file in self.files if file.state}

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons to doubt the order of the blocks: no file has a start, and the files were written in another order."""
        edges = np.cumsum([0, *self.recording.positions]).tolist()
        # Each position has an order of its own.
        of_positions = [self.recording.blocks[first:stop] for first, stop in pairwise(edges)]
        groups = [[self.files[n] for n in sorted({block.file for block in part})] for part in of_positions]
        for files in groups or [list(self.files)]:
            read = [file for file in files if file.time]
            has_starts = any(file.time and file.time.start_s is not None for file in files)
            if not has_starts and session_blocks.is_against_times([file.state["mtime_ns"] for file in read]):
                sentence = (
                    f"the names of the blocks ({read[0].path.name} first, {read[-1].path.name} last) and the times at which "
                    "files were written have different orders; name the files in the order of time if the names are wrong"
                )
                return (Doubt("block-times", sentence),)
        return ()

    def path_of(self, number: int) -> Path:
        """Return the file of a block."""
        return self.files[self.recording.blocks[number].file].path

    @contextmanager
    def opened(self, number: int) -> Iterator[Input]:
        """Yield the open file of a block that can be read."""
        stored_file = self.files[self.recording.blocks[number].file].stored_file
        assert stored_file is not None
        with last_file.opened(stored_file) as source:
            yield source

    def geometry_of(self, number: int) -> Geometry:
        """Return the geometry of a block, with the metadata of its file."""
        window = self.recording.blocks[number].window
        with self.opened(number) as source:
            return source.geometry_of(window.start, window.stop)

    def check_unchanged(self) -> None:
        """Check that no file has changed since it was opened first.

        Raises
        ------
        InputError
            If one has.
        """
        for file in self.files:
            if file.state:
                check_unchanged(file.path, file.state)


@contextmanager
def open_session(
    paths: Sequence[Path],
    reading: Reading,
    precision: str,
    options: SessionOptions,
    notes: Sequence[str] = (),
) -> Iterator[SessionFiles]:
    """Yield the blocks of one or several files, of which one is open at a time.

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
    notes : sequence of str
        Further sentences for the assumptions; none by default.

    Raises
    ------
    InputError
        If a file cannot be read or differs from the other files, and bad files are not skipped.
    OptionError
        If the window is longer than a file.
    """
    try:
        # Read the headers, and find the geometry that the files have in common.
        found = _read_headers(paths, reading, precision, options)
        usual = _usual_geometry(found)
        for number, file in enumerate(found):
            try:
                if file.geometry is not None:
                    session_blocks.check_alike(file.geometry, usual, file.path)
            except InputError as error:
                found[number] = _skipped(file.path, error, options, len(paths))
        # Cut those that have a time slot into blocks.
        files = tuple(file for file in found if file.has_slot)
        frame_time = max(file.frame_step for file in found)
        if usual.frame_rate_hz:
            frame_time = 1 / usual.frame_rate_hz
        starts = session_blocks.start_times(
            [file.time for file in files], frame_time, options.block_interval_s
        )
        dtype = working_type(usual, precision)
        blocks = _cut_into_blocks(files, starts, Recording(usual, dtype, [], frame_time), options)
        for before, later in pairwise(blocks):
            if later.start_s < before.start_s:
                raise InputError(
                    f"{later.name} begins before the previous file",
                    remedy="name the files in the order of time, or give {block_interval_s}",
                )
        if options.block_interval_s is None:
            _check_no_overlap(files, starts, frame_time)
        # What is not as the files say is in the notes of the geometry.
        of_files = [*_notes(found, usual, options), *beyond(options.blocks, len(blocks), "blocks", "session")]
        geometry = replace(usual, assumptions=(*usual.assumptions, *of_files, *notes))
        if len(paths) > 1:
            last_file.close()
        # A single file stays open for its blocks.
        yield SessionFiles(
            Recording(geometry, dtype, session_blocks.chosen_blocks(blocks, options), frame_time), files
        )
    finally:
        last_file.close()


ONE_PATH = "poses paths requires a path for each position of the probe, and there is one"


@contextmanager
def open_positions(
    groups: Sequence[Sequence[Path]],
    reading: Reading,
    precision: str,
    options: SessionOptions,
    notes: Sequence[str] = (),
) -> Iterator[SessionFiles]:
    """Yield the blocks of several positions of the probe, each with files of its own, one position after the other.

    Parameters
    ----------
    groups : sequence of sequences of Path
        The files of each position, in the order of time.
    reading, precision, options, notes
        As for :func:`open_session`.

    Raises
    ------
    InputError, OptionError
        As for :func:`open_session`, also if positions differ in their pixels or scales.
    """
    every = [path.absolute() for group in groups for path in group]
    # Before what a stopped session has stored is touched
    if len(groups) < 2:
        raise OptionError(ONE_PATH, remedy="give several paths")
    if len({*every}) < len(every):
        twice = next(path for path in every if every.count(path) > 1)
        raise InputError(f"{twice} is in two positions", remedy="name it once")
    with ExitStack() as opened:
        how = (reading, precision, options, notes)
        found = [opened.enter_context(open_session(group, *how)) for group in groups]
        first, blocks, files = found[0].recording, list[Block](), list[BlockFile]()
        times = [position.files[0].time for position in found]
        starts = [None if time is None else time.start_s for time in times]
        known = [start for start in starts if start is not None]
        # One clock: all first files have starts, which differ, and the positions overlap in time. Otherwise the times and
        # the events of each position begin at its first frame.
        longest = max(position.recording.blocks[-1].start_s for position in found)
        has_clock = len(known) == len(found) and 0 < max(known) - min(known) < longest
        for position, group, start in zip(found, groups, starts, strict=True):
            session_blocks.check_alike(position.recording.geometry, first.geometry, group[0])
            later = (start or 0.0) - min(known) if has_clock else 0.0
            blocks += [
                replace(block, file=block.file + len(files), start_s=block.start_s + later)
                for block in position.recording.blocks
            ]
            files += position.files
        geometry = first.geometry
        if not has_clock:
            note = "the first frame of each position is taken to be at 0 s"
            geometry = replace(geometry, assumptions=(*geometry.assumptions, note))
        positions = tuple(len(position.recording.blocks) for position in found)
        joined = replace(first, geometry=geometry, blocks=blocks, positions=positions)
        yield SessionFiles(joined, tuple(files))


def _read_headers(
    paths: Sequence[Path], reading: Reading, precision: str, options: SessionOptions
) -> list[BlockFile]:
    """Return the files from their headers, or why one cannot be read, if bad files are skipped."""
    contents, known, found = KnownContents(), dict[tuple[int, int], Path](), list[BlockFile]()
    for path in paths:
        try:
            # The same file may have another name. What is wrong with a path is reported when it is opened.
            with suppress(OSError):
                status = path.stat()
                identity = status.st_dev, status.st_ino
                if identity in known:
                    raise NoStackError(f"{path} is the same file as {known[identity]}", remedy="name it once")
                known[identity] = path
            stored_file = _session_file(path, reading, precision)
            with last_file.opened(stored_file) as source:
                geometry = source.geometry
                original = contents.copy_of(path) if len(paths) > 1 else None
                # Recordings that failed may all be zero.
                if original is not None and source.read_chunk(0, min(2, source.n_frames)).any():
                    raise NoStackError(f"{path} is a copy of {original}", remedy="remove one of them")
                file = BlockFile(
                    path=path,
                    stored_file=stored_file,
                    geometry=geometry,
                    time=FileTime.of(geometry, source.time_of_first_frame, source.duration),
                    state=dict(source.state),
                    n_frames=source.n_frames,
                    frame_step=float(source.frames.step),
                    windows=_windows(source, options),
                    block_frames=source.stack.block_frames and source.stack.block_frames / source.frames.step,
                )
        except (InputError, OptionError) as error:
            file = _skipped(path, error, options, len(paths))
        found.append(file)
    return found


def _skipped(path: Path, error: InputError | OptionError, options: SessionOptions, n_files: int) -> BlockFile:
    """Return a file that is not read, or raise the error if bad files are not skipped."""
    if n_files == 1:
        raise error
    has_slot = not isinstance(error, NoStackError)
    located = error.at(path.name, session_blocks.OR_SKIP if has_slot else session_blocks.OR_IGNORE)
    if not options.skip_bad_files:
        raise located from error
    return BlockFile(path=path, problem=located.cause, has_slot=has_slot)


def _windows(source: Input, options: SessionOptions) -> list[Window]:
    """Return the windows of a file, none of which has frames of two blocks of the file."""
    windows: list[Window] = []
    edges, length = source.block_edges.tolist(), options.window
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
            cut = session_blocks.windows_of(n_frames, length, options.stride)
        windows += [replace(window, start=first + window.start, stop=first + window.stop) for window in cut]
    return windows


def _usual_geometry(files: Sequence[BlockFile]) -> Geometry:
    """Return the geometry of the first file that can be read, or of the next one if only the first has another image."""
    known = [file.geometry for file in files if file.geometry is not None]
    if not known:
        raise InputError(f"none of {len(files)} files can be read; the first one: {files[0].problem}")
    images = [(geometry.axes, geometry.shape_in(geometry.spatial_axes)) for geometry in known]
    return known[len(images) > 2 and images[0] not in images[1:]]


def _cut_into_blocks(
    files: Sequence[BlockFile], starts: NDArray[np.float64], recording: Recording, options: SessionOptions
) -> list[Block]:
    """Return the blocks of files that begin at some times, for a recording without blocks."""
    interval, frame_time = options.block_interval_s, recording.frame_time
    # A missing block has no frames, and its time is the middle of its time slot.
    middle = float(np.median([file.time.offset + file.n_frames / 2 for file in files if file.time]))
    length = float(np.median([file.time.duration for file in files if file.time]))
    has_windows = len(files) == 1 or any(len(file.windows) > 1 for file in files)
    step = (options.stride or options.window or length) if has_windows else length
    if files[0].block_frames is not None:
        step = files[0].block_frames
    session_blocks.check_interval(interval, recording.geometry.frame_rate_hz, step)
    blocks: list[Block] = []
    for number, (file, begin) in enumerate(zip(files, starts.tolist(), strict=True)):
        for window in file.windows:
            since = middle if file.time is None else file.time.offset + window.start
            start_s = begin + since * frame_time
            if interval is not None and file.block_frames is not None:
                # The interval is that of the blocks of the recording, and windows may cut them
                before, inside = divmod(since, file.block_frames)
                start_s = begin + before * interval + inside * frame_time
            elif interval is not None and has_windows:
                start_s = len(blocks) * interval
            chunks = []
            if file.stored_file is not None:
                frames = FileFrames(file.stored_file, window.start, window.stop, recording.dtype)
                chunks = [Chunk(0, frames)]
            block = Block(chunks=chunks, window=window, start_s=start_s)
            blocks.append(replace(block, name=file.path.name, file=number, problem=file.problem))
    return blocks


def _check_no_overlap(files: Sequence[BlockFile], starts: NDArray[np.float64], frame_time: float) -> None:
    """Check that no file begins before the frames of the file in front of it end; a frame may be rounded away."""
    read = [(file, file.time, start) for file, start in zip(files, starts.tolist(), strict=True) if file.time]
    for (before, time, begin), (later, _, start) in pairwise(read):
        lasts, after = time.duration * frame_time, start - begin
        if after < lasts - frame_time:
            raise InputError(
                f"{later.path.name} begins {after:g} s after {before.path.name}, which lasts {lasts:g} s",
                remedy="correct the times in the files, or give {block_interval_s}",
            )


def _notes(files: Sequence[BlockFile], usual: Geometry, options: SessionOptions) -> list[str]:
    """Return a sentence on each file that is ignored, on files with notes of their own, and on times."""
    notes = [f"{file.problem}; it is ignored" for file in files if not file.has_slot]
    own = [
        f"{file.path.name}: {note}"
        for file in files
        if file.geometry is not None
        for note in file.geometry.assumptions
        if note not in usual.assumptions
    ]
    notes += own[:1]
    if len(own) > 1:
        notes.append(f"{len(own) - 1} similar notes on other files")
    if options.block_interval_s is None:
        # The blocks of one file have no times of their own.
        notes += [session_blocks.NO_STARTS] if len(files) == 1 and files[0].block_frames else []
        notes += session_blocks.time_notes([file.time for file in files if file.time is not None], usual)
    return notes


def session_files(
    paths: Paths, options: SessionOptions, output: Path, patterns: Sequence[str] = ()
) -> tuple[tuple[Path, ...], tuple[tuple[Path, ...], ...]]:
    """Return the files of a session, and those of each path if each is a position of the probe. See :func:`block_files`."""
    if options.poses != PATHS:
        return tuple(block_files(paths, output, patterns)), ()
    each = [paths] if isinstance(paths, str | Path) else paths
    groups = tuple(tuple(block_files(path, output, patterns)) for path in each)
    return tuple(file for group in groups for file in group), groups


def block_files(paths: Paths, output: Path, patterns: Sequence[str] = ()) -> list[Path]:
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
            files += acquisition_files(input_path, output, patterns)
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


def only_folder(paths: Sequence[object]) -> Path:
    """Return the only one of the paths, the folder in which the blocks of a live session appear."""
    path = paths[0] if len(paths) == 1 else None
    if not isinstance(path, str | Path):
        raise OptionError(
            "a live session requires one folder, in which the blocks appear; name only this folder"
        )
    return Path(path)


def with_own_window(
    options: SessionOptions, paths: Sequence[Path], reading: Reading, precision: str
) -> SessionOptions:
    """Return the options of a session whose window is a block of its files, if they hold several and no window is given."""
    # What is wrong with a file is reported when the session is opened.
    with (
        suppress(InputError, OptionError),
        last_file.opened(_session_file(paths[0], reading, precision)) as source,
    ):
        length = source.stack.block_frames
        if options.window is None and length is not None:
            return replace(options, window=-(-length // source.frames.step))
    return options


def _session_file(path: Path, reading: Reading, precision: str) -> StoredFile:
    """Return a file of which all blocks are read by default, not the first one."""
    how = {**reading, "frames": reading.get("frames") or slice(None)}
    return StoredFile.at(path.absolute(), how, precision)


@runtime_checkable
class EventTable(Protocol):
    """A DataFrame of pandas or polars with the columns of a BIDS table of events."""

    def to_dict(self, orient: Any) -> Any:
        """Return the rows for "records" (pandas)."""


EventSource = str | Path | Sequence[tuple[float, float, str] | tuple[float, float, str, float]] | EventTable
"""A BIDS table of events, a DataFrame of its columns, or (onset, duration, trial_type[, modulation]) of each."""


def events_so_far(source: EventSource | None) -> Callable[[], tuple[Sequence[Event], str]] | None:
    """Return a function for the events of a live session, and for what is wrong with them; None without a source.

    The events are the current content of a file, or its last content that was right.
    """
    if source is None:
        return None
    known: list[Event] = []

    def current_events() -> tuple[Sequence[Event], str]:
        nonlocal known
        try:
            events = events_of(source)[0]
            check_events(events)
        except InputError as error:
            return known, cause_of(error)
        known = events
        return known, ""

    return current_events


def events_of(source: EventSource | None) -> tuple[list[Event], list[str]]:
    """Return the events of a table or a DataFrame, or of tuples, and notes on columns that are not used; None has none.

    Raises
    ------
    InputError
        As for :func:`usdenoise.files.bids.read_events`.
    """
    if source is None:
        return [], []
    if isinstance(source, str | Path):
        return read_events(Path(source))
    if isinstance(source, EventTable):
        # A DataFrame of polars has a method for its rows.
        rows = source.to_dicts() if hasattr(source, "to_dicts") else source.to_dict("records")
        return events_of_rows(rows, "the table of events", "row", 0)
    try:
        columns = (*REQUIRED, "trial_type", "modulation")
        rows = [dict(zip(columns[: max(3, len(event))], event, strict=True)) for event in source]
    except (TypeError, ValueError) as error:
        raise InputError(
            "the events are no table and no sequence of (onset, duration, trial_type) or (..., modulation)",
            remedy="give a path, a DataFrame, or tuples",
        ) from error
    return events_of_rows(rows, "the sequence of events", "event", 0)
