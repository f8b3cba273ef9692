"""Displacement of the image in every frame, by phase correlation of the envelopes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.phase_correlation import PhaseCorrelation
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.rows import Rows

LARGEST_IMAGE: dict[int, int] = {1: 256, 2: 64, 3: 24}
"""Pixels along an axis of the middle part that is looked at, by the number of spatial axes."""

LARGEST_GATHERED_IMAGE: dict[int, int] = {1: 256, 2: 48, 3: 16}
"""The same where the rows have to be gathered first, in all frames."""

FRAMES_A_BLOCK, FRAMES_READ = 64, 2048
"""Frames that are transformed together, and that are read together where the rows are in a file."""

REFERENCE_FRAMES = 256
"""Frames, evenly spread over the scan, whose mean is the reference."""


def displacements(
    rows: Rows, shape: tuple[int, ...], live: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return the displacement of each frame against a mean frame, in pixels.

    The peak of the phase correlation (Kuglin and Hines, Proc. IEEE Conf. Cybernetics and Society, 1975) of the
    envelopes, in the middle of the image and under a Hann window.

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
    part = (
        _middle(shape, LARGEST_IMAGE[len(shape)], live) if rows.is_in_memory else gathered_middle(shape, live)
    )
    image, executor = rows.crop(shape, part), rows.executor
    size, n_frames = image.shape[:-1], image.shape[-1]
    axes = tuple(range(len(size)))
    window = np.ones(size, np.float32)
    for axis in np.ix_(*(np.hanning(n + 2)[1:-1] for n in size)):
        window = window * axis.astype(np.float32)
    counted = np.ones(size, bool) if live is None else live[part]
    window[~counted] = 0
    correlation = PhaseCorrelation.for_size(size)

    def spectra(values: NDArray[Any]) -> NDArray[Any]:
        envelope = _envelope(values)
        envelope -= envelope.mean(axis=axes) if live is None else envelope[counted].mean(axis=0)
        envelope *= window[..., None]
        # All frames count alike in the reference, a damaged one of many times the power too.
        envelope /= np.maximum(np.sqrt(np.sum(envelope**2, axis=axes)), np.finfo(np.float32).tiny)
        return correlation.spectra(envelope)

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
        found = list(executor.map(lambda spectrum: correlation.displacements(spectrum, mean), made))
    else:
        mean = np.sum(each(lambda values: spectra(values).sum(axis=-1), step), axis=0)
        found = each(lambda values: correlation.displacements(spectra(values), mean), 1)
    return np.concatenate(found)


def gathered_middle(shape: tuple[int, ...], live: NDArray[np.bool_] | None = None) -> tuple[slice, ...]:
    """Return the part of an image that is looked at where its rows have to be gathered."""
    return _middle(shape, LARGEST_GATHERED_IMAGE[len(shape)], live)


def _middle(shape: tuple[int, ...], most: int, live: NDArray[np.bool_] | None) -> tuple[slice, ...]:
    """Return the middle of the smallest part that holds all live pixels."""
    parts = []
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
