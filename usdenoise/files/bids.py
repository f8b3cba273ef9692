"""Names and folders of BIDS, the Brain Imaging Data Structure; tables as text, and the events of a session.

Functional ultrasound is a proposal for BIDS (extension proposal 40): its folders are called fusi and, for a single image of
the vessels, angio; its power Doppler pwd.
"""

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError, OutputError
from usdenoise.files.contents import readable
from usdenoise.files.output_folder import OutputFolder
from usdenoise.sessions.design import Event, with_main_effects
from usdenoise.system.processes import locked
from usdenoise.system.text import decoded


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return a table as comma-separated values, with the column names in the first line.

    Parameters
    ----------
    columns : sequence of str
        Column names, which are keys of the rows.
    rows : iterable of mappings
        Value of each column by its name. None and missing values become empty cells; other keys are ignored.

    Notes
    -----
    Control characters in a text are escaped as in a Python string, and so are the bytes of a file name that is not UTF-8.
    A text that begins with =, +, - or @ gets an apostrophe in front, because a spreadsheet would take it for a formula.
    Numbers, also in text, stay as they are.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def tsv_text(columns: Mapping[str, NDArray[np.generic]]) -> str:
    """Return columns as tab-separated values, with "n/a" for NaN and for no text, as BIDS has them.

    Parameters
    ----------
    columns : mapping
        Name -> (n,) array of numbers or of texts, which are written as by :func:`csv_text`. In the column "file", by which
        programs look for files, a text may begin with any letter.
    """
    cells = [
        [_tsv_cell(cell, name != "file") for cell in column.tolist()] for name, column in columns.items()
    ]
    lines = ["\t".join(columns), *("\t".join(row) for row in zip(*cells, strict=True))]
    return "\n".join(lines) + "\n"


def _tsv_cell(value: str | float, is_shown: bool = False) -> str:
    if isinstance(value, str):
        return str(_cell(value) if is_shown else _escaped(value)) or "n/a"
    return "n/a" if value != value else f"{value:.8g}"


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = _escaped(value)
    return f"'{text}" if re.match(r"[=@]|[+-](?![\d.]+(e[+-]?\d+)?$)", text) else text


def _escaped(text: str) -> str:
    return "".join(
        letter.encode("unicode_escape").decode() if unicodedata.category(letter) in ("Cc", "Cs") else letter
        for letter in text
    )


REQUIRED = ("onset", "duration")

CONDITIONS = ("stim_type", "condition", "type", "event_type", "trial_type")
HEIGHTS = ("amplitude", "weight", "modulation")
"""Columns, in lower case, that other programs take for the types of the events, and for the heights."""


def read_events(path: Path) -> tuple[list[Event], list[str]]:
    """Read the events of a session, and return them and notes on columns that are not used.

    Parameters
    ----------
    path : Path
        A table as BIDS has it, with the columns onset and duration in s from the first frame, trial_type, and, as in
        nilearn, modulation. Rows without a type, or with n/a, do not count; if no row has one, all are of the type "event".

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing, a value is not valid, or the events are of several runs.
    """
    return events_of_rows(read_rows(path), str(path), "line", 2)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table by its columns, with tabs, as BIDS has them, or with commas.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        with readable(path):
            text = decoded(path.read_bytes())
        if "\0" in text:
            raise InputError(f"{path} holds a NUL and is not text", remedy="write the table as text")
        with_tabs: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
        rows = csv.DictReader(io.StringIO(text, newline=""), **(with_tabs if "\t" in text else {}))
        return [{name.strip(): (value or "").strip() for name, value in row.items() if name} for row in rows]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def read_poses(path: Path) -> list[dict[str, str]]:
    """Read a table of positions of the probe: pose, block or file, and position_mm if that is known, with tabs or commas.

    Raises
    ------
    InputError
        If the file cannot be read, or a column is missing.
    """
    rows = read_rows(path)
    columns = set(rows[0] if rows else ())
    if "pose" not in columns or not columns & {"block", "file"}:
        raise InputError(f"{path} has no column pose, or neither a column block nor a column file")
    return rows


