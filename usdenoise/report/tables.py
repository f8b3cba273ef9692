"""The tables of the frames of a run and of the blocks of a session, with the sidecars that BIDS has for tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_UNIT
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.sessions.design import FIR, LEAST_SEEN, delayed, response_of
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.regions import region_columns, relative_change
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_activation import displacement_columns


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    columns : mapping
        Name -> values.
    described : mapping
        Name -> what the column holds, and its unit or None.
    """

    columns: Mapping[str, NDArray[np.generic]]
    described: Mapping[str, tuple[str, str | None]]

    @property
    def sidecar(self) -> dict[str, dict[str, str]]:
        """The description of the columns, as BIDS has it."""
        return {
            name: {"Description": text, **({} if unit is None else {"Units": unit})}
            for name, (text, unit) in self.described.items()
        }


_FRAME_COLUMNS = {
    "frame": ("Number of the frame, counted from 0 in the frames that were read", None),
    "time": ("Time since the first frame that was read", "s"),
    "intensity": ("Mean power of the stack over some pixels", POWER_UNIT),
    "dvars": (
        "Root mean square over these pixels of the difference from the previous frame",
        "the stack's unit",
    ),
    "outside": ("Mean power over these pixels outside the clutter components", POWER_UNIT),
    "displacement": ("Displacement of the tissue towards larger depths: median over the image", None),
    "displacement_95": ("Magnitude of the displacement: 95th percentile over the image", None),
    "left_out": ("1 if the frame was excluded from the estimate and from the images", None),
}

_BLOCK_COLUMNS = {
    "pose": ("Position of the probe", None),
    "sweep": ("Sweep over the positions, counted from 0", None),
    "time": ("Middle of the block, from the first frame of the session", None),
    "components": ("Components that were removed as clutter", None),
    "motion": ("Largest displacement of the tissue along depth from its median position in the block", None),
    "leftover": (
        "Remaining power of the block above the usual one, in robust standard deviations; it is mostly tissue",
        None,
    ),
    "kept_share": ("Share of the entries of the block that were observed and not in an excluded frame", None),
    "shift_z": ("Displacement of the image in depth, before registration", "pixels"),
    "shift_x": ("Lateral displacement of the image, before registration", "pixels"),
    "shift_y": ("Displacement of the image in elevation, before registration", "pixels"),
    "shift_z_mm": ("The same in depth", "mm"),
    "shift_x_mm": ("The same laterally", "mm"),
    "shift_y_mm": ("The same in elevation", "mm"),
    "framewise_displacement": (
        "Sum over the axes of the absolute change of the displacement from the previous block",
        None,
    ),
    "gain": (
        "Ratio of the tissue power of the block to the tissue power of the session, before the division",
        "dB",
    ),
    "likeness": (
        "Correlation of the gradients of the mean image of the block and that of the session, after the shift",
        None,
    ),
    "deformation": (
        "Largest displacement of the rotation and deformation of the image that was compensated, besides the shift",
        "pixels",
    ),
    "rotation": ("Rotation of the image from depth towards lateral that was compensated", "degrees"),
    "rotation_zx": ("Rotation of the image from depth towards lateral that was compensated", "degrees"),
    "rotation_zy": ("Rotation of the image from depth towards elevation that was compensated", "degrees"),
    "rotation_xy": ("Rotation of the image from lateral towards elevation that was compensated", "degrees"),
    "bad": ("1 if the block is excluded from means and weights", None),
    "interpolated": ("1 if the powers of the block are interpolated between good blocks", None),
    "why": ("Why the block is bad, in words", None),
    "file": ("Name of the file", None),
    "first_frame": ("First frame of the block, of the frames of its file that were read", None),
    "n_frames": ("Number of frames of the block", None),
}


def frame_table(result: DenoiseResult) -> Table:
    """Return the table of the frames of a result; a value that is not known is NaN."""
    quality, stack = result.frame_quality, result.acquisition
    curves, n_frames = quality.curves, len(quality.curves.intensity)
    frames = np.arange(n_frames)
    columns: dict[str, NDArray[np.generic]] = {"frame": frames}
    if stack.frame_rate_hz is not None:
        columns["time"] = frames / stack.frame_rate_hz
    columns |= {"intensity": curves.intensity, "dvars": curves.dvars, "outside": curves.outside}
    scale, unit = stack.displacement_unit
    moved = dict(zip(("displacement", "displacement_95"), scale * curves.displacement.T, strict=True))
    columns |= {**moved, "left_out": quality.excluded.astype(np.int64)}
    described = {name: _FRAME_COLUMNS[name] for name in columns}
    return Table(columns, described | {name: (described[name][0], unit) for name in moved})


