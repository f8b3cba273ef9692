"""``usdenoise info``."""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, two_columns
from usdenoise.cli.flags import FLAGS, GroupedCommand, PathType
from usdenoise.errors import InputError
from usdenoise.options import ReadOptions

if TYPE_CHECKING:
    from usdenoise.files.contents import Candidate
    from usdenoise.files.recordings import FileDescription


@click.command(
    "info",
    cls=GroupedCommand,
    examples=[
        ("usdenoise info scan.h5", "Show the stack that would be read, and its metadata"),
        ("usdenoise info scans", "List the stacks of all files in a folder"),
        ("usdenoise info scan.h5 --axes tzx --frame-rate 500", "Check the options before giving them to run"),
    ],
)
@click.argument("file", type=PathType(readable=False))
@shared.reading_flags
@shared.json_option
def command(file: Path, as_json: bool, **reading: Any) -> None:
    """Show the contents of FILE and how it would be read.

    The list has all stacks in FILE, marks the one that would be read, and shows the source of each metadata
    entry: the file, an option, or an assumption. For a folder it has the stack of each file.
    """
    from usdenoise.files import describe
    from usdenoise.files.contents import readable
    from usdenoise.files.input_files import is_zarr

    with readable(file):
        # The error about a folder that cannot be listed is the one of a Zarr group.
        is_folder = file.is_dir() and os.access(file, os.R_OK | os.X_OK) and not is_zarr(file)
    if is_folder:
        _list_folder(file, as_json, shared.requested(ReadOptions, reading))
        return
    description = describe(file, **shared.requested(ReadOptions, reading))
    metadata, problem = description.metadata, description.problem
    descriptions = {
        "values": metadata.values,
        "sources": metadata.sources,
        "ignored": metadata.ignored,
        "attributes": sorted(metadata.attributes),
    }
    # Attributes of HDF5 may be references, which cannot be copied.
    plain = replace(description, problem=None, metadata=replace(metadata, attributes={}))
    report = {**asdict(plain), "problem": problem and problem.worded(FLAGS), "metadata": descriptions}
    Console(as_json=as_json).show(report, lambda: two_columns(_description_rows(description)))
    if problem is not None:
        raise problem


def _list_folder(folder: Path, as_json: bool, reading: dict[str, Any]) -> None:
    """List the stacks that would be read from the files of a folder."""
    from usdenoise.files import describe
    from usdenoise.files.contents import readable
    from usdenoise.files.input_files import acquisition_files, natural_key

    with readable(folder):
        # A folder is not one of its own subfolders, so that no file is skipped.
        paths = sorted(acquisition_files(folder, folder, ()), key=lambda path: natural_key(str(path)))
    if not paths:
        raise InputError(f"{folder} contains no file of a known format", remedy="check the path")
    stacks: dict[str, dict[str, object]] = {}
    rows: list[tuple[str, str]] = []
    for path in paths:
        name, chosen, problem = str(path.relative_to(folder)), None, ""
        try:
            description = describe(path, **reading)
        except InputError as error:
            problem = error.worded(FLAGS)
        else:
            chosen = description.chosen
            if description.problem is not None:
                problem = description.problem.worded(FLAGS).replace(f"{path} ", "")
        stacks[name] = {"stack": chosen and asdict(chosen), "problem": problem or None}
        rows.append((name, problem if chosen is None else problem or _stack_text(chosen)))
    Console(as_json=as_json).show({"files": stacks}, lambda: two_columns(rows))


def _stack_text(stack: "Candidate") -> str:
    return f"{stack.name}  {' x '.join(map(str, stack.shape))}  {stack.dtype}"


def _description_rows(description: "FileDescription") -> Iterator[tuple[str, str]]:
    yield "file", description.path
    yield "container", description.container
    chosen = None if description.chosen is None else description.chosen.name
    for candidate in description.candidates:
        mark = "  <- read" if candidate.name == chosen else ""
        layout = f"  ({candidate.layout})" if candidate.layout else ""
        yield "candidate", f"{_stack_text(candidate)}{layout}{mark}"
    for name, value in description.metadata.values.items():
        if isinstance(value, dict):
            text = ", ".join(f"{letter} {pitch:g}" for letter, pitch in value.items())
        else:
            text = value if isinstance(value, str) else f"{value:g}"
        yield name, f"{text}  ({description.metadata.sources[name]})"
    for name, flag in (("frame_rate_hz", "--frame-rate"), ("spacing_mm", "--spacing")):
        is_known = name in description.metadata.values or name in description.metadata.ignored
        if description.chosen is not None and not is_known:
            yield name, f"unknown; give {flag}"
    for name, reason in description.metadata.ignored.items():
        yield name, reason
    for note in description.notes:
        yield "note", note
