"""Series of power images that exist: of a session, of an Iconeus scanner (.scan), as NIfTI, or as any stack.

All become a :class:`PowerSeries`. The layout of .scan files, and that their times are the ends of the images, are as in
confusius 0.8.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.files.contents import Contents, guard
from usdenoise.files.images import import_nibabel
from usdenoise.files.open_input import open_contents, open_input
from usdenoise.options.denoise_options import reading_options
from usdenoise.stack.geometry import Geometry, shape_text
from usdenoise.stack.metadata import interpret

MEASURES = ("motion", "gain", "shift_z", "shift_x", "shift_y")
"""What a session stores of the frames of each block: the names of its movement."""

POSE = "y"
"""Axis of the positions of the probe."""


@dataclass(frozen=True, kw_only=True)
class PowerSeries:
    """A series of power images.

    Attributes
    ----------
    geometry : Geometry
        Axes and scales of the images, time first; with several positions of the probe these are along y.
    images, means : mapping
        Name -> (n, ...) images, and means over the good ones without time: "blood_power", and of a session all others.
    times : (n,) or (n, n_poses) float64 array
        Middle of each image in s, from the beginning of the first one.
    n_frames : int array of this shape
        Frames of each image, at the frame rate of the geometry; -1 where a position has no image in a sweep.
    bad : boolean array of this shape, or None
        Images that are known to be bad; None (the default) if nothing is known.
    measures : mapping
        Name, of MEASURES -> its values, of this shape; none by default.
    poses : tuple of str
        Names of the positions of the probe; empty (the default) for one.
    notes : tuple of str
        Sentences on what the file does not say; none by default.
    """

    geometry: Geometry
    images: Mapping[str, NDArray[np.floating]]
    means: Mapping[str, NDArray[np.floating]]
    times: NDArray[np.float64]
    n_frames: NDArray[np.integer]
    bad: NDArray[np.bool_] | None = None
    measures: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    poses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_power_series(
    path: Path, reading: Mapping[str, object], interval_s: float | None = None
) -> PowerSeries:
    """Read a series of power images.

    Parameters
    ----------
    path : Path
        Series of a session (HDF5, MATLAB, Zarr), .scan of Iconeus, NIfTI with four axes, or a file with a real stack.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`, for a stack.
    interval_s : float, optional
        Time from one image to the next in s, for a stack; by default from the file.

    Raises
    ------
    InputError
        If the file holds no such series, or cannot be read.
    OptionError
        If the times of the images are not known.
    """
    if path.name.lower().endswith((".nii", ".nii.gz")):
        with guard(path, "cannot be read as NIfTI; copy or write it again"):
            return _of_nifti(path)
    with open_contents(path, reading_options({})) as contents, guard(path, contents.damaged):
        if {"blood_power", "mean_blood_power", "time", "bad"} <= contents.arrays.keys():
            return _of_session(path, contents)
        if {"Data", "acqMetaData/time"} <= contents.arrays.keys():
            return _of_scan(path, contents)
        # A stack, which may be called power_doppler
        real = [stack.name for stack in contents.stacks if stack.array.dtype.kind != "c"]
    dataset = reading.get("dataset") or next((name for name in real if "power" in name.lower()), None)
    named = {**reading, **({} if dataset is None else {"dataset": dataset})}
    if dataset is None and len(real) == 1:
        named["dataset"] = real[0]
    with open_input(path, named) as source:
        # Frames at a few Hz would be no frames of a stack
        stack, coordinates = source.read(), interpret(source.stack.metadata()).coordinates
    if np.iscomplexobj(stack.iq):
        problem = f"'{stack.name}' in {path} is complex: it is a stack of frames, and no series of power"
        raise InputError(problem, remedy="filter it with `usdenoise session`")
    if (stack.iq < 0).any():
        problem = f"'{stack.name}' in {path} has negative values, and power has none"
        raise InputError(problem, remedy="pick the linear power with {dataset}")
    values = np.moveaxis(stack.iq.real, stack.axes.index("t"), 0)
    times, step, along = coordinates.get("t"), interval_s, dict[str, Any]()
    if interval_s is not None or times is None:
        step = step or (1 / stack.frame_rate_hz if stack.frame_rate_hz else None)
        if step is None:
            raise OptionError(
                f"the times of the images in {path} are not known", remedy="give {block_interval_s}"
            )
        begins = step * np.arange(len(values))
    else:
        begins, along = times.values.astype(np.float64), dict(times.attributes)
        step = float(np.median(np.diff(begins)))
    duration = float(along.get("volume_acquisition_duration") or step)
    reference = {"center": 0.5, "end": 1.0}.get(str(along.get("volume_acquisition_reference")), 0.0)
    begins = begins - reference * duration
    geometry = replace(
        stack.geometry, axes=f"t{stack.spatial_axes}", shape=values.shape, coordinates={}, assumptions=()
    )
    return _series(geometry, values, begins - begins[0] + duration / 2, duration)


def _series(
    geometry: Geometry,
    values: NDArray[np.floating],
    times: NDArray[np.float64],
    duration_s: float,
    **known: Any,
) -> PowerSeries:
    """Return a series of images without frames, each of a duration."""
    geometry = replace(geometry, frame_rate_hz=1 / duration_s, dtype=values.dtype, labels=None)
    note = "the motion of the tissue is not known: the model has no confounds"
    shown = np.asarray(values)
    means = {"blood_power": np.nanmean(shown, axis=0, dtype=np.float64).astype(values.dtype)}
    return PowerSeries(
        geometry=geometry,
        images={"blood_power": shown},
        means=means,
        times=times,
        n_frames=np.ones(times.shape, np.intp),
        notes=(note, *known.pop("notes", ())),
        **known,
    )


def _of_session(path: Path, contents: Contents) -> PowerSeries:
    """Return the series that a session has written."""
    with open_input(path, {"dataset": "blood_power"}) as source:
        geometry, attributes = source.geometry, source.stack.metadata()
    shape, arrays = geometry.shape, contents.arrays
    poses = tuple(json.loads(str(attributes.get("poses", ("[]", ""))[0])))
    # Zarr has an axis of length 1 for a single slice, and MATLAB vectors have two axes
    of_blocks = (shape[0], len(poses)) if poses else shape[:1]

    def values(name: str, of_shape: tuple[int, ...]) -> NDArray[Any]:
        return np.asarray(arrays[name].everything()).reshape(of_shape)

    if "motion" not in arrays:
        raise InputError(
            f"{path} is the series of an earlier version, without the motion of its blocks",
            remedy="filter it again",
        )
    names = [name for name in ("blood_power", "power_doppler", "noise_power") if name in arrays]
    return PowerSeries(
        geometry=replace(geometry, assumptions=()),
        images={name: values(name, shape) for name in names},
        means={name: values(f"mean_{name}", shape[1:]) for name in names}
        | {"tsnr": values("tsnr", shape[1:])},
        times=values("slice_time" if poses else "time", of_blocks).astype(np.float64),
        n_frames=values("n_frames", of_blocks),
        bad=values("bad", of_blocks).astype(bool),
        measures={name: values(name, of_blocks) for name in MEASURES if name in arrays},
        poses=poses,
    )


def _of_scan(path: Path, contents: Contents) -> PowerSeries:
    """Return the series of a .scan file: time, z, y, x; with several positions sweep, position, repetition, z, y, x."""
    values: NDArray[Any] = contents.arrays["Data"].everything()
    times: NDArray[Any] = contents.arrays["acqMetaData/time"].everything().astype(np.float64).reshape(-1)
    if contents.container.startswith("MATLAB"):
        values = values.transpose()
    poses: tuple[str, ...] = ()
    if values.ndim == 6 and values.shape[1] > 1:
        values = np.moveaxis(values, 2, 1).reshape(-1, *values.shape[1:2], *values.shape[3:])
        poses = tuple(map(str, range(values.shape[1])))
        times = times.reshape(values.shape[:2])
        values = values[:, :, :, 0]
        axes = "tyzx"
    else:
        values = values.reshape(-1, *values.shape[-3:])
        axes = "tzyx" if values.shape[2] > 1 else "tzx"
        values = values if axes == "tzyx" else values[:, :, 0]
    if len(times) != len(values):
        raise InputError(f"{path} has {len(values)} images and {len(times)} times; copy it again")
    spacing = dict[str, float]()
    if "acqMetaData/voxelsToProbe" in contents.arrays:
        steps = np.diag(contents.arrays["acqMetaData/voxelsToProbe"].everything())[:3]
        spacing = {
            letter: float(f"{1e3 * abs(step):.7g}") for letter, step in zip("xyz", steps, strict=True) if step
        }
    duration = float(times.min())
    duration = duration if duration > 0 else float(np.median(np.diff(times, axis=0)))
    spacing = {
        letter: step for letter, step in spacing.items() if letter in axes and not (poses and letter == POSE)
    }
    geometry = Geometry(axes=axes, shape=values.shape, dtype=values.dtype, name="Data", spacing_mm=spacing)
    begins = times - duration
    return _series(geometry, values, begins - begins.min() + duration / 2, duration, poses=poses)


def _of_nifti(path: Path) -> PowerSeries:
    """Return the series of a NIfTI file with the axes lateral, depth, elevation and time, and of its sidecar."""
    image = import_nibabel().load(path)
    if len(image.shape) != 4 or image.shape[3] < 2:
        raise InputError(
            f"{path} has {shape_text(image.shape)} voxels, and a series has four axes, time last"
        )
    values = np.ascontiguousarray(np.asanyarray(image.dataobj).transpose(3, 2, 1, 0))  # t, y, z, x
    sidecar, fields = (
        path.with_name(path.name.removesuffix(".gz").removesuffix(".nii") + ".json"),
        dict[str, Any](),
    )
    with suppress(FileNotFoundError):
        fields = json.loads(sidecar.read_text(encoding="utf-8"))
    zooms, (unit, of_time) = image.header.get_zooms(), image.header.get_xyzt_units()
    seconds = {"msec": 1e-3, "usec": 1e-6}.get(of_time, 1.0)
    step = float(fields.get("RepetitionTime", f"{seconds * zooms[3]:.7g}"))
    begins = np.array(fields.get("VolumeTiming", step * np.arange(len(values))), np.float64)
    if len(begins) != len(values) or not step > 0:
        raise InputError(f"{sidecar.name} has {len(begins)} times, and {path} {len(values)} images")
    duration = float(fields.get("FrameAcquisitionDuration", np.median(np.diff(begins))))
    # Planes with times of their own are positions of the probe
    timing, poses, bad = fields.get("SliceTiming"), tuple[str, ...](), fields.get("BadBlocks")
    if timing is not None and len(timing) == values.shape[1] > 1:
        poses = tuple(map(str, fields.get("Poses", range(len(timing)))))
        duration = float(fields.get("PowerDopplerIntegrationDuration", 1e3 * duration / len(timing))) / 1e3
        begins = np.array(fields.get("BlockTiming", begins[:, None] + np.array(timing)), np.float64)
    axes, mm = "tyzx", {"meter": 1e3, "micron": 1e-3}.get(unit, 1.0)
    spacing = {letter: float(f"{mm * zooms[axis]:.7g}") for axis, letter in enumerate("xzy")}
    if values.shape[1] == 1:
        values, axes = values[:, 0], "tzx"
    unknown = set(fields.get("PixelPitchUnknown", ())) | ({*"xzy"} if unit == "unknown" else set())
    spacing = {letter: step for letter, step in spacing.items() if letter in axes and letter not in unknown}
    geometry = Geometry(axes=axes, shape=values.shape, dtype=values.dtype, name="power", spacing_mm=spacing)
    known = {} if bad is None else {"bad": np.array(bad, bool).reshape(begins.shape)}
    return _series(geometry, values, begins - begins.min() + duration / 2, duration, poses=poses, **known)
