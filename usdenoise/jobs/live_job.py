"""A live session: the files of a folder as they become whole, pictures while they come, and the final session."""

import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.blood.picture_quality import NOISE_ERROR, blood_pixels
from usdenoise.errors import InputError, NoStackError, OptionError, UsdenoiseError, cause_of
from usdenoise.files.input_files import KnownContents, acquisition_files, file_state, natural_key
from usdenoise.files.open_input import open_input
from usdenoise.files.output_folder import OutputFolder, write_files
from usdenoise.files.results import ResultFile, write_result
from usdenoise.jobs.job import Job
from usdenoise.pipeline.result import Doubt
from usdenoise.progress import Progress
from usdenoise.report import pictures
from usdenoise.report.page_content import live_page_of
from usdenoise.report.panels import load_libraries
from usdenoise.report.scan_page import Picture
from usdenoise.report.sentences import displacement_text
from usdenoise.sessions.blocks import FileTime
from usdenoise.sessions.live_state import REMEMBERED, BlockAtWork, SessionUpdate
from usdenoise.sessions.online_session import OnlineSession
from usdenoise.sessions.regions import region_columns
from usdenoise.sessions.result_series import activation_contents
from usdenoise.stack.arrays import NamedArray
from usdenoise.system.processes import Terminated
from usdenoise.system.resources import available_threads, run_in_background
from usdenoise.system.text import rate_text, short_stem

LATEST, ACTIVATION_PICTURE, LIVE_PAGE = "latest.png", "activation.png", "live.html"
"""Names of the picture of the last block, of the activation by the first type of event, and of the page."""

SETTLED_BLOCKS = 20
"""Good blocks from which the blood of a block is near its value in the final series. In three sessions of 24 blocks of
48 x 48 x 200 it was 0.4 to 1.5 times this value before, and 0.98 to 1.26 times from 17 blocks on."""

SHOWN_T = 3.0
"""Absolute t from which a pixel is shown as active while a session runs."""

SERIES = "_live.h5"
"""End of the name of the file of the series so far."""

MOST_LATE_S, LEAST_PAGE_S, PAGE_SHARE = 1.0, 1.0, 0.1
"""Seconds after which the picture is drawn although blocks wait, seconds from page to page at least, and the most of the
time that pages may take."""


def follow(blocks: "LiveBlocks", job: Job, watcher: Progress) -> "LivePages":
    """Show the blocks of a session as they come, until it ends or SIGINT comes.

    Parameters
    ----------
    blocks : LiveBlocks
        The blocks that are still to come.
    job : Job
        The session. Its folder gets the picture of the last block, the page, and the file of the series so far.
    watcher : Progress
        Its method `live` is called after each block.

    Returns
    -------
    LivePages
        The page, which does not hold the blocks, to be ended when the final series is finished.
    """
    # The first picture does not wait for it.
    run_in_background(load_libraries)
    pages = LivePages(job)
    update = None
    try:
        for update in blocks:
            pages.show(update, blocks)
            words = _in_words(update, blocks)
            watcher.live(update.number, update.name, words, update.why, blocks.remarks)
            pages.write_if_due(update, blocks)
    except KeyboardInterrupt as error:
        if isinstance(error, Terminated) and error.number != signal.SIGINT:
            raise
    pages.filtered, pages.file_remarks = blocks.filtered, blocks.file_remarks
    if update is not None:
        pages.write(update, blocks, is_running=False)
    return pages


def _in_words(update: SessionUpdate, blocks: "LiveBlocks") -> str:
    """Return what was measured of a block, and how fast."""
    blood, steady = update.blood_to_noise_db, update.unsteadiness
    parts = [
        f"{blocks.n_waiting} waiting",
        f"{blocks.seconds:.1f} s",
        rate_text(blocks.frames_a_second),
        "no blood" if blood is None else f"blood {blood:.1f} dB",
        f"moved {displacement_text(update.motion[-1], update.geometry)}",
        "" if steady is None else f"varies by {100 * steady:.1f} %",
    ]
    return "  ".join(filter(None, parts))


