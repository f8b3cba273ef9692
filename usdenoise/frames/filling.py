"""Fill the frames that were left out: the model's temporal vectors are interpolated over time."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.low_rank import LowRank


def interpolated(model: LowRank, left_out: NDArray[np.bool_] | None) -> LowRank:
    """Return a model whose temporal vectors are interpolated linearly over the frames that were left out.

    Parameters
    ----------
    model : LowRank
        Components with zeros in these frames.
    left_out : (n_frames,) boolean array or None
        The frames; None for none.
    """
    if left_out is None:
        return model
    frames, used = np.flatnonzero(left_out), np.flatnonzero(~left_out)
    right = model.right.copy()
    for column in right.T:
        # numpy.interp takes complex values.
        column[frames] = np.interp(frames, used, column[used])
    return replace(model, right=right)
