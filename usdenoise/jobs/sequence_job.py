"""A job whose result is a sequence: the power Doppler of each window of frames, with its time axis."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.formats.nifti import import_nibabel, write_nifti
from usdenoise.formats.open_input import Input, open_input
from usdenoise.formats.results import ResultFile
from usdenoise.formats.tiff import tiff
from usdenoise.images.flow import doppler_products
from usdenoise.images.power_doppler import POWER_IMAGES
from usdenoise.jobs.figure_settings import QUANTITIES, picture_formats, shown_levels, window_title
from usdenoise.jobs.frame_files import bad_frames_of, frames_of_windows
from usdenoise.jobs.job_frame import Job, StageClock
from usdenoise.jobs.page_content import PageContent, noise_over_depth
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.report import frames_of, source_of
from usdenoise.pictures.doppler_pictures import power_doppler_figure, power_doppler_png
from usdenoise.pictures.figures import encoded, shortened
from usdenoise.pictures.film import check_available, movie
from usdenoise.recipe.result import DenoiseResult
from usdenoise.recipe.windows import (
    FilteredWindow,
    Window,
    cut_into_windows,
    filter_windows,
    shortest_window,
)
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.provenance import to_json

_MOVIES = {"power_doppler": "movie", "blood_power": "blood_movie"}
_NIFTI = {"power_doppler": ("nifti", "pwd"), "blood_power": ("blood_nifti", "blood")}
"""Keys of the films, and keys and suffixes of the NIfTI files, by the image. BIDS calls power Doppler pwd."""

_DESCRIPTIONS = {
    "power_doppler": "Power Doppler in blocks of frames",
    "blood_power": "Blood power without noise in blocks of frames",
}

_TOTALS = ("iterations", "passes", "n_unobserved", "n_sampled")
"""Fields of the report that are summed over the windows."""


class SequenceJob:
    """The kind of job that writes a sequence of images. Only a few windows are in memory at a time.

    Parameters
    ----------
    job : Job
        The job to do.
    length : int
        Frames of a window.
    """

    def __init__(self, job: Job, length: int) -> None:
        self._job = job
        self._length = length
        self._stride = job.output.stride or length

    def check(self) -> None:
        """Check, before an hour of filtering, that films and NIfTI can be written.

        Raises
        ------
        OptionError
            If a package is missing, or a figure of one stack is asked for.
        """
        output = self._job.output
        if self._job.display.cutoff_figure:
            raise OptionError("a sequence has a cutoff in each window; leave out --cutoff-figure or --window")
        if self._job.display.frames_figure:
            raise OptionError("the frames are drawn for one stack; leave out --frames-figure or --window")
        if output.movie is not None:
            check_available(output.movie)
        if output.nifti:
            import_nibabel()

    @property
    def files(self) -> Mapping[str, str]:
        """The sequence, the picture of its mean, and the film and NIfTI files that were asked for."""
        output = self._job.output
        files = {"sequence": "sequence"}
        for name in self._shown:
            kinds = (*self._job.display.figure_formats, "tif")
            files |= {f"{name}_{kind}": f"{name}.{kind}" for kind in kinds}
        if output.movie is not None:
            files |= {_MOVIES[name]: f"{name}.{output.movie}" for name in self._shown}
        if output.nifti:
            for name in self._shown:
                key, suffix = _NIFTI[name]
                # BIDS has no suffix for the blood map.
                suffix = suffix if self._job.bids is None or suffix == "pwd" else f"desc-{suffix}_pwd"
                files |= {key: f"{suffix}.nii.gz", f"{key}_json": f"{suffix}.json"}
        return files

    @property
    def _shown(self) -> list[str]:
        return shown_images(self._job)

    def filter(self, watcher: Watcher, clock: StageClock) -> "FilteredSequence":
        """Read and filter window after window.

        Raises
        ------
        UsdenoiseError
            For anything that the user can mend.
        """
        job = self._job
        watcher.stage("load")
        with open_input(job.path, job.reading, job.options.precision) as stack:
            digest = stack.digest_in_background()
            shortest = shortest_window(job.options)
            windows = cut_into_windows(stack.n_frames, self._length, self._stride, shortest)
            with clock.stage("load"):
                first = stack.read(0, 2)
            watcher.loaded(first)
            watcher.stage("solve")

            frames_read = [first.n_frames]

            def read(start: int, stop: int) -> Acquisition:
                frames_read.append(stop - start)
                with clock.stage("load"):
                    return stack.read(start, stop)

            collected = _Collected(first)
            for filtered in filter_windows(read, windows, job.options, watcher.iteration):
                clock.add(filtered.result.timings_s)
                with clock.stage("write"):
                    collected.add(filtered, job.output.products)
            with clock.stage("load"):
                sha256 = digest.result()
            stack.check_unchanged()
            source = {
                **source_of(job.path, first, sha256),
                **stack.state,
                "shape": list(stack.shape),
                "passes_over_file": sum(frames_read) / stack.n_frames + 1,
            }
            times, unit = _times(stack, windows, first.frame_rate_hz)
        return FilteredSequence(
            job, source, first, windows, collected, times, unit, self._length, self._stride
        )


class _Collected:
    """The images and the records of the windows filtered so far.

    Parameters
    ----------
    first : Acquisition
        Two frames, which replace the stack of the result that is kept: a stack is the memory of a window.
    """

    def __init__(self, first: Acquisition) -> None:
        self._first = first
        self._worst: tuple[int, DenoiseResult] | None = None
        self.records: list[dict[str, Any]] = []
        self.images: dict[str, list[NDArray[np.float32]]] = {name: [] for name in POWER_IMAGES}
        self.attributes = dict(POWER_IMAGES)

    @property
    def worst(self) -> tuple[int, DenoiseResult]:
        """Number and result of the window with the largest error for its size."""
        assert self._worst is not None
        return self._worst

    def add(self, filtered: FilteredWindow, products: tuple[str, ...]) -> None:
        result = filtered.result
        for name in POWER_IMAGES:
            self.images[name].append(getattr(result, name))
        left_out = result.frame_quality.left_out
        if left_out is not None:
            left_out = left_out[-result.acquisition.n_frames :]
        for name, product in doppler_products(result.acquisition, products, left_out).items():
            self.images.setdefault(name, []).append(product.values)
            self.attributes[name] = {"unit": product.unit, "formula": product.formula}
        if self._worst is None or _error(result) > _error(self._worst[1]):
            self._worst = len(self.records), replace(result, acquisition=self._first)
        self.records.append(_record(filtered))


@dataclass(frozen=True)
class FilteredSequence:
    """The images of all windows (see :class:`usdenoise.jobs.job_frame.Filtered`).

    The result that the report describes is that of the window with the largest error for its size.
    """

    job: Job
    source: Mapping[str, Any]
    first: Acquisition
    windows: list[Window]
    collected: _Collected
    times: NDArray[np.float64]
    time_unit: str
    length: int
    stride: int

    @property
    def result(self) -> DenoiseResult:
        """The result of the window with the largest error for its size."""
        return self.collected.worst[1]

    @property
    def report_fields(self) -> Mapping[str, Any]:
        """Totals over the windows, and the record of each."""
        records = self.collected.records
        return {
            **{name: sum(record[name] for record in records) for name in _TOTALS},
            "bad_frames": list(
                {bad["frame"]: bad for record in records for bad in record["bad_frames"]}.values()
            ),
            "frames": frames_of_windows(records),
            "sequence": {
                "window": self.length,
                "stride": self.stride,
                "time": [float(value) for value in self.times],
                "time_unit": self.time_unit,
                "worst_block": self.collected.worst[0],
                "blocks": records,
            },
        }

    @cached_property
    def images(self) -> dict[str, NDArray[np.float32]]:
        """The images by name, each (n_windows, spatial)."""
        return {name: np.stack(values) for name, values in self.collected.images.items()}

    @cached_property
    def means(self) -> dict[str, NDArray[np.float32]]:
        """The mean of each power image over all frames."""
        n_frames = np.array([window.n_frames for window in self.windows])
        weights = n_frames / n_frames.sum()
        return {
            name: np.tensordot(weights, self.images[name].astype(np.float64), axes=1).astype(np.float32)
            for name in POWER_IMAGES
        }

    def content(self, provenance: str) -> ResultFile:
        """Return the content of the sequence file: the images and their time axis."""
        arrays: dict[str, NDArray[Any]] = {
            **self.images,
            "time": self.times,
            "first_frame": np.array([window.start for window in self.windows], np.int64),
            "n_frames": np.array([window.n_frames for window in self.windows], np.int64),
            "complete": np.array([window.complete for window in self.windows], np.uint8),
            "bad": np.array([record["is_bad"] for record in self.collected.records], np.uint8),
        }
        attributes: dict[str, Mapping[str, Any]] = {
            **self.collected.attributes,
            "time": {
                "unit": self.time_unit,
                "units": self.time_unit,
                "volume_acquisition_reference": "center",
                "volume_acquisition_duration": self.length / (self.first.frame_rate_hz or 1.0),
                "meaning": "middle of each block, from the first frame of the file",
            },
            "complete": {"meaning": "0 where the block is shorter than the window"},
            "bad": {"meaning": "1 where more than a fifth of the frames look bad, and none was left out"},
        }
        compression = self.job.output.compression
        axes = dict.fromkeys(arrays, "t") | dict.fromkeys(self.images, "t" + self.first.spatial_axes)
        return ResultFile(
            self.first,
            arrays,
            provenance,
            attributes,
            axes,
            with_stack=False,
            compression=compression,
            source=self.job.path,
        )

    def pictures(self) -> dict[str, bytes]:
        """Return the pictures of the means over all frames, and the films if they were asked for."""
        display, output, spatial = self.job.display, self.job.output, self.first.spatial_axes
        made = {}
        for name in ("power_doppler", "blood_power") if output.html else shown_images(self.job):
            power, mean = self.images[name], self.means[name]
            settings: dict[str, Any] = {
                "dynamic_range_db": display.dynamic_range,
                "color_map": display.color_map,
                "quantity": QUANTITIES[name],
                "spacing_mm": self.first.spacing_mm,
            }
            title = window_title(self.job.path.stem, QUANTITIES[name], self.collected.records)
            levels = shown_levels(mean, display)
            for kind in picture_formats(display, output):
                made[f"{name}_{kind}"] = (
                    power_doppler_png(levels, spatial, title=title, **settings)
                    if kind == "png"
                    else encoded(power_doppler_figure(levels, spatial, title=title, **settings), kind)
                )
            made[f"{name}_tif"] = tiff(mean, spatial, self.first.spacing_mm)
            if output.movie is not None and name in shown_images(self.job):
                made[_MOVIES[name]] = movie(
                    list(shown_levels(power, display)),
                    spatial,
                    output.movie,
                    times=self.times,
                    time_unit=self.time_unit,
                    speed=display.movie_speed,
                    title=f"{shortened(self.job.path.stem, 40)}: {QUANTITIES[name]}",
                    **settings,
                )
        return made

    def page(self, report: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
        """Return the report as HTML, with the means over all windows as pictures."""
        shown = ("blood_power", "power_doppler")
        content = PageContent(self.job, report, self.first, len(shown))
        drawn = [content.picture(f"{name}_png", pictures[f"{name}_png"], self.means[name]) for name in shown]
        return content.page(drawn, noise_over_depth(self.means["noise_power"], self.first))

    def write_others(self, places: Mapping[str, Path]) -> None:
        """Write the images as NIfTI with their sidecars, if that was asked for."""
        if not self.job.output.nifti:
            return
        for name in shown_images(self.job):
            key, _ = _NIFTI[name]
            sidecar = write_nifti(
                places[key],
                self.images[name],
                self.first,
                self.times,
                self.time_unit,
                self.length,
                self.stride,
                self.collected.records,
                description=_DESCRIPTIONS[name],
            )
            task = None if self.job.bids is None else self.job.bids.task
            named = {} if task is None else {"TaskName": task}
            places[f"{key}_json"].write_text(to_json({**named, **sidecar}, indent=2) + "\n")


def shown_images(job: Job) -> list[str]:
    """Return the names of the images of which a sequence has pictures, films and NIfTI files.

    The power Doppler is always among them.
    """
    return ["power_doppler", *(["blood_power"] if "blood" in job.output.products else [])]


def _error(result: DenoiseResult) -> float:
    ratio = result.fit_quality.held_out_ratio
    # A window that could not be judged is worse than any that could.
    return math.inf if ratio is None else ratio


def _record(filtered: FilteredWindow) -> dict[str, Any]:
    window, result = filtered.window, filtered.result
    solution = result.solution
    return {
        "first_frame": window.start,
        "n_frames": window.n_frames,
        "complete": window.complete,
        "rank": result.options.rank,
        "low_cutoff": result.options.low_cutoff,
        "cutoff_certainty": result.cutoff_certainty.value,
        "iterations": solution.iterations if solution else 0,
        "passes": solution.passes if solution else 0,
        "held_out_rmse": result.held_out_rmse,
        "noise_floor": result.noise_floor,
        "bad_frames": bad_frames_of(result, filtered.first),
        "is_bad": filtered.is_bad,
        "frames": frames_of(result),
        "n_unobserved": result.n_unobserved,
        "n_sampled": result.n_sampled,
        "blood": asdict(result.picture_quality),
        "fit": result.fit_quality.verdict.code,
        "verdict": result.verdict,
    }


def _times(
    stack: Input, windows: list[Window], frame_rate_hz: float | None
) -> tuple[NDArray[np.float64], str]:
    """Return the middle of each window in seconds where the frame rate is known, otherwise in frames of the file."""
    frames = np.array([window.middle for window in windows]) + stack.time_of_first_frame
    if frame_rate_hz is None:
        return frames * stack.frames.step, "frames"
    return frames / frame_rate_hz, "s"
