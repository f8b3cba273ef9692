"""A few pixels with all of their frames: a small exact problem that starts the large one.

From them come the noise level, the rank, and a first temporal subspace.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.noise_spectrum import noise_from_spectrum
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.bit_mask import unpack

START_PIXELS = 256
RANK_LIMIT = 100
SAMPLES_A_FRAME, FOR_A_COMPONENT = 256, 6
EDGE_MARGIN = 1.05
BEYOND_NOISE = 16
SAMPLES_A_COMPONENT = 1.25
FILL_ROUNDS = 3
PRODUCT_PARTS = 8


@dataclass(frozen=True)
class PixelSubset:
    """The spectrum of some pixels, spread over the image.

    Attributes
    ----------
    n_pixels : int
        Number of pixels in the subset.
    singular_values : (k,) float64 array
        Of the subset's Casorati matrix, k the smaller of n_pixels and n_frames.
    right : (n_frames, k) array
        Temporal singular vectors.
    noise_rms : float
        Estimated noise in an entry.
    """

    n_pixels: int
    singular_values: NDArray[np.float64]
    right: NDArray[Any]
    noise_rms: float

    @property
    def n_above_noise(self) -> int:
        """Number of singular values above the largest that noise alone would have."""
        edge = self.noise_rms * (np.sqrt(self.n_pixels) + np.sqrt(self.right.shape[0]))
        return int(np.count_nonzero(self.singular_values > EDGE_MARGIN * edge))

    def signal_variances(self, rank: int) -> NDArray[np.float64]:
        """Mean power of each leading component in a pixel's coefficients, the noise's part taken off."""
        power = self.singular_values[:rank] ** 2 / self.n_pixels
        return np.maximum(power - self.noise_rms**2, 0.0)


def draw_pixels(
    matrix: NDArray[Any],
    observed: NDArray[np.uint8] | None,
    rng: np.random.Generator,
    executor: Executor,
) -> PixelSubset:
    """Choose pixels at random over the image, and factorise what they hold.

    Of pixels with unobserved entries the most complete are taken. What is missing in them is filled by
    interpolation over time, tissue being slow, and then by the low-rank model of the subset itself.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The data, 0 where they are unobserved.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are.
    rng : numpy.random.Generator
        Chooses the pixels.
    executor : Executor
        Maps over parts of the products.
    """
    n_pixels, n_frames = matrix.shape
    count = min(n_pixels, START_PIXELS)
    order = rng.permutation(n_pixels)
    if observed is None:
        chosen = np.sort(order[:count])
        rows = _wide(matrix[chosen])
        singular, right = _spectrum(rows, executor)
    else:
        n_seen = np.bitwise_count(observed).sum(axis=1, dtype=np.int64)
        # Padding bits are set, so the counts are comparable between rows but not exact.
        chosen = np.sort(order[np.argsort(-n_seen[order], kind="stable")][:count])
        mask = unpack(observed[chosen], n_frames)
        rows = _interpolated(_wide(matrix[chosen]), mask)
        singular, right = _spectrum(rows, executor)
        for _ in range(FILL_ROUNDS):
            noise = noise_from_spectrum(singular, rows.shape)
            rank = max(1, int(np.count_nonzero(singular > noise * sum(np.sqrt(rows.shape)))))
            model = (rows @ right[:, :rank]) @ right[:, :rank].conj().T
            rows = np.where(mask, rows, model)
            singular, right = _spectrum(rows, executor)
    narrow: NDArray[Any] = right.astype(matrix.dtype)
    return PixelSubset(count, singular, narrow, noise_from_spectrum(singular, rows.shape))


def draw_panel(
    n_pixels: int, rank: int, sampling: float, observed: NDArray[np.uint8] | None, rng: np.random.Generator
) -> NDArray[np.intp] | None:
    """Pixels, spread over the image, that determine the temporal subspace; None where they are all needed.

    The temporal singular vectors are common to all pixels: SAMPLES_A_FRAME sampled pixels in every frame, or
    FOR_A_COMPONENT times the rank, fix them well enough for two steps of subspace iteration over all entries
    to make them exact, and for the held-out error to be about that of known ones.

    Parameters
    ----------
    n_pixels : int
        Of the image.
    rank : int
        Number of components.
    sampling : float
        Fraction of the panel's entries that will be sampled.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are. Pixels without any are not drawn.
    rng : numpy.random.Generator
        Chooses the pixels.
    """
    count = math.ceil(max(SAMPLES_A_FRAME, FOR_A_COMPONENT * rank) / sampling)
    alive = np.arange(n_pixels) if observed is None else np.flatnonzero(observed.any(axis=1))
    return None if len(alive) <= count else np.sort(rng.permutation(alive)[:count])


def automatic_rank(subset: PixelSubset, shape: tuple[int, int], n_fitted: int) -> int:
    """Number of components to estimate: those above the noise, within what the sample can tell apart.

    BEYOND_NOISE more are added, since all pixels together see components that a few do not, and the cutoff
    is chosen by what lies on both sides of it. An average pixel is asked for more samples than components,
    and no more than RANK_LIMIT components are estimated: clutter has a few dozen, and what lies above the
    rank stays in the residual.
    """
    n_pixels, n_frames = shape
    both = n_pixels + n_frames
    # r (m + n - r) unknowns at most.
    by_unknowns = (both - np.sqrt(max(both**2 - 4.0 * n_fitted, 0.0))) / 2
    by_pixel = n_fitted / (SAMPLES_A_COMPONENT * max(n_pixels, n_frames))
    highest = max(1, min(RANK_LIMIT, int(by_unknowns), int(by_pixel), min(shape) // 2))
    return int(min(subset.n_above_noise + BEYOND_NOISE, highest, subset.right.shape[1]))


def _wide(rows: NDArray[Any]) -> NDArray[Any]:
    return rows.astype(np.result_type(rows.dtype, np.float64))


def _spectrum(rows: NDArray[Any], executor: Executor) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Singular values and right vectors of some rows in double precision, through the smaller Gram matrix.

    Values down to 1e-8 of the largest are right, 100 dB below what single precision of the data resolves.
    """

    def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        parts = list(row_blocks(len(a), -(-len(a) // PRODUCT_PARTS)))
        return np.concatenate(list(executor.map(lambda part: a[part] @ b, parts)))

    adjoint = rows.conj().T
    if rows.shape[0] > rows.shape[1]:
        values, right = np.linalg.eigh(product(adjoint, rows))
        return np.sqrt(np.maximum(values[::-1], 0)), right[:, ::-1]
    values, left = np.linalg.eigh(product(rows, adjoint))
    singular = np.sqrt(np.maximum(values[::-1], 0))
    right = product(adjoint, left[:, ::-1])
    right /= np.maximum(np.linalg.norm(right, axis=0), np.finfo(np.float64).tiny)
    return singular, right


def _interpolated(rows: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    frames = np.arange(rows.shape[1])
    filled = rows.copy()
    for row, seen in zip(filled, mask, strict=True):
        if seen.any() and not seen.all():
            row[~seen] = np.interp(frames[~seen], frames[seen], row[seen])
    return filled
