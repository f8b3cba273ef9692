"""Curves over the frames: what people look at to see whether a scan is sound."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.casorati import CasoratiMatrix

CARPET_BANDS = 64
"""Bands of pixels of the carpet. A mean over 16 of 1024 pixels has a standard deviation of 1.1 dB in speckle."""


@dataclass(frozen=True)
class FrameCurves:
    """One value for each frame; powers are means over the sampled pixels, in the squared unit of the stack.

    Attributes
    ----------
    intensity : (n_frames,) float64 array
        Mean power.
    dvars : (n_frames,) float64 array
        Root mean square over the pixels of the difference from the frame before (Power et al., NeuroImage 59(3),
        2012); NaN for the first frame.
    outside : (n_frames,) float64 array
        Mean power outside the clutter components, fitted to the frame.
    displacement : (n_frames, n_axes) float64 array
        Displacement against the mean frame in pixels, before a registration.
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
    rows : slice
        The pixels.
    values : (n, n_frames) array
        Their values.
    """

    rows: slice
    values: NDArray[Any]


def frame_sample(matrix: CasoratiMatrix, n_pixels: int) -> FrameSample:
    """Return a copy of about `n_pixels` pixels, evenly spread over the image."""
    rows = slice(None, None, max(1, matrix.n_pixels // n_pixels))
    return FrameSample(rows, matrix.rows(rows).in_memory().values.copy())


def frame_curves(
    sample: FrameSample, clutter: NDArray[Any], displacement: NDArray[np.float64]
) -> FrameCurves:
    """Return the curves of a stack.

    Parameters
    ----------
    sample : FrameSample
        Pixels of the stack.
    clutter : (n_pixels, k) array
        Spatial vectors of the clutter components in all pixels.
    displacement : (n_frames, n_axes) array
        Displacement of each frame in pixels.
    """
    values = sample.values
    basis = np.linalg.qr(clutter[sample.rows])[0] if clutter.shape[1] else clutter[sample.rows]
    outside = values - basis @ (basis.conj().T @ values)
    steps = np.sqrt(_mean_power(np.diff(values, axis=1)))
    bands = np.array_split(outside, min(CARPET_BANDS, len(outside)))
    return FrameCurves(
        intensity=_mean_power(values),
        dvars=np.append(np.nan, steps),
        outside=_mean_power(outside),
        displacement=displacement,
        carpet=_carpet(np.stack([_mean_power(band) for band in bands])),
    )


def _carpet(power: NDArray[np.float64]) -> NDArray[np.float32]:
    medians = np.median(power, axis=1, keepdims=True)
    relative = np.divide(power, medians, out=np.zeros_like(power), where=medians > 0)
    return relative.astype(np.float32)


def _mean_power(values: NDArray[Any]) -> NDArray[np.float64]:
    parts = values.view(values.real.dtype).reshape(*values.shape, -1)
    power: NDArray[np.float64] = np.einsum("ptc,ptc->t", parts, parts, dtype=np.float64) / max(len(values), 1)
    return power
