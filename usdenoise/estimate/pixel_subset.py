"""The pixel subset, whose exact SVD starts the estimate, and the rank: the number of estimated components.

It gives the noise level, the rank, and a first temporal subspace.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.similarity import BLOOD_BELOW, SimilarityProfile, noise_energy, spatial_similarity
from usdenoise.completion.descent_methods import highest_rank
from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import EDGE_MARGIN, noise_edge, noise_from_spectrum
from usdenoise.linalg.tall_matrices import gram, row_parts, row_squared_norms
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.sampling import FEW_PIXELS, PixelSample, RandomStream

RANK_LIMIT = 100
"""Largest automatic rank of a subset of FEW_PIXELS; components above the rank stay in the residual. Tissue 60 dB
over blood has some 65 components above the blood in 2400 frames at 500 Hz."""

LONG = 2400
"""Frames above which tissue may have more components than RANK_LIMIT."""

STEEP_DB = 0.15
"""Fall of the spectrum in dB a component at the largest rank, above which tissue goes on there. In 9600 frames with
tissue 60 dB over blood, which has 125 components above the blood, it is 0.25 at component 100 and 0.06 at 200. In up to
4800 frames it is at most 0.13 at component 100."""

COMPONENTS_BEYOND_NOISE = 16
"""Components estimated beyond those above the noise of the pixel subset: all pixels together show weaker ones, and
the cutoff is chosen by the components on both sides of it."""

_FILL_ROUNDS = 3
"""How often the subset's own model fills its unobserved entries, after interpolation over time."""


