"""Result files in HDF5, MATLAB and Zarr: a filtered stack as its input stored it, with images, factors and provenance."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.hdf5_writing import attach_scales, create_file, write_values
from usdenoise.files.input_files import is_zarr
from usdenoise.files.layout import SLAB_BYTES, chunk_shape, slab_shape, slabs, storage_dtype
from usdenoise.files.matlab_writing import Variable, write_matlab
from usdenoise.files.stored import Dtype
from usdenoise.files.zarr_files import import_zarr
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.data_arrays import (
    DIMENSIONS,
    SLICE_TIME,
    confusius_scales,
    grid_attributes,
    grid_labels,
    with_slice,
)
from usdenoise.stack.geometry import FREE_NAME, Geometry
from usdenoise.stack.labels import WORLD
from usdenoise.system.processes import uninterrupted
from usdenoise.system.text import PROVENANCE

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class ResultFile:
    """The content of a result file.

    Attributes
    ----------
    stack : Acquisition or Geometry
        The filtered stack, which is stored under its own name, in its own axis order and in the precision of the
        input file. If it is a geometry, only its scales and attributes are stored.
    arrays : sequence of NamedArray
        Other arrays.
    provenance : str
        JSON text on the software, options and input that made the file.
    source : Path or None
        The input. The other variables of a MATLAB file come along into a MATLAB file. None (the default) has none.
    called : str or None
        Name of the stored stack; None (the default) for its own.
    """

    stack: Acquisition | Geometry
    arrays: Sequence[NamedArray]
    provenance: str
    source: Path | None = None
    called: str | None = None

    @property
    def with_stack(self) -> bool:
        """Whether the stack itself is stored."""
        return isinstance(self.stack, Acquisition)

    @property
    def dtype(self) -> Dtype:
        """Type of the stored stack."""
        stored = self.stack.stored_dtype
        return self.stack.dtype if stored is None else storage_dtype(stored)

    @property
    def scales(self) -> dict[str, float | list[float]]:
        """Known scales of the stack, by the names from which :func:`usdenoise.load` reads them."""
        stack = self.stack
        names = ("frame_rate_hz", "center_frequency_hz", "sound_speed_m_s")
        values = {name: getattr(stack, name) for name in names}
        scales: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if all(letter in stack.spacing_mm for letter in stack.spatial_axes):
            scales["spacing_mm"] = [stack.spacing_mm[letter] for letter in stack.spatial_axes]
        return scales

    @property
    def stack_attributes(self) -> dict[str, object]:
        """Attributes of the stored stack: the attributes of the input, its axes and its scales."""
        kinds = (str, bytes, int, float, np.generic, np.ndarray)
        carried = {name: value for name, value in self.stack.attributes.items() if isinstance(value, kinds)}
        return {"units": "unit of the input", **carried, "axes": self.stack.axes, **self.scales}


def stored_values(array: NamedArray) -> NDArray[np.generic]:
    """Return the values of an array as files store them: masks as 0 and 1."""
    values = np.asarray(array.values)
    return values.astype(np.uint8) if values.dtype == bool else values


def stored_attributes(array: NamedArray) -> dict[str, object]:
    """Return the attributes of an array, with its unit by both names that programs look for."""
    unit = array.attributes.get("unit")
    return {**array.attributes, **({} if unit is None else {"units": unit})}


def dimensions_of(array: NamedArray) -> tuple[str, ...]:
    """Return names for the axes of an array that is not an image."""
    last = array.name.rpartition("/")[2]
    return array.dimensions or tuple(f"{last}_{axis}" for axis in range(np.ndim(array.values)))


_MOST_NAMED = 8
"""Most variables that a note names."""


def output_suffix(path: Path) -> str:
    """Return the suffix of the result file of an input: .mat for .mat, .zarr for Zarr, otherwise .h5."""
    return ".mat" if path.suffix.lower() == ".mat" else ".zarr" if is_zarr(path) else ".h5"


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
    stack, is_matlab = content.stack, suffix == ".mat"
    beside = _beside_stack(content) if is_matlab else {array.name: array for array in content.arrays}
    in_input, notes = {stack.name, *stack.form.parts}, list[str]()
    name = content.called or stack.name
    is_taken = any(f"{one}/".startswith(f"{name}/") or f"{name}/".startswith(f"{one}/") for one in beside)
    if content.with_stack and is_taken:
        notes.append(
            f"the result contains another array named '{name}', so its filtered stack is named '{FREE_NAME}'"
        )
        name = FREE_NAME
    if content.called is not None or name != stack.name:
        content = replace(content, stack=replace(stack, name=name, form=replace(stack.form, parts=())))
    if suffix == ".zarr":
        _write_zarr(path, content)
    elif is_matlab:
        is_from_matlab = content.source is not None and content.source.suffix.lower() == ".mat"
        source = content.source if is_from_matlab else None
        lost = write_matlab(path, {**_stack_variables(content), **_beside_stack(content)}, source, in_input)
        if lost:
            notes.append(
                f"{', '.join(lost[:_MOST_NAMED])}{', …' if len(lost) > _MOST_NAMED else ''} of the input were not "
                "copied to the result: they are damaged, or of a type that cannot be written"
            )
    else:
        _write_hdf5(path, content)
    return notes


def _stack_variables(content: ResultFile) -> dict[str, Variable]:
    """Return the stack of a result in the form of the input, by the names of its variables in MATLAB."""
    stack = content.stack
    if not isinstance(stack, Acquisition):
        return {}
    # The axes of length 1 of the input; the stack may not be read yet.
    axes = range(stack.iq.ndim + len(stack.form.singles))
    with_singles = tuple(None if axis in stack.form.singles else slice(None) for axis in axes)
    values = stack.iq[with_singles].astype(content.dtype, copy=False)
    if stack.form.parts and np.iscomplexobj(values):
        return dict(zip(stack.form.parts, (values.real, values.imag), strict=True))
    return {stack.name: values}


def _beside_stack(content: ResultFile) -> dict[str, Variable]:
    """Return what a result has beside its stack, by the names of its variables in MATLAB."""
    variables: dict[str, Variable] = {array.name: stored_values(array) for array in content.arrays}
    variables["axes"] = content.stack.axes
    variables |= {key: np.atleast_1d(value) for key, value in content.scales.items()}
    for array in content.arrays:
        for key, value in array.attributes.items():
            variables[f"{array.name}_{key}"] = value if isinstance(value, str) else np.atleast_1d(value)
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


def _write_zarr(path: Path, content: ResultFile) -> None:
    """Write a stack and results as a Zarr group in the layout of ConfUSIus 0.8.

    Every image is a grid of voxels, with an axis of length 1 for the elevation of a single slice. The stack comes
    first among the arrays, and the power Doppler without a stack: ConfUSIus opens the first one.

    Parameters
    ----------
    path : Path
        Folder of the group, which is created.
    content : ResultFile
        The stack, and images, factors and provenance for the same group.
    """
    zarr, stack = import_zarr(), content.stack
    root = zarr.open_group(str(path), mode="w")
    arrays = [*content.arrays]
    if isinstance(stack, Acquisition):
        attributes = {**content.stack_attributes, **confusius_scales(stack)}
        arrays.insert(0, NamedArray(stack.name, stack.iq, stack.axes, attributes))
    else:
        root.attrs.update(_json(content.stack_attributes))
    for array in arrays:
        _write_array(root, content, array, is_stack=content.with_stack and array is arrays[0])
    # The coordinates of all axes of the arrays, in the group and in the group of the stack
    used = "".join(array.axes for array in arrays)
    labels = grid_labels(stack, with_slice("".join(letter for letter in "tyzx" if letter in used)))
    for group in {"", stack.name.rpartition("/")[0] if content.with_stack else ""}:
        for name, label in labels.items():
            array_path = f"{group}/{name}".lstrip("/")
            if array_path not in root:
                positions = root.create_array(array_path, data=label.values, dimension_names=label.dimensions)
                positions.attrs.update(_json(label.attributes))
    root.attrs[PROVENANCE] = content.provenance
    _consolidate(path, [array.name for array in arrays])


def _write_array(root: "zarr.Group", content: ResultFile, array: NamedArray, is_stack: bool) -> None:
    """Write an array; the stack in chunks, slab by slab."""
    values = array.values if is_stack else stored_values(array)
    attributes = _json(array.attributes if is_stack else stored_attributes(array))
    dtype, dimensions = content.dtype if is_stack else values.dtype, dimensions_of(array)
    letters = with_slice(array.axes) if array.axes else ""
    if letters:
        dimensions = tuple(DIMENSIONS[letter] for letter in letters)
        if letters != array.axes:
            values = values[(*map(slice, values.shape[: letters.index("y")]), None)]
        if len(letters.replace("t", "")) > 1:
            labels = grid_labels(content.stack, letters)
            # xarray takes them as the positions in the world, and the times of planes.
            named = [name for name in WORLD.values() if name in labels]
            named += [SLICE_TIME for one in content.arrays if one.name == SLICE_TIME and "t" in letters]
            attributes |= {**_json(grid_attributes(content.stack)), "coordinates": " ".join(named)}
    stored = root.create_array(
        array.name,
        shape=values.shape,
        dtype=dtype,
        chunks=chunk_shape(values.shape, letters, dtype.itemsize) if is_stack else values.shape,
        dimension_names=dimensions,
        compressors=None,
        # By default Zarr does not write chunks of zeros, and our reader refuses missing chunks.
        config={"write_empty_chunks": True},
    )
    if is_stack:
        slab = slab_shape(values.shape, stored.chunks, letters, SLAB_BYTES // dtype.itemsize)
        for index, _ in slabs([slice(0, n, 1) for n in values.shape], slab):
            stored[index] = np.asarray(values[index], dtype)
    else:
        stored[...] = values
    stored.attrs.update(attributes)


def _consolidate(path: Path, order: list[str]) -> None:
    """Copy the metadata of all arrays to the group, where xarray looks for them first.

    The function of zarr for this warns that version 3 of the format does not define it, and sorts by name.

    Parameters
    ----------
    path : Path
        Folder of the group.
    order : list of str
        Names of the arrays that come first.
    """
    file = path / "zarr.json"
    group = json.loads(file.read_bytes())
    every = sorted(each.parent.relative_to(path).as_posix() for each in path.rglob("zarr.json"))
    names = dict.fromkeys([*order, *every])
    metadata = {name: json.loads((path / name / "zarr.json").read_bytes()) for name in names if name != "."}
    group["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata}
    file.write_text(json.dumps(group))


def _json(attributes: Mapping[str, object]) -> dict[str, Any]:
    """Return attributes of which arrays are lists, and bytes text."""
    plain: dict[str, Any] = {}
    for name, value in attributes.items():
        plain[name] = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        if isinstance(plain[name], bytes):
            plain[name] = plain[name].decode("utf-8", errors="replace")
    return plain
