"""The sampled pixels: those whose entries are sampled, and the rank that such a sample determines."""

import math

import numpy as np
from numpy.typing import NDArray

from usdenoise.components.pixel_subset import PixelSubset
from usdenoise.stack.rows import Rows

LEAST_SAMPLES_PER_FRAME, SAMPLES_PER_FRAME_AND_COMPONENT = 256, 6
"""Samples of each frame. tests/benchmarks/quality.py set them: the refit of such a sample gives the full SVD's
picture to 0.998 or better (docs/quality.md)."""

COMPONENTS_BEYOND_NOISE = 16
"""Components estimated beyond those above the noise of the pixel subset: all pixels together show weaker ones, and
the cutoff is chosen by the components on both sides of it."""

MORE_LIKE_TISSUE, COMPONENTS_BEYOND_TISSUE = 2, 8
"""Components that may be like tissue in all pixels over those of the pixel subset, since noise and blood hide the last ones
from few pixels, and components beyond them. On 120 stacks of seven sizes with tissue 30 to 60 dB over blood the ratio was
0.9 to 1.75. With 1.4 and 16 components, tissue 60 dB over blood cost up to 0.26 of the correlation with the truth."""

SAMPLES_PER_PIXEL_AND_COMPONENT = 1.25
"""Least ratio of the samples of an average pixel to the components: at 1 its coefficients are not determined."""


def draw_sampled_pixels(
    rows: Rows, rank: int, sampling: float, rng: np.random.Generator
) -> NDArray[np.intp] | None:
    """Draw the pixels whose entries are sampled, spread over the image.

    The temporal singular vectors are common to all pixels. Entries are sampled from a random subset of the pixels, so
    that each frame has at least max(256, 6 rank) samples. Then a refit to all entries makes the vectors exact.

    Parameters
    ----------
    rows : Rows
        The data. Pixels without an observed entry are not drawn.
    rank : int
        Number of components.
    sampling : float
        Fraction of these pixels' entries that will be sampled.
    rng : numpy.random.Generator
        Chooses the pixels.

    Returns
    -------
    array of row numbers, increasing, or None
        None where all pixels are needed.
    """
    count = sampled_pixel_count(rank, sampling)
    observed = rows.observed
    alive = np.arange(rows.n_pixels) if observed is None else np.flatnonzero(observed.any(axis=1))
    return None if len(alive) <= count else np.sort(rng.permutation(alive)[:count])


def sampled_pixel_count(rank: int, sampling: float) -> int:
    """Return how many pixels are sampled for a rank and a fraction of their entries, if the stack has more."""
    return math.ceil(max(LEAST_SAMPLES_PER_FRAME, SAMPLES_PER_FRAME_AND_COMPONENT * rank) / sampling)


def automatic_rank(
    subset: PixelSubset, shape: tuple[int, int], n_samples: int, only_clutter: bool = False
) -> int:
    """Return the number of components to estimate: those above the noise, and some more, as the sample allows.

    Parameters
    ----------
    subset : PixelSubset
        Says how many components are above the noise.
    shape : (int, int)
        Shape of the matrix that is sampled.
    n_samples : int
        Number of sampled entries.
    only_clutter : bool
        Whether those above the noise are left out that are far beyond the clutter: they do not change the result where
        the residual is kept. By default they are not.

    Returns
    -------
    int
        At most the limit of the subset, half of the smaller dimension, and the rank that the samples determine.
    """
    n_pixels, n_frames = shape
    both = n_pixels + n_frames
    # r (m + n - r) unknowns are at most as many as the samples.
    by_unknowns = (both - np.sqrt(max(both**2 - 4.0 * n_samples, 0.0))) / 2
    by_pixel = n_samples / (SAMPLES_PER_PIXEL_AND_COMPONENT * max(n_pixels, n_frames))
    highest = max(1, min(subset.rank_limit, int(by_unknowns), int(by_pixel), min(shape) // 2))
    wanted = subset.n_above_noise + COMPONENTS_BEYOND_NOISE
    like_tissue = subset.n_like_tissue if only_clutter else None
    if like_tissue is not None:
        hidden = MORE_LIKE_TISSUE * like_tissue + COMPONENTS_BEYOND_TISSUE
        wanted = min(wanted, max(hidden, like_tissue + COMPONENTS_BEYOND_NOISE))
    return int(min(wanted, highest, subset.right.shape[1]))
