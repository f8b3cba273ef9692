"""The Casorati matrix of a stack: one row for each pixel, one column for each frame."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import Acquisition, canonical_axes, spatial_order
from usdenoise.stack.geometry import GriddedStack
from usdenoise.stack.precision import checked_conversion


def casorati(acquisition: Acquisition, dtype: Any = None) -> NDArray[Any]:
    """Return the Casorati matrix of an acquisition.

    Pixels are numbered in the order z, x, y (the last fastest), whatever the order of the axes in the stack. So
    the same acquisition in another file layout gives the same matrix.

    Parameters
    ----------
    acquisition : Acquisition
        The stack.
    dtype : dtype, optional
        Type of the result; by default the stack's.

    Returns
    -------
    (n_pixels, n_frames) array, C-contiguous
        A view of the stack where its memory is already in this order, otherwise a copy.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    ordered = spatial_order(acquisition.iq, acquisition.axes, canonical_axes(acquisition.axes))
    with checked_conversion(ordered, dtype, acquisition.name):
        return np.ascontiguousarray(ordered.reshape(-1, acquisition.n_frames), dtype=dtype)


def from_casorati(matrix: NDArray[Any], like: GriddedStack) -> NDArray[Any]:
    """Return a view of an (n_pixels, n) matrix as a stack of n frames with the axes and the pixels of `like`."""
    shape = like.shape_in(canonical_axes(like.spatial_axes))
    return spatial_order(matrix.reshape(*shape, -1), canonical_axes(like.axes), like.axes)


def image_from_pixels(values: NDArray[Any], like: GriddedStack) -> NDArray[Any]:
    """Return a view of n_pixels values as an image in the spatial axis order and shape of `like`."""
    canonical = canonical_axes(like.spatial_axes)
    return spatial_order(values.reshape(like.shape_in(canonical)), canonical, like.spatial_axes)
