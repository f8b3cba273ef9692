"""Displacement of the image in every frame, by phase correlation of the envelopes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.registration import TINY, hann_window, image_spectra, shifts
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import row_squared_norms

LARGEST_IMAGE: dict[int, int] = {1: 256, 2: 48, 3: 24}
"""Pixels along an axis of the middle part that is registered, by the number of spatial axes."""

FRAMES_A_BLOCK = 64
"""Frames that are transformed together."""

REFERENCE_FRAMES = 256
"""Frames, evenly spread over the scan, whose mean is the reference."""


def displacements(
    envelopes: NDArray[np.float32], counted: NDArray[np.bool_], executor: Executor
) -> NDArray[np.float64]:
    """Return the displacement of each frame against a mean frame, in pixels.

    The envelopes are registered under a Hann window.

    Parameters
    ----------
    envelopes : (n_frames, pixels along each axis...) float32 array
        Magnitudes of a part of the image, as from :func:`middle_part`. They change in place.
    counted : boolean array of the shape of a frame
        Pixels that count.
    executor : Executor
        Maps over blocks of frames.

    Returns
    -------
    (n_frames, n_axes) float64 array
        Positive where the image is displaced towards larger indices. 0 where a frame is the same everywhere.
    """
    n_frames, *size = envelopes.shape
    window = hann_window(tuple(size), np.float32)
    window[~counted] = 0

    def spectra(values: NDArray[np.float32]) -> NDArray[Any]:
        frames = values.reshape(len(values), -1)
        counting = frames if counted.all() else frames[:, counted.ravel()]
        windowed = (frames - counting.mean(axis=1, keepdims=True)) * window.ravel()
        # All frames count alike in the reference, a damaged one of many times the power too.
        norms = np.sqrt(row_squared_norms(windowed))[:, None]
        windowed /= np.maximum(norms, TINY).astype(np.float32)
        return image_spectra(windowed.reshape(values.shape))

    blocks = [slice(first, first + FRAMES_A_BLOCK) for first in range(0, n_frames, FRAMES_A_BLOCK)]
    step = n_frames // REFERENCE_FRAMES
    if step < 2:
        block_spectra = list(executor.map(lambda frames: spectra(envelopes[frames]), blocks))
        mean = np.sum([spectrum.sum(axis=0) for spectrum in block_spectra], axis=0)
        return np.concatenate(list(executor.map(lambda one: shifts(one, mean, tuple(size)), block_spectra)))
    reference = envelopes[::step]
    parts = executor.map(
        lambda frames: spectra(reference[frames]).sum(axis=0), blocks[: -(-len(reference) // FRAMES_A_BLOCK)]
    )
    mean = np.sum(list(parts), axis=0)
    shifted = executor.map(lambda frames: shifts(spectra(envelopes[frames]), mean, tuple(size)), blocks)
    return np.concatenate(list(shifted))


def middle_part(mask: NDArray[np.bool_]) -> tuple[slice, ...]:
    """Return the middle, at most LARGEST_IMAGE pixels along an axis, of the smallest part with all signal pixels."""
    parts, most = [], LARGEST_IMAGE[mask.ndim]
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        along = np.flatnonzero(mask.any(axis=others))
        first, last = int(along[0]), int(along[-1])
        length = min(last + 1 - first, most)
        start = (first + last + 1 - length) // 2
        parts.append(slice(start, start + length))
    return tuple(parts)
