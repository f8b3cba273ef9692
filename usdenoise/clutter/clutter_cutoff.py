"""The automatic low cutoff: the number of components that belong to the clutter, why, and how certain it is.

The same tissue speckle is in every clutter component, so the envelopes |u_k| of their spatial vectors resemble each
other. Blood is only in the vessels. A component belongs to the clutter if it resembles the leading components, or if
it is inside the square that tissue makes in the similarity matrix. Where blood is visible above the noise, the powers
|u_k|^2 are also split into a tissue map, a blood map and noise. Then the cutoff is not raised beyond the point where
the power Doppler fits the blood map best.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.similarity import (
    BLOOD_BELOW,
    DOMINANT,
    USUAL_LEVEL,
    SimilarityProfile,
    dominance,
    dominant_components,
    noise_energy,
    spatial_similarity,
    two_squares,
)
from usdenoise.linalg.lag_sums import lag_sums
from usdenoise.linalg.low_rank import LowRank, noise_edge
from usdenoise.linalg.tall_matrices import block_rows, row_squared_norms
from usdenoise.stack.pixel_sample import PixelSample
from usdenoise.system.text import CodedEnum


class CutoffCertainty(StrEnum):
    """How certain a low cutoff is; the value is its name in reports."""

    GIVEN = "given"
    SURE = "sure"
    LIKELY = "likely"
    UNSURE = "unsure"


class CutoffReason(CodedEnum):
    """Why a low cutoff was chosen; the value is its sentence, with placeholders for the numbers."""

    GIVEN = "as given"
    NO_FALL = "no clutter found: the first {over} singular values fall by only {fall_db:.1f} dB"
    MOVED = (
        "no clutter found, but the image moves by up to {moved:.1f} pixels, and tissue that moves so far is hard to find; "
        "raise the rank, or set the low cutoff"
    )
    RANK_TOO_LOW = (
        "one component is too few to find the clutter; raise the rank or the sampling, or set the low cutoff"
    )
    TOO_FAST = (
        "no clutter found: the largest component moves at {cycles:+.2f} cycles per frame, too fast for tissue"
    )
    BEYOND_RANK = "tissue reaches to the last component estimated; raise the rank, and the sampling if it limits the rank"
    SIMILARITY_FALLS = (
        "after {low} component{plural}, the similarity to the leading components is below {level:g} % of the similarity "
        "among them"
    )
    TISSUE_SQUARE = "the first {low} components resemble each other, as tissue speckle does"
    BLOOD_MAP = (
        "with more than {low} component{plural} removed, the power Doppler fits the blood map less well"
    )


SPLIT_PIXELS = 2000
"""Pixels of the maps: a correlation over 2000 independent pixels is known to 1 / sqrt(2000) = 0.02."""

SPLIT_ROUNDS = 30
"""Multiplicative updates of maps and weights. On phantoms 5 to 60 of them gave the same cutoffs."""

_TISSUE_COMPONENTS = 4
"""Leading components whose mean power starts the tissue map."""

_TISSUE_SHARE, _BLOOD_SHARE = 0.9, 0.1
"""Share of tissue with which a component below the edge of the tissue square starts, and one from the edge on."""

_LEAST_NOISE, _MOST_NOISE = 1e-12, 0.98
"""Least and largest share of noise in a component, so that no model is 0 and every component has some signal to split."""

_TISSUE_LEVEL, _BLOOD_LEVEL, _LEAST_BLOOD, _LEAST_MAP = 0.05, 0.02, 0.02, 1e-3
"""Levels, in units of the mean power, that keep the starts and the maps above 0: multiplicative updates cannot leave
0."""

_CUTOFFS_BEYOND = 3
"""Cutoffs that are scored beyond the first blood component."""


def score_cutoffs(
    model: LowRank, rows: PixelSample, noise_rms: float, edge: int, blood: range
) -> NDArray[np.float64]:
    """Return the correlation of the power Doppler with a blood map, by low cutoff.

    The power of component k in pixel x is modelled as w_k T(x) + b_k B(x) + noise. The tissue map T starts from the
    leading components, and the blood map B from the components that resemble them least. Maps and weights minimise
    the Itakura-Saito divergence, which is the likelihood of complex Gaussian amplitudes, by multiplicative updates
    (Fevotte, Bertin and Durrieu, Neural Comput. 21(3), 2009).

    Parameters
    ----------
    model : LowRank
        Components of the stack.
    rows : PixelSample
        Pixels of the stack; `numbers` are their rows in the model. The maps are computed in these pixels.
    noise_rms : float
        Noise level, in the units of the data.
    edge : int
        Edge of the tissue square: components below start as tissue.
    blood : range
        Components that start the blood map.

    Returns
    -------
    array indexed by the low cutoff
        -1 for a cutoff of 0, and where a map is the same everywhere.
    """
    split_rows = rows.spread(SPLIT_PIXELS)
    left = model.left[split_rows.numbers]
    end, tiny = blood.stop, float(np.finfo(np.float32).tiny)
    power = np.abs(left).astype(np.float64) ** 2
    residual_energy = _residual_energy(replace(model, left=left), split_rows)
    # Column k is the power without the components [0, k). Subtracting from |M|^2 would lose it in rounding errors
    # where tissue is 60 dB above it.
    kept = np.cumsum((power * model.singular_values**2)[:, ::-1], axis=1)[:, ::-1]
    kept += residual_energy[:, None]
    # A component without any power stays 0 everywhere.
    power = power[:, :end] / np.maximum(power[:, :end].mean(axis=0), tiny)
    # The largest singular value that noise adds to a component, relative to the component.
    edges = noise_edge(noise_rms, (len(model.left), len(model.right))) / np.maximum(
        model.singular_values[:end], tiny
    )
    noise = np.clip(edges**2, _LEAST_NOISE, _MOST_NOISE)
    blood_map = _blood_map(power, noise, edge, blood.start)
    # A map that is the same everywhere has no correlation.
    with np.errstate(divide="ignore", invalid="ignore"):
        cutoffs = range(1, min(blood.start + _CUTOFFS_BEYOND, end))
        scores = [-1.0] + [np.corrcoef(kept[:, low], blood_map)[0, 1] for low in cutoffs]
    correlations: NDArray[np.float64] = np.nan_to_num(np.array(scores), nan=-1)
    return correlations


def _blood_map(
    power: NDArray[np.float64], noise: NDArray[np.float64], edge: int, blood_from: int
) -> NDArray[np.float64]:
    """Return the blood map of component powers of mean 1, (n_pixels, k), with shares `noise` of noise."""
    tissue = power[:, :_TISSUE_COMPONENTS].mean(axis=1) + _TISSUE_LEVEL
    blood = power[:, blood_from:].mean(axis=1) - noise[blood_from:].mean()
    blood = np.maximum(blood, _LEAST_BLOOD) + _BLOOD_LEVEL
    maps = np.stack([tissue / tissue.mean(), blood / blood.mean()], axis=1)
    share = np.where(np.arange(len(noise)) < edge, _TISSUE_SHARE, _BLOOD_SHARE)
    tissue_weight = share * (1 - noise)
    weights = np.stack([tissue_weight, (1 - noise) - tissue_weight])
    for _ in range(SPLIT_ROUNDS):
        inverse = 1 / (maps @ weights + noise)
        ratio = power * inverse**2
        weights *= np.sqrt((maps.T @ ratio) / (maps.T @ inverse))
        inverse = 1 / (maps @ weights + noise)
        ratio = power * inverse**2
        maps = np.maximum(maps * np.sqrt((ratio @ weights.T) / (inverse @ weights.T)), _LEAST_MAP)
        size = maps.mean(axis=0)
        maps, weights = maps / size, weights * size[:, None]
    return np.asarray(maps[:, 1])


def _residual_energy(model: LowRank, rows: PixelSample) -> NDArray[np.float64]:
    """Return the sum of |M - model|^2 over the observed entries of each of the pixels."""
    factor, factor_h = model.band(0, model.rank)
    energies = []
    for block in block_rows(rows.shape):
        residual: NDArray[Any] = factor[block] @ factor_h
        np.subtract(rows.values[block], residual, out=residual)
        observed = rows.observed_mask(block)
        if observed is not None:
            residual *= observed
        energies.append(row_squared_norms(residual))
    return np.concatenate(energies)


@dataclass(frozen=True)
class Band:
    """The part of a stack that a filter keeps.

    Attributes
    ----------
    low : int
        Low cutoff: the components [0, low) are removed.
    high : int
        High cutoff: the components [low, high) of the model are kept.
    keeps_residual : bool
        Whether the result is the data minus the components [0, low), as a classical clutter filter gives. Then
        `high` counts only where entries are unobserved: the model's components [low, high) fill them.
    """

    low: int
    high: int
    keeps_residual: bool


CLUTTER_FALL_DB, FALL_OVER = 6.0, 8
"""Least fall of the singular values over the first components if there is clutter. Over eight components the values of
clutter fall by 39 dB or more on phantoms of 300 and 400 frames, and by 13 dB in a session whose tissue is stretched by a
third of a wavelength; the values of blood by 3 dB at most, and of a rotating disk without clutter by 1.4 dB."""

MOVED = 1.0
"""Displacement in pixels from which the singular values of tissue may fall as slowly as the singular values of blood:
over 200 frames, tissue that moved by 4 pixels fell by 4 to 10 dB."""

CLUTTER_DOPPLER = 0.1
"""Largest mean Doppler frequency of the first clutter component, in cycles a frame, if it does not dominate: tissue moves
more slowly. One that dominates is clutter at any frequency, as with a constant phase step from frame to frame."""

LATEST_LEVEL = 0.4
"""Level of similarity, relative to the similarity among the references, at which tissue has certainly ended."""

BLOOD_COMPONENTS, LEAST_BLOOD_COMPONENTS = 12, 4
"""Largest and least number of components that start the blood map. With fewer than four, one outlier decides."""

BLOOD_VISIBLE = 0.16
"""Least mean similarity of the blood components to each other where blood is visible; noise alone has about 0."""

AS_GOOD, BACK = 0.005, 2
"""The highest cutoff is taken whose correlation with the blood map is within AS_GOOD of the best one. It may be up to
BACK components below the fall of the similarity."""

LEAST_SQUARES_RANK = 4
"""Components from which two squares are fitted to the similarity matrix."""

SURE, LIKELY = (2, 0.1), (5, 0.25)
"""Distances between the two-square fit and the fall of the similarity up to which a cutoff is sure, or likely: a
number of components or a share of the cutoff, whichever is larger."""


@dataclass(frozen=True)
class CutoffChoice:
    """A low cutoff and why it was chosen.

    Attributes
    ----------
    low : int
        Number of components to remove.
    reason : CutoffReason
        The rule that decided.
    sentence : str
        The reason in words, with its figures.
    certainty : CutoffCertainty
        How sure the cutoff is. Where clutter ends within the rank, that follows from the distance between the
        two-square fit (Baranger et al., 2018) and the fall of the similarity.
    two_squares : (int, int) or None
        Edges of the two-square fit; None below LEAST_SQUARES_RANK components.
    similarity : (k, k) array
        Spatial similarity of the components.
    profile : (k,) array
        Similarity of each component to the leading ones, smoothed.
    threshold : float
        Similarity below which a component is not like the leading ones.
    doppler_cycles : (k,) array
        Mean Doppler frequency of each temporal vector, in cycles a frame.
    """

    low: int
    reason: CutoffReason
    sentence: str
    certainty: CutoffCertainty
    two_squares: tuple[int, int] | None
    similarity: NDArray[np.float64] = field(repr=False)
    profile: NDArray[np.float64] = field(repr=False)
    threshold: float = field(repr=False)
    doppler_cycles: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True)
class _Decision:
    """A cutoff before it is limited, with its reason and its certainty; the figures complete the sentence."""

    low: int
    reason: CutoffReason
    certainty: CutoffCertainty
    figures: Mapping[str, float] = field(default_factory=dict)


def mean_doppler(right: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean Doppler frequency of temporal vectors, in cycles a frame, by lag-one autocorrelation.

    arg(sum_t conj(v[t]) v[t+1]) / (2 pi) of the conjugate vectors: the signal of a component of M = U S V^H runs as
    conj(v). Times the frame rate it is in Hz.

    Parameters
    ----------
    right : (n_frames, k) array
        Temporal singular vectors V.

    Returns
    -------
    (k,) float64 array
    """
    lag_one = lag_sums(np.ascontiguousarray(right.T), 2, n_halves=1)[0, :, 1]
    frequencies: NDArray[np.float64] = np.angle(lag_one.conj()) / (2 * np.pi)
    return frequencies


