"""Linear power as TIFF."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import spatial_order


def tiff(image: NDArray[Any], axes: str) -> bytes:
    """Linear float32 TIFF of a 2-D image, or of a volume with one page for each elevation.

    Rows are depth, columns lateral, whatever the order of the axes of `image`.
    """
    import imageio.v3 as iio

    order = "".join(letter for letter in "yzx" if letter in axes)
    pages = np.ascontiguousarray(spatial_order(image, axes, order), dtype=np.float32)
    return bytes(
        iio.imwrite("<bytes>", pages, extension=".tif", plugin="pillow", mode="F", is_batch=pages.ndim == 3)
    )


def read_tiff(path: Path) -> NDArray[np.float32]:
    """Power Doppler as :func:`usdenoise.formats.tiff.tiff` encodes it.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    (n_pages, n_rows, n_columns) array
        One page for a 2-D image, one for each elevation of a volume.

    Raises
    ------
    OSError
        If it cannot be read or is no image.
    """
    import imageio.v3 as iio

    return np.stack(list(iio.imiter(path, extension=".tif", plugin="pillow"))).astype(np.float32)
