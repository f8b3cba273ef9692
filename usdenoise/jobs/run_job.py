"""One job: an acquisition file in, a folder of results out."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError
from usdenoise.formats import load
from usdenoise.formats.factors import factor_arrays, factor_attributes
from usdenoise.formats.file_state import sha256, unchanged
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.results import ResultFile, output_suffix, write_result
from usdenoise.formats.tiff import tiff
from usdenoise.images.flow import Product, doppler_products
from usdenoise.images.power_doppler import POWER_FORMULA, POWER_UNIT, decibels
from usdenoise.jobs import sequence_job
from usdenoise.jobs.job_options import Display, Output
from usdenoise.jobs.memory_check import check_address_space
from usdenoise.jobs.progress import Silence, Watcher
from usdenoise.jobs.report import complete_report, report_of, source_of
from usdenoise.pictures.cutoff_figure import cutoff_png
from usdenoise.pictures.doppler_pictures import directional_png, power_doppler_png, velocity_png
from usdenoise.pictures.figures import load_libraries
from usdenoise.pipeline.denoise import DenoiseResult, denoise
from usdenoise.pipeline.options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.bit_mask import unpack
from usdenoise.stack.casorati import from_casorati
from usdenoise.system.background import run_in_background
from usdenoise.system.blas_threads import available_threads
from usdenoise.system.memory import release_freed_memory
from usdenoise.system.provenance import record, to_json
from usdenoise.system.signals import uninterrupted
from usdenoise.system.switch_interval import short_switch_interval

__all__ = ["Display", "Output", "Silence", "Watcher", "run"]


def run(
    path: str | Path,
    folder: str | Path | None = None,
    *,
    options: DenoiseOptions | None = None,
    display: Display | None = None,
    output: Output | None = None,
    reading: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Denoise one acquisition file and write the results.

    Parameters
    ----------
    path : str or Path
        The acquisition.
    folder : str or Path, optional
        Where results go; by default ``<stem>-usdenoise`` in the current folder.
    options : DenoiseOptions, optional
        Of the denoiser.
    display : Display, optional
        Of the pictures.
    output : Output, optional
        What is written beside or in place of the filtered stack.
    reading : mapping, optional
        Fields of :class:`usdenoise.formats.loading.ReadOptions`.
    overwrite : bool
        Whether existing results may be replaced.
    command : list of str, optional
        The command line, for the record.
    watcher : Watcher, optional
        Told about progress.

    Returns
    -------
    dict
        The report, as written to ``<stem>_report.json``.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    began = time.perf_counter()
    path = Path(path)
    options, display, output = options or DenoiseOptions(), display or Display(), output or Output()
    watcher = watcher or Silence()
    folder = Path(f"{path.stem}-usdenoise") if folder is None else Path(folder)
    if output.window is not None:
        if display.cutoff_figure:
            raise OptionError("a sequence has a cutoff in each block; leave out --cutoff-figure or --window")
        return sequence_job.run(
            path, folder, options, display, output, reading or {}, overwrite, command, watcher
        )
    _check_kept(options, output)
    with short_switch_interval(), OutputFolder(folder, overwrite) as outputs:
        suffix = output_suffix(path)
        files = {"denoised": f"denoised{suffix}"}
        if "power" in output.products:
            files |= {"power_doppler_png": "power_doppler.png", "power_doppler_tif": "power_doppler.tif"}
        files |= {f"{name}_png": f"{name}.png" for name in output.products if name != "power"}
        if display.cutoff_figure:
            if not isinstance(options.low_cutoff, str):
                raise OptionError("there is no choice to draw: give --low-cutoff auto with --cutoff-figure")
            files["cutoff_png"] = "cutoff.png"
        files["report"] = "report.json"
        places = {key: outputs.reserve(f"{path.stem}_{name}") for key, name in files.items()}
        names = {key: str(final) for key, final in zip(places, outputs.finals, strict=True)}

        watcher.stage("load")
        check_address_space(path, reading or {}, options.precision, options.threads or available_threads())
        with unchanged(path) as state:
            digest = run_in_background(_digest, path)
            acquisition = _load(path, options.precision, reading or {})
        watcher.loaded(acquisition)
        loaded = time.perf_counter()

        # Once the start is over, and before the pictures want them.
        waiting = [load_libraries]

        def iteration(line: Iteration) -> None:
            if waiting:
                run_in_background(waiting.pop())
            watcher.iteration(line)

        watcher.stage("solve")
        result = denoise(
            acquisition,
            options=options,
            in_place=True,
            all_components=output.keep_factors,
            on_iteration=iteration,
        )
        watcher.stage("write")
        release_freed_memory()
        writing = time.perf_counter()
        source = {**source_of(path, acquisition, digest.result()), **state}
        # The memory is the filtered stack's by now.
        del acquisition
        products = doppler_products(result.acquisition, output.products)
        parameters = {**asdict(result.options), **asdict(display), **asdict(output)}
        provenance = to_json(record(command, parameters, source))
        # The HDF5 library loses an exception that a signal raises in its callbacks, or prints it.
        drawn = run_in_background(_pictures, result, products, display, f"{path.stem}: {_band(result)}")
        with uninterrupted():
            write_result(places["denoised"], suffix, _content(result, products, output, provenance))
        for key, picture in drawn.result().items():
            if key in places:
                places[key].write_bytes(picture)
        done = time.perf_counter()
        timings = {
            "load": loaded - began,
            **result.timings_s,
            "write": done - writing,
            "total": done - began,
        }
        asked = {"options": options, "display": display, "output": output, "reading": reading or {}}
        report = complete_report(report_of(result, source, names, timings, command), places, asked)
        places["report"].write_text(to_json(report, indent=2) + "\n")
        outputs.commit()
    return report


def _digest(path: Path) -> str:
    with unchanged(path):
        return sha256(path)


def _load(path: Path, precision: str, reading: Mapping[str, Any]) -> Acquisition:
    beyond: list[str] = []
    with np.errstate(over="call", call=lambda kind, _: beyond.append(kind)):
        acquisition = load(path, dtype=precision, **reading)
    if beyond:
        raise InputError(f"{path} holds values that are beyond {precision} precision; scale the stack before")
    return acquisition


def _check_kept(options: DenoiseOptions, output: Output) -> None:
    if not output.stack and options.high_cutoff == "none":
        raise OptionError(
            "the factors do not hold the residual, which --high-cutoff none keeps; with --no-stack give "
            "--high-cutoff rank"
        )


def _content(
    result: DenoiseResult, products: Mapping[str, Product], output: Output, provenance: str
) -> ResultFile:
    stack, model = result.acquisition, result.model
    arrays: dict[str, Any] = {
        "power_doppler": result.power_doppler,
        "singular_values": result.singular_values,
        **{name: product.values for name, product in products.items()},
    }
    attributes: dict[str, dict[str, Any]] = {
        name: {"unit": product.unit, "formula": product.formula} for name, product in products.items()
    }
    attributes["power_doppler"] = {"unit": POWER_UNIT, "formula": POWER_FORMULA}
    if result.observed is not None:
        unobserved = ~unpack(result.observed, stack.n_frames)
        arrays["unobserved"] = from_casorati(unobserved, stack).astype(np.uint8)
    if output.keep_factors:
        high = result.options.high_cutoff
        shape = [stack.iq.shape[stack.axes.index(letter)] for letter in canonical_axes(stack.axes)[:-1]]
        band = (int(result.options.low_cutoff), model.rank if isinstance(high, str) else high)
        arrays |= factor_arrays(model.left, model.singular_values, model.right)
        attributes |= factor_attributes(tuple(shape), band, stack.name)
    return ResultFile(stack, arrays, provenance, attributes, output.stack, output.compression)


def _pictures(
    result: DenoiseResult, products: Mapping[str, Product], display: Display, title: str
) -> dict[str, bytes]:
    """The pictures of a result, by the keys of the report."""
    stack = result.acquisition
    spatial, spacing = stack.spatial_axes, stack.spacing_mm
    made = {
        "power_doppler_png": power_doppler_png(
            decibels(result.power_doppler, display.db_factor),
            spatial,
            dynamic_range_db=display.dynamic_range,
            spacing_mm=spacing,
            title=title,
        ),
        "power_doppler_tif": tiff(result.power_doppler, spatial),
    }
    if "directional_power_positive" in products:
        made["directional_png"] = directional_png(
            products["directional_power_positive"].values,
            products["directional_power_negative"].values,
            spatial,
            db_factor=display.db_factor,
            dynamic_range_db=display.dynamic_range or 30.0,
            spacing_mm=spacing,
            title=title,
        )
    if (velocity := products.get("axial_velocity")) is not None:
        made["velocity_png"] = velocity_png(
            velocity.values,
            result.power_doppler,
            spatial,
            unit=velocity.unit,
            spacing_mm=spacing,
            title=title,
        )
    if (choice := result.cutoff) is not None and display.cutoff_figure:
        made["cutoff_png"] = cutoff_png(result.singular_values, choice.similarity, choice.profile, choice.low)
    return made


def _band(result: DenoiseResult) -> str:
    options = result.options
    high = {"rank": str(options.rank), "none": "all"}.get(str(options.high_cutoff), str(options.high_cutoff))
    return f"{options.method}, components [{options.low_cutoff}, {high})"
