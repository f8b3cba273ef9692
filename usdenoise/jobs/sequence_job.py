"""One job whose result is a sequence: power Doppler block by block, with its time axis."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.formats.file_state import sha256, unchanged
from usdenoise.formats.loading import Source, open_stack
from usdenoise.formats.nifti import import_nibabel, write_nifti
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.results import ResultFile, output_suffix, write_result
from usdenoise.formats.tiff import tiff
from usdenoise.images.flow import doppler_products
from usdenoise.images.power_doppler import POWER_FORMULA, POWER_UNIT, decibels
from usdenoise.jobs.job_options import Display, Output
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.report import complete_report, cutoff_of, report_of, source_of
from usdenoise.pictures.doppler_pictures import power_doppler_png
from usdenoise.pictures.film import check_available, movie
from usdenoise.pipeline.denoise import DenoiseResult
from usdenoise.pipeline.options import DenoiseOptions
from usdenoise.pipeline.windows import Block, blocks, filter_blocks
from usdenoise.system.provenance import record, to_json
from usdenoise.system.signals import uninterrupted


def run(
    path: Path,
    folder: Path,
    options: DenoiseOptions,
    display: Display,
    output: Output,
    reading: Mapping[str, Any],
    overwrite: bool,
    command: list[str] | None,
    watcher: Watcher,
) -> dict[str, Any]:
    """Filter an acquisition in blocks, and write the sequence of their images.

    Only one block is in memory at a time, where the container gives parts of a stack.

    Parameters
    ----------
    path, folder, options, display, output, reading, overwrite, command, watcher
        As for :func:`usdenoise.jobs.run_job.run`; ``output.window`` is set.

    Returns
    -------
    dict
        The report, as written to ``<stem>_report.json``: that of the block with the largest error for its
        size, with totals of iterations, passes and entries, and all blocks under "sequence".

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    began = time.perf_counter()
    suffix = output_suffix(path)
    # Before an hour of filtering.
    if output.movie is not None:
        check_available(output.movie)
    if output.nifti:
        import_nibabel()
    with OutputFolder(folder, overwrite) as outputs:
        files = {
            "sequence": f"sequence{suffix}",
            "power_doppler_png": "power_doppler.png",
            "power_doppler_tif": "power_doppler.tif",
        }
        if output.movie is not None:
            files["movie"] = f"power_doppler.{output.movie}"
        if output.nifti:
            files |= {"nifti": "pwd.nii.gz", "nifti_json": "pwd.json"}
        files["report"] = "report.json"
        places = {key: outputs.reserve(f"{path.stem}_{name}") for key, name in files.items()}
        names = {key: str(final) for key, final in zip(places, outputs.finals, strict=True)}

        watcher.stage("load")
        with unchanged(path) as state, open_stack(path, dtype=options.precision, **reading) as stack:
            parts = blocks(stack.n_frames, output.window or stack.n_frames, output.stride)
            first = stack.read(0, 2)
            watcher.loaded(first)
            watcher.stage("solve")
            records: list[dict[str, Any]] = []
            worst: tuple[int, DenoiseResult] | None = None
            images: dict[str, list[Any]] = {"power_doppler": []}
            units = {"power_doppler": {"unit": POWER_UNIT, "formula": POWER_FORMULA}}
            for block, result, warm in filter_blocks(stack.read, parts, options, watcher.iteration):
                images["power_doppler"].append(result.power_doppler)
                for name, product in doppler_products(result.acquisition, output.products).items():
                    images.setdefault(name, []).append(product.values)
                    units[name] = {"unit": product.unit, "formula": product.formula}
                records.append(_record(block, result, warm))
                if worst is None or _error(result) > _error(worst[1]):
                    # Without its stack, which is the memory of a block.
                    worst = len(records) - 1, replace(result, acquisition=first)
            source = {**source_of(path, first, sha256(path)), **state, "shape": _shape(stack, first.iq.shape)}
            times, unit = _times(stack, parts, first.frame_rate_hz)
        watcher.stage("write")
        solved = time.perf_counter()
        arrays = {name: np.stack(values) for name, values in images.items()}
        arrays |= {
            "time": times,
            "first_frame": np.array([block.start for block in parts], np.int64),
            "n_frames": np.array([block.n_frames for block in parts], np.int64),
            "complete": np.array([block.complete for block in parts], np.uint8),
        }
        units["time"] = {"unit": unit, "meaning": "middle of each block, from the first frame of the file"}
        units["complete"] = {"meaning": "0 where the block is shorter than the window"}
        provenance = to_json(
            record(command, {**asdict(options), **asdict(display), **asdict(output)}, source)
        )
        content = ResultFile(
            first, arrays, provenance, units, with_stack=False, compression=output.compression
        )
        # As in a job of one image: the HDF5 library does not stand interruptions.
        with uninterrupted():
            write_result(places["sequence"], suffix, content)
        power, spatial = arrays["power_doppler"], first.spatial_axes
        weights = arrays["n_frames"] / arrays["n_frames"].sum()
        mean = np.tensordot(weights, power.astype(np.float64), axes=1).astype(np.float32)
        places["power_doppler_png"].write_bytes(
            power_doppler_png(
                decibels(mean, display.db_factor),
                spatial,
                dynamic_range_db=display.dynamic_range,
                spacing_mm=first.spacing_mm,
                title=f"{path.stem}: {options.method}, mean of {len(parts)} blocks",
            )
        )
        places["power_doppler_tif"].write_bytes(tiff(mean, spatial))
        if output.movie is not None:
            levels = decibels(power, display.db_factor)
            places["movie"].write_bytes(
                movie(list(levels), spatial, output.movie, dynamic_range_db=display.dynamic_range)
            )
        if output.nifti:
            sidecar = write_nifti(
                places["nifti"],
                power,
                first,
                times,
                unit,
                output.window or stack.n_frames,
                output.stride or output.window or stack.n_frames,
                records,
            )
            places["nifti_json"].write_text(to_json(sidecar, indent=2) + "\n")
        done = time.perf_counter()
        timings = {
            "load": 0.0,
            "solve": solved - began,
            "filter": 0.0,
            "write": done - solved,
            "total": done - began,
        }
        assert worst is not None
        totals = {
            name: sum(block[name] for block in records)
            for name in ("iterations", "passes", "n_unobserved", "n_sampled")
        }
        report = {
            **report_of(worst[1], source, names, timings, command),
            **totals,
            "sequence": {
                "window": output.window,
                "stride": output.stride or output.window,
                "time": [float(value) for value in times],
                "time_unit": unit,
                "worst_block": worst[0],
                "blocks": records,
            },
        }
        asked = {"options": options, "display": display, "output": output, "reading": reading}
        report = complete_report(report, places, asked)
        places["report"].write_text(to_json(report, indent=2) + "\n")
        outputs.commit()
    return report


