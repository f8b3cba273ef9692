"""A job whose result is one image: the filtered stack, its power Doppler and other products."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.solve import Iteration
from usdenoise.errors import OptionError
from usdenoise.formats.factors import factor_arrays, factor_attributes
from usdenoise.formats.layout import IN_MEMORY, Memory
from usdenoise.formats.open_input import open_input
from usdenoise.formats.results import ResultFile
from usdenoise.formats.tiff import tiff
from usdenoise.images.flow import Product, doppler_products
from usdenoise.images.power_doppler import POWER_IMAGES
from usdenoise.jobs.figure_settings import (
    QUANTITIES,
    STEM_LETTERS,
    figure_title,
    picture_formats,
    shown_levels,
    shows_blood,
)
from usdenoise.jobs.frame_files import FRAME_FILES, frame_columns, frame_panels, write_frame_table
from usdenoise.jobs.job_frame import Job, StageClock
from usdenoise.jobs.memory_check import check_address_space, stack_memory
from usdenoise.jobs.page_content import (
    PAGE_PICTURES,
    SIGNED_PRODUCTS,
    PageContent,
    carpet_of,
    frame_charts,
    noise_over_depth,
)
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.report import source_of
from usdenoise.jobs.workers import dask_client
from usdenoise.pictures.cutoff_figure import cutoff_figure, cutoff_png
from usdenoise.pictures.doppler_pictures import (
    directional_figure,
    directional_png,
    power_doppler_figure,
    power_doppler_png,
    velocity_figure,
    velocity_png,
)
from usdenoise.pictures.figures import encoded, load_libraries, shortened
from usdenoise.pictures.frames_figure import frames_figure, frames_png
from usdenoise.recipe.denoise import denoise
from usdenoise.recipe.result import DenoiseResult
from usdenoise.stack.acquisition import canonical_axes, spatial_order
from usdenoise.stack.bit_mask import unpack
from usdenoise.stack.casorati import from_casorati
from usdenoise.stack.chunk_grid import fetch
from usdenoise.stack.lazy_arrays import is_dask_array
from usdenoise.system.background import run_in_background
from usdenoise.system.blas_threads import available_threads
from usdenoise.system.helper_process import HERE
from usdenoise.system.memory import PrivatePeak, peak_memory_bytes
from usdenoise.system.provenance import software

POWER_PRODUCTS = {"power": "power_doppler", "blood": "blood_power"}
"""Products that are power images, with the names of their files."""


class ImageJob:
    """The kind of job that writes one image.

    Parameters
    ----------
    job : Job
        The job to do.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def check(self) -> None:
        """Check that the options of the output fit those of the denoiser.

        Raises
        ------
        OptionError
            If they do not.
        """
        options = self._job.options
        if not self._job.output.stack and options.high_cutoff == "none":
            raise OptionError(
                "the factors do not hold the residual, which --high-cutoff none keeps; with --no-stack give "
                "--high-cutoff rank"
            )
        if self._job.display.cutoff_figure and not isinstance(options.low_cutoff, str):
            raise OptionError("there is no choice to draw: give --low-cutoff auto with --cutoff-figure")

    @property
    def files(self) -> Mapping[str, str]:
        """The filtered stack, the pictures of the products, and the cutoff figure."""
        products, display = self._job.output.products, self._job.display
        files = {"denoised": "denoised"}
        for product, name in POWER_PRODUCTS.items():
            if product in products:
                files |= {f"{name}_{kind}": f"{name}.{kind}" for kind in display.figure_formats}
                files[f"{name}_tif"] = f"{name}.tif"
        for name in (name for name in products if name not in POWER_PRODUCTS):
            files |= {f"{name}_{kind}": f"{name}.{kind}" for kind in display.figure_formats}
        files |= FRAME_FILES
        drawn = {"cutoff": display.cutoff_figure, "frames": display.frames_figure}
        for name in (name for name, is_asked in drawn.items() if is_asked):
            files |= {f"{name}_{kind}": f"{name}.{kind}" for kind in display.figure_formats}
        return files

    def filter(self, watcher: Watcher, clock: StageClock) -> "FilteredImage":
        """Read the acquisition and denoise it; its digest is computed in the background.

        Raises
        ------
        UsdenoiseError
            For anything that the user can mend.
        """
        job = self._job
        watcher.stage("load")
        with clock.stage("load"):
            threads = job.options.threads or available_threads()
            precision = job.options.precision
            with open_input(job.path, job.reading, precision) as opened:
                check_address_space(opened, precision, threads)
                digest, reading = opened.digest_in_background(), _Reading(watcher)
                memory = stack_memory(opened, precision, job.memory, job.folder)
                peak = None if memory is IN_MEMORY else PrivatePeak()
                in_memory = job.dask is None
                acquisition = opened.read(memory=memory, on_part=reading.part) if in_memory else opened.lazy()
                opened.check_unchanged()
        watcher.loaded(acquisition)
        watcher.stage("solve")
        # This happens during the iterations: before them, the start needs the processors.
        waiting = [partial(_prepare_writing, job)]

        def iteration(line: Iteration) -> None:
            if waiting:
                run_in_background(waiting.pop())
            watcher.iteration(line)

        with nullcontext() if job.dask is None else dask_client(job.dask):
            result = denoise(
                acquisition,
                options=job.options,
                in_place=True,
                all_components=job.output.keep_factors,
                on_iteration=iteration,
            )
            clock.add(result.timings_s)
            with clock.stage("filter"):
                result = fetched(result, memory)
        passes = None if job.dask is not None else reading.passes + 1
        source = {
            **source_of(job.path, acquisition, digest.result()),
            **opened.state,
            "passes_over_file": passes,
        }
        return FilteredImage(job, result, source, peak)


