"""The table of the blocks of a session, as BIDS has tables: what a model of the series takes as confounds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.jobs.result_folder import Results
from usdenoise.jobs.series import Series

_DESCRIPTIONS = {
    "time": ("Middle of the block, from the first frame of the session", None),
    "components": ("Components that were removed as clutter", None),
    "motion": ("Largest displacement of the image from its usual place in the block", "pixels"),
    "leftover": (
        "How much more power is left in the block than usual, in robust standard deviations; tissue that the filter left",
        None,
    ),
    "kept_share": (
        "Share of the entries of the block that were observed and in no frame that was left out",
        None,
    ),
    "bad": ("1 where the block does not count in means and weights", None),
    "why": ("Why the block is bad, in words", None),
    "file": ("Name of the file", None),
    "first_frame": ("First frame of the block, of the frames of its file that were read", None),
    "n_frames": ("Number of frames of the block", None),
}


def block_columns(series: Series) -> dict[str, NDArray[Any]]:
    """Return the table of the blocks of a session: name of a column -> a value for each block."""
    records = series.records
    taken = ("kept_share", "why", "file", "first_frame", "n_frames")
    found = {name: np.array([record[name] for record in records]) for name in taken}
    found |= {
        "time": series.times,
        "components": np.array([record["low_cutoff"] for record in records]),
        "motion": np.array([record["frames"]["moves_pixels"] for record in records]),
        "leftover": np.array([record["leftover"] for record in records], np.float64),
        "bad": series.is_bad.astype(np.int64),
    }
    return {name: found[name] for name in _DESCRIPTIONS}


def write_block_table(series: Series, results: Results) -> None:
    """Write the table of the blocks, and its description as a BIDS sidecar has it."""
    descriptions = dict(_DESCRIPTIONS)
    descriptions["time"] = (_DESCRIPTIONS["time"][0], series.time_unit)
    results.write_table("blocks", block_columns(series), descriptions)