def choose_low_cutoff(
    model: LowRank, rows: PixelSample, noise_rms: float, highest: int, moved: float = 0.0
) -> CutoffChoice:
    """Choose the low cutoff of a low-rank model.

    Parameters
    ----------
    model : LowRank
        Leading components of the stack.
    rows : PixelSample
        Pixels of the stack; `numbers` are their rows in the model.
    noise_rms : float
        Noise level, in the units of the data.
    highest : int
        Largest cutoff allowed.
    moved : float
        How far the image moves, in pixels; by default 0.

    Returns
    -------
    CutoffChoice
        With low 0 without a clutter subspace.
    """
    doppler = mean_doppler(model.right)
    similarity = spatial_similarity(model.left)
    singular = model.singular_values
    noise = noise_energy(noise_rms, (len(model.left), len(model.right)))
    profile = SimilarityProfile.from_similarity(similarity, singular, noise)
    first, squares = profile.first, None
    if model.rank - first >= LEAST_SQUARES_RANK:
        a, b = two_squares(similarity[first:, first:])[:2]
        squares = first + a, first + b
    nothing, is_clutter = _no_clutter(singular, doppler, moved), dominance(singular, noise) > DOMINANT
    if nothing is not None and not is_clutter:
        decision = nothing
    else:
        decision = _edge_of_clutter(model, rows, noise_rms, noise, similarity, profile, squares)
        if nothing is not None and nothing.reason is CutoffReason.MOVED:
            decision = replace(decision, certainty=CutoffCertainty.UNSURE)
    plural = "" if decision.low == 1 else "s"
    sentence = decision.reason.value.format(
        low=decision.low, plural=plural, level=100 * USUAL_LEVEL, **decision.figures
    )
    if first:
        leading = "first one is" if first == 1 else f"first {first} are"
        sentence += f"; the {leading} not compared, being stronger than the rest and unlike it"
    return CutoffChoice(
        min(decision.low, highest),
        decision.reason,
        sentence,
        decision.certainty,
        squares,
        similarity,
        profile.values,
        USUAL_LEVEL * profile.plateau,
        doppler,
    )