def events_of_rows(
    rows: Sequence[Mapping[str, Any]], name: str, unit: str, first: int
) -> tuple[list[Event], list[str]]:
    """Return the events of the rows of a table, and notes on columns that are not used.

    Parameters
    ----------
    rows : sequence of mapping
        The values of each row by their columns, as in :func:`read_events`.
    name, unit : str
        What errors call the table and a row.
    first : int
        Number of the first row in errors.

    Raises
    ------
    InputError
        If a column is missing, a value is not valid, or the events are of several runs.
    """
    if not rows:
        raise InputError(f"{name} has no events")
    missing = [column for column in REQUIRED if column not in rows[0]]
    if missing:
        raise InputError(
            f"{name} has no column {' and no column '.join(missing)}",
            remedy="give a table separated by tabs, with onset and duration in s",
        )
    runs = dict.fromkeys(filter(None, (_known_text(row.get("run")) for row in rows)))
    if len(runs) > 1:
        raise InputError(
            f"{name} has events of {len(runs)} runs (column run: {', '.join(list(runs)[:3])}{', ...' * (len(runs) > 3)})",
            remedy="give the rows of the run of this session alone, and filter other runs as sessions of their own",
        )
    # Beside events of some types, one without a type is of no condition.
    types = [_known_text(row.get("trial_type")) for row in rows]
    events, last = list[Event](), dict[str, float]()
    for number, (row, trial_type) in enumerate(zip(rows, types, strict=True), first):
        if not trial_type and any(types):
            continue
        try:
            onset, duration = (float(row[column]) for column in REQUIRED)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}, {unit} {number}: onset and duration must be numbers") from error
        if not (math.isfinite(onset) and math.isfinite(duration) and duration > 0):
            raise InputError(f"{name}, {unit} {number}: the onset must be finite and the duration positive")
        try:
            modulation = float(row.get("modulation", 1.0))
        except (TypeError, ValueError):
            modulation = math.nan
        if not math.isfinite(modulation):
            raise InputError(
                f"{name}, {unit} {number}: the modulation must be a number",
                remedy="give the height of each event, or omit the column",
            )
        if "\0" in trial_type:
            raise InputError(f"{name}, {unit} {number}: the type {trial_type!r} holds a NUL")
        before = last.setdefault(trial_type, onset)
        if onset < before:
            raise InputError(
                f"{name}, {unit} {number}: the onset of '{trial_type or 'event'}' falls from {before:g} to {onset:g} s",
                remedy="if the table is of several runs, whose onsets begin again, give the rows of the run of this session "
                "alone; if not, sort it",
            )
        last[trial_type] = onset
        events.append(Event(onset, duration, trial_type or "event", modulation))
    return with_main_effects(events), _notes(events, list(rows[0]), has_types=any(types))


def _notes(events: Sequence[Event], columns: Sequence[str], has_types: bool) -> list[str]:
    """Return sentences on columns of a table that are not used though they change the model."""

    def like(names: Sequence[str], used: str) -> list[str]:
        return [f"'{one}'" for one in columns if str(one).strip().lower() in names and one != used]

    conditions, heights, notes = like(CONDITIONS, "trial_type"), like(HEIGHTS, "modulation"), list[str]()
    if conditions and not has_types:
        notes.append(
            f"no event has a trial_type, so all are of one type; rename the column {' or '.join(conditions)} to trial_type "
            "if it has the types"
        )
    ignored = [*(conditions if has_types else []), *heights]
    if ignored:
        notes.append(
            f"columns of the events that are not used: {', '.join(ignored)}; types are read from trial_type, heights from "
            "modulation"
        )
    return notes


def _known_text(value: object) -> str:
    """Return the text of a cell; empty if it has none: n/a in BIDS, and NaN, NA or NaT in a DataFrame."""
    text = "" if value is None else str(value).strip()
    is_missing = text.lower() == "n/a" or (not isinstance(value, str) and text in ("nan", "<NA>", "NaT"))
    return "" if is_missing else text


_ENTITIES = re.compile(r"sub-[A-Za-z0-9]+(_[a-z]+-[A-Za-z0-9]+)*")
_ENTITY_ORDER = (
    "sub", "tpl", "ses", "cohort", "sample", "task", "tracksys", "acq", "nuc", "voi", "ce", "trc", "stain", "rec", "dir",
    "run", "mod", "echo", "flip", "inv", "mt", "part", "proc", "hemi", "space", "split", "recording", "chunk", "atlas",
    "seg", "scale", "res", "den", "label", "prov", "desc",
)  # fmt: skip
"""Keys of the entities of BIDS 1.11 in the order that names must have. Proposals have others, such as pose."""

