"""The responses of the regions of many sessions as one table: ``usdenoise model --collect``."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
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
        If no folder contains a table of responses.
    """
    found = {path for folder in folders for path in folder.resolve().rglob(f"*{RESPONSES}")}
    paths = sorted(found, key=lambda path: natural_key(str(path)))
    names = [path.name.removesuffix(RESPONSES) for path in paths]
    if len({*names}) < len(names):
        # Folders tell sessions of one name apart
        common = os.path.commonpath(paths)
        names = [path.relative_to(common).as_posix().removesuffix(RESPONSES) for path in paths]
    rows = [
        {"session": name, "day": _day_of(path), "pose": "n/a", **row}
        for name, path in zip(names, paths, strict=True)
        for row in read_rows(path)
    ]
    if not rows:
        problem = f"no table of responses (*{RESPONSES}) is in {', '.join(map(str, folders))}"
        raise InputError(problem, remedy="give folders of results with {events} and {regions}")
    of_all = dict.fromkeys(chain.from_iterable(rows))
    columns = {name: np.array([row.get(name) or "n/a" for row in rows]) for name in of_all}
    courses = dict[str, dict[int, float]]()
    for row in rows:
        pose = f"pose {row['pose']}" if row["pose"] != "n/a" else ""
        title = ", ".join(filter(None, (row["region"], pose, row["trial_type"])))
        change = float((row.get("change") or "n/a").replace("n/a", "nan"))
        courses.setdefault(title, {})[names.index(row["session"]) + 1] = change
    charts = [
        Chart(title, "session", "% of the baseline", [*course], [*course.values()], level=(0.0, ""))
        for title, course in courses.items()
    ]
    with OutputFolder(output, overwrite) as outputs:
        table, page = (outputs.reserve(f"region_responses.{kind}") for kind in ("tsv", "html"))
        table.write_text(tsv_text(columns))
        shown = {"name": "Responses of regions", "charts": charts, "sessions": names}
        page.write_text(template("collect.html").render(shown), encoding="utf-8")
        files = dict(zip(("wrote", "page"), map(str, outputs.finals), strict=True))
        outputs.commit()
    return {"n_sessions": len(names), "n_rows": len(rows), "output": files}


def _day_of(path: Path) -> str:
    """Return the day on which the input of a result was written; empty if it is not known."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads(path.with_name(path.name.replace(RESPONSES, "_report.json")).read_text())["input"]
        times = [each["mtime_ns"] for each in (about.get("files") or {}).values()] or [about["mtime_ns"]]
        return datetime.fromtimestamp(min(times) / 1e9, UTC).date().isoformat()
    return ""
