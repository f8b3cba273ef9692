"""From a path to an acquisition: recognise the container, pick the stack, read it, say what was assumed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.acquisition import Acquisition, check_axes
from usdenoise.errors import InputError
from usdenoise.formats import hdf5, matlab
from usdenoise.formats.description import Candidate, FileDescription, Metadata, choose, guess_axes
from usdenoise.formats.layout import read_stack, storage_dtype
from usdenoise.formats.metadata import interpret, positive_numbers, with_options

SUFFIXES = (".h5", ".hdf5", ".mat")
"""How the names of acquisitions end, for finding them in a folder; what a file is, its content says."""

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file where it does not say so itself.

    Attributes
    ----------
    dataset : str or None
        Name of the stack in the file.
    axes : str or None
        Axis letters in the file's own order (MATLAB's order for .mat files).
    frames : slice or None
        Frames to read.
    frame_rate_hz : float or None
        Frames a second.
    spacing_mm : tuple of float or None
        Pixel pitch, one number or one for each spatial axis in the file's order.
    """

    dataset: str | None = None
    axes: str | None = None
    frames: slice | None = None
    frame_rate_hz: float | None = None
    spacing_mm: tuple[float, ...] | None = None


def load(path: str | Path, *, dtype: Any = None, **options: Any) -> Acquisition:
    """Read an acquisition.

    Parameters
    ----------
    path : str or Path
        HDF5 file (of h5py, MATLAB 7.3, or ours) or MATLAB file before 7.3.
    dtype : str, optional
        "single" or "double" converts on reading; by default floats and complex numbers keep their
        precision. Integers become float32.
    **options
        Fields of :class:`ReadOptions`.

    Returns
    -------
    Acquisition
        Its memory is in Casorati order, so that the Casorati matrix is a view.

    Raises
    ------
    InputError
        If the file is missing, damaged, of an unknown kind, or does not hold exactly one possible stack.
    """
    path = Path(path)
    how = ReadOptions(**options)
    if container(path) == "MATLAB":
        candidates, every = matlab.survey(path)
        chosen = choose(candidates, how.dataset, every, str(path))
        metadata = _matlab_metadata(path, chosen, how)
        values = matlab.read_variable(path, chosen)
        kept = _kept_dtype(values.dtype, dtype)
        iq = read_stack(lambda index: values[index], values.shape, metadata.values["axes"], how.frames, kept)
        return _acquisition(iq, chosen, metadata, values.dtype)
    with hdf5.open_file(path) as file:
        candidates, every = hdf5.survey(file)
        chosen = choose(candidates, how.dataset, every, str(path))
        dataset = file[chosen.name]
        metadata = _hdf5_metadata(file, chosen, how)
        hdf5.check_stored(dataset, path)
        stored = hdf5.value_dtype(dataset)
        axes = metadata.values["axes"]
        turned = hdf5.is_matlab(file)
        iq = read_stack(
            lambda index: hdf5.read_values(dataset, index),
            dataset.shape,
            axes[::-1] if turned else axes,
            how.frames,
            _kept_dtype(stored, dtype),
        )
        return _acquisition(iq.transpose() if turned else iq, chosen, metadata, stored)


def describe(path: str | Path, **options: Any) -> FileDescription:
    """What is in a file and how it would be read, from its headers alone.

    Parameters
    ----------
    path, **options
        As for :func:`load`.

    Raises
    ------
    InputError
        If the file is missing, damaged or of an unknown kind.
    """
    path = Path(path)
    how = ReadOptions(**options)
    kind = container(path)
    metadata, chosen, problem = Metadata(), None, None
    if kind == "MATLAB":
        candidates, every = matlab.survey(path)
        try:
            chosen = choose(candidates, how.dataset, every, str(path))
            metadata = _matlab_metadata(path, chosen, how)
            check_axes(metadata.values["axes"], chosen.shape)
        except InputError as error:
            chosen, problem = None, str(error)
        return FileDescription(str(path), "MATLAB before 7.3", tuple(candidates), chosen, problem, metadata)
    with hdf5.open_file(path) as file:
        candidates, every = hdf5.survey(file)
        kind = "MATLAB 7.3 (HDF5)" if hdf5.is_matlab(file) else kind
        try:
            chosen = choose(candidates, how.dataset, every, str(path))
            metadata = _hdf5_metadata(file, chosen, how)
            check_axes(metadata.values["axes"], chosen.shape)
            hdf5.check_stored(file[chosen.name], path)
        except InputError as error:
            chosen, problem = None, str(error)
        return FileDescription(str(path), kind, tuple(candidates), chosen, problem, metadata)


