"""Quality control of the frames of a scan, for its result."""

from dataclasses import dataclass

import numpy as np

from usdenoise.frames.bad_frames import FrameSearch, FrameTreatment
from usdenoise.frames.frame_curves import FrameCurves


@dataclass(frozen=True)
class FrameQuality(FrameSearch):
    """Bad frames and movement, as a :class:`usdenoise.frames.bad_frames.FrameSearch` has them, and curves over all frames.

    Attributes
    ----------
    curves : FrameCurves
        One value for each frame.
    """

    curves: FrameCurves

    @property
    def is_bad(self) -> bool:
        """Whether too many frames are bad, so that none was excluded."""
        return self.treatment is FrameTreatment.TOO_MANY

    @property
    def n_left_out(self) -> int:
        """Number of excluded frames."""
        return 0 if self.left_out is None else int(np.count_nonzero(self.left_out))
