"""Rigid registration: every frame is shifted back by its displacement."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.casorati import CasoratiMatrix

MARGIN = 8
"""Pixels by which frames are extended, mirrored at the edges: a Fourier shift is periodic."""

FRAMES_A_BLOCK = 32


def register(matrix: CasoratiMatrix, shape: tuple[int, ...], displacement: NDArray[np.float64]) -> None:
    """Shift every frame back by its displacement, in place, by the phase of its Fourier transform.

    Complex frames keep their phase: the values are interpolated between pixels, and no carrier is taken out.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The stack; changed in place.
    shape : tuple of int
        Pixels along each spatial axis, in the order of the Casorati matrix.
    displacement : (n_frames, n_axes) array
        Displacement of each frame in pixels.

    Raises
    ------
    InputError
        If entries are unobserved: a shift would spread them.
    """
    if matrix.observed is not None:
        raise InputError(
            "registration needs every entry, and some are NaN or infinite; leave out --motion, or fill them"
        )
    image = matrix.values.reshape(*shape, matrix.n_frames)
    axes = tuple(range(1, len(shape) + 1))
    margins = [min(MARGIN, n - 1) for n in shape]
    wide = [n + 2 * margin for n, margin in zip(shape, margins, strict=True)]
    inner = (slice(None), *(slice(m, m + n) for m, n in zip(margins, shape, strict=True)))

    def shift(frames: slice) -> None:
        block = np.moveaxis(image[..., frames], -1, 0)
        padded = np.pad(block, [(0, 0), *((m, m) for m in margins)], mode="reflect")
        spectrum = np.fft.fftn(padded, axes=axes)
        for axis, n in enumerate(wide):
            turns = np.fft.fftfreq(n) * displacement[frames, axis, None]
            place = [slice(None), *[None] * len(shape)]
            place[axis + 1] = slice(None)
            spectrum *= np.exp(2j * np.pi * turns)[tuple(place)].astype(spectrum.dtype)
        shifted: NDArray[Any] = np.fft.ifftn(spectrum, axes=axes)[inner]
        if not np.iscomplexobj(image):
            shifted = shifted.real
        image[..., frames] = np.moveaxis(shifted, 0, -1)

    blocks = list(row_blocks(matrix.n_frames, FRAMES_A_BLOCK))
    for _ in matrix.executor.map(shift, blocks):
        pass
