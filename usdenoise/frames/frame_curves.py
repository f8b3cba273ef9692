"""Curves over the frames: what people look at to see whether a scan is sound."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.rows import Rows
from usdenoise.stack.sampling import spread_rows

CARPET_BANDS = 64
"""Bands of pixels of the carpet. A mean over 16 of 1024 pixels has a standard deviation of 1.1 dB in speckle."""

FRAMES_A_BLOCK = 128
"""Frames that are measured together: a megabyte of 1024 pixels in complex64."""


@dataclass(frozen=True)
class FrameCurves:
    """One value for each frame; powers are means over the sampled pixels, in the squared unit of the stack.

    All are NaN for a frame without an observed entry; in the carpet it is 0.

    Attributes
    ----------
    intensity : (n_frames,) float64 array
        Mean power.
    dvars : (n_frames,) float64 array
        Root mean square over the pixels of the difference from the frame before (Power et al., NeuroImage 59(3),
        2012); NaN for the first frame, and after one without an observed entry.
    outside : (n_frames,) float64 array
        Mean power outside the clutter components, fitted to the frame.
    displacement : (n_frames, n_axes) float64 array
        Displacement against the mean frame in pixels.
    carpet : (n_bands, n_frames) float32 array
        Power outside the clutter components in bands of neighbouring pixels, the shallowest first, over the median of
        the band; 0 in a band without power. (Carpet plots: Power, NeuroImage 154, 2017.)
    """

    intensity: NDArray[np.float64]
    dvars: NDArray[np.float64]
    outside: NDArray[np.float64]
    displacement: NDArray[np.float64]
    carpet: NDArray[np.float32]


@dataclass(frozen=True)
class FrameSample:
    """The values of some pixels in all frames, as they were read.

    Attributes
    ----------
    rows : array of row numbers
        The pixels.
    values : (n, n_frames) array, or one that is read when it is asked for
        Their values.
    excluded : (k,) array of frame numbers
        Frames whose values in the stack are not those that were read.
    values_excluded : (n, k) array
        The values of these frames.
    seen : (n_frames,) boolean array
        Frames with an observed entry.
    executor : Executor
        Maps over blocks of frames.
    """

    rows: NDArray[np.intp]
    values: Any
    excluded: NDArray[np.intp]
    values_excluded: NDArray[Any]
    seen: NDArray[np.bool_]
    executor: Executor

    def frames(self, first: int, stop: int) -> NDArray[Any]:
        """Return a copy of the values of some frames, as they were read."""
        block: NDArray[Any] = self.values[:, first:stop].copy()
        here = (first <= self.excluded) & (self.excluded < stop)
        block[:, self.excluded[here] - first] = self.values_excluded[:, here]
        return block


def frame_sample(rows: Rows, n_pixels: int, excluded: NDArray[np.bool_] | None = None) -> FrameSample:
    """Return some pixels of a stack.

    Parameters
    ----------
    rows : Rows
        The stack. The sample looks at its values.
    n_pixels : int
        About how many pixels, spread over the image.
    excluded : (n_frames,) boolean array, optional
        Frames whose values will be changed in the stack, but not in the sample; by default none.
    """
    some = spread_rows(rows.n_pixels, n_pixels)
    taken = rows.pick(some)
    values, observed = taken.values, taken.observed_mask(slice(None))
    seen = np.ones(rows.n_frames, bool) if observed is None else np.asarray(observed.any(axis=0))
    numbers = np.flatnonzero(np.zeros(rows.n_frames, bool) if excluded is None else excluded)
    left_out = np.concatenate([values[:, :0], *(values[:, t : t + 1] for t in numbers)], axis=1)
    return FrameSample(some, values, numbers, left_out, seen, rows.executor)


def frame_curves(
    sample: FrameSample, clutter: NDArray[Any], displacement: NDArray[np.float64]
) -> FrameCurves:
    """Return the curves of a stack.

    Parameters
    ----------
    sample : FrameSample
        Pixels of the stack, with their clutter.
    clutter : (n_pixels, k) array
        Spatial vectors of the clutter components in all pixels.
    displacement : (n_frames, n_axes) array
        Displacement of each frame in pixels.
    """
    n_pixels, n_frames = sample.values.shape
    basis = np.linalg.qr(clutter[sample.rows])[0] if clutter.shape[1] else clutter[sample.rows]
    n_bands = min(CARPET_BANDS, n_pixels)
    edges = np.linspace(0, n_pixels, n_bands + 1).astype(np.int64)

    def measure(frames: slice) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        # A step to a frame starts at the frame before it, which may be in the block before.
        first = max(frames.start - 1, 0)
        joined = sample.frames(first, frames.stop)
        block, steps = joined[:, frames.start - first :], np.diff(joined, axis=1)
        outside = _power(block - basis @ (basis.conj().T @ block))
        return (
            _power(block).sum(axis=0, dtype=np.float64),
            _power(steps).sum(axis=0, dtype=np.float64),
            np.add.reduceat(outside, edges[:-1], axis=0, dtype=np.float64),
        )

    measured = sample.executor.map(measure, row_blocks(n_frames, FRAMES_A_BLOCK))
    intensity, steps, bands = (np.concatenate(part, axis=-1) for part in zip(*measured, strict=True))
    seen = sample.seen
    return FrameCurves(
        intensity=np.where(seen, intensity / n_pixels, np.nan),
        dvars=np.append(np.nan, np.where(seen[1:] & seen[:-1], np.sqrt(steps / n_pixels), np.nan)),
        outside=np.where(seen, bands.sum(axis=0) / n_pixels, np.nan),
        displacement=np.where(seen[:, None], displacement, np.nan),
        carpet=_carpet(bands),
    )


def _carpet(power: NDArray[np.float64]) -> NDArray[np.float32]:
    medians = np.median(power, axis=1, keepdims=True)
    relative = np.divide(power, medians, out=np.zeros_like(power), where=medians > 0)
    return relative.astype(np.float32)


def _power(values: NDArray[Any]) -> NDArray[Any]:
    power: NDArray[Any] = values.real**2
    if np.iscomplexobj(values):
        power += values.imag**2
    return power
