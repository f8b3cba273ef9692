"""Linear power Doppler as float32 TIFF."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import spatial_order


def tiff(image: NDArray[Any], axes: str) -> bytes:
    """Encode linear power as float32 TIFF, with one page for an image and one per elevation for a volume.

    Rows are depth and columns lateral, whatever the axis order of `image`.

    Parameters
    ----------
    image : 2-D or 3-D array
        Linear power.
    axes : str
        Axis letters of `image`, in its own order.
    """
    import imageio.v3 as iio

    order = "".join(letter for letter in "yzx" if letter in axes)
    pages = np.ascontiguousarray(spatial_order(image, axes, order), dtype=np.float32)
    return bytes(
        iio.imwrite("<bytes>", pages, extension=".tif", plugin="pillow", mode="F", is_batch=pages.ndim == 3)
    )


def read_tiff(path: Path) -> NDArray[np.float32]:
    """Read power Doppler that :func:`tiff` encoded.

    Parameters
    ----------
    path : Path
        The TIFF file.

    Returns
    -------
    (n_pages, n_rows, n_columns) float32 array
        Linear power: one page for a 2-D image, one for each elevation of a volume.

    Raises
    ------
    OSError
        If the file cannot be read or is no image.
    """
    import imageio.v3 as iio

    return np.stack(list(iio.imiter(path, extension=".tif", plugin="pillow"))).astype(np.float32)