class LivePages:
    """The picture of the last block, the page and the series of a live session.

    Parameters
    ----------
    job : Job
        The session.

    Attributes
    ----------
    file_remarks : list of str
        A sentence on each file that is not a block, when the session has ended.
    filtered : list of Path
        Files of the blocks, when the session has ended.
    """

    def __init__(self, job: Job) -> None:
        self._stem, self._folder, self._display = short_stem(job.name), job.root, job.display
        self._latest, self._drawn, self._next_page = b"", -MOST_LATE_S, 0.0
        self._shown: SessionUpdate | None = None
        self._page: Callable[..., str] | None = None
        self._remarks: list[str] = []
        self.file_remarks: list[str] = []
        self.filtered: list[Path] = []

    @property
    def missing(self) -> str:
        """What a final series would lack, in a sentence: files of blocks that were removed; empty if all are there."""
        gone = [path for path in self.filtered if not os.path.exists(path)]
        if not gone:
            return ""
        left = "" if len(gone) == len(self.filtered) else "; a session of the folder filters the other files"
        return (
            f"{len(gone)} of {len(self.filtered)} block files, from {gone[0].name} to {gone[-1].name}, were removed after "
            f"they were filtered, so no final series can be made. The result is {self._stem}{SERIES}: the courses of the "
            f"regions and the maps so far, without an image of each block{left}"
        )

    @property
    def result(self) -> dict[str, Any]:
        """The live results as a report, with what is missing."""
        series, page = self._folder / f"{self._stem}{SERIES}", self._folder / LIVE_PAGE
        output = {"live": str(series), "live_html": str(page)}
        return {"output": output, "notes": [*self._remarks, *filter(None, [self.missing])]}

    def show(self, update: SessionUpdate, blocks: "LiveBlocks") -> None:
        """Draw the last block, unless others wait and one was drawn a moment ago."""
        began = time.monotonic()
        if blocks.n_waiting and began - self._drawn < MOST_LATE_S:
            return
        self._draw(update)
        self._drawn = time.monotonic()
        blocks.seconds += self._drawn - began

    def write_if_due(self, update: SessionUpdate, blocks: "LiveBlocks") -> None:
        """Write the page and the series, if the last update is old enough."""
        began = time.monotonic()
        if began >= self._next_page:
            self.write(update, blocks)
            took = time.monotonic() - began
            self._next_page = began + took + max(LEAST_PAGE_S, took / PAGE_SHARE)

    def write(self, update: SessionUpdate, blocks: "LiveBlocks", is_running: bool = True) -> None:
        """Write the page and the series."""
        if self._shown is not update:
            self._draw(update)
        words = f"Blood of block {update.number}, counted from 0"
        caption, n_good = "Blood power without the noise.", _n_good(update)
        if n_good < SETTLED_BLOCKS:
            caption += f" It settles over {SETTLED_BLOCKS} blocks: until then it can be wrong by half."
        shown = [Picture("Last block", self._latest, words, caption)]
        if np.isfinite(update.mean_blood_power).all():
            mean = self._picture(update, update.mean_blood_power, f"mean of {n_good} blocks")
            words = f"Blood map of the mean of {n_good} blocks"
            shown.append(Picture("Mean", mean, words, "Blood map of the good blocks."))
        drawn = {name: self._activation(update, name, t) for name, t in update.activation.items()}
        self._remarks, final_page = blocks.remarks, None if is_running else f"{self._stem}_report.html"
        speed = blocks.n_waiting, blocks.seconds, blocks.frames_a_second
        page = live_page_of(self._stem, update, shown, drawn, *speed)
        self._page = partial(page, final_page=final_page)
        with OutputFolder(self._folder, overwrite=True) as outputs:
            outputs.reserve(LIVE_PAGE).write_text(
                self._page(remarks=self._remarks, is_finished=None), encoding="utf-8"
            )
            write_result(outputs.reserve(self._stem + SERIES), ".h5", _content(update))
            if drawn:
                outputs.reserve(ACTIVATION_PICTURE).write_bytes(next(iter(drawn.values())))
            outputs.commit()

    def end(self, is_finished: bool) -> None:
        """Write the page for the last time, when the final series is finished or has failed."""
        if self._page is not None:
            remarks = self._remarks if is_finished else self.result["notes"]
            page = self._page(remarks=remarks, is_finished=is_finished)
            write_files(self._folder, {LIVE_PAGE: page})

    def _draw(self, update: SessionUpdate) -> None:
        caption = f"block {update.number}, counted from 0"
        self._latest, self._shown = self._picture(update, update.blood_power, caption), update
        write_files(self._folder, {LATEST: self._latest})

    def _activation(self, update: SessionUpdate, trial_type: str, t: NDArray[np.float32]) -> bytes:
        in_vessels = blood_pixels(update.mean_blood_power, update.noise_power, NOISE_ERROR)
        active = in_vessels & (np.abs(t) > SHOWN_T)
        title = f"{trial_type}: |t| above {SHOWN_T:g} so far, in {int(active.sum())} pixels"
        layers = pictures.activation_layers(t, active, update.mean_blood_power, update.geometry.spatial_axes)
        return pictures.layers_picture(layers, update.geometry.spacing_mm, title, display=self._display)

    def _picture(self, update: SessionUpdate, power: NDArray[np.float32], caption: str) -> bytes:
        geometry = update.geometry
        settling = ", still settling" if _n_good(update) < SETTLED_BLOCKS else ""
        layer = pictures.power_layer(
            pictures.shown_levels(np.maximum(np.nan_to_num(power), 0), self._display),
            geometry.spatial_axes,
            self._display.dynamic_range,
            self._display.color_map,
            "blood power",
        )
        title = f"{self._stem}: {caption}{settling}"
        return pictures.layers_picture([layer], geometry.spacing_mm, title, display=self._display)


def _n_good(update: SessionUpdate) -> int:
    """Return the number of good blocks so far."""
    return int((~update.bad).sum())