def container(path: Path) -> str:
    """The kind of a file by its first bytes: "HDF5" or "MATLAB".

    Raises
    ------
    InputError
        If it is missing, unreadable, or neither.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4104)
    except OSError as error:
        reason = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        raise InputError(f"{path} {reason}; check the path") from error
    if any(head[offset : offset + 8] == _HDF5_SIGNATURE for offset in (0, 512, 1024, 2048, 4096)):
        return "HDF5"
    if head[:10] == b"MATLAB 5.0" or (path.suffix.lower() == ".mat" and len(head) >= 128):
        return "MATLAB"
    raise InputError(
        f"{path} is neither an HDF5 nor a MATLAB file ({(len(head) and 'unknown') or 'no'} content); "
        "convert it to HDF5 with the stack as a complex dataset"
    )


def _kept_dtype(stored: np.dtype[Any], precision: str | None) -> np.dtype[Any]:
    kept = storage_dtype(stored)
    if precision is None:
        return kept
    double = precision == "double"
    return np.dtype(
        (np.complex128 if double else np.complex64)
        if kept.kind == "c"
        else (np.float64 if double else np.float32)
    )


def _hdf5_metadata(file: Any, chosen: Candidate, how: ReadOptions) -> Metadata:
    values, sources, others = interpret(hdf5.nearby_metadata(file, file[chosen.name]))
    return _with_options(values, sources, others, chosen, how, True if hdf5.is_matlab(file) else None)


def _matlab_metadata(path: Path, chosen: Candidate, how: ReadOptions) -> Metadata:
    values, sources, others = interpret(matlab.nearby_metadata(path))
    return _with_options(values, sources, others, chosen, how, True)


def _with_options(
    values: dict[str, Any],
    sources: dict[str, str],
    others: dict[str, Any],
    chosen: Candidate,
    how: ReadOptions,
    time_last: bool | None,
) -> Metadata:
    if "TwFreq" in others and "center_frequency_hz" not in values:
        megahertz = positive_numbers(others["TwFreq"])
        if megahertz:
            values["center_frequency_hz"] = megahertz[0] * 1e6
            sources["center_frequency_hz"] = "file: UF.TwFreq in MHz"
    return with_options(
        values,
        sources,
        others,
        axes=how.axes,
        guessed_axes=guess_axes(chosen.shape, time_last),
        frame_rate_hz=how.frame_rate_hz,
        spacing_mm=how.spacing_mm,
    )


def _acquisition(iq: Any, chosen: Candidate, metadata: Metadata, stored: np.dtype[Any]) -> Acquisition:
    values = metadata.values
    assumptions = []
    if metadata.sources["axes"] == "assumed":
        assumptions.append(
            f"the axes of '{chosen.name}' {tuple(chosen.shape)} are taken as {values['axes']}; --axes overrides that"
        )
    return Acquisition(
        iq,
        values["axes"],
        frame_rate_hz=values.get("frame_rate_hz"),
        spacing_mm=values.get("spacing_mm", {}),
        center_frequency_hz=values.get("center_frequency_hz"),
        sound_speed_m_s=values.get("sound_speed_m_s"),
        name=chosen.name,
        stored_dtype=stored,
        assumptions=tuple(assumptions),
        attributes=metadata.attributes,
    )
