"""Regions of an image whose mean blood power is followed over the blocks of a session."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.pipeline.result import Doubt
from usdenoise.sessions.design import unit_of
from usdenoise.stack.geometry import Geometry, shape_text
from usdenoise.system.text import distinct_names

Region = NDArray[np.generic] | Callable[[Geometry], NDArray[np.generic]]
"""A mask or labels of an image, as for :func:`parts_of`, or a function that makes one for the geometry of the blocks."""

WHOLE_IMAGE = "whole image"
"""Name of the first region."""

LARGEST_SHARE = 0.9
"""Share of the image from which a region is doubtful: its mask may be inverted."""

TAKEN_NAMES = (WHOLE_IMAGE, "power")
"""Names that no other region can have: blood_power is an image in the file of a live session."""


@dataclass(frozen=True)
class RegionResponse:
    """The response of a region to the events of one type; NaN if it cannot be fitted.

    Attributes
    ----------
    trial_type : str
        The type.
    change : tuple of float
        The response in per cent of the baseline: one value, or for "fir:N" one for each delay; NaN without significant
        blood.
    standard_error : float
        Standard error of a single value, in per cent of the baseline; NaN for "fir:N".
    statistic : str
        "t", or "F" for "fir:N".
    value, p : float
        t or F, and p in either direction, not corrected for the number of regions.
    """

    trial_type: str
    change: tuple[float, ...]
    standard_error: float
    statistic: str
    value: float
    p: float

    @property
    def percent(self) -> str:
        """The response in words; with free delays the largest one."""
        known = [value for value in self.change if not math.isnan(value)]
        return f"{max(known, key=abs):+.1f} {unit_of(self.trial_type)}" if known else "not known"

    @property
    def words(self) -> str:
        """The response and its statistic in words."""
        tested = "" if math.isnan(self.value) else f" ({self.statistic} = {self.value:.3g})"
        return f"{self.percent} at {self.trial_type}{tested}"

    @property
    def has_error(self) -> bool:
        """Whether its standard error is known: it is fitted, and of one column."""
        return not math.isnan(self.standard_error)

    @property
    def test(self) -> str:
        """The statistic and p in words."""
        if math.isnan(self.value):
            return "not known"
        largest = f"largest of {len(self.change)} delays, " * (len(self.change) > 1)
        return f"{largest}{self.statistic} = {self.value:.3g}, p = {self.p:.2g}"


@dataclass(frozen=True)
class RegionSeries:
    """A region and its time series.

    Attributes
    ----------
    mask : boolean array
        Pixels of the region, with the spatial axes of the images.
    blood_power : (n_blocks,) float64 array
        Mean blood power over the pixels with data; NaN without any.
    responses : mapping
        Type of event -> the response of the region; empty (the default) without events.
    """

    mask: NDArray[np.bool_]
    blood_power: NDArray[np.float64]
    responses: Mapping[str, RegionResponse] = field(default_factory=dict)


def check_region_names(names: Iterable[str]) -> None:
    """Check that regions have names that can be the names of columns and data sets.

    Raises
    ------
    OptionError
        If a name is taken, or holds a slash or a control character.
    """
    for name in names:
        if "/" in name or not name.isprintable() or name.replace("_", " ") in TAKEN_NAMES:
            raise OptionError(
                f"a region cannot have the name '{name}': it is the name of a result, or not printable, or has a slash",
                remedy="choose another one",
            )


def region_columns(names: Iterable[str]) -> dict[str, str]:
    """Return the column of each region, of which no two are the same."""
    columns = distinct_names(names, lambda name: name.replace(" ", "_"))
    return {name: f"blood_{column}" for name, column in columns.items()}


def parts_of(values: NDArray[np.generic]) -> dict[str, NDArray[np.bool_]]:
    """Return the regions of a mask: one for each label, or one where a soft mask has half of its maximum.

    Most intermediate pixels of a soft mask have lower and higher neighbours. Most pixels of a label do not.

    Parameters
    ----------
    values : array
        0 or NaN outside the region.

    Returns
    -------
    dict
        End of the name of each region -> its mask; "" for a single one, or ":2" for the label 2.
    """
    from scipy.ndimage import maximum_filter, minimum_filter

    numbers: NDArray[np.float64] = np.nan_to_num(values.astype(np.float64))
    labels, highest = np.unique(numbers[numbers != 0]), numbers.max()
    if len(labels) < 2:
        return {"": numbers != 0}
    is_between = (numbers != 0) & (numbers != highest)
    is_edge = (minimum_filter(numbers, 3) < numbers) & (numbers < maximum_filter(numbers, 3))
    if 2 * np.count_nonzero(is_between & is_edge) > np.count_nonzero(is_between):
        return {"": (numbers > 0) & (numbers >= highest / 2)}
    return {f":{label:.15g}": numbers == label for label in labels}


def region_masks(regions: Mapping[str, Region], geometry: Geometry) -> dict[str, NDArray[np.bool_]]:
    """Return the masks of regions by their names, the whole image first. Labels make several of one: "name:2".

    Raises
    ------
    OptionError
        If a mask has another shape than the images, or no pixel.
    """
    shape = geometry.shape_in(geometry.spatial_axes)
    masks = {WHOLE_IMAGE: np.ones(shape, bool)}
    for name, region in regions.items():
        values = np.asarray(region(geometry) if callable(region) else region)
        if values.shape != shape:
            pixels = f"{shape_text(values.shape)} pixels, and the image {shape_text(shape)}"
            raise OptionError(f"region '{name}' has {pixels}")
        for ending, mask in parts_of(values).items():
            if not mask.any():
                raise OptionError(f"region '{name}' has no pixel")
            masks[name + ending] = mask
    return masks


def region_doubts(regions: Mapping[str, RegionSeries]) -> Iterator[Doubt]:
    """Yield the doubts about the masks of regions: nearly the whole image, or only pixels without a signal."""
    has_signal = any(np.isfinite(region.blood_power).any() for region in regions.values())
    for name, region in regions.items():
        if name != WHOLE_IMAGE and region.mask.mean() >= LARGEST_SHARE:
            share = f"is {100 * region.mask.mean():.0f} % of the image: its mask may be inverted"
            yield Doubt("region", f"region '{name}' {share}")
        if has_signal and not np.isfinite(region.blood_power).any():
            yield Doubt("region", f"region '{name}' has only pixels without a signal")


def mean_in_region(blood: NDArray[np.floating], mask: NDArray[np.bool_]) -> float:
    """Return the mean of an image over the pixels of a region that have data, NaN without any.

    Masked pixels, which are exactly 0, do not count.
    """
    inside = blood[mask & np.isfinite(blood) & (blood != 0)]
    return float(inside.mean(dtype=np.float64)) if len(inside) else np.nan


def region_series(
    blood: NDArray[np.floating], masks: Mapping[str, NDArray[np.bool_]]
) -> dict[str, RegionSeries]:
    """Return the time series of regions.

    Parameters
    ----------
    blood : (n_blocks, ...) array
        Blood power of each block.
    masks : mapping
        Name of each region -> its mask.
    """
    has_blood = np.any(np.nan_to_num(blood) != 0, axis=0)
    return {name: RegionSeries(mask, mean_course(blood[:, mask & has_blood])) for name, mask in masks.items()}


def mean_course(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the mean over some pixels in each block, as if pixels without data had their usual values in it.

    Parameters
    ----------
    values : (n_blocks, n_pixels) array
        The series of the pixels; NaN where one has no data. A block without any has NaN.
    """
    values = values[:, np.isfinite(values).any(axis=0)].astype(np.float64)
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    known, usual = np.isfinite(values), np.nanmedian(values, axis=0)
    changes = np.sum(values - usual, axis=1, where=known)
    n_known = np.count_nonzero(known, axis=1)
    return np.where(n_known > 0, usual.mean() + changes / np.maximum(n_known, 1), np.nan)


def relative_change(power: NDArray[np.float64], is_bad: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return a series in per cent of its mean over the good blocks, minus 100; NaN if this mean is not positive."""
    good = power[~is_bad]
    mean = float(np.nanmean(good)) if np.isfinite(good).any() else 0.0
    return 100 * (power / mean - 1) if mean > 0 else np.full(len(power), np.nan)
