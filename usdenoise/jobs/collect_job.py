"""The responses of the regions of many sessions as one table: ``usdenoise model --collect``."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.errors import InputError
from usdenoise.files.bids import read_rows, tsv_text
from usdenoise.files.input_files import natural_key
from usdenoise.files.output_folder import OutputFolder
from usdenoise.report.charts import Chart, template

RESPONSES = "_region_responses.tsv"
"""End of the name of the table of a session."""

COLUMNS = ("session", "day", "pose", "region", "n_pixels", "trial_type", "change", "standard_error", "t", "p")
"""Columns of the table of all sessions, those of the tables among them."""


def collect(folders: Sequence[Path], output: Path, overwrite: bool = False) -> dict[str, Any]:
    """Write the responses of the regions of many sessions as one long table, and a page of small multiples.

    Parameters
    ----------
    folders : sequence of Path
        Folders of results of sessions or models, searched to any depth.
    output : Path
        Folder of the table and the page.
    overwrite : bool
        Whether they may be replaced; by default False.

    Returns
    -------
    dict
        The number of sessions and of rows, and the paths of the table and the page.

    Raises
    ------
    InputError
        If there is no table of responses.
    """
    found = {path for folder in folders for path in folder.rglob(f"*{RESPONSES}")}
    paths = sorted(found, key=lambda path: natural_key(str(path)))
    rows = [
        {"session": path.name.removesuffix(RESPONSES), "day": _day_of(path), **row}
        for path in paths
        for row in read_rows(path)
    ]
    if not rows:
        raise InputError(
            f"no table of responses (*{RESPONSES}) is in {', '.join(map(str, folders))}",
            remedy="give folders of results with {events} and {regions}",
        )
    columns = {name: np.array([row.get(name) or "n/a" for row in rows]) for name in COLUMNS}
    charts = dict[str, Chart]()
    for row in rows:
        title = ", ".join(
            filter(None, (row["region"], row.get("pose") and f"pose {row['pose']}", row["trial_type"]))
        )
        same = [
            each
            for each in rows
            if all(each.get(key) == row.get(key) for key in ("region", "pose", "trial_type"))
        ]
        changes = [float(each.get("change", "nan").replace("n/a", "nan")) for each in same]
        charts[title] = Chart(
            title, "session", "% of the baseline", range(1, len(same) + 1), changes, level=(0.0, "")
        )
    sessions = [*dict.fromkeys(row["session"] for row in rows)]
    with OutputFolder(output, overwrite) as outputs:
        table, page = (outputs.reserve(f"region_responses.{kind}") for kind in ("tsv", "html"))
        table.write_text(tsv_text(columns))
        shown = {"name": "Responses of regions", "charts": [*charts.values()], "sessions": sessions}
        page.write_text(template("collect.html").render(shown))
        names = dict(zip(("wrote", "page"), map(str, outputs.finals), strict=True))
        outputs.commit()
    return {"n_sessions": len(sessions), "n_rows": len(rows), "output": names}


def _day_of(path: Path) -> str:
    """Return the day on which the input of a result was written; empty if it is not known."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads(path.with_name(path.name.replace(RESPONSES, "_report.json")).read_text())["input"]
        times = [each["mtime_ns"] for each in (about.get("files") or {}).values()] or [about["mtime_ns"]]
        return datetime.fromtimestamp(min(times) / 1e9, UTC).date().isoformat()
    return ""
