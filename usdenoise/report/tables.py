"""The tables of the frames of a run and of the blocks of a session, with the sidecars that BIDS has for tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_UNIT
from usdenoise.sessions.design import FIR, LEAST_SEEN, MODULATED, delayed, response_of
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.regions import region_columns, relative_change
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_activation import displacement_columns, region_correlations


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    columns : mapping
        Name -> values.
    texts, units : mapping
        Name -> what a column holds, and its unit, if it has one; also of columns that the table does not have.
    """

    columns: Mapping[str, NDArray[np.generic]]
    texts: Mapping[str, str]
    units: Mapping[str, str]

    @property
    def lists(self) -> dict[str, list[Any]]:
        """The columns as lists, which pandas.DataFrame takes as they are."""
        return {name: values.tolist() for name, values in self.columns.items()}

    @property
    def sidecar(self) -> dict[str, dict[str, str]]:
        """The description of the columns, as BIDS has it."""
        return {
            name: {"Description": self.texts[name]}
            | ({"Units": self.units[name]} if name in self.units else {})
            for name in self.columns
        }


_FRAME_TEXTS = {
    "frame": "Number of the frame, counted from 0 in the frames that were read",
    "time": "Time since the first frame that was read",
    "intensity": "Mean power of the stack over some pixels",
    "dvars": "Root mean square over these pixels of the difference from the previous frame",
    "outside": "Mean power over these pixels outside the clutter components",
    "displacement": "Displacement of the tissue towards larger depths: median over the image",
    "displacement_95": "Magnitude of the displacement: 95th percentile over the image",
    "left_out": "1 if the frame was excluded from the estimate and from the images",
}

_BLOCK_TEXTS = {
    "pose": "Position of the probe",
    "sweep": "Sweep over the positions, counted from 0",
    "time": "Middle of the block, from the first frame of the session",
    "components": "Components that were removed as clutter",
    "motion": "Largest displacement of the tissue along depth from its median position in the block",
    "leftover": "Remaining power of the block above the usual one, in robust standard deviations; it is mostly tissue",
    "kept_share": "Share of the entries of the block that were observed and not in an excluded frame",
    "shift_z": "Displacement of the image in depth, before registration",
    "shift_x": "Lateral displacement of the image, before registration",
    "shift_y": "Displacement of the image in elevation, before registration",
    "shift_z_mm": "The same in depth",
    "shift_x_mm": "The same laterally",
    "shift_y_mm": "The same in elevation",
    "framewise_displacement": "Sum over the axes of the absolute change of the displacement from the previous block",
    "gain": "Ratio of the tissue power of the block to the tissue power of the session, before the division",
    "likeness": "Correlation of the gradients of the mean image of the block and that of the session, after the shift",
    "deformation": "Largest displacement of the rotation and deformation of the image that was compensated, besides the "
    "shift",
    "rotation": "Rotation of the image from depth towards lateral that was compensated",
    "rotation_zx": "Rotation of the image from depth towards lateral that was compensated",
    "rotation_zy": "Rotation of the image from depth towards elevation that was compensated",
    "rotation_xy": "Rotation of the image from lateral towards elevation that was compensated",
    "bad": "1 if the block is excluded from means and weights",
    "interpolated": "1 if the powers of the block are interpolated between good blocks",
    "why": "Why the block is bad, in words",
    "file": "Name of the file",
    "first_frame": "First frame of the block, of the frames of its file that were read",
    "n_frames": "Number of frames of the block",
}
"""The columns in their order."""

_UNITS = {
    **dict.fromkeys(("intensity", "outside"), POWER_UNIT),
    "dvars": "the stack's unit",
    **dict.fromkeys(("shift_z", "shift_x", "shift_y", "deformation"), "pixels"),
    **dict.fromkeys(("shift_z_mm", "shift_x_mm", "shift_y_mm"), "mm"),
    "gain": "dB",
    **dict.fromkeys(("rotation", "rotation_zx", "rotation_zy", "rotation_xy"), "degrees"),
}
"""Units of columns whose unit is always the same."""

_MOTION = ("motion", "shift_z", "shift_x", "shift_y", "framewise_displacement")
"""Columns of the motion of the blocks that are confounds of a volume."""


