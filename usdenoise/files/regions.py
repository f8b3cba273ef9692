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
from usdenoise.sessions.regions import Region, check_region_names
from usdenoise.stack.data_arrays import is_data_array, to_data_array
from usdenoise.stack.geometry import Geometry, canonical_axes, in_axes, picture_axes, shape_text

Mask = NDArray[np.bool_]
"""True at the pixels of a region."""

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
    """Return the mask of a region, True at its pixels.

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
    boolean array of shape `shape`

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
    if not mask.any():
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
    """Read a mask from an image file, drawn over a picture or a TIFF of a result, or from an array of a .npy file.

    Parameters
    ----------
    path : str or Path
        PNG, TIFF or other image file with depth downwards, lateral to the right, and elevation in pages, whatever the order
        of the axes of the stack; or .npy file with the axes of the stack. Pixels that are not 0 belong to the mask.
    shape : tuple of int
        Shape of the images.
    axes : str
        Letters of their axes, in the order of `shape`.

    Returns
    -------
    boolean array of shape `shape`
        True at the pixels of the mask.

    Raises
    ------
    InputError
        If the file cannot be read, or its array has another shape.
    """
    import imageio.v3 as iio

    check_kind(Path(path))
    numpy = Path(path).suffix.lower() == ".npy"
    # Libraries raise errors of many types on a damaged image.
    with guard(Path(path), "cannot be read as a mask; give an image or a .npy file of numbers"):
        # The pages of a volume, or the first one
        pages: Any = ... if len(shape) == 3 else 0
        image = np.load(path, allow_pickle=False) if numpy else iio.imread(path, index=pages, plugin="pillow")
        if image.dtype.kind not in "biufc":
            raise TypeError(image.dtype)
    if image.ndim == len(shape) + 1 and image.shape[-1] in (2, 4):
        # The last channel is opacity, which is not part of the mask.
        image = image[..., :-1]
    if image.ndim == len(shape) + 1:
        image = image.any(axis=-1)
    order = axes if numpy else picture_axes(axes)
    wanted = tuple(shape[axes.index(letter)] for letter in order)
    if image.shape != wanted:
        raise InputError(
            f"the mask {path} has shape {image.shape} and the images {wanted} ({order}); "
            "draw it over an image of that shape"
        )
    return in_axes(np.nan_to_num(image) != 0, order, axes)
