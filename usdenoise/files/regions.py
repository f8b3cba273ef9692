"""Regions of an image from their description on the command line: rectangles, circles, or a mask image."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.files.contents import check_kind, guard
from usdenoise.files.images import read_nifti
from usdenoise.sessions.regions import Region, check_region_names, parts_of
from usdenoise.stack.data_arrays import is_data_array, to_data_array
from usdenoise.stack.geometry import Geometry, canonical_axes, in_axes, picture_axes, shape_text

Mask = NDArray[np.generic]
"""True or a label at the pixels of regions, 0 or NaN elsewhere."""

FORMS = "rect:Z0,X0,Z1,X1, circle:Z,X,R (add mm for millimetres), or a mask image"


def drawn_regions(regions: Mapping[str, Mask | str] | None) -> dict[str, Region]:
    """Return regions of which those in words, or with named dimensions, are functions that draw them on an image.

    Parameters
    ----------
    regions : mapping or None
        Name -> boolean array with the spatial axes of the stack in its order, DataArray with their names in any order, or
        text as for :func:`region`; None for no regions.

    Raises
    ------
    OptionError
        If a text is not a valid region, or a name cannot be used.
    """
    check_region_names(regions or {})
    for definition in (regions or {}).values():
        if isinstance(definition, str):
            check_region(definition)
    return {
        name: partial(_region_of, definition)
        if isinstance(definition, str) or is_data_array(definition)
        else definition
        for name, definition in (regions or {}).items()
    }


def _region_of(definition: Any, geometry: Geometry) -> Mask:
    axes = geometry.spatial_axes
    shape = geometry.shape_in(axes)
    if not isinstance(definition, str):
        names = to_data_array(np.zeros(shape), geometry, axes, "region", {}).dims
        if not set(definition.dims) <= set(names):
            raise OptionError(
                f"a region has the dimensions {', '.join(map(str, definition.dims))}, and the images "
                f"{', '.join(map(str, names))}"
            )
        values = np.asarray(definition.transpose(*names, missing_dims="ignore"))
        return values.reshape(shape) if values.size == np.prod(shape) else values
    try:
        return region(definition, shape, axes, geometry.spacing_mm)
    except InputError as error:
        # The mask is wrong, and not the block.
        raise OptionError(error.problem, remedy=error.remedy) from error


def region(text: str, shape: tuple[int, ...], axes: str, spacing_mm: Mapping[str, float]) -> Mask:
    """Return the mask of a region, or the labels of a mask image.

    Parameters
    ----------
    text : str
        ``rect:Z0,X0,Z1,X1``, ``circle:Z,X,R``, or the path of a mask image. Rectangles are half-open, as Python
        ranges are. Numbers count in pixels, or in mm if ``mm`` follows the last one. They are depth, lateral and
        elevation, those that the image has, whatever the order of its axes: a volume takes one number more for each point.
    shape : tuple of int
        Shape of the image.
    axes : str
        Letters of the image's axes, in the order of `shape`.
    spacing_mm : mapping from axis letter to float
        Pixel pitch in mm. In a region in mm, pixel i is at its centre, (i + 1/2) times the pitch.

    Returns
    -------
    array of shape `shape`
        0 or False outside the region.

    Raises
    ------
    OptionError
        If the text has none of these forms, the region is in mm and a pixel pitch is missing, or the region holds no
        pixel, or a pixel beyond the image.
    InputError
        If a mask image cannot be read or has another shape.
    """
    order = canonical_axes(axes)
    sizes = tuple(shape[axes.index(letter)] for letter in order)
    mask = (
        in_axes(_drawn(text, sizes, order, spacing_mm), order, axes)
        if _form(text)[0]
        else read_mask(text, shape, axes)
    )
    if not np.nan_to_num(mask).any():
        raise OptionError(
            f"region '{text}' holds no pixel of the {shape_text(sizes)} image ({order}); check its numbers"
        )
    return mask


def check_region(text: str) -> None:
    """Check the form of a region before its image is known.

    Raises
    ------
    OptionError
        If the text is neither a region of an image or a volume, nor the path of a file.
    """
    kind, numbers = _form(text)
    if kind and len(numbers) not in _N_NUMBERS[kind]:
        raise OptionError(f"region '{text}' does not have the numbers of a region; give {FORMS}")


_N_NUMBERS = {"rect": (4, 6), "circle": (3, 4)}
"""Form of a region -> its numbers in an image, and in a volume."""


def _form(text: str) -> tuple[str, list[float]]:
    """Return the form of a region, and its numbers, none if one is not a finite number; nothing for a mask image."""
    kind, colon, numbers_text = text.partition(":")
    if colon and kind in _N_NUMBERS:
        try:
            numbers = [float(part) for part in numbers_text.removesuffix("mm").split(",")]
        except ValueError:
            numbers = []
        return kind, numbers if all(map(math.isfinite, numbers)) else []
    if not Path(text).exists():
        raise OptionError(f"region '{text}' is neither a file nor a known form; give {FORMS}")
    return "", []


def _drawn(text: str, shape: tuple[int, ...], axes: str, spacing_mm: Mapping[str, float]) -> Mask:
    metric, (kind, numbers) = text.endswith("mm"), _form(text)
    n_expected = _N_NUMBERS[kind][len(shape) - 2]
    if len(numbers) != n_expected:
        raise OptionError(f"region '{text}' requires {n_expected} numbers for {axes} images; give {FORMS}")
    if metric and any(letter not in spacing_mm for letter in axes):
        raise OptionError(
            f"region '{text}' is in mm, but the pixel pitch is not known", remedy="give {spacing_mm}"
        )
    pitch = [spacing_mm[letter] if metric else 1.0 for letter in axes]
    # In pixels, pixel i is at i, so that rectangles slice as arrays do; in mm it is at its centre.
    offset = 0.5 if metric else 0.0
    # One pixel more at each edge, which shows whether the region is beyond the image.
    lines = [(np.arange(-1, n + 1) + offset) * step for n, step in zip(shape, pitch, strict=True)]
    grid_axes = np.meshgrid(*lines, indexing="ij")
    mask = np.ones(grid_axes[0].shape, bool)
    if kind == "rect":
        for grid_axis, first, last in zip(grid_axes, numbers, numbers[len(shape) :], strict=False):
            mask &= (grid_axis >= first) & (grid_axis < last)
    else:
        squares = sum((along - centre) ** 2 for along, centre in zip(grid_axes, numbers, strict=False))
        mask = np.asarray(squares <= numbers[-1] ** 2)
    inside = mask[(slice(1, -1),) * len(shape)]
    if inside.any() and np.count_nonzero(mask) > np.count_nonzero(inside):
        size = " x ".join(f"{n * step:g}" for n, step in zip(shape, pitch, strict=True))
        raise OptionError(
            f"region '{text}' reaches beyond the image of {size} {'mm' if metric else 'pixels'} ({axes}); "
            "correct its numbers"
        )
    return inside


def read_mask(path: str | Path, shape: tuple[int, ...], axes: str) -> Mask:
    """Read a mask or labels from an image that is drawn over a picture or a TIFF of a result, NIfTI, or a .npy file.

    Parameters
    ----------
    path : str or Path
        PNG, TIFF or other image file with depth downwards, lateral to the right, and elevation in pages, whatever the order
        of the axes of the stack; NIfTI with the axes of our images; or .npy file with the axes of the stack.
    shape : tuple of int
        Shape of the images.
    axes : str
        Letters of their axes, in the order of `shape`.

    Returns
    -------
    array of shape `shape`
        0 or NaN outside the mask, as for :func:`usdenoise.sessions.regions.parts_of`.

    Raises
    ------
    InputError
        If the file cannot be read, its array has another shape, or a coloured picture has no grey pixel.
    """
    path, order, suffix = Path(path), picture_axes(axes), Path(path).suffix.lower()
    check_kind(path)
    # Libraries raise errors of many types on a damaged image.
    with guard(path, "cannot be read as a mask; give an image, NIfTI or a .npy file of numbers"):
        if suffix == ".npy":
            image, order = np.load(path, allow_pickle=False), axes
        elif suffix == ".nii" or path.name.lower().endswith(".nii.gz"):
            image, order = read_nifti(path, axes)
        else:
            image = _read_picture(path, has_pages=len(shape) == 3)
        if image.dtype.kind not in "biuf":
            raise TypeError(image.dtype)
    wanted = tuple(shape[axes.index(letter)] for letter in order)
    if image.shape != wanted:
        raise InputError(
            f"the mask {path} has shape {image.shape} and the images {wanted} ({order}); "
            "draw it over an image of that shape"
        )
    return in_axes(image, order, axes)


_PHOTOMETRIC = 262
"""Tag of TIFF that is 0 where the look-up table is inverted."""

_LOSSY = ("JPEG", "MPO", "JPEG2000")
"""Formats that change the values of pixels, by their names in Pillow."""


def _read_picture(path: Path, has_pages: bool) -> NDArray[np.float64]:
    """Return the pages of a drawing as one number for each pixel, or its first page; 0 outside what is drawn."""
    from PIL import Image, ImageSequence

    with Image.open(path) as picture:
        tags: Mapping[int, Any] = getattr(picture, "tag_v2", {})
        pages = ImageSequence.Iterator(picture) if has_pages else [picture]
        values = np.stack([_drawn_values(page) for page in pages])
    if picture.format in _LOSSY:
        values = (values >= values.max() / 2).astype(np.float64)
    highest = values.max()
    # Writers differ in whether an inverted table shows the region white or black: most pixels are the background.
    if tags.get(_PHOTOMETRIC) == 0 and 2 * np.median(values) > highest:
        values = highest - values
    return values if has_pages else values[0]


def _drawn_values(page: Any) -> NDArray[np.float64]:
    """Return a number for each pixel of a picture of Pillow: label, grey level, opacity, or colour against grey."""
    if "transparency" in page.info or page.mode in ("PA", "CMYK", "YCbCr", "LAB", "HSV"):
        page = page.convert("RGBA")
    values = np.asarray(page, np.float64)
    if page.mode == "P":
        # The numbers of a palette are labels, unless its colours are drawn over greys.
        numbers, palette = np.asarray(page), np.reshape(page.getpalette(), (-1, 3)).astype(np.float64)
        is_color = np.ptp(palette[np.unique(numbers)], axis=1) > 0
        n_colors, n_greys = np.count_nonzero(is_color), np.count_nonzero(~is_color)
        if 0 < n_colors < n_greys or (n_greys and np.ptp(palette[0]) and not numbers.all()):
            values = palette[numbers]
    if values.ndim == 2:
        return values
    if page.mode in ("LA", "RGBA"):
        opacity, values = values[..., -1], values[..., :-1]
        if np.ptp(opacity) and not np.ptp(values[opacity > 0], axis=0).any():
            return opacity
        values = values * (opacity > 0)[..., None]
    strength = np.ptp(values, axis=-1)
    if not strength.any():
        return values[..., 0]
    if strength.all():
        raise InputError("every pixel of the mask is coloured; draw it over a grey picture")
    if len(np.unique(strength)) > 2 and "" in parts_of(strength):
        return np.asarray(strength, np.float64)
    # One label for each colour, in the order of red, green and blue
    codes = values @ (1 << 16, 1 << 8, 1) * (strength > 0)
    return np.asarray(np.unique(codes, return_inverse=True)[1].reshape(strength.shape), np.float64)
