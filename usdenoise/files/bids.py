"""Names and folders of BIDS, the Brain Imaging Data Structure, for results as a derivative data set.

Functional ultrasound is a proposal for BIDS (extension proposal 40): its folder is called fusi, its power Doppler pwd.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from usdenoise.errors import OptionError
from usdenoise.files.output_folder import OutputFolder

_ENTITIES = re.compile(r"sub-[A-Za-z0-9]+(_[a-z]+-[A-Za-z0-9]+)*")
_ENTITY_ORDER = (
    "sub", "tpl", "ses", "cohort", "sample", "task", "tracksys", "acq", "nuc", "voi", "ce", "trc", "stain", "rec", "dir",
    "run", "mod", "echo", "flip", "inv", "mt", "part", "proc", "hemi", "space", "split", "recording", "chunk", "atlas",
    "seg", "scale", "res", "den", "label", "prov", "desc",
)  # fmt: skip
"""Keys of the entities of BIDS 1.11 in the order that names must have. Proposals have others, such as pose."""

_FOLDERS = ("fusi", "fus", "susi")
"""Folders of ultrasound recordings: of functional ones, the same before version 0.0.11 of the proposal, and of others."""

_DESCRIPTION = "dataset_description.json"
_VERSION = "1.10.0"
"""Version of BIDS by which derivatives are described."""

_OTHERS = "*_denoised.*\n*_sequence.*\n*_report.*\n*_frames.*\n*_blocks.*\n*.png\n*.pdf\n*.svg\n*.tif\n*.gif\n*.mp4\n"
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
        pairs = [pair for pair in self.entities.split("_") if pair.startswith("task-")]
        return pairs[0].removeprefix("task-") if pairs else None


def bids_name(requested: str, path: Path) -> BidsName:
    """Return the name that BIDS gives to the results of a recording.

    Parameters
    ----------
    requested : str
        Entities such as "sub-01_task-rest"; "auto" takes them from the name of the recording.
    path : Path
        The recording, or the folder of its blocks. If it is in a folder of a data set, the results go to a folder of the
        same name.

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
    ordered = sorted((key for key in keys if key in _ENTITY_ORDER), key=_ENTITY_ORDER.index)
    if ordered != [key for key in keys if key in _ENTITY_ORDER]:
        raise OptionError(
            f"'{entities}' has its keys in another order than BIDS",
            remedy=f"give {{bids}} the order {', '.join(ordered)}",
        )
    folders = [
        folder.name
        for folder in (path.absolute(), *path.absolute().parents)
        if folder.name in _FOLDERS and folder.parent.name.startswith(("sub-", "ses-"))
    ]
    return BidsName(entities, *folders[:1])


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
    missing = {name: text for name, text in texts.items() if not (root / name).exists()}
    if missing:
        with OutputFolder(root, overwrite=True) as outputs:
            for name, text in missing.items():
                outputs.reserve(name).write_text(text)
            outputs.commit()
