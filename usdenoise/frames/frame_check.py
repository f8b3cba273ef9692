"""Look at the frames of a stack before anything is estimated: displacements, registration, bad frames."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import FrameSearch, find_bad_frames, leave_out
from usdenoise.frames.displacement import displacements
from usdenoise.frames.frame_curves import FrameCurves, FrameSample, frame_curves, frame_sample
from usdenoise.frames.registration import register
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.casorati import EntryCheck

CURVE_PIXELS = 1024
"""Pixels of the curves over the frames."""


@dataclass(frozen=True)
class CheckedFrames:
    """A stack without its bad frames, and what was seen of the frames.

    Attributes
    ----------
    entries : EntryCheck
        The entries, 0 in the frames that are left out.
    search : FrameSearch
        The bad frames.
    sample : FrameSample
        Some pixels of all frames.
    displacement : (n_frames, n_axes) float64 array
        Displacement of each frame in pixels, before a registration.
    """

    entries: EntryCheck
    search: FrameSearch
    sample: FrameSample
    displacement: NDArray[np.float64]

    def curves(self, model: LowRank, low: int) -> FrameCurves:
        """Return the curves over the frames, with the components [0, low) as clutter, before it is taken out."""
        return frame_curves(self.sample, model.left[:, :low], self.displacement)


def check_frames(entries: EntryCheck, shape: tuple[int, ...], options: DenoiseOptions) -> CheckedFrames:
    """Measure displacements, undo them if asked for, and leave bad frames out.

    Parameters
    ----------
    entries : EntryCheck
        The entries; changed in place.
    shape : tuple of int
        Pixels along each spatial axis, in the order of the Casorati matrix.
    options : DenoiseOptions
        `bad_frames`, `motion` and the seed.

    Raises
    ------
    OptionError
        If a given bad frame is not in the stack.
    InputError
        If a registration is asked for and entries are unobserved.
    """
    matrix = entries.matrix
    moved = displacements(matrix, shape)
    left = moved
    if options.motion == "rigid":
        register(matrix, shape, moved)
        left = displacements(matrix, shape)
    search = find_bad_frames(matrix, options.bad_frames, options.seed, left)
    sample = frame_sample(matrix, CURVE_PIXELS, search.left_out)
    return CheckedFrames(leave_out(entries, search.left_out), search, sample, moved)
