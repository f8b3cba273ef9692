"""Look for bad frames of a stack before anything is estimated."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.estimate.pixel_subset import PixelSubset
from usdenoise.estimate.rank import least_rank
from usdenoise.frames.bad_frames import FrameSearch, find_bad_frames
from usdenoise.frames.frame_curves import frame_curves
from usdenoise.frames.frame_quality import FrameQuality
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.pixel_sample import PixelSample
from usdenoise.stack.sampling import spread_rows

CURVE_PIXELS = 1024
"""Pixels of the curves over the frames."""


@dataclass(frozen=True)
class CheckedFrames:
    """A pixel sample without its bad frames, and the quality control of the frames.

    Attributes
    ----------
    sample : PixelSample
        The sample, which excludes the bad frames.
    whole : PixelSample
        The same with all frames.
    search : FrameSearch
        The bad frames.
    subset : PixelSubset
        The exact spectrum of a few pixels in the other frames.
    displacement : (n_frames, n_axes) float64 array
        Displacement of each frame in pixels.
    """

    sample: PixelSample
    whole: PixelSample
    search: FrameSearch
    subset: PixelSubset
    displacement: NDArray[np.float64]

    def quality(self, model: LowRank, low: int) -> FrameQuality:
        """Return the quality of the frames, with curves for which the components [0, low) of the sample are clutter."""
        pixels = spread_rows(self.whole.n_pixels, CURVE_PIXELS)
        curves = frame_curves(self.whole.take(pixels), model.left[pixels, :low], self.displacement)
        return FrameQuality(**vars(self.search), curves=curves)


def check_frames(
    sample: PixelSample, displacement: NDArray[np.float64], options: DenoiseOptions
) -> CheckedFrames:
    """Look for bad frames, and exclude them.

    Parameters
    ----------
    sample : PixelSample
        Pixels of the stack.
    displacement : (n_frames, n_axes) float64 array
        Displacement of each frame in pixels, from :func:`usdenoise.frames.displacement.displacements`.
    options : DenoiseOptions
        `bad_frames` and the seed.

    Raises
    ------
    OptionError
        If a given bad frame is not in the stack.
    """
    search, drawn = find_bad_frames(sample, options.bad_frames, options.seed, displacement)
    subset = drawn.subset
    # In long stacks its values take as much as a hundred components.
    del drawn
    used = sample if search.left_out is None else sample.without(search.left_out)
    return CheckedFrames(
        used, sample, search, subset.trimmed(sample.n_pixels, least_rank(options)), displacement
    )
