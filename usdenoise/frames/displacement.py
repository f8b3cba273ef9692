"""Displacement of the image in every frame, by phase correlation of the envelopes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.registration import TINY, image_spectra, shifts
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.rows import Rows

LARGEST_IMAGE: dict[int, int] = {1: 256, 2: 48, 3: 24}
"""Pixels along an axis of the middle part that is registered, by the number of spatial axes."""

FRAMES_A_BLOCK, FRAMES_READ = 64, 2048
"""Frames that are transformed together, and that are read together where the rows are in a file."""

REFERENCE_FRAMES = 256
"""Frames, evenly spread over the scan, whose mean is the reference."""


def displacements(
    rows: Rows, shape: tuple[int, ...], live: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return the displacement of each frame against a mean frame, in pixels.

    The envelopes are registered in the middle of the image, under a Hann window.

    Parameters
    ----------
    rows : Rows
        The stack.
    shape : tuple of int
        Pixels along each spatial axis, in the order of the rows.
    live : boolean array of this shape, optional
        Pixels that count; by default all.

    Returns
    -------
    (n_frames, n_axes) float64 array
        Positive where the image is displaced towards larger indices. 0 where a frame is the same everywhere.
    """
    part = middle_part(shape, live)
    image, executor = rows.crop(shape, part), rows.executor
    size, n_frames = image.shape[:-1], image.shape[-1]
    axes = tuple(range(len(size)))
    window = np.ones(size, np.float32)
    for axis in np.ix_(*(np.hanning(n + 2)[1:-1] for n in size)):
        window = window * axis.astype(np.float32)
    counted = np.ones(size, bool) if live is None else live[part]
    window[~counted] = 0

    def spectra(values: NDArray[Any]) -> NDArray[Any]:
        envelope = _envelope(values)
        envelope -= envelope.mean(axis=axes) if live is None else envelope[counted].mean(axis=0)
        envelope *= window[..., None]
        # All frames count alike in the reference, a damaged one of many times the power too.
        envelope /= np.maximum(np.sqrt(np.sum(envelope**2, axis=axes)), TINY)
        return image_spectra(envelope)

    def each(function: Callable[[NDArray[Any]], NDArray[Any]], step: int) -> list[NDArray[Any]]:
        """Return what a function makes of every step-th frame, a block at a time."""
        made: list[NDArray[Any]] = []
        for read in row_blocks(n_frames, max(1, FRAMES_READ // step) * step):
            values = np.asarray(image[(*map(slice, size), slice(read.start, read.stop, step))])
            blocks = [values[..., frames] for frames in row_blocks(values.shape[-1], FRAMES_A_BLOCK)]
            made.extend(executor.map(function, blocks))
            # Before the next ones are read.
            del values, blocks
        return made

    step = n_frames // REFERENCE_FRAMES
    if step < 2:
        made = each(spectra, 1)
        mean = np.sum([spectrum.sum(axis=-1) for spectrum in made], axis=0)
        found = list(executor.map(lambda spectrum: shifts(spectrum, mean, size), made))
    else:
        mean = np.sum(each(lambda values: spectra(values).sum(axis=-1), step), axis=0)
        found = each(lambda values: shifts(spectra(values), mean, size), 1)
    return np.concatenate(found)


def middle_part(shape: tuple[int, ...], live: NDArray[np.bool_] | None = None) -> tuple[slice, ...]:
    """Return the middle, at most LARGEST_IMAGE pixels along an axis, of the smallest part with all signal pixels."""
    parts, most = [], LARGEST_IMAGE[len(shape)]
    for axis, n in enumerate(shape):
        others = tuple(other for other in range(len(shape)) if other != axis)
        along = np.arange(n) if live is None else np.flatnonzero(live.any(axis=others))
        first, last = int(along[0]), int(along[-1])
        length = min(last + 1 - first, most)
        start = (first + last + 1 - length) // 2
        parts.append(slice(start, start + length))
    return tuple(parts)


def _envelope(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return the magnitudes of values whose squares single precision holds, as a new array."""
    squares = (values.real**2).astype(np.float32, copy=False)
    if np.iscomplexobj(values):
        squares += values.imag**2
    return np.sqrt(squares, out=squares)
