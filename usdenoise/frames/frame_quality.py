"""What is known of the frames of a scan, for its result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import BadFrame, Treatment
from usdenoise.frames.frame_curves import FrameCurves
from usdenoise.frames.movement import Movement


@dataclass(frozen=True)
class FrameQuality:
    """Bad frames, and curves over all frames.

    Attributes
    ----------
    bad : tuple of BadFrame
        The bad frames.
    left_out : (n_frames,) boolean array or None
        Frames that were left out; None when there were none.
    treatment : Treatment
        What was done with the bad frames.
    movement : Movement
        How the image moves.
    curves : FrameCurves
        One value for each frame.
    sentence : str
        Bad frames and movement in words; empty where there is nothing to say.
    """

    bad: tuple[BadFrame, ...]
    left_out: NDArray[np.bool_] | None
    treatment: Treatment
    movement: Movement
    curves: FrameCurves
    sentence: str

    @property
    def is_bad(self) -> bool:
        """Whether so many frames are bad that none was left out."""
        return self.treatment is Treatment.TOO_MANY

    @property
    def n_left_out(self) -> int:
        """Number of frames that were left out."""
        return 0 if self.left_out is None else int(np.count_nonzero(self.left_out))
