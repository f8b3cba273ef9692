"""Where tissue ends: the automatic low cutoff.

Tissue is everywhere the same speckle seen again and again, so the envelopes |u_k| of its spatial vectors
resemble each other; blood is where the vessels are. A component belongs to the clutter as long as it
resembles the leading ones, or lies within the square that tissue makes in the similarity matrix. Where blood
stands out of the noise, the powers |u_k|^2 are also split into a tissue map, a blood map and noise, and no
more is removed than leaves the power Doppler like the blood map.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import block_rows, row_squared_norms
from usdenoise.pipeline.similarity import spatial_similarity, two_squares
from usdenoise.stack.bit_mask import unpack

# The first components of clutter fall by many dB, those of blood by tenths: 25 and 2 dB over four of them
# on the phantoms, 1 dB on a rotating disk.
CLUTTER_FALL_DB, FALL_OVER = 6.0, 4
CLUTTER_DOPPLER = 0.1  # cycles a frame: tissue is slower
CLUTTER_REACH = 0.03  # components this close to the largest are taken for tissue without looking
REFERENCES = 5
TYPICAL_SIMILARITY = 0.4
# Levels of similarity, relative to that of the leading components among themselves.
USUAL, LATEST = 0.6, 0.4
BLOOD_BELOW = 0.1
BLOOD_COMPONENTS = 12
BLOOD_VISIBLE = 0.16
SPLIT_PIXELS, SPLIT_ROUNDS = 2000, 30
# So much correlation with the blood map may be lost to a higher cutoff; so far below the fall may it lie.
AS_GOOD, BACK = 0.005, 2
# The two rules may differ by so much of the cutoff.
SURE, LIKELY = 0.1, 0.25
WINDOW = 5
FALL = f"resemblance to the leading components falls below {USUAL:g} of theirs"
SPECKLE = "up to there the components resemble each other, as the speckle of tissue does"


@dataclass(frozen=True)
class CutoffChoice:
    """A low cutoff and why.

    Attributes
    ----------
    low : int
        Components to remove.
    reason : str
        A sentence.
    certainty : str
        "sure", "likely" or "unsure": how far the two-square fit of Baranger et al. lies from the fall of the
        resemblance.
    two_squares : (int, int) or None
        That fit's edges; None where there are too few components.
    similarity : (k, k) array
        Spatial similarity of the components.
    profile : (k,) array
        Similarity of each component to the leading ones, smoothed.
    doppler_cycles : (k,) array
        Mean Doppler frequency of each temporal vector, in cycles a frame.
    """

    low: int
    reason: str
    certainty: str
    two_squares: tuple[int, int] | None
    similarity: NDArray[np.float64]
    profile: NDArray[np.float64]
    doppler_cycles: NDArray[np.float64]


def mean_doppler(right: NDArray[Any]) -> NDArray[np.float64]:
    """Mean Doppler frequency of temporal vectors by their lag-one autocorrelation, in cycles a frame.

    arg(sum_t conj(v[t]) v[t+1]) / (2 pi); times the frame rate it is in Hz. The temporal vectors here are
    those of M = U S V^H, so that the signal of a component runs as conj(v).
    """
    lag_one = np.sum(right[:-1] * right[1:].conj(), axis=0)
    frequencies: NDArray[np.float64] = np.angle(lag_one).astype(np.float64) / (2 * np.pi)
    return frequencies


def choose_low_cutoff(
    model: LowRank,
    matrix: NDArray[Any],
    observed: NDArray[np.uint8] | None,
    noise_rms: float,
    highest: int,
) -> CutoffChoice:
    """Where tissue ends in a low-rank model.

    Parameters
    ----------
    model : LowRank
        Leading components of the stack.
    matrix : (n_pixels, n_frames) array
        The stack, 0 where it is unobserved.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are.
    noise_rms : float
        Noise in an entry, in the units of the data.
    highest : int
        Largest cutoff allowed.

    Returns
    -------
    CutoffChoice
        With low 0 where there is no clutter subspace.
    """
    singular, rank = model.singular_values, model.rank
    doppler = mean_doppler(model.right)
    similarity = spatial_similarity(model.left)
    reference = int(np.clip(np.count_nonzero(singular > CLUTTER_REACH * singular[0]), 1, REFERENCES))
    profile = _profile(similarity, reference)
    squares = two_squares(similarity)[:2] if rank >= 4 else None

    def choice(low: int, reason: str, certainty: str) -> CutoffChoice:
        return CutoffChoice(min(low, highest), reason, certainty, squares, similarity, profile, doppler)

    last = min(FALL_OVER, rank - 1)
    fall_db = 20 * np.log10(max(singular[0], 1e-300) / max(singular[last], 1e-300))
    if rank < 2 or fall_db < CLUTTER_FALL_DB:
        return choice(
            0, f"no clutter: the first components fall by only {fall_db:.1f} dB over {last}", "sure"
        )
    if abs(doppler[0]) > CLUTTER_DOPPLER:
        return choice(
            0,
            f"no clutter: the largest component moves at {doppler[0]:+.2f} cycles a frame, too fast for tissue",
            "likely",
        )
    plateau = float(np.median(profile[1:reference])) if reference > 1 else TYPICAL_SIMILARITY
    usual = _first_below(profile, USUAL * plateau)
    if usual is None:
        return choice(rank, "tissue reaches to the last component estimated; raise --rank", "unsure")
    if squares is None:
        return choice(usual, FALL, "unsure")
    latest = _first_below(profile, LATEST * plateau) or rank
    distance = abs(squares[0] - usual)
    certainty = (
        "sure"
        if distance <= max(2, SURE * usual)
        else "likely"
        if distance <= max(5, LIKELY * usual)
        else "unsure"
    )
    # Noise takes from the resemblance of weak tissue: the fall lies early. The component at the edge of the
    # square is as much blood as tissue.
    edge = max(usual, min(squares[0], latest) - 1)
    low, how = (edge, SPECKLE) if edge > usual else (usual, FALL)
    blood_from = _first_below(profile, BLOOD_BELOW) or rank
    blood = np.arange(blood_from, min(blood_from + BLOOD_COMPONENTS, rank))
    if len(blood) >= 4 and _mean_off_diagonal(similarity[np.ix_(blood, blood)]) > BLOOD_VISIBLE:
        scores = _map_scores(model, matrix, observed, noise_rms, edge, blood_from, int(blood[-1]) + 1)
        first = max(1, usual - BACK)
        among = scores[first : edge + 1]
        if len(among):
            low = first + int(np.flatnonzero(among >= among.max() - AS_GOOD)[-1])
            how = how if low == edge else "beyond that the power Doppler fits the map of the blood less"
    return choice(low, how, certainty)


def _profile(similarity: NDArray[np.float64], reference: int) -> NDArray[np.float64]:
    """Mean similarity of each component to the leading ones before it, by a running median of three."""
    raw = [1.0] + [float(similarity[k, : min(k, reference)].mean()) for k in range(1, len(similarity))]
    return np.array([np.median(raw[max(0, k - 1) : k + 2]) for k in range(len(raw))])


def _first_below(profile: NDArray[np.float64], level: float) -> int | None:
    """First component below a level from which on most are: four of the next five, itself among them."""
    below = np.append(profile < level, np.ones(WINDOW - 1, bool))
    counts = np.convolve(below, np.ones(WINDOW), "valid")
    found = np.flatnonzero(below[: len(profile)] & (counts >= WINDOW - 1))
    found = found[found > 0]
    return int(found[0]) if len(found) else None


def _mean_off_diagonal(matrix: NDArray[np.float64]) -> float:
    n = len(matrix)
    return float((matrix.sum() - np.trace(matrix)) / (n * (n - 1)))


def _map_scores(
    model: LowRank,
    matrix: NDArray[Any],
    observed: NDArray[np.uint8] | None,
    noise_rms: float,
    edge: int,
    blood_from: int,
    end: int,
) -> NDArray[np.float64]:
    """Correlation of the power Doppler with a blood map, by cutoff; -1 for none.

    The powers of the components are modelled as w_k T(x) + b_k B(x) + noise, with T started from the
    leading components and B from those that resemble them least, and fitted by multiplicative updates for
    the Itakura-Saito divergence, the likelihood of complex Gaussian amplitudes (Fevotte, Bertin and
    Durrieu, Neural Comput. 21(3), 2009).
    """
    n_pixels, n_frames = len(model.left), len(model.right)
    pixels = slice(None, None, max(1, n_pixels // SPLIT_PIXELS))
    power = np.abs(model.left[pixels]).astype(np.float64) ** 2
    rest = _residual_energy(model, pixels, matrix, observed)
    # Column k: power without the components [0, k). By subtraction from |M|^2 it would be lost in rounding
    # errors where tissue is 60 dB above it.
    kept = np.cumsum((power * model.singular_values**2)[:, ::-1], axis=1)[:, ::-1]
    kept += rest[:, None]
    power, singular = power[:, :end] / power[:, :end].mean(axis=0), model.singular_values[:end]
    # The largest singular values that noise adds to a component, relative to the component.
    noise = np.minimum((noise_rms * (np.sqrt(n_pixels) + np.sqrt(n_frames)) / singular) ** 2, 0.98)
    tissue = power[:, :4].mean(axis=1) + 0.05
    blood = np.maximum(power[:, blood_from:].mean(axis=1) - noise[blood_from:].mean(), 0.02) + 0.02
    maps = np.stack([tissue / tissue.mean(), blood / blood.mean()], axis=1)
    tissue_weight = np.where(np.arange(end) < edge, 0.9, 0.1) * (1 - noise)
    weights = np.stack([tissue_weight, (1 - noise) - tissue_weight])
    for _ in range(SPLIT_ROUNDS):
        inverse = 1 / (maps @ weights + noise)
        ratio = power * inverse**2
        weights *= np.sqrt((maps.T @ ratio) / (maps.T @ inverse))
        inverse = 1 / (maps @ weights + noise)
        ratio = power * inverse**2
        maps = np.maximum(maps * np.sqrt((ratio @ weights.T) / (inverse @ weights.T)), 1e-3)
        size = maps.mean(axis=0)
        maps, weights = maps / size, weights * size[:, None]
    # A map that is the same everywhere correlates with nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        cutoffs = range(1, min(blood_from + 3, end))
        scores = [-1.0] + [np.corrcoef(kept[:, low], maps[:, 1])[0, 1] for low in cutoffs]
    correlations: NDArray[np.float64] = np.nan_to_num(np.array(scores), nan=-1)
    return correlations


def _residual_energy(
    model: LowRank, pixels: slice, matrix: NDArray[Any], observed: NDArray[np.uint8] | None
) -> NDArray[np.float64]:
    factor, factor_h = model.band(0, model.rank)
    factor, matrix = factor[pixels], matrix[pixels]
    observed = None if observed is None else observed[pixels]
    energies = []
    for rows in block_rows(matrix.shape):
        rest = factor[rows] @ factor_h
        np.subtract(matrix[rows], rest, out=rest)
        if observed is not None:
            rest *= unpack(observed[rows], matrix.shape[1])
        energies.append(row_squared_norms(rest))
    return np.concatenate(energies)