def frame_table(series: ResultSeries) -> Table:
    """Return the table of the frames of a filtered stack; a value that is not known is NaN."""
    assert series.stack is not None
    quality, stack = series.stack.frame_quality, series.stack.acquisition
    curves, (scale, unit) = quality.curves, stack.displacement_unit
    frames = np.arange(len(curves.intensity))
    middle, farthest = scale * curves.displacement.T
    columns = {
        "frame": frames,
        **({} if stack.frame_rate_hz is None else {"time": frames / stack.frame_rate_hz}),
        "intensity": curves.intensity,
        "dvars": curves.dvars,
        "outside": curves.outside,
        "displacement": middle,
        "displacement_95": farthest,
        "left_out": quality.excluded.astype(np.int64),
    }
    units = {**_UNITS, "time": "s", "displacement": unit, "displacement_95": unit}
    return Table(columns, _FRAME_TEXTS, units)


def _table_of_poses(series: PoseSeries) -> Table:
    """Return the blocks of all positions as one table, with the columns that all of them have."""
    tables = [block_table(of_pose) for of_pose in series.poses]
    names = [name for name in tables[0].columns if all(name in table.columns for table in tables)]
    columns = {
        "pose": np.repeat(series.names, [len(sweeps) for sweeps in series.sweeps]),
        "sweep": np.concatenate(series.sweeps),
        **{name: np.concatenate([table.columns[name] for table in tables]) for name in names},
    }
    order = np.argsort(columns["time"], kind="stable")
    return replace(tables[0], columns={name: values[order] for name, values in columns.items()})


def region_table(series: ResultSeries) -> Table:
    """Return the table of the regions of a session: their mean blood power in each block, also in per cent of a baseline."""
    is_rest, baseline = ~series.bad, "mean of the good blocks"
    if series.events:
        whole = [replace(event, modulation=1.0) for event in delayed(series.events, series.delay_s)]
        shares = response_of(whole, series.time, series.durations, "boxcar")[:, 0]
        # Half a frame at the edge of a block does not count.
        is_rest &= shares <= LEAST_SEEN * shares.max()
        baseline += " outside all events" + f", {series.delay_s:.3g} s later" * (series.delay_s != 0)
    columns: dict[str, NDArray[np.generic]] = {"time": series.time}
    texts, units = dict(_BLOCK_TEXTS), {"time": series.time_unit}
    for name, column in region_columns(series.region_series).items():
        region, in_percent = series.region_series[name], f"percent_{column.removeprefix('blood_')}"
        percent = 100 + relative_change(region.blood_power, ~is_rest)
        columns[column] = region.blood_power
        columns[in_percent] = np.where(series.bad & (series.interpolated is None), np.nan, percent)
        texts[column] = f"Mean blood power in {name}, {int(region.mask.sum())} pixels"
        texts[in_percent] = (
            f"Mean blood power in {name} in per cent of the {baseline}; n/a in bad blocks that are not interpolated"
        )
        units |= {column: POWER_UNIT, in_percent: "%"}
    return Table({**columns, **_bad_columns(series)}, texts, units)


def _bad_columns(series: ResultSeries) -> dict[str, NDArray[np.int64]]:
    """Return which blocks are bad, and which are interpolated, if there are such."""
    known = {"bad": series.bad, "interpolated": series.interpolated}
    return {name: marked.astype(np.int64) for name, marked in known.items() if marked is not None}


def region_response_table(series: ResultSeries) -> Table:
    """Return the table of the responses of the regions of a session: a row for each region, position and type of event."""
    rows = [
        (name, pose, int(region.mask.sum()), trial_type, response)
        for name, pose, region, _ in series.all_regions
        for trial_type, response in region.responses.items()
    ]
    names, poses, n_pixels, types, responses = zip(*rows, strict=True)
    changes = np.transpose([response.change for response in responses])
    if series.options.hrf.startswith(FIR):
        letter, of_response = "f", {f"change_{delay}": values for delay, values in enumerate(changes)}
    else:
        errors = np.array([response.standard_error for response in responses])
        letter, of_response = "t", {"change": changes[0], "standard_error": errors}
    columns = {
        "region": np.array(names),
        **({"pose": np.array(poses)} if series.by_pose else {}),
        "n_pixels": np.array(n_pixels),
        "trial_type": np.array(types),
        **of_response,
        letter: np.array([response.value for response in responses]),
        "p": np.array([response.p for response in responses]),
    }
    change = "Response in per cent of the baseline, the constant of the general linear model"
    change += "; of a modulation, per unit of it" * any(name.endswith(MODULATED) for name in types)
    texts = {
        "region": "Name of the region",
        "pose": _BLOCK_TEXTS["pose"],
        "n_pixels": "Number of its pixels",
        "trial_type": "Type of the events",
        "change": change,
        **{f"change_{delay}": f"{change}, {delay} blocks after the onset" for delay in range(len(changes))},
        "standard_error": "Standard error of the change",
        letter: f"{letter.replace('f', 'F')} of the response, by the model of the activation maps",
        "p": "p of the response in either direction, not corrected for the number of regions",
    }
    return Table(columns, texts, dict.fromkeys(of_response, "%"))


