"""Fill the excluded frames: the model's temporal vectors are interpolated over time."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.low_rank import LowRank


def interpolated(model: LowRank, excluded: NDArray[np.bool_] | None) -> LowRank:
    """Return a model whose temporal vectors are interpolated linearly over the excluded frames.

    Parameters
    ----------
    model : LowRank
        Components with zeros in these frames.
    excluded : (n_frames,) boolean array or None
        The frames; None for none.
    """
    if excluded is None:
        return model
    frames, used = np.flatnonzero(excluded), np.flatnonzero(~excluded)
    right = model.right.copy()
    for column in right.T:
        # numpy.interp takes complex values.
        column[frames] = np.interp(frames, used, column[used])
    return replace(model, right=right)
