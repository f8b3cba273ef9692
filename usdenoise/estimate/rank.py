"""The rank: the number of components that are estimated."""

import numpy as np

from usdenoise.completion.identifiability import highest_rank
from usdenoise.errors import OptionError
from usdenoise.estimate.pixel_subset import COMPONENTS_BEYOND_NOISE, PixelSubset
from usdenoise.options.denoise_options import DenoiseOptions

MORE_LIKE_TISSUE, COMPONENTS_BEYOND_TISSUE = 2, 8
"""Tissue-like components in all pixels over tissue-like components in the pixel subset, where noise and blood hide the last
ones, and components beyond them. On 120 stacks of seven sizes with tissue 30 to 60 dB over blood the ratio was
0.9 to 1.75. With 1.4 and 16 components, tissue 60 dB over blood cost up to 0.26 of the correlation with the truth."""

SAMPLES_PER_PIXEL_AND_COMPONENT = 1.25
"""Least ratio of the samples of an average pixel to the components: at 1 its coefficients are not determined."""


def choose_rank(
    options: DenoiseOptions,
    subset: PixelSubset,
    shape: tuple[int, int],
    n_samples: int,
    only_clutter: bool,
) -> int:
    """Return the given rank, or the automatic one, raised to what the given cutoffs need.

    Parameters
    ----------
    options : DenoiseOptions
        The rank, the cutoffs and the method.
    subset, shape, n_samples, only_clutter
        As for :func:`automatic_rank`.

    Raises
    ------
    OptionError
        If the samples do not determine as many components as a given cutoff needs.
    """
    if not isinstance(options.rank, str):
        return options.rank
    automatic = automatic_rank(subset, shape, n_samples, only_clutter)
    needed = _needed_by_cutoffs(options)
    name = max(needed, key=lambda cutoff: needed[cutoff])
    if needed[name] <= automatic:
        return automatic
    possible = min(shape) if options.method == "svd" else highest_rank(shape, n_samples)
    if needed[name] > possible:
        raise OptionError(
            f"{getattr(options, name)} needs rank {needed[name]}, and {n_samples} samples of "
            f"{shape[0]} pixels x {shape[1]} frames determine at most rank {possible}",
            option=name,
            remedy=f"lower {{{name}}} or raise {{sampling}}",
        )
    return needed[name]


def least_rank(options: DenoiseOptions) -> int:
    """Return the number of components that the given rank and cutoffs need; 0 where all are automatic."""
    return max(*_needed_by_cutoffs(options).values(), 0 if isinstance(options.rank, str) else options.rank)


def _needed_by_cutoffs(options: DenoiseOptions) -> dict[str, int]:
    return {
        "low_cutoff": 0 if isinstance(options.low_cutoff, str) else options.low_cutoff + 1,
        "high_cutoff": 0 if isinstance(options.high_cutoff, str) else options.high_cutoff,
    }


def automatic_rank(
    subset: PixelSubset, shape: tuple[int, int], n_samples: int, only_clutter: bool = False
) -> int:
    """Return the number of components to estimate: those above the noise, and some more, as the sample allows.

    Parameters
    ----------
    subset : PixelSubset
        Contains the number of components above the noise.
    shape : (int, int)
        Shape of the matrix that is sampled.
    n_samples : int
        Number of sampled entries.
    only_clutter : bool
        Whether components above the noise but far beyond the clutter are excluded: they do not change the result if
        the residual is kept. By default they are included.

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
    highest = max(1, min(int(by_unknowns), int(by_pixel), min(shape) // 2))
    n_components = subset.most_components
    like_tissue = subset.n_like_tissue if only_clutter else None
    if like_tissue is not None:
        hidden = MORE_LIKE_TISSUE * like_tissue + COMPONENTS_BEYOND_TISSUE
        n_components = min(n_components, max(hidden, like_tissue + COMPONENTS_BEYOND_NOISE))
    return int(min(n_components, highest, subset.right.shape[1]))