_FOLDERS = ("fusi", "fus", "susi", "angio")
"""Folders of ultrasound recordings: of functional ones, the same before version 0.0.11 of the proposal, of others, and of
single images of the vessels, whose names have no task."""

_DESCRIPTION = "dataset_description.json"

_QUALITY = "quality-control.tsv"
_QUALITY_COLUMNS = (
    "pwd_path", "session_label", "subject", "session", "task", "run", "n_timepoints", "qc_status", "qc_notes",
)  # fmt: skip
"""The table of fusiqc 0.1, in which a person accepts (good) or rejects (bad) the recordings that are pending."""

_TABLE_WAIT_S = 60.0
"""Seconds to wait for the table, which another job writes within milliseconds: hundreds may end at once on a cluster."""

_NOT_DOUBTFUL = "usdenoise: nothing doubtful was found"
_VERSION = "1.10.0"
"""Version of BIDS by which derivatives are described."""

_OTHERS = (
    f"{_QUALITY}\n*_denoised.*\n*_sequence.*\n*_report.*\n*_frames.*\n*_blocks.*\n"
    "*.png\n*.pdf\n*.svg\n*.tif\n*.gif\n"
)
"""Files of a run that have no names in BIDS, for its list of files to ignore."""


@dataclass(frozen=True)
class BidsName:
    """Beginning of the names of the results of one recording.

    Attributes
    ----------
    entities : str
        Pairs of keys and labels, such as "sub-01_task-rest".
    datatype : str
        Name of the folder of the results; "fusi" by default.
    """

    entities: str
    datatype: str = _FOLDERS[0]

    @property
    def folder(self) -> Path:
        """Folder of the results below the folder of the data set."""
        pairs = [pair for pair in self.entities.split("_") if pair.startswith(("sub-", "ses-"))]
        return Path(*pairs, self.datatype)

    @property
    def task(self) -> str | None:
        """Label of the task; None if the entities have none."""
        tasks = (pair for pair in self.entities.split("_") if pair.startswith("task-"))
        return next((task.removeprefix("task-") for task in tasks), None)


def bids_name(requested: str, path: Path, is_session: bool = True) -> BidsName:
    """Return the name that BIDS gives to the results of a recording.

    Parameters
    ----------
    requested : str
        Entities such as "sub-01_task-rest"; "auto" takes them from the name of the recording.
    path : Path
        The recording, or the folder of its blocks. If it is in a folder of a data set, the results go to a folder of the
        same name.
    is_session : bool
        Whether the result is a series (the default). A single image without a task is an angiography.

    Raises
    ------
    OptionError
        If the entities are not written as BIDS writes them, one is there twice, they have another order, or desc is among
        them, which belongs to the images.
    """
    entities = requested
    if requested == "auto":
        # The last part of a name, such as iq, has no dash.
        entities = "_".join(part for part in path.name.split(".")[0].split("_") if "-" in part)
    keys = [pair.partition("-")[0] for pair in entities.split("_")]
    if not _ENTITIES.fullmatch(entities) or len({*keys}) < len(keys) or "desc" in keys:
        source = f"the name of {path}" if requested == "auto" else f"'{requested}'"
        raise OptionError(
            f"{source} does not begin with valid BIDS entities",
            remedy="give {bids} pairs of a key and a label, sub first, each key once and without desc, "
            "for example sub-01_task-rest",
        )
    known = [key for key in keys if key in _ENTITY_ORDER]
    if known != (ordered := sorted(known, key=_ENTITY_ORDER.index)):
        raise OptionError(
            f"'{entities}' has its keys in another order than BIDS",
            remedy=f"give {{bids}} the order {', '.join(ordered)}",
        )
    above = (path.absolute(), *path.absolute().parents)
    folders = [
        one.name for one in above if one.name in _FOLDERS and one.parent.name.startswith(("sub-", "ses-"))
    ]
    usual = "fusi" if is_session or "task" in keys else "angio"
    return BidsName(entities, next(iter(folders), usual))


def is_recording_of_bids(path: Path) -> bool:
    """Return whether a recording is in a data set of BIDS and has a name of BIDS."""
    try:
        bids_name("auto", path)
    except OptionError:
        return False
    return any((folder / _DESCRIPTION).is_file() for folder in path.absolute().parents)


