"""Where tissue ends: the automatic low cutoff.

Tissue is everywhere the same speckle seen again and again, so the envelopes |u_k| of its spatial vectors
resemble each other; blood is where the vessels are. A component belongs to the clutter as long as it
resembles the leading ones. Where blood stands out of the noise, the powers |u_k|^2 are also split into a
tissue map, a blood map and noise, and the cutoff is the one whose power Doppler fits the blood map best.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.filters.lowrank import LowRank
from usdenoise.filters.similarity import spatial_similarity, two_squares

# The first components of clutter fall by many dB, those of blood by tenths: 25 and 2 dB over four of them
# on the phantoms, 1 dB on a rotating disk.
CLUTTER_FALL_DB, FALL_OVER = 6.0, 4
CLUTTER_DOPPLER = 0.1  # cycles a frame: tissue is slower
CLUTTER_REACH = 0.03  # components this close to the largest are taken for tissue without looking
REFERENCES = 5
TYPICAL_SIMILARITY = 0.4
# Levels of similarity, relative to that of the leading components among themselves.
EARLIEST, USUAL, LATEST = 0.8, 0.6, 0.4
BLOOD_BELOW = 0.1
BLOOD_COMPONENTS = 12
BLOOD_VISIBLE = 0.16
SQUARE_REACH = 4
WINDOW = 5
SPLIT_PIXELS, SPLIT_ROUNDS = 6000, 60


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
        "sure", "likely" or "unsure": how far the two-square fit of Baranger et al. lies from it.
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
    model: LowRank, energy: NDArray[np.float64], noise_rms: float, highest: int
) -> CutoffChoice:
    """Where tissue ends in a low-rank model.

    Parameters
    ----------
    model : LowRank
        Leading components of the stack.
    energy : (n_pixels,) array
        Sum over frames of |M|^2.
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
    low, how = usual, f"resemblance to the leading components falls below {USUAL:g} of theirs"
    blood_from = _first_below(profile, BLOOD_BELOW) or rank
    blood = np.arange(blood_from, min(blood_from + BLOOD_COMPONENTS, rank))
    if len(blood) >= 4 and _mean_off_diagonal(similarity[np.ix_(blood, blood)]) > BLOOD_VISIBLE:
        fitted = _by_maps(model, energy, noise_rms, usual, blood_from, int(blood[-1]) + 1)
        earliest = _first_below(profile, EARLIEST * plateau) or usual
        latest = _first_below(profile, LATEST * plateau)
        low = int(np.clip(fitted, earliest, blood_from if latest is None else latest))
        how = "from there on the power Doppler fits the map of the blood best"
    elif squares:
        # Noise takes from the resemblance of weak tissue: the square's edge lies late, this one early.
        low = usual + int(np.clip(squares[0] - usual, 0, SQUARE_REACH)) // 2
        how = "between the fall of resemblance to the leading components and the edge of the tissue square"
    distance = abs(low - squares[0]) if squares else 0
    certainty = "sure" if distance <= 2 else "likely" if distance <= 5 else "unsure"
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


def _by_maps(
    model: LowRank, energy: NDArray[np.float64], noise_rms: float, usual: int, blood_from: int, end: int
) -> int:
    """Cutoff whose power Doppler correlates best with a blood map.

    The powers of the components are modelled as w_k T(x) + b_k B(x) + noise, with T started from the
    leading components and B from those that resemble them least, and fitted by multiplicative updates for
    the Itakura-Saito divergence, the likelihood of complex Gaussian amplitudes (Fevotte, Bertin and
    Durrieu, Neural Comput. 21(3), 2009).
    """
    left, singular = model.left[:, :end], model.singular_values[:end]
    n_pixels, n_frames = len(left), len(model.right)
    pixels = slice(None, None, max(1, n_pixels // SPLIT_PIXELS))
    power = np.abs(left[pixels]).astype(np.float64) ** 2
    removed = np.cumsum(power * singular**2, axis=1)
    power = power / power.mean(axis=0)
    # The largest singular values that noise adds to a component, relative to the component.
    noise = np.minimum((noise_rms * (np.sqrt(n_pixels) + np.sqrt(n_frames)) / singular) ** 2, 0.98)
    tissue = power[:, :4].mean(axis=1) + 0.05
    blood = np.maximum(power[:, blood_from:].mean(axis=1) - noise[blood_from:].mean(), 0.02) + 0.02
    tissue, blood = tissue / tissue.mean(), blood / blood.mean()
    tissue_weight = np.where(np.arange(end) < usual, 0.9, 0.1) * (1 - noise)
    blood_weight = (1 - noise) - tissue_weight
    for _ in range(SPLIT_ROUNDS):
        inverse = 1 / (np.outer(tissue, tissue_weight) + np.outer(blood, blood_weight) + noise)
        ratio = power * inverse**2
        tissue_weight = tissue_weight * np.sqrt((tissue @ ratio) / (tissue @ inverse))
        blood_weight = blood_weight * np.sqrt((blood @ ratio) / (blood @ inverse))
        inverse = 1 / (np.outer(tissue, tissue_weight) + np.outer(blood, blood_weight) + noise)
        ratio = power * inverse**2
        new_tissue = tissue * np.sqrt((ratio @ tissue_weight) / (inverse @ tissue_weight))
        new_blood = blood * np.sqrt((ratio @ blood_weight) / (inverse @ blood_weight))
        tissue, blood = np.maximum(new_tissue, 1e-3), np.maximum(new_blood, 1e-3)
        tissue_weight, blood_weight = tissue_weight * tissue.mean(), blood_weight * blood.mean()
        tissue, blood = tissue / tissue.mean(), blood / blood.mean()
    kept = energy[pixels, None] - removed
    # A map that is the same everywhere correlates with nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = [np.corrcoef(kept[:, low - 1], blood)[0, 1] for low in range(1, min(blood_from + 3, end))]
    return int(np.argmax(np.nan_to_num(scores, nan=-1))) + 1
