"""Look for bad frames of a stack before anything is estimated."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.estimate.pixel_subset import PixelSubset
from usdenoise.estimate.rank import least_rank
from usdenoise.frames.bad_frames import FrameSearch, find_bad_frames
from usdenoise.frames.frame_curves import FrameSample, frame_curves, frame_sample
from usdenoise.frames.frame_quality import FrameQuality
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.rows import Rows

CURVE_PIXELS = 1024
"""Pixels of the curves over the frames."""


@dataclass(frozen=True)
class CheckedFrames:
    """A stack without its bad frames, and what was seen of the frames.

    Attributes
    ----------
    rows : Rows
        The rows, which exclude the bad frames.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row in the other frames.
    search : FrameSearch
        The bad frames.
    subset : PixelSubset
        The exact spectrum of a few pixels in the other frames.
    sample : FrameSample
        Some pixels of all frames.
    displacement : (n_frames, n_axes) float64 array
        Displacement of each frame in pixels.
    """

    rows: Rows
    energy: NDArray[np.float64]
    search: FrameSearch
    subset: PixelSubset
    sample: FrameSample
    displacement: NDArray[np.float64]

    def quality(self, model: LowRank, low: int) -> FrameQuality:
        """Return what is known of the frames, with curves for which the components [0, low) are clutter.

        To be called before the clutter is taken out.
        """
        curves = frame_curves(self.sample, model.left[:, :low], self.displacement)
        return FrameQuality(**vars(self.search), curves=curves)


def check_frames(
    rows: Rows, energy: NDArray[np.float64], moved: NDArray[np.float64], options: DenoiseOptions
) -> CheckedFrames:
    """Look for bad frames, and exclude them.

    Parameters
    ----------
    rows : Rows
        The rows; the values of an array change in place.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row.
    moved : (n_frames, n_axes) float64 array
        Displacement of each frame in pixels, from :func:`usdenoise.frames.displacement.displacements`.
    options : DenoiseOptions
        `bad_frames` and the seed.

    Raises
    ------
    OptionError
        If a given bad frame is not in the stack.
    """
    search, drawn = find_bad_frames(rows, options.bad_frames, options.seed, moved)
    subset = drawn.subset
    # In long stacks its values take as much as a hundred components.
    del drawn
    left_out = search.left_out
    sample = frame_sample(rows, CURVE_PIXELS, left_out)
    if left_out is not None:
        rows, energy = rows.exclude(left_out)
    return CheckedFrames(
        rows, energy, search, subset.trimmed(rows.n_pixels, least_rank(options)), sample, moved
    )
