"""The blocks of a session in files."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from usdenoise.errors import InputError, OptionError
from usdenoise.files.file_state import check_unchanged
from usdenoise.files.file_window import FileWindow
from usdenoise.files.frame_source import FilePlace, last_file
from usdenoise.options.session_options import SessionOptions
from usdenoise.pipeline.windows import Window
from usdenoise.sessions.blocks import (
    NEAR,
    OR_SKIP,
    Block,
    check_alike,
    own_start,
    start_times,
    windows_of,
)
from usdenoise.stack.geometry import Geometry


@dataclass(frozen=True)
class _BlockFile:
    """A file of blocks: its frames, the time of the first one, and its windows; or why it cannot be read."""

    n_frames: int = 0
    own_start: float | None = None
    offset: float = 0.0
    windows: Sequence[Window] = (Window(0, 0, False),)
    problem: str = ""


class BlocksOfFiles:
    """The blocks of one or several files, of which one is open at a time; a context.

    Parameters
    ----------
    paths : sequence of Path
        The files, in the order of time.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    precision : str or None
        Of the values that are read.
    options : SessionOptions
        The options of the session. Without a window each file is a block. Without an interval the times come from the
        files. If a file has no time, blocks follow each other.

    Raises
    ------
    InputError
        If a file cannot be read or is unlike the first one, and is no gap.
    OptionError
        If the window is longer than a file.
    """

    _known: Geometry | None = None
    """The geometry of the first file that can be read."""

    def __init__(
        self,
        paths: Sequence[Path],
        reading: Mapping[str, Any],
        precision: str | None,
        options: SessionOptions,
    ) -> None:
        self._reading, self._precision, self.options = reading, precision, options
        self._window, self._stride = options.window, options.stride
        self._paths = list(paths)
        self._places: dict[int, FilePlace] = {}
        self.blocks: list[Block] = []
        self.states: dict[str, Any] = {}
        """Size and modification time of the files of each path."""
        with ExitStack() as opened:
            opened.callback(last_file.close)
            files = [self._look_into(number) for number in range(len(paths))]
            for number, (path, file) in enumerate(zip(paths, files, strict=True)):
                self.blocks += [
                    Block(path.name, number, part, file.offset + part.start, file.problem)
                    for part in file.windows
                ]
            if self._known is None:
                raise InputError(f"none of {len(paths)} files can be read; {self.blocks[0].problem}")
            self.geometry: Geometry = self._known
            self.n_frames: int = sum(file.n_frames for file in files)
            self._set_times(files, options.block_interval_s)
            self._check_order()
            if len(paths) == 1:
                # It stays open for its blocks.
                opened.pop_all()

    def _look_into(self, number: int) -> _BlockFile:
        """Return what is known of a file from its header; of one that cannot be read and is a gap, why."""
        path = self._paths[number]
        try:
            place = FilePlace.at(path, self._reading, self._precision)
            with last_file.opened(place) as source:
                geometry = source.geometry
                self._known = self._known or geometry
                check_alike(geometry, self._known, path)
                rate, step = self._known.frame_rate_hz, source.frames.step
                self.frame_time = 1 / rate if rate else float(step)
                whole = [Window(0, source.n_frames, True)]
                windows = (
                    whole if self._window is None else windows_of(source.n_frames, self._window, self._stride)
                )
                self._places[number] = place
                self.states[str(path)] = source.state
                return _BlockFile(
                    n_frames=source.n_frames,
                    own_start=own_start(geometry),
                    offset=source.time_of_first_frame,
                    windows=windows,
                )
        except (InputError, OptionError) as error:
            if len(self._paths) == 1:
                raise
            located = error.at(path.name, OR_SKIP)
            if not self.options.skip_bad_files:
                raise located from error
            return _BlockFile(problem=located.cause)

    def _set_times(self, files: Sequence[_BlockFile], interval: float | None) -> None:
        """Set the time of the first frame of each block."""
        if interval is not None and self.geometry.frame_rate_hz is None:
            raise OptionError(
                "is in s, and the frame rate is not known",
                option="block_interval_s",
                remedy="give {frame_rate_hz}",
            )
        lengths, is_one_file = [file.n_frames for file in files], len(files) == 1
        starts = start_times([file.own_start for file in files], lengths, self.frame_time, interval)
        usual = float(np.median([n for n in lengths if n]))
        step = (self._stride or self._window or usual) if is_one_file else usual
        seconds = step * self.frame_time
        if interval is not None and interval < (1 - NEAR) * seconds:
            raise OptionError(
                f"blocks of {seconds:g} s cannot begin every {interval:g} s",
                remedy="raise {block_interval_s}",
            )
        for place, block in enumerate(self.blocks):
            # A gap has no frames, and its time is the middle of those that it would have.
            begin = starts[block.file] + (usual / 2 if block.problem else block.start) * self.frame_time
            if interval is not None and is_one_file:
                begin = place * interval
            self.blocks[place] = replace(block, start=float(begin))

    def _check_order(self) -> None:
        times = [block.start for block in self.blocks]
        if times != sorted(times):
            later = next(n for n in range(1, len(times)) if times[n] < times[n - 1])
            raise InputError(
                f"{self.blocks[later].name} begins before the file in front of it",
                remedy="name the files in the order of time, or give {block_interval_s}",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        last_file.close()

    def reader(self, number: int) -> FileWindow:
        """Return the reader of a block."""
        block = self.blocks[number]
        return FileWindow(self._places[block.file], block.window)

    def path_of(self, number: int) -> Path:
        """Return the file of a block."""
        return self._paths[self.blocks[number].file]

    @property
    def passes(self) -> float | None:
        """Passes over the frames of the only file so far, one for the digest."""
        with last_file.opened(self._places[0]) as source:
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
