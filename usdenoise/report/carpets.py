"""Carpet plots of a page: bands of pixels over the frames or over the blocks."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels

CARPET_DB = (-6.0, 12.0)
"""Levels of the darkest and of the brightest colour of the carpet. Speckle stays in the dark half."""

BLOCKS_DB = (-3.0, 3.0)
"""The same for the blood of blocks over their mean: an activation of 30 % is 1.1 dB."""


MOST_COLUMNS = 600
"""Columns of the carpet of a page, about as many as its charts have pixels across."""


def carpet_png(carpet: NDArray[Any], range_db: tuple[float, float] = CARPET_DB) -> bytes:
    """Return a carpet as a grey PNG without axes, at most MOST_COLUMNS wide.

    Parameters
    ----------
    carpet : (n_bands, n_frames) array
        Power of each band over its median. Where a column covers several frames, it shows their maximum.
    range_db : (float, float), default CARPET_DB
        Levels of black and white.
    """
    from PIL import Image

    n_frames = carpet.shape[1]
    firsts = np.arange(0, n_frames, max(1, -(-n_frames // MOST_COLUMNS)))
    levels = decibels(np.maximum.reduceat(carpet, firsts, axis=1), reference=1.0)
    grey = np.round(255 * np.clip((levels - range_db[0]) / np.ptp(range_db), 0, 1)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG")
    return buffer.getvalue()
