"""Series of power images that exist: of a session, of an Iconeus scanner (.scan), as NIfTI, or as any stack.

All become the :class:`usdenoise.sessions.result_series.ResultSeries` of a session, without what only the filter knows. The
layout of .scan files, and that their times are the ends of the images, are as in confusius 0.8.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.errors import InputError, OptionError
from usdenoise.files.contents import Contents, guard
from usdenoise.files.images import import_nibabel
from usdenoise.files.open_input import open_contents, open_input
from usdenoise.linalg.tall_matrices import TINY
from usdenoise.options.denoise_options import reading_options
from usdenoise.sessions.bad_blocks import BlockLevel, find_bad_blocks
from usdenoise.sessions.pose_series import POSE_AXIS, joined_poses
from usdenoise.sessions.poses import PosePlan
from usdenoise.sessions.result_series import BlockRecord, FramesRecord, ResultSeries
from usdenoise.stack.geometry import Geometry, shape_text
from usdenoise.stack.metadata import interpret

Arrays = Mapping[str, NDArray[Any]]
"""Arrays of a series by their names."""

OF_BLOCKS = ("n_frames", "bad", "motion", "gain", "shift_z", "shift_x", "shift_y")
"""What a session stores of each block besides its time: its frames, -1 where a position has no block in a sweep, whether it
is bad, and its movement."""

LASTING = 5
"""Blocks of the running median of the level of an imported series. A change over more than half of them is not a burst."""


def read_power_series(
    path: Path, reading: Mapping[str, object], interval_s: float | None = None
) -> ResultSeries:
    """Read a series of power images.

    Parameters
    ----------
    path : Path
        Series of a session (HDF5, MATLAB, Zarr), .scan of Iconeus, NIfTI with four axes, or a file with a real stack.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`, for a stack.
    interval_s : float, optional
        Time from one image to the next in s, for a stack or NIfTI; by default from the file.

    Returns
    -------
    ResultSeries
        Times are from the beginning of the first image. The assumptions of its geometry say what the file does not.

    Raises
    ------
    InputError
        If the file holds no such series, or cannot be read.
    OptionError
        If the times of the images are not known.
    """
    if path.name.lower().endswith((".nii", ".nii.gz")):
        with guard(path, "cannot be read as NIfTI; copy or write it again"):
            return _of_nifti(path, interval_s)
    with open_contents(path, reading_options({})) as contents, guard(path, contents.damaged):
        if {"blood_power", "mean_blood_power", "time", "bad"} <= contents.arrays.keys():
            return _of_session(path, contents)
        if {"Data", "acqMetaData/time", "acqMetaData/voxelsToProbe"} <= contents.arrays.keys():
            return _of_scan(path, contents)
        # A stack, which may be called power_doppler
        real = [stack.name for stack in contents.stacks if stack.array.dtype.kind != "c"]
    only = real[0] if len(real) == 1 else None
    dataset = reading.get("dataset") or next((name for name in real if "power" in name.lower()), only)
    with open_input(path, {**reading, "dataset": dataset}) as source:
        # Frames at a few Hz would be no frames of a stack
        stack, times = source.read(), interpret(source.stack.metadata()).coordinates.get("t")
        selected = source.frames
    if np.iscomplexobj(stack.iq):
        problem = f"'{stack.name}' in {path} is complex: it is a stack of frames, and no series of power"
        raise InputError(problem, remedy="filter it with `usdenoise session`")
    if (stack.iq < 0).any():
        problem = f"'{stack.name}' in {path} has negative values, and power has none"
        raise InputError(problem, remedy="pick the linear power with {dataset}")
    values, along = np.moveaxis(stack.iq, stack.axes.index("t"), 0), dict[str, Any]()
    if interval_s is not None or times is None:
        begins = _even_times(path, len(values), interval_s or 1 / (stack.frame_rate_hz or np.inf))
    else:
        begins, along = times.values[selected], dict(times.attributes)
    duration = float(along.get("volume_acquisition_duration") or np.median(np.diff(begins)))
    reference = {"center": 0.5, "end": 1.0}.get(str(along.get("volume_acquisition_reference")), 0.0)
    geometry = replace(stack.geometry, axes=f"t{stack.spatial_axes}")
    return _of_others(geometry, {"blood_power": values, "time": begins - reference * duration}, duration)


def _even_times(path: Path, n_images: int, step_s: float) -> NDArray[np.float64]:
    """Return when images begin that have one interval, which is 0 if it is not known."""
    if not step_s > 0:
        problem = f"the times of the images in {path} are not known"
        raise OptionError(problem, remedy="give {block_interval_s}")
    return np.asarray(step_s * np.arange(n_images), np.float64)


def _of_session(path: Path, contents: Contents) -> ResultSeries:
    """Return the series that a session has written."""
    with open_input(path, {"dataset": "blood_power"}) as source:
        geometry, attributes = source.geometry, source.stack.metadata()
    if "motion" not in contents.arrays:
        problem = f"{path} is the series of an earlier version, without the motion of its blocks"
        raise InputError(problem, remedy="filter it again")
    poses = tuple(json.loads(str(attributes.get("poses", ("[]", ""))[0])))
    # The rate of images of others is not plausible as one of frames
    rate: Any = attributes.get("frame_rate_hz", (None, ""))[0]
    geometry = replace(geometry, frame_rate_hz=rate and float(rate), assumptions=())
    shape, n_axes = geometry.shape, 2 if poses else 1

    def stored(named: Mapping[str, str], of_shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        # Zarr has an axis of length 1 for a single slice, and MATLAB vectors have two axes
        arrays = {name: contents.arrays[key] for name, key in named.items() if key in contents.arrays}
        return {name: np.asarray(array.everything()).reshape(of_shape) for name, array in arrays.items()}

    names = {"time": "slice_time" if poses else "time", **{name: name for name in OF_BLOCKS}}
    of_blocks = stored({name: name for name in POWER_IMAGES}, shape) | stored(names, shape[:n_axes])
    means = {**{name: f"mean_{name}" for name in POWER_IMAGES}, "tsnr": "tsnr"}
    return _series(geometry, of_blocks, stored(means, shape[1:]), poses)


def _of_scan(path: Path, contents: Contents) -> ResultSeries:
    """Return the series of a .scan file: time, z, y, x; with several positions sweep, position, repetition, z, y, x."""

    def stored(name: str) -> NDArray[Any]:
        values: NDArray[Any] = contents.arrays[name].everything()
        return values.transpose() if contents.container.startswith("MATLAB") else values

    values = stored("Data")
    times: NDArray[np.float64] = stored("acqMetaData/time").astype(np.float64).reshape(-1)
    if values.ndim not in (4, 6):
        raise InputError(f"{path} holds {shape_text(values.shape)} values, and no images over time")
    n_poses, n_repeats = values.shape[1:3] if values.ndim == 6 else (1, 1)
    n_z, n_y, n_x = values.shape[-3:]
    if min(n_poses, n_y) > 1:
        raise InputError(f"{path} holds volumes at several positions of the probe, which cannot be joined")
    values = values.reshape(-1, n_poses, n_repeats, n_z, n_y, n_x).transpose(0, 2, 1, 4, 3, 5)
    values = values.reshape(-1, n_poses * n_y, n_z, n_x)
    if times.size != len(values) * n_poses:
        raise InputError(f"{path} has {len(values) * n_poses} images and {times.size} times; copy it again")
    poses = tuple(map(str, range(n_poses if n_poses > 1 else 0)))
    steps = zip("xyz", np.diag(stored("acqMetaData/voxelsToProbe")), strict=False)
    spacing = {letter: float(f"{1e3 * abs(step):.7g}") for letter, step in steps if step}
    if poses:
        # The thickness of the beam, and no step from one position to the next
        spacing.pop(POSE_AXIS, None)
        times = times.reshape(-1, n_poses)
    duration = float(times.min()) or float(np.median(np.diff(times.reshape(-1))))
    geometry = Geometry(axes="tyzx", shape=values.shape, dtype=values.dtype, name="Data", spacing_mm=spacing)
    return _of_others(geometry, {"blood_power": values, "time": times - duration}, duration, poses)


def _of_nifti(path: Path, interval_s: float | None) -> ResultSeries:
    """Return the series of a NIfTI file with the axes lateral, depth, elevation and time, and of its sidecar."""
    image, fields = import_nibabel().load(path), dict[str, Any]()
    if len(image.shape) != 4 or image.shape[3] < 2:
        problem = f"{path} has {shape_text(image.shape)} voxels"
        raise InputError(f"{problem}, and a series has four axes, time last")
    values = np.ascontiguousarray(np.asanyarray(image.dataobj).transpose(3, 2, 1, 0))  # t, y, z, x
    sidecar = path.with_name(path.name.removesuffix(".gz").removesuffix(".nii") + ".json")
    with suppress(FileNotFoundError):
        fields = json.loads(sidecar.read_text(encoding="utf-8"))
    zooms, (unit, of_time) = image.header.get_zooms(), image.header.get_xyzt_units()
    seconds = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}.get(of_time, 0.0)
    step = interval_s or fields.get("RepetitionTime") or float(f"{seconds * zooms[3]:.7g}")
    timing = None if interval_s else fields.get("VolumeTiming")
    begins = np.array(timing, np.float64) if timing else _even_times(path, len(values), step)
    if len(begins) != len(values):
        raise InputError(f"{sidecar.name} has {len(begins)} times, and {path} {len(values)} images")
    duration = float(fields.get("FrameAcquisitionDuration", np.median(np.diff(begins))))
    timing, direction = np.array(fields.get("SliceTiming", ())), fields.get("SliceEncodingDirection", "k")
    has_timing = len(timing) == values.shape[1] and np.ptp(timing) > 0 and direction in ("k", "k-")
    poses = tuple[str, ...]()
    if has_timing or "BlockTiming" in fields:
        # Planes with times of their own are positions of the probe. Those along k- are named from the last one.
        timing = timing[::-1] if direction == "k-" else timing
        begins = np.array(fields.get("BlockTiming") or begins[:, None] + timing, np.float64)
        poses = tuple(map(str, fields.get("Poses", range(values.shape[1]))))
        duration = fields.get("PowerDopplerIntegrationDuration", 1e3 * duration / len(poses)) / 1e3
    mm = {"meter": 1e3, "micron": 1e-3}.get(unit, 1.0)
    unknown = "xzy" if unit == "unknown" else fields.get("PixelPitchUnknown", ())
    pitches = zip("xzy", zooms, strict=False)
    spacing = {letter: float(f"{mm * step:.7g}") for letter, step in pitches if letter not in unknown}
    geometry = Geometry(axes="tyzx", shape=values.shape, dtype=values.dtype, name="power", spacing_mm=spacing)
    arrays = {"blood_power": values, "time": begins}
    if "BadBlocks" in fields:
        arrays["bad"] = np.array(fields["BadBlocks"], bool).reshape(begins.shape)
    return _of_others(geometry, arrays, duration, poses)


def _of_others(
    geometry: Geometry, arrays: Arrays, duration_s: float, poses: tuple[str, ...] = ()
) -> ResultSeries:
    """Return a series of images without frames. Its times are the starts of the images; a single plane loses its axis."""
    values, begins, axes = arrays["blood_power"], arrays["time"], geometry.axes
    values = values.astype(np.result_type(values, np.float32), copy=False)
    if axes == "tyzx" and values.shape[1] == 1:
        values, axes = values[:, 0], "tzx"
    geometry = replace(
        geometry,
        axes=axes,
        shape=values.shape,
        dtype=values.dtype,
        frame_rate_hz=1 / duration_s,
        spacing_mm={letter: step for letter, step in geometry.spacing_mm.items() if letter in axes},
        coordinates={},
        assumptions=("the motion of the tissue is not known: the model has no confounds",),
        labels=None,
    )
    times, n_frames = begins - begins.min() + duration_s / 2, np.ones(begins.shape, np.intp)
    arrays = {**arrays, "blood_power": values, "time": times, "n_frames": n_frames}
    return _series(geometry, arrays, {}, poses)


def _series(geometry: Geometry, of_blocks: Arrays, means: Arrays, poses: tuple[str, ...]) -> ResultSeries:
    """Return the series of the arrays of the blocks, (n, ...) or (n_sweeps, n_poses, ...), and of means over good ones."""
    if not poses:
        return _one_series(geometry, of_blocks, means)
    spatial, all_series = geometry.spatial_axes.replace(POSE_AXIS, ""), list[ResultSeries]()
    coordinates = {letter: along for letter, along in geometry.coordinates.items() if letter != POSE_AXIS}
    is_shown = of_blocks["n_frames"] >= 0
    for pose, is_here in enumerate(is_shown.T):
        here = {name: values[is_here, pose] for name, values in of_blocks.items()}
        shape = (len(here["time"]), *geometry.shape_in(spatial))
        plane = replace(geometry, axes=f"t{spatial}", shape=shape, coordinates=coordinates)
        all_series.append(_one_series(plane, here, {name: mean[pose] for name, mean in means.items()}))
    sweeps, shown = np.nonzero(is_shown)
    half = (all_series[0].window - 1) / 2 / (geometry.frame_rate_hz or 1.0)
    return joined_poses(all_series, PosePlan(shown, sweeps, poses, of_blocks["time"] - half), geometry, {})


def _one_series(geometry: Geometry, of_blocks: Arrays, means: Arrays) -> ResultSeries:
    """Return the series of one position of the probe; bad blocks and means that are not known are found by the power."""
    powers = {name: of_blocks[name] for name in POWER_IMAGES if name in of_blocks}
    blood, times = of_blocks["blood_power"], of_blocks["time"]
    if "bad" in of_blocks:
        why = ["bad by its file" * bool(is_bad) for is_bad in of_blocks["bad"]]
    else:
        from scipy.ndimage import median_filter

        # A change of the whole image that lasts, as by a drug, makes no block bad
        levels = np.nanmean(blood.reshape(len(times), -1), axis=1, dtype=np.float64)
        usual = np.maximum(median_filter(levels, LASTING), TINY)
        scaled = (image.ravel() / level for image, level in zip(blood, usual, strict=True))
        why, _ = find_bad_blocks([BlockLevel(image) for image in scaled])
    if not means:
        good = blood[[not reason for reason in why]].astype(np.float64)
        mean, spread = np.nanmean(good, axis=0), np.nanstd(good, axis=0)
        tsnr = np.divide(mean, spread, out=np.zeros_like(mean), where=spread > 0)
        found = {"power_doppler": mean, "blood_power": mean, "tsnr": tsnr}
        means = {name: values.astype(blood.dtype) for name, values in found.items()}
    names = ("motion", "gain", *(f"shift_{letter}" for letter in geometry.pixel_axes))
    moved = np.stack([of_blocks.get(name, np.full(len(times), np.nan)) for name in names], axis=1)
    blocks = [
        BlockRecord(
            time=time,
            n_frames=n_frames,
            complete=True,
            low_cutoff=0,
            is_bad=bool(reason),
            why=reason,
            frames=FramesRecord(displacement=_known(motion), displacement_unit=geometry.displacement_unit[1]),
            shift_pixels=None if np.isnan(shift).any() else tuple(shift),
            gain_db=_known(gain),
        )
        for time, n_frames, reason, (motion, gain, *shift) in zip(
            times.tolist(), of_blocks["n_frames"].tolist(), why, moved.tolist(), strict=True
        )
    ]
    return ResultSeries(
        fit=None,
        picture_quality=None,
        geometry=geometry,
        images={"power_doppler": blood, **powers},
        means=means,
        attributes={**POWER_IMAGES, "tsnr": {"unit": "1"}},
        block_records=tuple(blocks),
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