def _error(result: DenoiseResult) -> float:
    return result.judgement.held_out_ratio or 0.0


def _record(block: Block, result: DenoiseResult, warm: bool) -> dict[str, Any]:
    solution = result.solution
    return {
        "first_frame": block.start,
        "n_frames": block.n_frames,
        "complete": block.complete,
        "warm_start": warm,
        "rank": result.options.rank,
        "low_cutoff": result.options.low_cutoff,
        "cutoff_certainty": cutoff_of(result)["certainty"],
        "iterations": solution.iterations if solution else 0,
        "passes": solution.passes if solution else 0,
        "held_out_rmse": result.held_out_rmse,
        "noise_floor": result.noise_floor,
        "n_unobserved": result.n_unobserved,
        "n_sampled": result.n_sampled,
        "verdict": result.judgement.verdict,
    }


def _shape(stack: Source, shape: tuple[int, ...]) -> list[int]:
    time_axis = stack.metadata.values["axes"].index("t")
    return [stack.n_frames if axis == time_axis else n for axis, n in enumerate(shape)]


def _times(stack: Source, parts: list[Block], frame_rate_hz: float | None) -> tuple[Any, str]:
    """Middle of each block in seconds where the frame rate is known, otherwise in frames of the file."""
    frames = np.array([block.middle for block in parts]) + stack.time_of_first_frame
    if frame_rate_hz is None:
        return frames * stack.frames.step, "frames"
    return frames / frame_rate_hz, "s"