def _table_of_poses(series: PoseSeries) -> Table:
    """Return the blocks of all positions as one table, with the columns that all of them have."""
    tables = [block_table(of_pose) for of_pose in series.poses]
    order = np.argsort(np.concatenate([table.columns["time"] for table in tables]), kind="stable")
    names = [name for name in tables[0].columns if all(name in table.columns for table in tables)]
    columns = {
        "pose": np.repeat(series.names, [len(sweeps) for sweeps in series.sweeps]),
        "sweep": np.concatenate(series.sweeps),
        **{name: np.concatenate([table.columns[name] for table in tables]) for name in names},
    }
    described = {**tables[0].described, **{name: _BLOCK_COLUMNS[name] for name in ("pose", "sweep")}}
    return Table(
        {name: values[order] for name, values in columns.items()}, {name: described[name] for name in columns}
    )


def region_table(series: ResultSeries) -> Table:
    """Return the table of the regions of a session: their mean blood power in each block, also in per cent of a baseline."""
    is_rest, baseline = ~series.bad, "mean of the good blocks"
    if series.events:
        n_frames = np.array([block.n_frames for block in series.block_records])
        durations = n_frames / (series.geometry.frame_rate_hz or 1.0)
        late = delayed(series.events, series.delay_s)
        whole = [replace(event, modulation=1.0) for event in late]
        shares = response_of(whole, series.time, durations, "boxcar")[:, 0]
        # Half a frame at the edge of a block does not count.
        is_rest &= shares <= LEAST_SEEN * shares.max()
        baseline += " outside all events" + f", {series.delay_s:.3g} s later" * (series.delay_s != 0)
    columns: dict[str, NDArray[np.generic]] = {"time": series.time}
    described = {"time": (_BLOCK_COLUMNS["time"][0], series.time_unit), "bad": _BLOCK_COLUMNS["bad"]}
    for name, column in region_columns(series.region_series).items():
        region = series.region_series[name]
        columns[column] = region.blood_power
        described[column] = (f"Mean blood power in {name}, {int(region.mask.sum())} pixels", POWER_UNIT)
        percent = 100 + relative_change(region.blood_power, ~is_rest)
        in_percent = f"percent_{column.removeprefix('blood_')}"
        columns[in_percent] = np.where(series.bad & (series.interpolated is None), np.nan, percent)
        described[in_percent] = (
            f"Mean blood power in {name} in per cent of the {baseline}; n/a in bad blocks that are not interpolated",
            "%",
        )
    columns["bad"] = series.bad.astype(np.int64)
    if series.interpolated is not None:
        columns["interpolated"] = series.interpolated.astype(np.int64)
        described["interpolated"] = _BLOCK_COLUMNS["interpolated"]
    return Table(columns, {name: described[name] for name in columns})


def region_response_table(series: ResultSeries) -> Table:
    """Return the table of the responses of the regions of a session, a row for each region and type of event."""
    rows = [
        (name, int(region.mask.sum()), trial_type, response)
        for name, region in series.region_series.items()
        for trial_type, response in region.responses.items()
    ]
    names, n_pixels, types, responses = zip(*rows, strict=True)
    change = "Response in per cent of the baseline, the constant of the general linear model"
    described: dict[str, tuple[str, str | None]] = {
        "region": ("Name of the region", None),
        "n_pixels": ("Number of its pixels", None),
        "trial_type": ("Type of the events", None),
    }
    columns: dict[str, NDArray[np.generic]] = {
        "region": np.array(names),
        "n_pixels": np.array(n_pixels),
        "trial_type": np.array(types),
    }
    changes = np.stack([response.change for response in responses], axis=1)
    letter = "f" if series.options.hrf.startswith(FIR) else "t"
    if letter == "f":
        for delay, values in enumerate(changes):
            columns[f"change_{delay}"] = values
            described[f"change_{delay}"] = (f"{change}, {delay} blocks after the onset", "%")
    else:
        columns |= {
            "change": changes[0],
            "standard_error": np.array([response.standard_error for response in responses]),
        }
        described |= {"change": (change, "%"), "standard_error": ("Standard error of the change", "%")}
    columns |= {
        letter: np.array([response.statistic for response in responses]),
        "p": np.array([response.p for response in responses]),
    }
    described |= {
        letter: (f"{letter.replace('f', 'F')} of the response, by the model of the activation maps", None),
        "p": ("p of the response in either direction, not corrected for the number of regions", None),
    }
    return Table(columns, described)


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
        "bad": series.bad.astype(np.int64),
    }
    described = {**_BLOCK_COLUMNS, "time": (_BLOCK_COLUMNS["time"][0], series.time_unit)}
    described["motion"] = (_BLOCK_COLUMNS["motion"][0], series.geometry.displacement_unit[1])
    if series.interpolated is not None:
        columns["interpolated"] = series.interpolated.astype(np.int64)
    if series.shifts is not None:
        unit, moved = displacement_columns(series.shifts, series.geometry)
        columns |= moved | {"gain": np.array([block.gain_db for block in blocks], np.float64)}
        columns["likeness"] = np.array([block.likeness for block in blocks], np.float64)
        columns["deformation"] = np.array([block.deformation_pixels for block in blocks], np.float64)
        columns |= series.rotations
        text = _BLOCK_COLUMNS["framewise_displacement"][0]
        described["framewise_displacement"] = (text, unit)
    described = {name: described[name] for name in described if name in columns}
    return Table({name: columns[name] for name in described}, described)