def _no_clutter(
    singular: NDArray[np.float64], doppler: NDArray[np.float64], moved: float
) -> _Decision | None:
    """Return the decision to remove nothing if the first components are not clutter, otherwise None."""
    if len(singular) < 2:
        return _Decision(0, CutoffReason.RANK_TOO_LOW, CutoffCertainty.UNSURE)
    over = min(FALL_OVER, len(singular) - 1)
    fall_db = 20 * (np.log10(max(singular[0], 1e-300)) - np.log10(max(singular[over], 1e-300)))
    if moved > MOVED and (fall_db < CLUTTER_FALL_DB or abs(doppler[0]) > CLUTTER_DOPPLER):
        return _Decision(0, CutoffReason.MOVED, CutoffCertainty.UNSURE, {"moved": moved})
    if fall_db < CLUTTER_FALL_DB:
        figures = {"fall_db": fall_db, "over": over + 1}
        return _Decision(0, CutoffReason.NO_FALL, CutoffCertainty.SURE, figures)
    if abs(doppler[0]) > CLUTTER_DOPPLER:
        return _Decision(0, CutoffReason.TOO_FAST, CutoffCertainty.LIKELY, {"cycles": doppler[0]})
    return None


def _edge_of_clutter(
    model: LowRank,
    rows: PixelSample,
    noise_rms: float,
    noise: float,
    similarity: NDArray[np.float64],
    profile: SimilarityProfile,
    squares: tuple[int, int] | None,
) -> _Decision:
    """Return the decision where clutter ends, from the similarity of the components and the blood map."""
    usual = profile.first_below(USUAL_LEVEL * profile.plateau)
    if usual is None:
        return _Decision(model.rank, CutoffReason.BEYOND_RANK, CutoffCertainty.UNSURE)
    if squares is None:
        return _Decision(usual, CutoffReason.SIMILARITY_FALLS, CutoffCertainty.UNSURE)
    certainty = _certainty(abs(squares[0] - usual), usual)
    latest = profile.first_below(LATEST_LEVEL * profile.plateau) or model.rank
    # Noise lowers the similarity of weak tissue, so the fall comes early. The component at the edge of the square is
    # a mixture of tissue and blood, and is kept.
    edge = max(usual, min(squares[0], latest) - 1)
    reason = CutoffReason.TISSUE_SQUARE if edge > usual else CutoffReason.SIMILARITY_FALLS
    start = profile.first_below(BLOOD_BELOW) or model.rank
    blood = range(start, min(start + BLOOD_COMPONENTS, model.rank))
    if not _is_blood_visible(similarity, blood):
        return _Decision(edge, reason, certainty)
    first = max(profile.first + 1, usual - BACK)
    first += dominant_components(model.singular_values[first:], noise, DOMINANT)
    scores = score_cutoffs(model, rows, noise_rms, edge, blood)[first : edge + 1]
    if not len(scores):
        return _Decision(edge, reason, certainty)
    low = first + int(np.flatnonzero(scores >= scores.max() - AS_GOOD)[-1])
    return _Decision(low, reason if low == edge else CutoffReason.BLOOD_MAP, certainty)


def _certainty(distance: int, low: int) -> CutoffCertainty:
    if distance <= max(SURE[0], SURE[1] * low):
        return CutoffCertainty.SURE
    return CutoffCertainty.LIKELY if distance <= max(LIKELY[0], LIKELY[1] * low) else CutoffCertainty.UNSURE


def _is_blood_visible(similarity: NDArray[np.float64], blood: range) -> bool:
    """Return whether the blood components resemble each other, as in vessels; noise components do not."""
    n = len(blood)
    if n < LEAST_BLOOD_COMPONENTS:
        return False
    among = similarity[np.ix_(blood, blood)]
    return bool(float((among.sum() - np.trace(among)) / (n * (n - 1))) > BLOOD_VISIBLE)