class _Reading:
    """Counts the passes over a stack while it is read, and tells a watcher how much of it is read."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.passes = 0.0

    def part(self, done: int, total: int) -> None:
        """Note how many bytes of the stack are read, of how many in all."""
        self.passes = done / total
        self._watcher.read(done, total)


@dataclass(frozen=True)
class FilteredImage:
    """A filtered stack with its products (see :class:`usdenoise.jobs.job_frame.Filtered`)."""

    job: Job
    result: DenoiseResult
    source: Mapping[str, Any]
    peak: PrivatePeak | None

    @property
    def report_fields(self) -> Mapping[str, Any]:
        """The bytes of the stack on the disk, whose pages do not count as memory, and the memory of both processes."""
        beside = self.job.drawer.peak_memory_bytes
        if self.peak is None:
            return {"scratch_bytes": 0, "peak_memory_bytes": peak_memory_bytes() + beside}
        scratch = self.result.acquisition.iq.nbytes
        return {"scratch_bytes": scratch, "peak_memory_bytes": self.peak.end() + beside}

    @cached_property
    def products(self) -> dict[str, Product]:
        """The images that follow from more than the power."""
        left_out = self.result.frame_quality.left_out
        return doppler_products(self.result.acquisition, self.job.output.products, left_out)

    def content(self, provenance: str) -> ResultFile:
        """Return the content of the result file: the stack, the images, and the factors if they are kept."""
        result, output = self.result, self.job.output
        stack, model = result.acquisition, result.model
        arrays: dict[str, Any] = {
            "power_doppler": result.power_doppler,
            "blood_power": result.blood_power,
            "noise_power": result.noise_power,
            "singular_values": result.singular_values,
            **{name: product.values for name, product in self.products.items()},
        }
        attributes: dict[str, dict[str, Any]] = {
            name: {"unit": product.unit, "formula": product.formula}
            for name, product in self.products.items()
        }
        attributes |= POWER_IMAGES
        if result.observed is not None:
            unobserved = ~unpack(result.observed, stack.n_frames)
            arrays["unobserved"] = from_casorati(unobserved, stack).astype(np.uint8)
        if output.keep_factors:
            high = result.options.high_cutoff
            band = (int(result.options.low_cutoff), model.rank if isinstance(high, str) else high)
            shape = stack.shape_in(canonical_axes(stack.spatial_axes))
            arrays |= factor_arrays(model.left, model.singular_values, model.right)
            attributes |= factor_attributes(shape, band, stack.name)
        images = [*POWER_IMAGES, *self.products]
        axes = {**dict.fromkeys(images, stack.spatial_axes), "unobserved": stack.axes}
        return ResultFile(
            stack,
            arrays,
            provenance,
            attributes,
            {name: letters for name, letters in axes.items() if name in arrays},
            output.stack,
            output.compression,
            self.job.path,
        )

    def pictures(self) -> dict[str, bytes]:
        """Return the pictures that were asked for, and power Doppler and the blood map for the page."""
        result, shown = self.result, self.job.output.products
        shown = (*shown, *POWER_PRODUCTS) if self.job.output.html else shown
        made: dict[str, bytes] = {}
        for product, name in POWER_PRODUCTS.items():
            if product in shown:
                made |= self._power_pictures(name, getattr(result, name))
        if "directional_power_positive" in self.products:
            made |= self._directional_pictures(
                "directional",
                self.products["directional_power_positive"].values,
                self.products["directional_power_negative"].values,
            )
        if (signed := self.products.get("signed_power")) is not None:
            made |= self._directional_pictures(
                "signed", np.maximum(signed.values, 0), np.maximum(-signed.values, 0)
            )
        if (velocity := self.products.get("axial_velocity")) is not None:
            settings = {
                "unit": velocity.unit,
                "shows_blood": shows_blood(result.blood_power, result.noise_power),
                **self._settings("axial velocity" if velocity.unit == "mm/s" else "Doppler frequency"),
            }
            flow = (velocity.values, result.blood_power, result.acquisition.spatial_axes)
            made |= self._formats("velocity", velocity_png, velocity_figure, flow, settings)
        if (choice := result.cutoff) is not None and self.job.display.cutoff_figure:
            curves = (result.singular_values, choice.similarity, choice.profile, choice.low)
            made |= self._formats("cutoff", cutoff_png, cutoff_figure, curves, {})
        if self.job.display.frames_figure:
            quality = result.frame_quality
            what = (frame_panels(result), quality.curves.carpet, [frame.frame for frame in quality.bad])
            title = {"title": f"{shortened(self.job.path.stem, STEM_LETTERS)}: frames"}
            made |= self._formats("frames", frames_png, frames_figure, what, title)
        return made

    def _settings(self, quantity: str) -> dict[str, Any]:
        """Return the settings that all figures share."""
        options = self.result.options
        high = options.rank if options.high_cutoff == "rank" else options.high_cutoff
        return {
            "spacing_mm": self.result.acquisition.spacing_mm,
            "title": figure_title(self.job.path.stem, quantity, int(options.low_cutoff), high),
        }

    def _formats(
        self,
        name: str,
        png: Callable[..., bytes],
        figure: Callable[..., Any],
        what: tuple[Any, ...],
        settings: Mapping[str, Any],
    ) -> dict[str, bytes]:
        """Return a picture in all formats, by their keys among the files."""
        return {
            f"{name}_{kind}": self.job.drawer.call(png, *what, **settings)
            if kind == "png"
            else self.job.drawer.call(_encoded, figure, kind, what, settings)
            for kind in picture_formats(self.job.display, self.job.output)
        }

    def _power_pictures(self, name: str, power: NDArray[np.float32]) -> dict[str, bytes]:
        """Return the pictures of a power image."""
        display, axes = self.job.display, self.result.acquisition.spatial_axes
        settings = {
            "dynamic_range_db": display.dynamic_range,
            "color_map": display.color_map,
            "quantity": QUANTITIES[name],
            **self._settings(QUANTITIES[name]),
        }
        what = (shown_levels(power, display), axes)
        return self._formats(name, power_doppler_png, power_doppler_figure, what, settings)

    def _directional_pictures(
        self, name: str, positive: NDArray[np.float32], negative: NDArray[np.float32]
    ) -> dict[str, bytes]:
        display = self.job.display
        settings = {
            "db_factor": display.db_factor,
            "dynamic_range_db": display.dynamic_range,
            **self._settings("directional power"),
        }
        what = (positive, negative, self.result.acquisition.spatial_axes)
        return self._formats(name, directional_png, directional_figure, what, settings)

    def page(self, report: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
        """Return the report as HTML."""
        result, products = self.result, self.products
        stack = result.acquisition
        shown = [key for key in PAGE_PICTURES if key in pictures]
        content = PageContent(self.job, report, stack, len(shown))
        values = {
            "blood_power_png": (result.blood_power, ""),
            "power_doppler_png": (result.power_doppler, ""),
            **{
                f"{name}_png": (products[array].values, products[array].unit)
                for name, array in SIGNED_PRODUCTS.items()
                if array in products
            },
        }
        drawn = [content.picture(key, pictures[key], *values[key]) for key in shown]
        over_frames = frame_charts(result.frame_quality, stack.spatial_axes)
        return content.page(
            drawn, noise_over_depth(result.noise_power, stack), over_frames, carpet_of(result.frame_quality)
        )

    def write_others(self, places: Mapping[str, Path]) -> None:
        """Write the power images as TIFF, and the table of the frames."""
        stack = self.result.acquisition
        for name in POWER_PRODUCTS.values():
            if (key := f"{name}_tif") in places:
                encoded_power = tiff(getattr(self.result, name), stack.spatial_axes, stack.spacing_mm)
                places[key].write_bytes(encoded_power)
        write_frame_table(places, frame_columns(self.result))


def fetched(result: DenoiseResult, memory: Memory) -> DenoiseResult:
    """Return a result whose filtered stack is here, in the memory order of the Casorati matrix; itself if it is already.

    Parameters
    ----------
    result : DenoiseResult
        A result whose stack may be a Dask array.
    memory : Memory
        Where the stack goes to.
    """
    stack = result.acquisition
    if not is_dask_array(stack.iq):
        return result
    canonical = canonical_axes(stack.axes)
    iq = spatial_order(memory.allocate(stack.shape_in(canonical), stack.iq.dtype), canonical, stack.axes)
    fetch(stack.iq, iq)
    return replace(result, acquisition=replace(stack, iq=iq))


def _encoded(
    figure: Callable[..., Any], kind: str, what: tuple[Any, ...], settings: Mapping[str, Any]
) -> bytes:
    return encoded(figure(*what, **settings), kind)


def _prepare_writing(job: Job) -> None:
    """Load the drawing libraries, and look up the versions that the files name."""
    if job.drawer is HERE:
        load_libraries()
    software()