@dataclass(frozen=True)
class PixelSubset:
    """The spectrum of some pixels, spread over the image.

    Attributes
    ----------
    n_pixels, n_used_frames : int
        Number of pixels in the subset, and of its frames that are not excluded.
    singular_values : (k,) float64 array
        Singular values of the subset's Casorati matrix, k being the smaller of n_pixels and n_frames.
    left, right : (n_pixels, k) and (n_frames, k) arrays
        Spatial and temporal singular vectors. There may be fewer temporal vectors (see :meth:`trimmed`).
    noise_rms : float
        Noise level: estimated rms of the noise in an entry.
    """

    n_pixels: int
    n_used_frames: int
    singular_values: NDArray[np.float64]
    left: Numbers
    right: Numbers
    noise_rms: float

    @property
    def rank_limit(self) -> int:
        """Largest number of components that the subset has a spectrum for, with the noise below them."""
        return max(RANK_LIMIT, RANK_LIMIT * self.n_pixels // FEW_PIXELS)

    @property
    def falls_beyond_limit(self) -> bool:
        """Whether the stack is long and its spectrum still falls at the largest rank, as the spectrum of tissue does."""
        if self.n_used_frames <= LONG or len(self.singular_values) <= self.rank_limit:
            return False
        first, last = self.singular_values[[4 * self.rank_limit // 5, self.rank_limit]]
        return bool(20 * np.log10(first / last) > STEEP_DB * self.rank_limit / 5)

    @property
    def n_above_noise(self) -> int:
        """Number of singular values above the noise edge."""
        edge = noise_edge(self.noise_rms, (self.n_pixels, self.n_used_frames))
        return int(np.count_nonzero(self.singular_values > EDGE_MARGIN * edge))

    @property
    def n_like_tissue(self) -> int | None:
        """Index of the first component whose similarity to the leading ones is below the threshold, or None."""
        leading = slice(self.rank_limit)
        similarity = spatial_similarity(self.left[:, leading])
        noise = noise_energy(self.noise_rms, (self.n_pixels, self.n_used_frames))
        profile = SimilarityProfile.from_similarity(similarity, self.singular_values[leading], noise)
        return profile.first_below(BLOOD_BELOW)

    @property
    def most_components(self) -> int:
        """Largest number of components that are estimated unless more are requested."""
        return min(self.rank_limit, self.n_above_noise + COMPONENTS_BEYOND_NOISE)

    def trimmed(self, n_all: int, needed: int) -> Self:
        """Return the subset of `n_all` pixels without temporal vectors that no rank uses; `needed` is requested."""
        if self.n_pixels == n_all:
            return self
        return replace(self, right=self.right[:, : max(self.most_components, needed)].copy())

    def signal_variances(self, rank: int) -> NDArray[np.float64]:
        """Return the mean power of each leading component in the coefficients of a pixel, minus the noise power."""
        power = self.singular_values[:rank] ** 2 / self.n_pixels
        return np.maximum(power - self.noise_rms**2, 0.0)


@dataclass(frozen=True)
class SubsetValues:
    """The rows of a pixel subset, whose spectrum is computed on first access.

    Attributes
    ----------
    values : (n_pixels, n_frames) array
        The rows, with their unobserved entries filled; 0 in excluded frames.
    shape : (int, int)
        Its shape without the excluded frames.
    filled : (n_frames,) float64 array
        Share of the pixels whose entry was unobserved, and filled.
    executor : Executor
        Maps over parts of the products.
    """

    values: Numbers
    shape: tuple[int, int]
    filled: NDArray[np.float64]
    executor: Executor

    @cached_property
    def subset(self) -> PixelSubset:
        """The spectrum of the rows."""
        left, singular, right = _spectrum(self.values, self.executor)
        noise_rms = noise_from_spectrum(singular[: min(self.shape)], self.shape)
        return PixelSubset(*self.shape, singular, left, right, noise_rms)


def sufficient_subset(
    rows: PixelSample, subset: PixelSubset, needed: int, automatic: bool, seed: int
) -> PixelSubset:
    """Return a pixel subset, or a larger one where it has too few pixels for the components of a stack.

    Parameters
    ----------
    rows : PixelSample
        The data.
    subset : PixelSubset
        The subset so far.
    needed : int
        Components that are estimated at least. The subset needs twice as many pixels.
    automatic : bool
        Whether the rank is chosen. Then the subset needs a spectrum that has left the steep fall of tissue.
    seed : int
        Seed of every random choice. The larger subset contains the smaller one, unless entries are unobserved.
    """
    while subset.n_pixels < rows.n_pixels and (
        subset.n_pixels < 2 * needed or (automatic and subset.falls_beyond_limit)
    ):
        rng = RandomStream.PIXEL_SUBSET.generator(seed)
        subset = draw_pixel_subset(rows, rng, 2 * subset.n_pixels).subset.trimmed(rows.n_pixels, needed)
    return subset


def draw_pixel_subset(
    rows: PixelSample,
    rng: np.random.Generator,
    n_wanted: int = FEW_PIXELS,
    excluded: NDArray[np.bool_] | None = None,
) -> SubsetValues:
    """Choose pixels at random over the image.

    Where entries are unobserved, the pixels with the most observed entries are chosen. Their unobserved entries are
    filled by interpolation over time, since tissue is slow, and then by the low-rank model of the subset itself.

    Parameters
    ----------
    rows : PixelSample
        The data.
    rng : numpy.random.Generator
        Chooses the pixels.
    n_wanted : int
        Number of pixels, FEW_PIXELS by default; fewer where the stack has fewer.
    excluded : (n_frames,) boolean array, optional
        Frames that count as zeros; by default those that the rows exclude.
    """
    excluded = rows.excluded if excluded is None else excluded
    count = min(rows.n_pixels, n_wanted)
    order = rng.permutation(rows.n_pixels)
    if rows.observed is not None:
        # Parts of the rows without a hole have padding bits as well, up to 7: among complete rows they come first.
        n_observed = np.bitwise_count(rows.observed).sum(axis=1, dtype=np.int64)
        order = order[np.argsort(-n_observed[order], kind="stable")]
    chosen = replace(rows.take(np.sort(order[:count])), excluded=excluded)
    values, filled = chosen.values[:], np.zeros(rows.n_frames)
    mask = chosen.observed_mask(slice(None))
    if mask is not None:
        filled = 1 - mask.mean(axis=0)
        # By interpolation over time, before the subset's own model fills them.
        values, frames = values.copy(), np.arange(rows.n_frames)
        for row, seen in zip(values, mask, strict=True):
            if seen.any() and not seen.all():
                row[~seen] = np.interp(frames[~seen], frames[seen], row[seen])
    if excluded.any():
        values = np.where(excluded, 0, values)
    drawn = SubsetValues(values, chosen.used_shape, filled, rows.executor)
    if mask is None:
        return drawn
    for _ in range(_FILL_ROUNDS):
        known = drawn.subset
        edge = noise_edge(known.noise_rms, drawn.shape)
        right = known.right[:, : max(1, int(np.count_nonzero(known.singular_values > edge)))]
        drawn = replace(drawn, values=np.where(mask, drawn.values, (drawn.values @ right) @ right.conj().T))
    return drawn


def _spectrum(rows: Numbers, executor: Executor) -> tuple[Numbers, NDArray[np.float64], Numbers]:
    """Return the singular triplets, through the smaller Gram matrix in double precision.

    A part of the longer side is worked on at a time: long stacks have tens of thousands of frames. Values are right down to
    1e-8 of the largest, which is far below the resolution of single-precision data.
    """
    is_tall, length = rows.shape[0] > rows.shape[1], max(rows.shape)
    parts = row_parts((length, min(rows.shape)))

    def adjoint(part: slice) -> Numbers:
        entries = rows[part] if is_tall else rows[:, part].conj().T
        return entries.astype(np.result_type(rows.dtype, np.float64))

    total = np.asarray(sum(executor.map(lambda part: gram(adjoint(part)), parts)))
    values, vectors = np.linalg.eigh(total)
    vectors = vectors[:, ::-1]
    projected = np.empty((length, len(vectors)), rows.dtype)

    def project(part: slice) -> NDArray[np.float64]:
        product = adjoint(part) @ vectors
        projected[part] = product
        return row_squared_norms(np.ascontiguousarray(product.T))

    norms = np.sqrt(sum(executor.map(project, parts)))
    projected /= np.maximum(norms, np.finfo(projected.dtype).tiny).astype(projected.real.dtype)
    singular = np.sqrt(np.maximum(values[::-1], 0))
    vectors = vectors.astype(rows.dtype)
    return (projected, singular, vectors) if is_tall else (vectors, singular, projected)


MORE_LIKE_TISSUE, COMPONENTS_BEYOND_TISSUE = 2, 8
"""Tissue-like components in all pixels over tissue-like components in the pixel subset, where noise and blood hide the last
ones, and components beyond them. On 120 stacks of seven sizes with tissue 30 to 60 dB over blood the ratio was
0.9 to 1.75. With 1.4 and 16 components, tissue 60 dB over blood cost up to 0.26 of the correlation with the truth."""

SAMPLES_PER_PIXEL_AND_COMPONENT = 1.25
"""Least ratio of the samples of an average pixel to the components: at 1 its coefficients are not determined."""


def choose_rank(
    options: DenoiseOptions, subset: PixelSubset, shape: tuple[int, int], n_samples: int, only_clutter: bool
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
