"""Repeat experiments of the paper and write a figure, the curves, a record and a table of claims for each."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from usdenoise.experiments import exact_and_over, sensing, ultrasound
from usdenoise.experiments.conventions import Start
from usdenoise.experiments.planted import PlantedExperiment
from usdenoise.experiments.record import ExperimentResult
from usdenoise.experiments.setup import Setup
from usdenoise.experiments.ultrasound import UltrasoundExperiment
from usdenoise.formats.file_state import sha256
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.tables import csv_text
from usdenoise.pictures.error_curves import Setting, curves_png
from usdenoise.pictures.figures import suitable_range_db
from usdenoise.pictures.montage import montage_png
from usdenoise.system.provenance import record, to_json

EXPERIMENTS: Mapping[str, PlantedExperiment | UltrasoundExperiment] = MappingProxyType(
    {
        "sensing-lambda": sensing.AGAINST_SCALEDGD_LAMBDA,
        "sensing-precgd": sensing.AGAINST_PRECGD,
        "sensing-small-start": sensing.FROM_SMALL_START,
        "sensing-well-conditioned": exact_and_over.SENSING,
        "high-noise": sensing.HIGH_NOISE,
        "wall-time": sensing.WALL_TIME,
        "one-bit": exact_and_over.ONE_BIT,
        "phase": exact_and_over.PHASE,
        "ultrasound": ultrasound.SINGLE,
        "ultrasound-grid": ultrasound.GRID,
    }
)
"""The experiments by name."""

COLUMNS = ("panel", "curve", "x", "lower_quartile", "median", "upper_quartile")


def reproduce(
    names: Sequence[str],
    folder: str | Path,
    setup: Setup,
    *,
    overwrite: bool = False,
    command: list[str] | None = None,
    on_done: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Repeat experiments of the paper and write the results of each as soon as it is done.

    Parameters
    ----------
    names : sequence of str
        Names of experiments in EXPERIMENTS.
    folder : str or Path
        Folder for ``<name>.png`` (the figure), ``<name>.csv`` (median and quartiles of the curves),
        ``<name>.json`` (the record), ``<name>.md`` (choices and claims), and for ultrasound
        ``<name>_power_doppler.png``.
    setup : Setup
        Seeds, size, acquisition and threads of the experiments.
    overwrite : bool
        Whether existing files may be replaced; by default they are refused.
    command : list of str, optional
        Command line that is written to the records; by default none is.
    on_done : callable, optional
        Function that is called with the name of each experiment once it is written.

    Returns
    -------
    dict
        "experiments" maps each name to title, claims, seconds and output; "claims" is the number of claims and
        "held" the number of those that held; "by_reading" has the same two numbers for each reading, the paper's own
        first.

    Raises
    ------
    UsdenoiseError
        If results exist and may not be replaced, or if the acquisition is missing or damaged.
    """
    with ExitStack() as stack:
        # Existing results are refused before the first experiment, since all of them can take an hour.
        outputs = {name: stack.enter_context(OutputFolder(Path(folder), overwrite)) for name in names}
        places = {name: _reserve(outputs[name], name) for name in names}
        source = _source(setup)
        done: dict[str, Any] = {}
        for name in names:
            began = time.perf_counter()
            setup.say(f"{name}: {EXPERIMENTS[name].title}")
            result = EXPERIMENTS[name].run(setup)
            seconds = time.perf_counter() - began
            finals = {key: str(path) for key, path in zip(places[name], outputs[name].finals, strict=True)}
            provenance = record(command, {**result.parameters, "seeds": list(result.seeds)}, source)
            _write(result, name, places[name], {"seconds": seconds, "provenance": provenance})
            outputs[name].commit()
            done[name] = {
                "title": result.title,
                "claims": [claim.as_dict() for claim in result.claims],
                "seconds": seconds,
                "output": finals,
            }
            if on_done is not None:
                on_done(name)
    claims = [claim for one in done.values() for claim in one["claims"]]
    readings = dict.fromkeys(claim["reading"] for claim in claims)
    return {
        "experiments": done,
        **_count(claims),
        "by_reading": {
            reading: _count([one for one in claims if one["reading"] == reading]) for reading in readings
        },
    }


def _count(claims: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {"claims": len(claims), "held": sum(claim["held"] for claim in claims)}


def _reserve(outputs: OutputFolder, name: str) -> dict[str, Path]:
    files = {"figure": f"{name}.png", "curves": f"{name}.csv", "record": f"{name}.json"}
    files["claims"] = f"{name}.md"
    if name.startswith("ultrasound"):
        files["power_doppler"] = f"{name}_power_doppler.png"
    return {key: outputs.reserve(file) for key, file in files.items()}


def _source(setup: Setup) -> dict[str, Any] | None:
    if setup.acquisition is None:
        return None
    return {"path": str(setup.acquisition), "sha256": sha256(setup.acquisition)}


def _write(result: ExperimentResult, name: str, places: dict[str, Path], more: dict[str, Any]) -> None:
    settings = [
        Setting(
            f"{panel.setting}, {panel.start} start",
            {curve.label: (curve.x, curve.quartiles) for curve in panel.curves},
            panel.noise_floor,
        )
        # Two starts of one setting are next to each other; those of the third one are in the last row.
        for panel in sorted(result.panels, key=lambda panel: panel.start is Start.SVD)
        # The curves of the other conventions are in the CSV file.
        if panel.convention is result.panels[0].convention
    ]
    places["figure"].write_bytes(
        curves_png(settings, title=result.title, x_label=result.x_label, y_label=result.y_label)
    )
    rows = (dict(zip(COLUMNS, row, strict=True)) for row in result.rows())
    places["curves"].write_text(csv_text(COLUMNS, rows))
    places["record"].write_text(to_json({"name": name, **result.as_dict(), **more}, indent=2) + "\n")
    places["claims"].write_text(result.markdown(name))
    if (acquisition := result.acquisition) is not None:
        widest = max(suitable_range_db(image) for row in result.pictures for _, image in row)
        places["power_doppler"].write_bytes(
            montage_png(
                result.pictures,
                acquisition.spatial_axes,
                dynamic_range_db=widest,
                spacing_mm=acquisition.spacing_mm,
                title=result.title,
            )
        )
