"""One job: an acquisition file in, a folder of results out."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from usdenoise.acquisition import Acquisition
from usdenoise.casorati import from_casorati
from usdenoise.completion.executor import available_threads
from usdenoise.completion.solve import Iteration
from usdenoise.denoising import DenoiseResult, denoise
from usdenoise.doppler import decibels
from usdenoise.errors import InputError, OptionError
from usdenoise.formats import load
from usdenoise.formats.files import OutputFolder, file_state, sha256, size_on_disk
from usdenoise.formats.results import write_matlab, write_stack
from usdenoise.memory import check_address_space
from usdenoise.options import DenoiseOptions
from usdenoise.provenance import peak_memory_bytes, record, requested, software, to_json
from usdenoise.rendering import cutoff_png, power_doppler_png, tiff
from usdenoise.sampling import unpack
from usdenoise.signals import uninterrupted


@dataclass(frozen=True)
class Display:
    """How power Doppler pictures look.

    Attributes
    ----------
    dynamic_range : float or None
        dB below the maximum that are shown; None suits it to the image.
    db_factor : float
        10 for decibels of power, 20 for the paper's formula.
    cutoff_figure : bool
        Whether to draw how the low cutoff was chosen, as ``<stem>_cutoff.png``.
    """

    dynamic_range: float | None = None
    db_factor: float = 10.0
    cutoff_figure: bool = False


class Watcher(Protocol):
    """What a job tells its caller on the way."""

    def stage(self, name: str) -> None:
        """A stage begins: load, solve or write."""

    def loaded(self, acquisition: Acquisition) -> None:
        """The acquisition was read."""

    def iteration(self, line: Iteration) -> None:
        """The solver made a step."""


class Silence:
    """A watcher that keeps it all to itself."""

    def stage(self, name: str) -> None:
        """Nothing."""

    def loaded(self, acquisition: Acquisition) -> None:
        """Nothing."""

    def iteration(self, line: Iteration) -> None:
        """Nothing."""


def run(
    path: str | Path,
    folder: str | Path | None = None,
    *,
    options: DenoiseOptions | None = None,
    display: Display | None = None,
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
    reading : mapping, optional
        Fields of :class:`usdenoise.formats.reading.ReadOptions`.
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
    options, display = options or DenoiseOptions(), display or Display()
    watcher = watcher or Silence()
    folder = Path(f"{path.stem}-usdenoise") if folder is None else Path(folder)
    with OutputFolder(folder, overwrite) as outputs:
        suffix = ".mat" if path.suffix.lower() == ".mat" else ".h5"
        places = {
            "denoised": outputs.reserve(f"{path.stem}_denoised{suffix}"),
            "power_doppler_png": outputs.reserve(f"{path.stem}_power_doppler.png"),
            "power_doppler_tif": outputs.reserve(f"{path.stem}_power_doppler.tif"),
        }
        if display.cutoff_figure:
            if not isinstance(options.low_cutoff, str):
                raise OptionError("there is no choice to draw: give --low-cutoff auto with --cutoff-figure")
            places["cutoff_png"] = outputs.reserve(f"{path.stem}_cutoff.png")
        places["report"] = outputs.reserve(f"{path.stem}_report.json")
        names = {key: str(final) for key, final in zip(places, outputs.finals, strict=True)}

        watcher.stage("load")
        check_address_space(path, reading or {}, options.precision, options.threads or available_threads())
        state = file_state(path)
        acquisition = _load(path, options.precision, reading or {})
        source = {**_source(path, acquisition), **(state or {})}
        if file_state(path) != state:
            raise InputError(
                f"{path} changed while it was read; run again when nothing writes to it any more"
            )
        watcher.loaded(acquisition)
        loaded = time.perf_counter()

        watcher.stage("solve")
        result = denoise(acquisition, options=options, in_place=True, on_iteration=watcher.iteration)
        watcher.stage("write")
        writing = time.perf_counter()
        # The memory is the filtered stack's by now.
        del acquisition
        parameters = {**asdict(result.options), **asdict(display)}
        provenance = to_json(record(command, parameters, source))
        write = write_matlab if suffix == ".mat" else write_stack
        # The HDF5 library loses an exception that a signal raises in its callbacks, or prints it.
        with uninterrupted():
            write(places["denoised"], result.acquisition, _arrays(result), provenance)
        spatial = result.acquisition.spatial_axes
        places["power_doppler_png"].write_bytes(
            power_doppler_png(
                decibels(result.power_doppler, display.db_factor),
                spatial,
                dynamic_range_db=display.dynamic_range,
                spacing_mm=result.acquisition.spacing_mm,
                title=_title(path.stem, result),
            )
        )
        places["power_doppler_tif"].write_bytes(tiff(result.power_doppler, spatial))
        if (choice := result.cutoff) is not None and "cutoff_png" in places:
            places["cutoff_png"].write_bytes(
                cutoff_png(result.model.singular_values, choice.similarity, choice.profile, choice.low)
            )
        done = time.perf_counter()
        timings = {
            "load": loaded - began,
            **result.timings_s,
            "write": done - writing,
            "total": done - began,
        }
        report = _report(result, source, names, timings, command)
        report["requested"] = requested(options=options, display=display, reading=reading or {})
        report["output_bytes"] = {
            key: size_on_disk(place) for key, place in places.items() if key != "report"
        }
        places["report"].write_text(to_json(report, indent=2) + "\n")
        outputs.commit()
    return report


def _load(path: Path, precision: str, reading: Mapping[str, Any]) -> Acquisition:
    beyond: list[str] = []
    with np.errstate(over="call", call=lambda kind, _: beyond.append(kind)):
        acquisition = load(path, dtype=precision, **reading)
    if beyond:
        raise InputError(f"{path} holds values that are beyond {precision} precision; scale the stack before")
    return acquisition


def _source(path: Path, acquisition: Acquisition) -> dict[str, Any]:
    dtype = acquisition.stored_dtype or acquisition.iq.dtype
    return {
        "path": str(path),
        "sha256": sha256(path),
        "dataset": acquisition.name,
        "shape": list(acquisition.iq.shape),
        "axes": acquisition.axes,
        "dtype": str(dtype),
        "frame_rate_hz": acquisition.frame_rate_hz,
        "spacing_mm": dict(acquisition.spacing_mm),
        "assumptions": list(acquisition.assumptions),
    }


def _arrays(result: DenoiseResult) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "power_doppler": result.power_doppler,
        "singular_values": result.model.singular_values,
    }
    if result.observed is not None:
        unobserved = ~unpack(result.observed, result.acquisition.n_frames)
        arrays["unobserved"] = from_casorati(unobserved, result.acquisition).astype(np.uint8)
    return arrays


def _title(stem: str, result: DenoiseResult) -> str:
    options = result.options
    high = {"rank": str(result.model.rank), "none": "all"}.get(
        str(options.high_cutoff), str(options.high_cutoff)
    )
    return f"{stem}: {options.method}, components [{options.low_cutoff}, {high})"


def _cutoff(result: DenoiseResult) -> dict[str, Any]:
    choice = result.cutoff
    if choice is None:
        return {"low": result.options.low_cutoff, "reason": "as given", "certainty": "given"}
    return {
        "low": choice.low,
        "reason": choice.reason,
        "certainty": choice.certainty,
        "two_squares": choice.two_squares,
        "similarity_profile": [float(value) for value in choice.profile],
        "doppler_cycles_a_frame": [float(value) for value in choice.doppler_cycles],
    }


def _report(
    result: DenoiseResult,
    source: Mapping[str, Any],
    outputs: Mapping[str, str],
    timings: Mapping[str, float],
    command: list[str] | None,
) -> dict[str, Any]:
    solution, options = result.solution, result.options
    high = options.high_cutoff
    return {
        "method": options.method,
        "rank": result.model.rank,
        "sampling": options.sampling,
        "seed": options.seed,
        "low_cutoff": options.low_cutoff,
        "high_cutoff": result.model.rank if high == "rank" else high,
        "iterations": solution.iterations if solution else 0,
        "passes": solution.passes if solution else 0,
        "stop_reason": solution.stop_reason.value if solution else "the SVD is not iterative",
        "held_out_rmse": result.held_out_rmse,
        "held_out_allowed": result.judgement.allowed_rmse,
        "held_out_ratio": result.judgement.held_out_ratio,
        "residual_rms": result.judgement.residual_rms,
        "verdict": result.judgement.verdict,
        "cutoff": _cutoff(result),
        "noise_floor": result.noise_floor,
        "n_sampled": result.n_sampled,
        "n_unobserved": result.n_unobserved,
        "trace": [asdict(line) for line in solution.trace] if solution else [],
        "singular_values": [float(value) for value in result.model.singular_values],
        "parameters": asdict(options),
        "timings_s": dict(timings),
        "peak_memory_bytes": peak_memory_bytes(),
        "input": dict(source),
        "output": dict(outputs),
        "software": software(),
        "command": command,
    }