def describe_derivative(root: Path, version: str) -> None:
    """Write the description of a derivative data set, and the list of files to ignore, where there are none.

    Parameters
    ----------
    root : Path
        Folder of the data set.
    version : str
        Version of usdenoise.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    described = {
        "Name": "Power Doppler by usdenoise",
        "BIDSVersion": _VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "usdenoise", "Version": version}],
    }
    texts = {_DESCRIPTION: json.dumps(described, indent=2) + "\n", ".bidsignore": _OTHERS}
    # The data set may be one of others, in which nothing is to be written
    if missing := {name: text for name, text in texts.items() if not (root / name).exists()}:
        _write_texts(root, missing)


def _write_texts(root: Path, texts: Mapping[str, str]) -> None:
    """Write texts into files of a folder by their names."""
    with OutputFolder(root, overwrite=True) as outputs:
        for name, text in texts.items():
            outputs.reserve(name).write_text(text, encoding="utf-8")
        outputs.commit()


def quality_table(root: Path) -> tuple[dict[str, None], dict[str, dict[str, str]]]:
    """Return the columns of the fusiqc table of a data set, and its rows by their paths.

    A data set without a table has the usual columns and no rows.

    Raises
    ------
    OutputError
        If it cannot be read, or is another table.
    """
    path = root / _QUALITY
    try:
        table = csv.DictReader(io.StringIO(decoded(path.read_bytes()), newline=""), delimiter="\t")
        if "pwd_path" not in (table.fieldnames or ()):
            raise ValueError("no column is pwd_path")
        # A person may have added columns
        columns = dict.fromkeys((*_QUALITY_COLUMNS, *filter(None, table.fieldnames or ())))
        return columns, {row["pwd_path"]: row for row in table if row["pwd_path"]}
    except FileNotFoundError:
        return dict.fromkeys(_QUALITY_COLUMNS), {}
    except (OSError, ValueError, csv.Error) as error:
        problem = f"{path} is not a table of fusiqc with tabs in UTF-8 or UTF-16, so it is not updated"
        raise OutputError(problem, remedy="move or correct it") from error


def judge_recordings(root: Path, images: Iterable[Path], n_times: int, doubts: Sequence[str]) -> None:
    """Write the rows of images into the table of fusiqc: good if nothing is doubtful, otherwise pending with the doubts.

    Decisions of a person stay.

    Parameters
    ----------
    root : Path
        Folder of the data set.
    images : iterable of Path
        NIfTI files whose names end in pwd.
    n_times : int
        Number of their images over time.
    doubts : sequence of str
        Reasons not to trust them, in sentences.

    Raises
    ------
    OutputError
        If the table cannot be read or written.
    """
    status, notes = ("pending", "; ".join(doubts)) if doubts else ("good", _NOT_DOUBTFUL)
    # Other recordings may join the table at the same time.
    with locked(root, _QUALITY, _TABLE_WAIT_S):
        columns, rows = quality_table(root)
        for image in images:
            label = image.name.partition("_pwd.nii")[0]
            entities = dict(pair.split("-", 1) for pair in label.split("_"))
            place = image.absolute().relative_to(root.absolute()).as_posix()
            before = rows.pop(str(image.absolute()), None) or rows.get(place, {})
            # Only a pending one, or a good one with the notes of the software, may be of the software itself.
            known = str(before.get("qc_status") or "").strip().lower()
            is_own = known in ("", "pending") or (known == "good" and before.get("qc_notes") == _NOT_DOUBTFUL)
            decision = {"qc_status": status, "qc_notes": notes} if is_own else before
            rows[place] = before | {
                "pwd_path": place,
                "session_label": label,
                **{name: entities.get(name[:3], "") for name in ("subject", "session", "run")},
                "task": entities.get("task", ""),
                "n_timepoints": str(n_times),
                **{name: decision[name] for name in ("qc_status", "qc_notes")},
            }
        # Other than in tables of BIDS, a quotation mark at the beginning of a note must be quoted.
        text = io.StringIO()
        written = csv.writer(text, delimiter="\t", lineterminator="\n")
        written.writerow(columns)
        written.writerows([_tsv_cell(row.get(name) or "") for name in columns] for row in rows.values())
        _write_texts(root, {_QUALITY: text.getvalue()})