def _content(update: SessionUpdate) -> ResultFile:
    """Return the file of the series so far: the regions over time, images of the mean and of the last block, and t."""
    spatial = update.geometry.spatial_axes
    arrays = [
        NamedArray("time", update.times, "t", {"unit": update.time_unit}),
        NamedArray("motion", update.motion, "t", {"unit": update.geometry.displacement_unit[1]}),
        NamedArray("bad", update.bad, "t"),
    ]
    columns = region_columns(update.series)
    arrays += [NamedArray(column, update.series[name], "t") for name, column in columns.items()]
    images = (*POWER_IMAGES, "mean_blood_power")
    arrays += [NamedArray(name, getattr(update, name), spatial) for name in images]
    maps = {name: {"t": t} for name, t in update.activation.items()}
    return ResultFile(update.geometry, [*arrays, *activation_contents(update.events, spatial, maps)], "{}")


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
    job : Job
        How files are read, after how many seconds without a new one it ends, and the folder of the results, which it skips.
    folder : Path
        The folder of the blocks, which may be in subfolders. It may be empty.
    session : OnlineSession
        Gets the blocks.
    patterns : sequence of str
        Shell patterns that the names of files must match; by default the suffixes of the known formats.

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

    def __init__(self, job: Job, folder: Path, session: OnlineSession, patterns: Sequence[str] = ()) -> None:
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder; a live session requires the folder in which the blocks appear"
            )
        # Paths below "." have two spellings.
        self._job, self._folder, self._session = job, folder.absolute(), session
        self._patterns, self._idle_s = patterns, job.session_options.until_idle_s
        self._seen: set[str] = set()
        self._candidates: dict[Path, _Candidate] = {}
        self._contents = KnownContents()
        self._at_work: deque[tuple[_Candidate, BlockAtWork]] = deque()
        self._done: dict[Path, _Candidate] = {}
        self._changed: set[Path] = set()
        self._usual_bytes = 0
        self._events_problem, self._doubts = "", tuple[Doubt, ...]()
        self.passed_over: dict[Path, str] = {}
        self.filtered: list[Path] = []
        self.seconds, self._finished = 0.0, -math.inf
        self._speeds: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)

    @property
    def n_waiting(self) -> int:
        """Files that are there and not yet filtered."""
        return sum(path not in self.passed_over for path in self._candidates) + len(self._at_work)

    @property
    def frames_a_second(self) -> float:
        """Frames that were filtered in a second of the time in which there were blocks to filter, over the latest blocks."""
        frames, seconds = (sum(values) for values in zip(*self._speeds, strict=True))
        return frames / seconds if seconds else math.inf

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
                    if wrong and not self.filtered:
                        raise wrong[0]
                    self.passed_over |= {path: cause_of(error) for path, error in errors.items()}
                    return
                # A folder of many files, or on a network, is not looked at all the time.
                time.sleep(max(POLL_S, 4 * (time.monotonic() - began)))

    def _look(self, now: float) -> bool:
        """Look for files that came, changed or went; return whether any did."""
        changed = False
        for path in acquisition_files(self._folder, self._job.root, self._patterns, self._seen):
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
        # Blocks may change after they were filtered.
        for path, known in list(self._done.items()):
            state = file_state(path)
            if state is None or now - known.since > GIVE_UP_S:
                del self._done[path]
            if state is not None and state != known.state:
                self._done[path] = _Candidate(path, state, now)
                self._changed.add(path)
                changed = True
        return changed

    def _begin(self, now: float) -> None:
        """Read files that may be whole, in natural order, and begin to filter them."""
        ready = sorted(
            (candidate for candidate in self._candidates.values() if self._may_be_whole(candidate, now)),
            # Files that were not tried yet come first: others would keep them waiting for ever.
            key=lambda candidate: (candidate.error is not None, natural_key(str(candidate.path))),
        )
        most = min(available_threads(), self._session.most_at_work)
        for candidate in ready[: most - len(self._at_work)]:
            candidate.tried, path = now, candidate.path
            try:
                with open_input(path, self._job.reading, self._job.options.precision) as source:
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
                    if isinstance(error, OptionError) and not self.filtered:
                        raise
                    self.passed_over[path] = cause_of(error)
                continue
            del self._candidates[path]
            self._at_work.append((candidate, block))

    def _may_be_whole(self, candidate: _Candidate, now: float) -> bool:
        """Return whether a file has not changed for long enough to try and read it, and is not skipped as it is."""
        if candidate.path in self.passed_over:
            return False
        if self.filtered:
            steady = POLL_S if candidate.steady_s(self._usual_bytes) == STEADY_S else SMALL_STEADY_S
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
        self._usual_bytes = candidate.state["bytes"]
        self._done[candidate.path] = candidate
        self.filtered.append(candidate.path)
        update = self._session.finish(block)
        self._events_problem, self._doubts = update.events_problem, update.doubts
        now = time.monotonic()
        self.seconds = now - candidate.since
        # Blocks side by side share their time
        self._speeds.append((block.sample.block.n_frames, now - max(candidate.tried, self._finished)))
        self._finished = now
        return update
