"""A live session: pictures while the blocks come, and the series of a finished session at the end."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.results import ResultFile, write_result
from usdenoise.jobs.live_files import LiveBlocks
from usdenoise.options.job_options import Display
from usdenoise.progress import LiveBlock, Progress
from usdenoise.report.page_content import live_page_of
from usdenoise.report.panels import load_libraries
from usdenoise.report.pictures import activation_picture, power_doppler_picture, shown_levels
from usdenoise.report.scan_page import Picture
from usdenoise.sessions.live_state import SessionUpdate
from usdenoise.sessions.regions import region_columns
from usdenoise.sessions.result_series import activation_contents
from usdenoise.stack.arrays import NamedArray
from usdenoise.system.processes import Terminated
from usdenoise.system.resources import run_in_background

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


def follow(blocks: LiveBlocks, stem: str, folder: Path, display: Display, watcher: Progress) -> "LivePages":
    """Show the blocks of a session as they come, until it ends or SIGINT comes.

    Parameters
    ----------
    blocks : LiveBlocks
        The blocks that are still to come.
    stem : str
        Name of the session.
    folder : Path
        Folder of the results. It gets the picture of the last block, the page, and the file of the series so far.
    display : Display
        How pictures look.
    watcher : Progress
        Its method `live` is called after each block.

    Returns
    -------
    LivePages
        The page, which does not hold the blocks, to be ended when the final series is finished.
    """
    # The first picture does not wait for it.
    run_in_background(load_libraries)
    pages = LivePages(stem, folder, display)
    update = None
    try:
        for update in blocks:
            pages.show(update, blocks)
            watcher.live(
                LiveBlock(
                    number=update.number,
                    name=update.name,
                    why=update.why,
                    motion=update.motion[-1],
                    blood_to_noise_db=update.blood_to_noise_db,
                    unsteadiness=update.unsteadiness,
                    n_waiting=blocks.n_waiting,
                    seconds=blocks.seconds,
                    remarks=blocks.remarks,
                )
            )
            pages.write_if_due(update, blocks)
    except KeyboardInterrupt as error:
        if isinstance(error, Terminated) and error.number != signal.SIGINT:
            raise
    pages.filtered, pages.file_remarks = blocks.filtered, blocks.file_remarks
    if update is not None:
        pages.write(update, blocks, is_running=False)
    return pages


class LivePages:
    """The picture of the last block, the page and the series of a live session.

    Parameters
    ----------
    stem, folder, display
        As for :func:`follow`.

    Attributes
    ----------
    file_remarks : list of str
        A sentence on each file that is not a block, when the session has ended.
    filtered : list of Path
        Files of the blocks, when the session has ended.
    """

    def __init__(self, stem: str, folder: Path, display: Display) -> None:
        self._stem, self._folder, self._display = stem, folder, display
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
        output = {
            "live": str(self._folder / f"{self._stem}{SERIES}"),
            "live_html": str(self._folder / LIVE_PAGE),
        }
        return {"output": output, "notes": [*self._remarks, *filter(None, [self.missing])]}

    def show(self, update: SessionUpdate, blocks: LiveBlocks) -> None:
        """Draw the last block, unless others wait and one was drawn a moment ago."""
        began = time.monotonic()
        if blocks.n_waiting and began - self._drawn < MOST_LATE_S:
            return
        self._draw(update)
        self._drawn = time.monotonic()
        blocks.seconds += self._drawn - began

    def write_if_due(self, update: SessionUpdate, blocks: LiveBlocks) -> None:
        """Write the page and the series, if the last update is old enough."""
        began = time.monotonic()
        if began >= self._next_page:
            self.write(update, blocks)
            took = time.monotonic() - began
            self._next_page = began + took + max(LEAST_PAGE_S, took / PAGE_SHARE)

    def write(self, update: SessionUpdate, blocks: LiveBlocks, is_running: bool = True) -> None:
        """Write the page and the series."""
        if self._shown is not update:
            self._draw(update)
        words = f"Blood of block {update.number}, counted from 0"
        caption, n_good = "Blood power without the noise.", _n_good(update)
        if n_good < SETTLED_BLOCKS:
            caption += f" It settles over {SETTLED_BLOCKS} blocks: until then it can be wrong by half."
        pictures = [Picture("Last block", self._latest, words, caption)]
        if np.isfinite(update.mean_blood_power).all():
            mean = self._picture(update, of_mean=True)
            pictures.append(
                Picture(
                    "Mean", mean, f"Blood map of the mean of {n_good} blocks", "Blood map of the good blocks."
                )
            )
        drawn = {name: self._activation(update, name, t) for name, t in update.activation.items()}
        self._remarks, final_page = blocks.remarks, None if is_running else f"{self._stem}_report.html"
        page = live_page_of(self._stem, update, pictures, drawn, blocks.n_waiting, blocks.seconds)
        self._page = partial(page, final_page=final_page)
        with OutputFolder(self._folder, overwrite=True) as outputs:
            outputs.reserve(LIVE_PAGE).write_text(self._page(remarks=self._remarks), encoding="utf-8")
            write_result(outputs.reserve(self._stem + SERIES), ".h5", _content(update))
            if drawn:
                outputs.reserve(ACTIVATION_PICTURE).write_bytes(next(iter(drawn.values())))
            outputs.commit()

    def end(self, is_finished: bool) -> None:
        """Write the page for the last time, when the final series is finished or has failed."""
        if self._page is not None:
            remarks = self._remarks if is_finished else self.result["notes"]
            page = self._page(remarks=remarks, is_finished=is_finished)
            with OutputFolder(self._folder, overwrite=True) as outputs:
                outputs.reserve(LIVE_PAGE).write_text(page, encoding="utf-8")
                outputs.commit()

    def _draw(self, update: SessionUpdate) -> None:
        self._latest, self._shown = self._picture(update), update
        with OutputFolder(self._folder, overwrite=True) as outputs:
            outputs.reserve(LATEST).write_bytes(self._latest)
            outputs.commit()

    def _activation(self, update: SessionUpdate, trial_type: str, t: NDArray[np.float32]) -> bytes:
        in_vessels = blood_pixels(update.mean_blood_power, update.noise_power)
        active = in_vessels & (np.abs(t) > SHOWN_T)
        return activation_picture(
            t,
            active,
            update.mean_blood_power,
            update.geometry.spatial_axes,
            spacing_mm=update.geometry.spacing_mm,
            title=f"{trial_type}: |t| above {SHOWN_T:g} so far, in {int(active.sum())} pixels",
        )

    def _picture(self, update: SessionUpdate, of_mean: bool = False) -> bytes:
        power = update.mean_blood_power if of_mean else update.blood_power
        geometry = update.geometry
        n_good = _n_good(update)
        caption = f"mean of {n_good} blocks" if of_mean else f"block {update.number}, counted from 0"
        if n_good < SETTLED_BLOCKS:
            caption += ", still settling"
        return power_doppler_picture(
            shown_levels(np.maximum(np.nan_to_num(power), 0), self._display),
            geometry.spatial_axes,
            dynamic_range_db=self._display.dynamic_range,
            color_map=self._display.color_map,
            quantity="blood power",
            spacing_mm=geometry.spacing_mm,
            title=f"{self._stem}: {caption}",
        )


def _n_good(update: SessionUpdate) -> int:
    """Return the number of good blocks so far."""
    return int((~update.bad).sum())


def _content(update: SessionUpdate) -> ResultFile:
    """Return the file of the series so far: the regions over time, images of the mean and of the last block, and t."""
    spatial = update.geometry.spatial_axes
    return ResultFile(
        update.geometry,
        [
            NamedArray("time", update.times, "t", {"unit": update.time_unit}),
            NamedArray("motion", update.motion, "t", {"unit": "pixels"}),
            NamedArray("bad", update.bad, "t"),
            *(
                NamedArray(column, update.series[name], "t")
                for name, column in region_columns(update.series).items()
            ),
            *(
                NamedArray(name, getattr(update, name), spatial)
                for name in (*POWER_IMAGES, "mean_blood_power")
            ),
            *activation_contents(
                update.events, spatial, {name: {"t": t} for name, t in update.activation.items()}
            ),
        ],
        "{}",
    )
