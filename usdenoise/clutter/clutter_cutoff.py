"""The automatic low cutoff: the number of components that belong to the clutter, why, and how certain it is.

The same tissue speckle is in every clutter component, so the envelopes |u_k| of their spatial vectors resemble each
other. Blood is only in the vessels. A component belongs to the clutter if it resembles the leading components, or if
it is inside the square that tissue makes in the similarity matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median, median_high

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.similarity import (
    DOMINANT,
    USUAL_LEVEL,
    SimilarityProfile,
    dominance,
    noise_energy,
    spatial_similarity,
    two_squares,
)
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.lag_sums import lag_sums
from usdenoise.linalg.low_rank import LowRank
from usdenoise.system.text import CodedEnum, counted


class CutoffCertainty(StrEnum):
    """How certain a low cutoff is; the value is its name in reports."""

    GIVEN = "given"
    SURE = "sure"
    LIKELY = "likely"
    UNSURE = "unsure"


class CutoffReason(CodedEnum):
    """Why a low cutoff was chosen; the value is its sentence, with placeholders for the numbers."""

    GIVEN = "as given"
    COMMON = "the same for all scans: {named} among the cutoffs of {scans}"
    NO_FALL = "no clutter found: the first {over} singular values fall by only {fall_db:.1f} dB"
    RANK_TOO_LOW = (
        "one component is too few to find the clutter; raise the rank or the sampling, or set the low cutoff"
    )
    TOO_FAST = (
        "no clutter found: the largest component moves at {cycles:+.2f} cycles per frame, too fast for tissue"
    )
    BEYOND_RANK = "tissue reaches to the last component estimated; raise the rank, and the sampling if it limits the rank"
    SIMILARITY_FALLS = (
        "after {components}, the similarity to the leading components is below {level:g} % of the similarity "
        "among them"
    )
    TISSUE_SQUARE = "the first {low} components resemble each other, as tissue speckle does"
    BLOCK_ALONE = (
        "the blocks do not share their components, and each loses as many of its own: in one, {alone}"
    )


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

CLUTTER_DOPPLER = 0.1
"""Largest mean Doppler frequency of the first clutter component, in cycles a frame, if it does not dominate: tissue moves
more slowly. One that dominates is clutter at any frequency, as with a constant phase step from frame to frame."""

LATEST_LEVEL = 0.2
"""Level of similarity, relative to the similarity among the references, at which tissue has certainly ended."""

LEAST_SQUARES_RANK = 4
"""Components from which two squares are fitted to the similarity matrix."""

SURE, LIKELY = (2, 0.1), (5, 0.25)
"""Distances of the edge of the two-square fit from the components over which the similarity falls up to which a cutoff is
sure, or likely: a number of components or a share of the cutoff, whichever is larger."""


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
        two-square fit (Baranger et al., 2018) and the components over which the similarity falls.
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
class CommonCutoff:
    """The one low cutoff of several scans.

    Attributes
    ----------
    low : int
        Number of components to remove.
    certainty : CutoffCertainty
        How sure it is.
    sentence : str
        How many scans name it, in words.
    """

    low: int
    certainty: CutoffCertainty
    sentence: str

    @property
    def words(self) -> str:
        """The cutoff, how sure it is, and how many scans name it."""
        return f"{self.low}, {self.certainty}: {self.sentence}"


def common_cutoff(cutoffs: Sequence[tuple[int, CutoffCertainty]]) -> CommonCutoff:
    """Return the cutoff that the surest of several scans name: their median, the higher one of the two in the middle.

    The median distance of their cutoffs from it says how sure it is, as the distance of its two estimates does in one scan,
    and it is not surer than they are. A cutoff that a single one of several scans names is unsure.

    Parameters
    ----------
    cutoffs : sequence of (int, CutoffCertainty)
        The cutoffs that the data of each scan suggest, at least one.

    Examples
    --------
    >>> sure, unsure = CutoffCertainty.SURE, CutoffCertainty.UNSURE
    >>> found = common_cutoff([(4, sure), (21, unsure), (5, sure), (5, sure)])
    >>> found.low, found.sentence
    (5, 'the same for all scans: the median of the 3 sure ones among the cutoffs of 4 scans')
    """
    levels = CutoffCertainty.SURE, CutoffCertainty.LIKELY, CutoffCertainty.UNSURE
    level = min((certainty for _, certainty in cutoffs), key=levels.index)
    named = [low for low, certainty in cutoffs if certainty == level]
    low = median_high(named)
    certainty = _certainty_of(median(abs(each - low) for each in named), low)
    if len(named) == 1 < len(cutoffs):
        certainty = CutoffCertainty.UNSURE
    sentence = CutoffReason.COMMON.value.format(
        named=f"the only {level} one" if len(named) == 1 else f"the median of the {len(named)} {level} ones",
        scans=counted(len(cutoffs), "scan"),
    )
    return CommonCutoff(low, max(level, certainty, key=levels.index), sentence)


def _certainty_of(distance: float, low: int) -> CutoffCertainty:
    """Return how sure the cutoff `low` is if two estimates of it differ by `distance` components."""
    if distance <= max(SURE[0], SURE[1] * low):
        return CutoffCertainty.SURE
    return CutoffCertainty.LIKELY if distance <= max(LIKELY[0], LIKELY[1] * low) else CutoffCertainty.UNSURE


@dataclass(frozen=True)
class _Decision:
    """A cutoff before it is limited, with its reason and its certainty; the figures complete the sentence."""

    low: int
    reason: CutoffReason
    certainty: CutoffCertainty
    figures: Mapping[str, float] = field(default_factory=dict)


def mean_doppler(right: Numbers) -> NDArray[np.float64]:
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
    return np.angle(lag_one.conj()).astype(np.float64) / (2 * np.pi)


def choose_low_cutoff(
    model: LowRank, noise_rms: float, highest: int, grid: Neighbourhood | None = None
) -> CutoffChoice:
    """Choose the low cutoff of a low-rank model.

    Noise has the gain of the tissue over depth, and resembles it; without the gain weak tissue resembles it for long. So the
    components are compared as they are and without wide trends, and the lower cutoff is chosen.

    Parameters
    ----------
    model : LowRank
        Leading components of the stack.
    noise_rms : float
        Noise level, in the units of the data.
    highest : int
        Largest cutoff allowed.
    grid : Neighbourhood, optional
        Shape of the image, for the comparison without wide trends; by default there is none.

    Returns
    -------
    CutoffChoice
        With low 0 without a clutter subspace.
    """
    choices = [_choice(model, noise_rms, highest, spatial_similarity(model.left))]
    if grid is not None and choices[0].low:
        choices.append(_choice(model, noise_rms, highest, spatial_similarity(model.left, grid)))
    return min(choices, key=lambda choice: choice.low)


def _choice(model: LowRank, noise_rms: float, highest: int, similarity: NDArray[np.float64]) -> CutoffChoice:
    """Return the cutoff by a similarity of the components."""
    doppler, singular = mean_doppler(model.right), model.singular_values
    # Excluded frames are 0 in the temporal vectors, and have no noise
    n_frames = int(np.count_nonzero(model.right.any(axis=1)))
    noise = noise_energy(noise_rms, (len(model.left), n_frames))
    profile = SimilarityProfile.from_similarity(similarity, singular, noise)
    first, squares = profile.first, None
    if model.rank - first >= LEAST_SQUARES_RANK:
        a, b = two_squares(similarity[first:, first:])[:2]
        squares = first + a, first + b
    decision = _no_clutter(singular, doppler)
    if decision is None or dominance(singular, noise) > DOMINANT:
        decision = _edge_of_clutter(model.rank, profile, squares)
    sentence = decision.reason.value.format(
        low=decision.low,
        components=counted(decision.low, "component"),
        level=100 * USUAL_LEVEL,
        **decision.figures,
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


def _no_clutter(singular: NDArray[np.float64], doppler: NDArray[np.float64]) -> _Decision | None:
    """Return the decision to remove nothing if the first components are not clutter, otherwise None."""
    if len(singular) < 2:
        return _Decision(0, CutoffReason.RANK_TOO_LOW, CutoffCertainty.UNSURE)
    over = min(FALL_OVER, len(singular) - 1)
    fall_db = 20 * (np.log10(max(singular[0], 1e-300)) - np.log10(max(singular[over], 1e-300)))
    if fall_db < CLUTTER_FALL_DB:
        figures = {"fall_db": fall_db, "over": over + 1}
        return _Decision(0, CutoffReason.NO_FALL, CutoffCertainty.SURE, figures)
    if abs(doppler[0]) > CLUTTER_DOPPLER:
        return _Decision(0, CutoffReason.TOO_FAST, CutoffCertainty.LIKELY, {"cycles": doppler[0]})
    return None


def _edge_of_clutter(rank: int, profile: SimilarityProfile, squares: tuple[int, int] | None) -> _Decision:
    """Return the decision where clutter ends, from the similarity of the components."""
    usual = profile.first_below(USUAL_LEVEL * profile.plateau)
    if usual is None:
        return _Decision(rank, CutoffReason.BEYOND_RANK, CutoffCertainty.UNSURE)
    if squares is None:
        return _Decision(usual, CutoffReason.SIMILARITY_FALLS, CutoffCertainty.UNSURE)
    # Noise lowers the similarity of weak tissue, so the fall comes early. The last component of the square is a mixture of
    # tissue and blood, and goes: tissue that is left is worth more than the blood in one component.
    latest = profile.first_below(LATEST_LEVEL * profile.plateau) or rank
    edge = max(usual, min(squares[0], latest))
    reason = CutoffReason.TISSUE_SQUARE if edge > usual else CutoffReason.SIMILARITY_FALLS
    outside = max(usual - squares[0], squares[0] - latest, 0)
    return _Decision(edge, reason, _certainty_of(outside, edge))
