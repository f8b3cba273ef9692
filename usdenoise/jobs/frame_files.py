"""The frames of a scan: a table with one row for each, its description, and the curves of its figure."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import POWER_UNIT
from usdenoise.jobs.result_folder import Results
from usdenoise.jobs.series import Series
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.stack.acquisition import canonical_axes

FRAME_FILES = {"frames_tsv": "frames.tsv", "frames_json": "frames.json"}
"""Keys of the table and its description among the files of a job, and the ends of their names."""

_DESCRIPTIONS = {
    "frame": ("Number of the frame, counted from 0 in the frames that were read", None),
    "time": ("Time since the first frame that was read", "s"),
    "intensity": ("Mean power of the stack over some pixels", POWER_UNIT),
    "dvars": (
        "Root mean square over these pixels of the difference from the frame before",
        "the stack's unit",
    ),
    "outside": ("Mean power over these pixels outside the clutter components", POWER_UNIT),
    "displacement_z": ("Displacement in depth against the mean frame", "pixels"),
    "displacement_x": ("Lateral displacement against the mean frame", "pixels"),
    "displacement_y": ("Displacement in elevation against the mean frame", "pixels"),
    "left_out": ("1 where the frame was left out of the estimate and of the images", None),
}


def frame_columns(result: DenoiseResult) -> dict[str, NDArray[Any]]:
    """Return the columns of the table, one value for each frame; NaN where there is none.

    Parameters
    ----------
    result : DenoiseResult
        The result of the frames.
    """
    quality, stack = result.frame_quality, result.acquisition
    curves, n_frames = quality.curves, len(quality.curves.intensity)
    frames = np.arange(n_frames)
    columns: dict[str, NDArray[Any]] = {"frame": frames}
    if stack.frame_rate_hz is not None:
        columns["time"] = frames / stack.frame_rate_hz
    columns |= {"intensity": curves.intensity, "dvars": curves.dvars, "outside": curves.outside}
    for axis, letter in enumerate(canonical_axes(stack.spatial_axes)):
        columns[f"displacement_{letter}"] = curves.displacement[:, axis]
    left_out = np.zeros(n_frames, bool) if quality.left_out is None else quality.left_out
    return {**columns, "left_out": left_out.astype(np.int64)}


def write_frame_table(series: Series, results: Results) -> None:
    """Write the table of the frames, and its description as a BIDS sidecar has it."""
    results.write_table("frames", frame_columns(series.result), _DESCRIPTIONS)
