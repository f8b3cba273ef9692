"""The experiments of Zhang, Chiu and Zhang (AISTATS 2024), with the loop and the methods of `run`.

An experiment is declared in `planted_experiments` or `ultrasound`, and listed here. :func:`reproduce` repeats some of
them, and writes a figure, the curves and a record for each. From outside import EXPERIMENTS, Setup and reproduce.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from usdenoise.experiments import planted_experiments as planted
from usdenoise.experiments import ultrasound
from usdenoise.experiments.record import CheckedClaim, ExperimentResult
from usdenoise.experiments.ultrasound import Setup, UltrasoundExperiment
from usdenoise.files.bids import csv_text
from usdenoise.files.output_folder import OutputFolder
from usdenoise.report.montages import Setting, curves_png, montage_png
from usdenoise.system.text import record, to_json

__all__ = ["EXPERIMENTS", "Setup", "reproduce"]

EXPERIMENTS: Mapping[str, planted.PlantedExperiment | UltrasoundExperiment] = {
    "sensing-lambda": planted.AGAINST_SCALEDGD,
    "sensing-precgd": planted.AGAINST_PRECGD,
    "sensing-small-start": planted.FROM_SMALL_START,
    "sensing-well-conditioned": planted.WELL_CONDITIONED,
    "high-noise": planted.HIGH_NOISE,
    "wall-time": planted.WALL_TIME,
    "one-bit": planted.ONE_BIT,
    "phase": planted.PHASE,
    "ultrasound": ultrasound.SINGLE,
    "ultrasound-grid": ultrasound.GRID,
}
"""The experiments by name."""

_ENDS = {"figure": ".png", "curves": ".csv", "power_doppler": "_power_doppler.png", "record": ".json"}
"""Ends of the names of the files of an experiment."""

COLUMNS = ("panel", "curve", "x", "lower_quartile", "median", "upper_quartile")


def reproduce(
    names: Sequence[str],
    folder: str | Path,
    setup: Setup,
    *,
    overwrite: bool = False,
    command: list[str] | None = None,
) -> dict[str, object]:
    """Repeat experiments of the paper and write the results of each as soon as it is done.

    Parameters
    ----------
    names : sequence of str
        Names of experiments in EXPERIMENTS.
    folder : str or Path
        Folder for ``<name>.png`` (the figure), ``<name>.csv`` (median and quartiles of the curves),
        ``<name>.json`` (the record with the claims), and for ultrasound ``<name>_power_doppler.png``.
    setup : Setup
        Seeds, size and threads of the experiments, and what gets their progress.
    overwrite : bool
        Whether existing files may be replaced; by default they are refused.
    command : list of str, optional
        Command line that is written to the records; by default none is.

    Returns
    -------
    dict
        "experiments" maps each name to title, claims, seconds and output; "claims" is the number of claims and
        "held" the number of those that held.

    Raises
    ------
    OutputError
        If results exist and may not be replaced.
    """
    with ExitStack() as stack:
        # Existing results are refused before the first experiment, since all of them can take an hour.
        outputs = {name: stack.enter_context(OutputFolder(Path(folder), overwrite)) for name in names}
        paths = {}
        for name in names:
            kinds = [kind for kind in _ENDS if kind != "power_doppler" or name.startswith("ultrasound")]
            paths[name] = {kind: outputs[name].reserve(name + _ENDS[kind]) for kind in kinds}
        done: dict[str, dict[str, object]] = {}
        claims: list[CheckedClaim] = []
        setup.progress.experiments(0, len(names))
        n_written = 0
        try:
            for name in names:
                began = time.perf_counter()
                setup.progress.message(f"{name}: {EXPERIMENTS[name].title}")
                result = EXPERIMENTS[name].run(setup)
                claims += result.claims
                finals = {key: str(path) for key, path in zip(paths[name], outputs[name].finals, strict=True)}
                done[name] = {
                    "title": result.title,
                    "claims": [claim.as_dict() for claim in result.claims],
                    "seconds": time.perf_counter() - began,
                    "output": finals,
                }
                provenance = record(command, dict(result.parameters), None)
                _write_experiment(result, paths[name], {"name": name, **done[name], "provenance": provenance})
                outputs[name].commit()
                n_written += 1
                setup.progress.experiments(n_written, len(names))
        except KeyboardInterrupt as error:
            error.add_note(f"{n_written} of {len(names)} experiments are written")
            raise
    return {"experiments": done, "claims": len(claims), "held": sum(claim.held for claim in claims)}


def _write_experiment(
    result: ExperimentResult, paths: Mapping[str, Path], more: Mapping[str, object]
) -> None:
    settings = [
        Setting(panel.setting, {one.label: (one.x, one.quartiles) for one in panel.curves}, panel.noise_floor)
        for panel in result.panels
    ]
    x_label = result.panels[0].unit
    paths["figure"].write_bytes(
        curves_png(settings, title=result.title, x_label=x_label, y_label=result.y_label)
    )
    rows = (dict(zip(COLUMNS, row, strict=True)) for row in result.rows())
    paths["curves"].write_text(csv_text(COLUMNS, rows))
    panels = [panel.as_dict() for panel in result.panels]
    paths["record"].write_text(to_json({**more, "panels": panels}, indent=2) + "\n")
    if (acquisition := result.acquisition) is not None:
        paths["power_doppler"].write_bytes(
            montage_png(
                result.pictures,
                acquisition.spatial_axes,
                dynamic_range_db=ultrasound.PICTURE_DB,
                spacing_mm=acquisition.spacing_mm,
                title=result.title,
            )
        )