def confound_table(series: ResultSeries) -> Table:
    """Return the confounds of the volumes of a session, which nilearn takes as they are, a row for each block or sweep.

    Shifts are in mm where these are known. Of several positions the motion is the mean over them. What is not known is the
    mean of the good volumes, or 0 if it is known of none. Each bad volume has a column; a sweep is bad if any of its blocks
    is bad or missing.
    """
    table, bad = block_table(series), series.bad
    texts, units, of = dict(_BLOCK_TEXTS), dict(table.units), ""
    volumes, columns = table.columns.get("sweep", np.arange(len(bad))), dict[str, NDArray[np.generic]]()
    if isinstance(series, PoseSeries):
        bad, of = np.asarray(series.bad_blocks.any(axis=1)), "; mean over the positions"
    for name in filter(table.columns.__contains__, _MOTION):
        source = f"{name}_mm" if f"{name}_mm" in table.columns else name
        values, known = table.columns[source], np.isfinite(table.columns[source])
        counts = np.bincount(volumes[known], minlength=len(bad))
        means = np.bincount(volumes[known], values[known], len(bad)) / np.maximum(counts, 1)
        is_usual = ~bad & (counts > 0)
        usual = means[is_usual].mean() if is_usual.any() else 0.0
        columns[name] = np.where(counts > 0, means, usual)
        texts[name], units[name] = texts[name] + of, units[source]
    for number, volume in enumerate(np.flatnonzero(bad)):
        outlier = f"motion_outlier{number:02d}"
        columns[outlier] = (np.arange(len(bad)) == volume).astype(np.int64)
        texts[outlier] = "1 in a volume with a block that is bad or missing"
    return Table(columns, texts, units)


def region_correlation_table(series: ResultSeries) -> Table:
    """Return the table of the correlations of the regions of a session, a row for each pair."""
    from scipy.special import stdtr

    found = region_correlations(series)
    r, n_free = np.array([*found.values()]).reshape(-1, 2).T
    with np.errstate(divide="ignore", invalid="ignore"):
        z, t = np.arctanh(r), np.abs(r) * np.sqrt((n_free - 1) / (1 - r**2))
    values = (*np.array([*found]).reshape(-1, 2).T, r, z, 2 * stdtr(n_free - 1, -t), n_free.astype(np.int64))
    has_motion = series.options.confounds != "none" and not series.by_pose
    model = f"a model of drift{', motion' * has_motion} and the responses to all events"
    texts = {
        "region_1": "Name of a region",
        "region_2": "Name of another region; regions that share pixels are correlated by these",
        "r": f"Correlation over all good blocks of the residuals of the mean blood power of both regions: "
        f"residuals of {model}, each whitened by its autocorrelation",
        "z": "Fisher's z of r, whose standard error is 1 / sqrt(n_free - 2)",
        "p": "p of r in either direction, not corrected for the number of pairs",
        "n_free": "Degrees of freedom of the residuals",
    }
    return Table(dict(zip(texts, values, strict=True)), texts, {})


def block_table(series: ResultSeries) -> Table:
    """Return the table of the blocks of a session, which a model of the series takes as confounds.

    Those of several positions of the probe are in the order of time.
    """
    if isinstance(series, PoseSeries):
        return _table_of_poses(series)
    blocks = series.block_records
    copied = ("kept_share", "why", "file", "first_frame", "n_frames")
    columns = {name: np.array([getattr(block, name) for block in blocks]) for name in copied}
    columns |= {
        "time": series.time,
        "components": np.array([block.low_cutoff for block in blocks]),
        "motion": np.array([block.frames.displacement for block in blocks], np.float64),
        "leftover": np.array([block.leftover for block in blocks], np.float64),
        **_bad_columns(series),
    }
    units = {**_UNITS, "time": series.time_unit, "motion": series.geometry.displacement_unit[1]}
    if series.shifts is not None:
        units["framewise_displacement"], moved = displacement_columns(series.shifts, series.geometry)
        columns |= {**moved, **series.rotations}
        found = {"gain": "gain_db", "likeness": "likeness", "deformation": "deformation_pixels"}
        for column, name in found.items():
            columns[column] = np.array([getattr(block, name) for block in blocks], np.float64)
    return Table({name: columns[name] for name in _BLOCK_TEXTS if name in columns}, _BLOCK_TEXTS, units)
