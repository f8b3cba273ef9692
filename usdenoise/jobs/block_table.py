"""The table of the blocks of a session, as BIDS has tables: what a model of the series takes as confounds."""

import numpy as np

from usdenoise.formats.tables import tsv_text
from usdenoise.jobs.result_folder import Results
from usdenoise.jobs.series import Series
from usdenoise.system.provenance import to_json

_DESCRIPTIONS = {
    "time": ("Middle of the block, from the first frame of the session", ""),
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
}


def write_block_table(series: Series, results: Results) -> None:
    """Write the table of the blocks, and its description as a BIDS sidecar has it."""
    records = series.records
    columns = {
        "time": series.times,
        "components": np.array([record["low_cutoff"] for record in records]),
        "motion": np.array([record["frames"]["moves_pixels"] for record in records]),
        "leftover": np.array([record["leftover"] for record in records], np.float64),
        "kept_share": np.array([record["kept_share"] for record in records]),
        "bad": series.is_bad.astype(np.int64),
    }
    described = {}
    for name in columns:
        text, unit = _DESCRIPTIONS[name]
        unit = series.time_unit if unit == "" else unit
        described[name] = {"Description": text, **({} if unit is None else {"Units": unit})}
    why = [record["why"] or "n/a" for record in records]
    lines = tsv_text(columns).splitlines()
    rows = [f"{line}\t{end}" for line, end in zip(lines, ["why", *why], strict=True)]
    described["why"] = {"Description": "Why the block is bad, in words"}
    results.place("blocks_tsv").write_text("\n".join(rows) + "\n")
    results.place("blocks_json").write_text(to_json(described, indent=2) + "\n")
