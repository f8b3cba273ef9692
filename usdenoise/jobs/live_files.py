"""The block files of a folder as they become whole, and the session that grows with them."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usdenoise.errors import InputError, NoStackError, OptionError, UsdenoiseError, cause_of
from usdenoise.files.input_files import KnownContents, acquisition_files, file_state, natural_key
from usdenoise.files.open_input import open_input
from usdenoise.pipeline.doubts import Doubt
from usdenoise.sessions.blocks import FileTime
from usdenoise.sessions.live_state import BlockAtWork, SessionUpdate
from usdenoise.sessions.online_session import OnlineSession
from usdenoise.system.resources import available_threads

POLL_S = 0.02
"""Seconds between two looks at the folder. Network folders send no events."""

STEADY_S, SMALL_STEADY_S, USUAL_SHARE = 0.2, 1.0, 0.98
"""Seconds for which a file must not change to be whole: the first, or the second for the first file and for one that is
smaller than this share of the previous block."""

AGAIN_S, GIVE_UP_S = 0.5, 10.0
"""Seconds until a file that cannot be read is tried again, and after which it is skipped unless it changes. A block is
also watched for changes until it has been the same for the latter."""

REMOVED = "it was removed before it was read"


@dataclass
class _Candidate:
    """A file that is not yet a block."""

    path: Path
    state: Mapping[str, Any] | None
    since: float
    tried: float = -1e9
    error: UsdenoiseError | OSError | None = None
    """Why it could not be read."""

    def steady_s(self, usual_bytes: int) -> float:
        """Return the seconds for which the file must not change; `usual_bytes` is the size of the previous block, or 0."""
        if not usual_bytes or self.state is None or self.state["bytes"] < USUAL_SHARE * usual_bytes:
            return SMALL_STEADY_S
        return STEADY_S


class LiveBlocks:
    """Blocks of a session from a folder into which their files are still to come; an iterator over its updates.

    A file is a block when it can be read and has not changed from before it was read until after it was filtered. A file
    that is still being written is tried again. It ends when nothing has come for a while.

    Parameters
    ----------
    folder : Path
        The folder of the blocks, which may be in subfolders. It may be empty.
    session : OnlineSession
        Gets the blocks.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    precision : str or None
        Of the values that are read.
    patterns : sequence of str
        Shell patterns that the names of files must match; by default the suffixes of the known formats.
    until_idle_s : float, optional
        Seconds without a new file after which it ends; by default it does not.
    output : Path, optional
        A folder to skip; by default none.

    Attributes
    ----------
    n_waiting : int
        Files that are there and not yet filtered.
    seconds : float
        Seconds from when the file of the last block had changed for the last time until it was filtered.
    passed_over : dict
        Path -> why the file is not accepted as a block, in words.
    filtered : list of Path
        The files of the blocks.

    Raises
    ------
    InputError
        If there is no such folder.
    OptionError
        If the first file cannot be filtered with these options.
    """

    def __init__(
        self,
        folder: Path,
        session: OnlineSession,
        reading: Mapping[str, Any],
        precision: str | None,
        patterns: Sequence[str] = (),
        until_idle_s: float | None = None,
        output: Path | None = None,
    ) -> None:
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder; a live session requires the folder in which the blocks appear"
            )
        # Paths below "." have two spellings.
        folder = folder.absolute()
        self._folder, self._session = folder, session
        self._reading, self._precision = reading, precision
        self._patterns, self._idle_s = patterns, until_idle_s
        self._output = output or folder
        self._seen: set[str] = set()
        self._candidates: dict[Path, _Candidate] = {}
        self._contents = KnownContents()
        self._at_work: deque[tuple[_Candidate, BlockAtWork]] = deque()
        self._done: dict[Path, _Candidate] = {}
        self._changed: set[Path] = set()
        self._n_done, self._usual_bytes = 0, 0
        self._events_problem, self._doubts = "", tuple[Doubt, ...]()
        self.passed_over: dict[Path, str] = {}
        self.filtered: list[Path] = []
        self.seconds = 0.0

    @property
    def n_waiting(self) -> int:
        """Files that are there and not yet filtered."""
        return sum(path not in self.passed_over for path in self._candidates) + len(self._at_work)

    @property
    def remarks(self) -> list[str]:
        """Sentences on the files, on doubts about the maps, and on events that cannot be used."""
        remarks = [*self.file_remarks, *(doubt.sentence for doubt in self._doubts)]
        if self._events_problem:
            remarks.append(f"the activation does not show the current events: {self._events_problem}")
        return remarks

    @property
    def file_remarks(self) -> list[str]:
        """Sentences on files that were skipped, and on files that changed after they were filtered."""
        remarks = [f"{path.name} is skipped: {why}" for path, why in self.passed_over.items()]
        remarks += [
            f"{path.name} changed after it was filtered: the live pictures show its old content, and the final series will "
            "contain the new one"
            for path in sorted(self._changed)
        ]
        return remarks

    def __iter__(self) -> Iterator[SessionUpdate]:
        last = time.monotonic()
        while True:
            began = time.monotonic()
            if self._look(began):
                last = began
            self._begin(began)
            update = self._finish()
            if update is not None:
                last = time.monotonic()
                yield update
            elif not self._at_work:
                errors = {path: each.error for path, each in self._candidates.items() if each.error}
                is_idle = self._idle_s is not None and time.monotonic() - last > self._idle_s
                if is_idle and len(errors) == len(self._candidates):
                    wrong = [error for error in errors.values() if isinstance(error, OptionError)]
                    if wrong and not self._n_done:
                        raise wrong[0]
                    self.passed_over |= {path: cause_of(error) for path, error in errors.items()}
                    return
                # A folder of many files, or on a network, is not looked at all the time.
                time.sleep(max(POLL_S, 4 * (time.monotonic() - began)))

    def _look(self, now: float) -> bool:
        """Look for files that came, changed or went; return whether any did."""
        changed = False
        for path in acquisition_files(self._folder, self._output, self._patterns, self._seen):
            self._seen.add(str(path))
            self._candidates[path] = _Candidate(path, None, now)
        for path, known in list(self._candidates.items()):
            state = file_state(path)
            if state is None:
                del self._candidates[path]
                self._seen.discard(str(path))
                self.passed_over[path] = REMOVED
            elif known.state != state:
                self._candidates[path] = _Candidate(path, state, now)
                self.passed_over.pop(path, None)
                changed = True
        return self._look_again(now) or changed

    def _look_again(self, now: float) -> bool:
        """Look for blocks that changed after they were filtered; return whether any did."""
        changed = False
        for path, known in list(self._done.items()):
            state = file_state(path)
            if state is None or now - known.since > GIVE_UP_S:
                del self._done[path]
            if state is None or state == known.state:
                continue
            changed = True
            self._done[path] = _Candidate(path, state, now)
            self._changed.add(path)
        return changed

    def _begin(self, now: float) -> None:
        """Read files that may be whole, in natural order, and begin to filter them."""
        ready = sorted(
            (candidate for candidate in self._candidates.values() if self._may_be_whole(candidate, now)),
            key=lambda candidate: natural_key(str(candidate.path)),
        )
        most = min(available_threads(), self._session.most_at_work)
        for candidate in ready[: most - len(self._at_work)]:
            candidate.tried, path = now, candidate.path
            try:
                with open_input(path, self._reading, self._precision) as source:
                    if source.stack.block_frames is not None:
                        raise InputError(
                            f"{path} holds several blocks, and a live session requires a file for each block",
                            remedy="omit {live}",
                        )
                    stack = source.read(0, source.n_frames)
                    original = self._contents.copy_of(path)
                    # Recordings that failed may all be zero.
                    if original is not None and stack.iq.any():
                        raise NoStackError(f"it is a copy of {original.name}", remedy="remove one of them")
                    file_time = FileTime.of(stack, source.time_of_first_frame, source.duration)
                    block = self._session.begin(stack, path.name, file_time, len(self._at_work))
            except (UsdenoiseError, OSError) as error:
                candidate.error = error
                if now - candidate.since > GIVE_UP_S:
                    if isinstance(error, OptionError) and not self._n_done:
                        raise
                    self.passed_over[path] = cause_of(error)
                continue
            del self._candidates[path]
            self._at_work.append((candidate, block))

    def _may_be_whole(self, candidate: _Candidate, now: float) -> bool:
        """Return whether a file has not changed for long enough to try and read it."""
        if self._n_done:
            is_usual = candidate.steady_s(self._usual_bytes) == STEADY_S
            steady = POLL_S if is_usual else SMALL_STEADY_S
        else:
            # It is filtered while it is waited for.
            steady = STEADY_S
        return now - candidate.since >= steady and now - candidate.tried >= AGAIN_S

    def _finish(self) -> SessionUpdate | None:
        """Return the update of the next block, if it is filtered and its file is as it was."""
        if not self._at_work:
            return None
        candidate, block = self._at_work[0]
        steady = candidate.since + candidate.steady_s(self._usual_bytes) - time.monotonic()
        if not wait([block.filtered], POLL_S).done or steady > 0:
            time.sleep(min(POLL_S, max(0.0, steady)))
            return None
        self._at_work.popleft()
        if file_state(candidate.path) != candidate.state:
            # It is looked at again, as one that has changed.
            self._candidates[candidate.path] = candidate
            return None
        assert candidate.state is not None
        self._n_done, self._usual_bytes = self._n_done + 1, candidate.state["bytes"]
        self._done[candidate.path] = candidate
        self.filtered.append(candidate.path)
        update = self._session.finish(block)
        self._events_problem, self._doubts = update.events_problem, update.doubts
        self.seconds = time.monotonic() - candidate.since
        return update
