"""Result files: a filtered stack as its input stored it, with images, factors and provenance."""

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.files.hdf5_writing import attach_scales, create_file, write_values
from usdenoise.files.layout import chunk_shape
from usdenoise.files.matlab_writing import write_matlab
from usdenoise.files.result_content import ResultFile, dimensions_of, stored_attributes, stored_values
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import FREE_NAME
from usdenoise.system.processes import uninterrupted
from usdenoise.system.provenance import PROVENANCE

_MOST_NAMED = 8
"""Most variables that a note names."""


def output_suffix(path: Path) -> str:
    """Return the suffix of the result file of an input: .mat for .mat, .zarr for Zarr, otherwise .h5."""
    suffix = path.suffix.lower()
    if os.path.isdir(path) and suffix != ".mat":
        from usdenoise.files.known_formats import is_zarr

        return ".zarr" if is_zarr(path) else ".h5"
    return ".mat" if suffix == ".mat" else ".h5"


# The HDF5 library loses an exception that a signal raises in its callbacks, or prints it.
@uninterrupted()
def write_result(path: Path, suffix: str, content: ResultFile) -> list[str]:
    """Write a result file.

    Parameters
    ----------
    path : Path
        File (folder for Zarr) to write, which may have a temporary name.
    suffix : str
        Format of the file, from :func:`output_suffix`: ".h5", ".mat" or ".zarr".
    content : ResultFile
        What the file holds.

    Returns
    -------
    list of str
        Sentences on arrays that were renamed, and on variables of the input that were not copied.
    """
    used_names = (
        {array.name for array in content.arrays}
        if suffix != ".mat"
        else {*_matlab_variables(replace(content, stack=content.stack.geometry))}
    )
    in_input = {content.stack.name, *content.stack.form.parts}
    if content.called is not None:
        content = _renamed(content, content.called)
    content, notes = _with_free_name(content, used_names)
    if suffix == ".zarr":
        from usdenoise.files.zarr_files import write_zarr

        write_zarr(path, content)
    elif suffix == ".mat":
        variables = _matlab_variables(content)
        is_matlab = content.source is not None and content.source.suffix.lower() == ".mat"
        source = content.source if is_matlab else None
        lost = write_matlab(path, variables, source, in_input)
        if lost:
            notes.append(
                f"{', '.join(lost[:_MOST_NAMED])}{', …' if len(lost) > _MOST_NAMED else ''} of the input were not "
                "copied to the result: they are damaged, or of a type that cannot be written"
            )
    else:
        _write_hdf5(path, content)
    return notes


def _with_free_name(content: ResultFile, used_names: Collection[str]) -> tuple[ResultFile, list[str]]:
    """Return the content with another name for its stack, and a note, if the result has something else of its name."""
    name = content.stack.name
    if not content.with_stack or not any(
        f"{one}/".startswith(f"{name}/") or f"{name}/".startswith(f"{one}/") for one in used_names
    ):
        return content, []
    note = f"the result contains another array named '{name}', so its filtered stack is named '{FREE_NAME}'"
    return _renamed(content, FREE_NAME), [note]


def _renamed(content: ResultFile, name: str) -> ResultFile:
    stack = content.stack
    return replace(content, stack=replace(stack, name=name, form=replace(stack.form, parts=())))


def _matlab_variables(content: ResultFile) -> dict[str, Any]:
    """Return the content of a result by the names of its variables; the stack in the form of the input."""
    stack = content.stack
    variables: dict[str, Any] = {}
    if isinstance(stack, Acquisition):
        # The axes of length 1 of the input; the stack may not be read yet.
        axes = range(stack.iq.ndim + len(stack.form.singles))
        with_singles = tuple(None if axis in stack.form.singles else slice(None) for axis in axes)
        values = stack.iq[with_singles].astype(content.dtype, copy=False)
        if stack.form.parts and np.iscomplexobj(values):
            variables |= dict(zip(stack.form.parts, (values.real, values.imag), strict=True))
        else:
            variables[stack.name] = values
    variables |= {array.name: stored_values(array) for array in content.arrays} | {"axes": stack.axes}
    variables |= {key: np.atleast_1d(value) for key, value in content.scales.items()}
    for array in content.arrays:
        variables |= {
            f"{array.name}_{key}": value if isinstance(value, str) else np.atleast_1d(value)
            for key, value in array.attributes.items()
        }
    return {**variables, PROVENANCE: content.provenance}


def _write_hdf5(path: Path, content: ResultFile) -> None:
    stack, dtype = content.stack, content.dtype
    chunks = chunk_shape(stack.shape, stack.axes, dtype.itemsize)
    with create_file(path) as file:
        if isinstance(stack, Acquisition):
            dataset = file.create_dataset(stack.name, shape=stack.shape, dtype=dtype, chunks=chunks)
            write_values(dataset, stack.iq)
            dataset.attrs.update(content.stack_attributes)
        for array in content.arrays:
            values = stored_values(array)
            # A mask is mostly zeros, so it is compressed.
            is_mask = values.dtype.kind not in "fc" and values.ndim > 1
            packed = {"compression": "gzip", "shuffle": True} if is_mask else {}
            dataset = file.create_dataset(array.name, data=values, **packed)
            dataset.attrs.update(stored_attributes(array))
            spatial = array.axes.replace("t", "")
            if array.axes:
                dataset.attrs["axes"] = array.axes
            if spatial and all(letter in stack.spacing_mm for letter in spatial):
                dataset.attrs["spacing_mm"] = [stack.spacing_mm[letter] for letter in spatial]
        if not content.with_stack:
            file.attrs.update(content.scales)
        axes = {array.name: array.axes for array in content.arrays if array.axes}
        others = {array.name: dimensions_of(array) for array in content.arrays if not array.axes}
        attach_scales(file, stack, axes | ({stack.name: stack.axes} if content.with_stack else {}), others)
        file.attrs[PROVENANCE] = content.provenance
