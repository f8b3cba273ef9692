"""Thumbnails of power images: small pictures without axes, all on one scale."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.options.job_options import COLOR_MAPS, Display
from usdenoise.report.figures import suitable_range_db

LONGEST = 96
"""Pixels of the longer side of a thumbnail."""

NEAR_DB = 10.0
"""A scan whose maximum is this far from the median of the maxima is shown below its own maximum: on the common scale it
would be black or white."""

_LEAST_DB = -400.0
"""Level of a pixel without power."""


@dataclass(frozen=True)
class CommonScale:
    """The dB scale of a set of thumbnails.

    Attributes
    ----------
    peak_db, range_db : float
        Level of the brightest colour, and range below it.
    is_given : bool
        Whether the scale was requested, so that all images have it; False by default.
    color_map : str
        One of COLOR_MAPS; by default the first.
    """

    peak_db: float
    range_db: float
    is_given: bool = False
    color_map: str = COLOR_MAPS[0]

    def is_near(self, levels: NDArray[np.float32]) -> bool:
        """Whether an image in dB is shown on the scale itself, and not below its own maximum."""
        return self.is_given or abs(float(levels.max()) - self.peak_db) <= NEAR_DB


def small_image(power: NDArray[Any], aspect: float = 1.0) -> NDArray[np.float32]:
    """Return an image in dB with at most 96 pixels along each side, averaged over blocks of pixels.

    Parameters
    ----------
    power : (n_pages, n_rows, n_columns) array
        Linear power, depth downwards. The maximum over the pages is taken.
    aspect : float
        Height of a pixel over its width; 1 by default.

    Returns
    -------
    (n_rows, n_columns) float32 array
        10 log10 of the mean linear power, depth downwards.
    """
    from PIL import Image

    image = power.max(axis=0).astype(np.float32)
    height, width = image.shape[0] * aspect, float(image.shape[1])
    scale = LONGEST / max(height, width)
    rows, columns = (max(1, round(size * scale)) for size in (height, width))
    # A small image is repeated, a large one averaged.
    mean = np.asarray(Image.fromarray(image).resize((columns, rows), Image.Resampling.BOX))
    return np.maximum(decibels(mean, reference=1.0), np.float32(_LEAST_DB))


def common_scale(images: Sequence[NDArray[np.float32]], display: Display | None = None) -> CommonScale:
    """Return the scale of a set of images: the medians of their maxima and of the ranges that suit them.

    Parameters
    ----------
    images : sequence of arrays
        Images of :func:`small_image`; those without power do not count.
    display : Display, optional
        Options of the pictures: colour map, and the range or the two levels where it has them. By default their defaults.
    """
    display = display or Display()
    if display.levels is not None:
        low, high = display.levels
        return CommonScale(high, high - low, is_given=True, color_map=display.color_map)
    images = [image for image in images if image.max() > _LEAST_DB]
    if not images:
        return CommonScale(0.0, 30.0)
    peaks = [float(image.max()) for image in images]
    if isinstance(display.dynamic_range, float | int):
        span = display.dynamic_range * 10.0 / display.db_factor
    else:
        ranges = [suitable_range_db(image - peak) for image, peak in zip(images, peaks, strict=True)]
        span = float(np.median(ranges))
    return CommonScale(float(np.median(peaks)), span, color_map=display.color_map)


def thumbnail_png(levels: NDArray[np.float32], scale: CommonScale) -> bytes:
    """Return an image as PNG in the colours of the scale.

    Parameters
    ----------
    levels : (n_rows, n_columns) float32 array
        An image of :func:`small_image`.
    scale : CommonScale
        The scale of all thumbnails.
    """
    from matplotlib import colormaps
    from PIL import Image

    peak = scale.peak_db if scale.is_near(levels) else float(levels.max())
    bright = np.clip((levels - peak) / scale.range_db + 1, 0, 1) * (levels > _LEAST_DB)
    picture = Image.fromarray((255 * bright).round().astype(np.uint8), "P")
    colors = 255 * colormaps[scale.color_map](np.arange(256))[:, :3]
    picture.putpalette(colors.round().astype(np.uint8).tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()
