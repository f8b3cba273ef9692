"""What is known of the frames of a scan, for its result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.pipeline.frames.bad_frames import BadFrame
from usdenoise.pipeline.frames.frame_curves import FrameCurves


@dataclass(frozen=True)
class FrameQuality:
    """Bad frames, and curves over all frames.

    Attributes
    ----------
    bad : tuple of BadFrame
        The bad frames.
    left_out : (n_frames,) boolean array or None
        Frames that were left out; None when there were none.
    curves : FrameCurves
        One value for each frame.
    sentence : str
        The bad frames in words; empty without any.
    """

    bad: tuple[BadFrame, ...]
    left_out: NDArray[np.bool_] | None
    curves: FrameCurves
    sentence: str

    @property
    def n_left_out(self) -> int:
        """Number of frames that were left out."""
        return 0 if self.left_out is None else int(np.count_nonzero(self.left_out))
