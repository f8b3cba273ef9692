"""Linear power Doppler as float32 TIFF."""

import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.geometry import in_axes

_RESOLUTION_UNIT = 296
"""Tag of TIFF for the unit of the resolution; 1 means that the description has it, since TIFF has no millimetre."""


def tiff(image: NDArray[Any], axes: str, spacing_mm: Mapping[str, float] | None = None) -> bytes:
    """Encode linear power as float32 TIFF, with one page for an image and one per elevation for a volume.

    Rows are depth and columns lateral, whatever the axis order of `image`. Where the pixel pitch is known, the file has
    it in the way of ImageJ and Fiji, in mm.

    Parameters
    ----------
    image : 2-D or 3-D array
        Linear power.
    axes : str
        Axis letters of `image`, in its own order.
    spacing_mm : mapping from str to float
        Axis letter -> pixel pitch in mm, where it is known; None (the default) for none.
    """
    from PIL import Image

    # Without it, Pillow would look for the format in all of its forty plugins, which takes 60 ms.
    import_module("PIL.TiffImagePlugin")
    order = "".join(letter for letter in "yzx" if letter in axes)
    ordered = np.ascontiguousarray(in_axes(image, axes, order), dtype=np.float32)
    first, *others = (Image.fromarray(page) for page in ordered.reshape(-1, *ordered.shape[-2:]))
    scales: dict[str, Any] = {}
    if spacing_mm is not None and {"z", "x"} <= set(spacing_mm):
        thickness = spacing_mm.get("y") if ordered.ndim == 3 else None
        scales = {
            "description": _description(1 + len(others), thickness),
            "x_resolution": 1 / spacing_mm["x"],
            "y_resolution": 1 / spacing_mm["z"],
            "tiffinfo": {_RESOLUTION_UNIT: 1},
        }
    buffer = io.BytesIO()
    first.save(buffer, "TIFF", save_all=bool(others), append_images=others, **scales)
    return buffer.getvalue()


def _description(n_slices: int, thickness_mm: float | None) -> str:
    """Return the description from which ImageJ and Fiji read the unit of the resolution, and the slices of a volume."""
    lines = ["ImageJ=1.53t", f"images={n_slices}", f"slices={n_slices}", "unit=mm", "loop=false"]
    if thickness_mm is not None:
        lines.append(f"spacing={thickness_mm:.12g}")
    return "\n".join(lines) + "\n"


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
        If the file cannot be read or is not an image.
    """
    import imageio.v3 as iio

    # Without memory for its plugin, imageio would report that the plugin is not installed.
    import_module("imageio.plugins.pillow")
    return np.stack(list(iio.imiter(path, extension=".tif", plugin="pillow"))).astype(np.float32)
