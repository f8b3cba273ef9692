"""Bad frames, which are damaged or unlike all other frames, and are excluded from the estimate."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.estimate.pixel_subset import SubsetValues, draw_pixel_subset
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import TINY, part_slices, row_parts, squared_norms
from usdenoise.stack.sampling import FEW_PIXELS, PixelSample, RandomStream, spread_rows

LARGEST_SHARE = 0.2
"""Largest share of the frames that is excluded. Above it the scan is bad as a whole, and no frame is excluded."""

OUTLIER, OUTLIER_SPREADS = 2.0, 8.0
"""Logarithm of the ratio of a frame's misfit to the median one from which the frame is an outlier, and the same in robust
standard deviations. On 48 stacks of four phantoms without disturbances, with heartbeats and tissue up to 60 dB over
blood, the largest was 1.1. Interference of 0.3 of the rms of the stack had at least 5.1 with tissue 40 dB over blood."""

SATURATED_SHARE = 0.05
"""Share of values at the extreme of the stack, above the share in the median frame, from which a frame is saturated."""

NO_TISSUE_DB, TISSUE_GAP_DB, USUAL_QUANTILE = -10.0, 6.0, 0.75
"""Power of a frame relative to the usual one, in dB, below which it has no tissue, least gap between the power of frames
with and without tissue, and the quantile of the frames that is usual: up to three quarters of them may have none. Tissue is
20 dB over the noise or more, and moves without losing its power."""

LEAST_MISFIT = 0.05
"""Misfit, over the energy of a frame with unobserved entries, from which it may be an outlier: their filling is wrong by
up to twice its size, and pixels differ in theirs."""

MOST_FILLED = 0.5
"""Largest share of filled entries of a frame that counts in the usual misfit."""

LEAST_RIDGE, ABSOLUTE_RIDGE = float(np.finfo(np.float32).eps) ** 2, float(np.finfo(np.float32).tiny) ** 2
"""Least ridge, relative to the energy of the pixel subset, and absolute."""

END_FRAMES = 10
"""Frames at each end that are compared with the next frame towards the middle, and need twice the difference: they are
predicted from one side, and the misfit grows towards the end. On a fast rotating disk without clutter it was 15 dB above
the median there."""

LEAST_GOOD = 8
"""Least number of frames that are far better than all other frames if half of the frames or more are bad."""


class FrameReason(StrEnum):
    """Why a frame is bad; the value is its name in reports."""

    GIVEN = "given"
    NO_DATA = "no-data"
    ZERO = "zero"
    CONSTANT = "constant"
    DUPLICATE = "duplicate"
    SATURATED = "saturated"
    NO_TISSUE = "no-tissue"
    OUTLIER = "outlier"


WORDS = {
    FrameReason.GIVEN: "as given",
    FrameReason.NO_DATA: "without data",
    FrameReason.ZERO: "zero everywhere",
    FrameReason.CONSTANT: "the same everywhere",
    FrameReason.DUPLICATE: "copies of the previous frame",
    FrameReason.SATURATED: "saturated",
    FrameReason.NO_TISSUE: "without tissue",
    FrameReason.OUTLIER: "unlike the other frames",
}
"""The reasons in words."""


EMPTY = {FrameReason.NO_DATA, FrameReason.ZERO, FrameReason.NO_TISSUE}
"""Reasons of frames that are no part of a scan."""


@dataclass(frozen=True)
class BadFrame:
    """A bad frame.

    Attributes
    ----------
    frame : int
        Its number, counted from 0 in the frames that were read.
    reason : FrameReason
        Why it is bad.
    score : float
        For an outlier, the misfit to the other frames over the median misfit, in dB. For a saturated frame, the share
        of values at the extreme. For a frame without tissue, its power over the usual one, in dB. Otherwise 1.
    """

    frame: int
    reason: FrameReason
    score: float


class FrameTreatment(StrEnum):
    """Treatment of bad frames; the value is the sentence, with placeholders for the numbers."""

    LEFT_OUT = "excluded frames: {share} ({counts})"
    KEPT = "bad frames, kept as requested: {share} ({counts})"
    TOO_MANY = (
        "bad frames: {share} ({counts}), more than a fifth, so none is excluded; choose a better range of frames, or list "
        "the bad ones"
    )


@dataclass(frozen=True)
class FrameSearch:
    """Bad frames and their treatment.

    Attributes
    ----------
    bad : tuple of BadFrame
        In the order of their numbers.
    n_frames : int
        Frames of the stack.
    treatment : FrameTreatment
        Treatment of the bad frames.
    """

    bad: tuple[BadFrame, ...]
    n_frames: int
    treatment: FrameTreatment

    @property
    def excluded(self) -> NDArray[np.bool_]:
        """Which frames are excluded, (n_frames,)."""
        is_excluded = self.treatment is FrameTreatment.LEFT_OUT
        return np.isin(np.arange(self.n_frames), [bad.frame for bad in self.bad if is_excluded])

    @property
    def sentence(self) -> str:
        """What was found, in words; empty if nothing was."""
        if not self.bad:
            return ""
        reasons = [frame.reason for frame in self.bad]
        counts = ", ".join(f"{reasons.count(r)} {WORDS[r]}" for r in WORDS if r in reasons)
        return self.treatment.value.format(share=f"{len(self.bad)} of {self.n_frames}", counts=counts)

    @property
    def advice(self) -> str | None:
        """Remedy for a poor fit that the frames cause; None otherwise."""
        remedies = {
            FrameTreatment.KEPT: "exclude the bad frames",
            FrameTreatment.TOO_MANY: "choose a better range of frames",
        }
        return remedies.get(self.treatment) if self.bad else None


def find_bad_frames(
    rows: PixelSample,
    option: str | tuple[int, ...],
    seed: int,
    noise_rms: float | None = None,
    n_compared: int = FEW_PIXELS,
) -> tuple[FrameSearch, SubsetValues]:
    """Look for bad frames; the rows stay as they are.

    Outliers are the frames that fit least to all others. The misfit of frame t is the energy of x_t minus its ridge
    regression on the other frames, over a few hundred pixels: with the matrix X of these pixels, lambda their noise energy
    and z = (X X^H + lambda)^-1 x_t (leave-one-out residuals; Cook and Weisberg, Residuals and Influence in Regression,
    1982),

        e_t = lambda^2 |z|^2 / (1 - x_t^H z)^2.

    The worst frames are excluded and the misfits are measured again, until none is an outlier: a strong outlier
    makes its neighbours look bad.

    Parameters
    ----------
    rows : PixelSample
        The stack.
    option : "auto", "keep", or tuple of int
        Whether to look for bad frames, or which they are.
    seed : int
        Seed of the pixel subset.
    noise_rms : float, optional
        Root mean square of the noise in an entry; by default the noise of the pixel subset, which requires its spectrum.
    n_compared : int
        Pixels of the subset.

    Returns
    -------
    search : FrameSearch
        The bad frames.
    subset : SubsetValues
        The pixel subset without the excluded frames.

    Raises
    ------
    OptionError
        If a given frame is not in the stack, or fewer than two are left.
    """
    n_frames = rows.n_frames

    def subset_without(frames: Collection[int]) -> SubsetValues:
        rng = RandomStream.PIXEL_SUBSET.generator(seed)
        return draw_pixel_subset(rows, rng, n_compared, np.isin(np.arange(n_frames), list(frames)))

    def search(bad: Iterable[BadFrame], treatment: FrameTreatment) -> FrameSearch:
        return FrameSearch(tuple(sorted(bad, key=lambda frame: frame.frame)), n_frames, treatment)

    if isinstance(option, tuple):
        _check_numbers(option, n_frames)
        listed = [BadFrame(frame, FrameReason.GIVEN, 1.0) for frame in option]
        return search(listed, FrameTreatment.LEFT_OUT), subset_without(option)
    # Fewer do not determine a frame from all other frames
    if n_frames < 2 * LEAST_GOOD:
        return search([], FrameTreatment.KEPT), subset_without(())
    bad_by_frame = {bad.frame: bad for bad in _damaged(rows)}
    subset = subset_without(())
    # Frames without tissue are no part of the scan, and do not count.
    n_empty = sum(bad.reason in EMPTY for bad in bad_by_frame.values())
    n_empty = n_empty if n_empty <= USUAL_QUANTILE * n_frames else 0
    most = n_empty + LARGEST_SHARE * (n_frames - n_empty)
    clean = subset_without(bad_by_frame) if bad_by_frame and len(bad_by_frame) <= most else subset
    while True:
        worse = _outliers(clean, noise_rms)
        bad_by_frame |= {bad.frame: bad for bad in worse}
        if not worse or len(bad_by_frame) > most:
            break
        clean = subset_without(bad_by_frame)
    if len(bad_by_frame) > most:
        return search(bad_by_frame.values(), FrameTreatment.TOO_MANY), subset
    if option == "keep":
        return search(bad_by_frame.values(), FrameTreatment.KEPT), subset
    return search(bad_by_frame.values(), FrameTreatment.LEFT_OUT), clean


def _check_numbers(frame_numbers: tuple[int, ...], n_frames: int) -> None:
    problem, n_bad = "", len(set(frame_numbers))
    if outside := [frame for frame in frame_numbers if not 0 <= frame < n_frames]:
        problem = f"bad frame {outside[0]} is not among the frames 0 to {n_frames - 1}"
    elif n_frames - n_bad < 2:
        problem = f"{n_bad} bad frames of {n_frames} leave fewer than two"
    if problem:
        raise OptionError(problem, remedy="change {bad_frames}")


def _damaged(rows: PixelSample) -> list[BadFrame]:
    """Return the frames that are zero, constant or copies, and by a sample of the pixels saturated or without tissue."""
    sample = rows.take(spread_rows(rows.n_pixels, FEW_PIXELS))
    values = sample.values
    parts = np.stack([values.real, values.imag] if np.iscomplexobj(values) else [values])
    saturated = ((parts == parts.max()) | (parts == parts.min())).any(axis=0).mean(axis=0)
    usual = float(np.median(saturated))
    observed = sample.observed_mask(slice(None))
    is_observed = np.ones(sample.n_frames, bool) if observed is None else observed.any(axis=0)
    numbers = np.arange(rows.n_frames)
    together = part_slices(rows.n_frames, len(values))
    alike = np.concatenate([_alike(values, numbers[frames]) for frames in together], axis=1) & is_observed
    suspects = np.flatnonzero(alike.any(axis=0))
    if len(suspects):
        # In a stack of few levels frames agree in a sample without being the same.
        for part in row_parts(rows.shape):
            alike[:, suspects] &= _alike(rows.values[part], suspects)
    zero, constant, same = alike
    # One pixel is always the same everywhere.
    constant &= ~zero & (rows.n_pixels > 1)
    same &= ~zero & ~constant & (rows.n_pixels > 1)
    full = (saturated > usual + SATURATED_SHARE) & ~zero & ~constant
    # The power of the frames, over the usual one, by all pixels: a few may have peaks
    shares = 1.0 if observed is None else np.maximum(observed.mean(axis=0), 1 / len(values))
    power, known = squared_norms(rows.values)[1] / shares, is_observed & ~zero
    usual_power = float(np.quantile(power[known], USUAL_QUANTILE)) if known.any() else 1.0
    power_db = 10 * np.log10(np.maximum(power, TINY) / max(usual_power, TINY))
    # Frames without tissue are below a gap that is wider than the range of those with tissue
    ordered, most_empty = np.sort(power_db[known]), -np.inf
    for below in np.flatnonzero((np.diff(ordered) > TISSUE_GAP_DB) & (ordered[:-1] < NO_TISSUE_DB)).tolist():
        low, high = np.quantile(ordered[below + 1 :], [0.1, 0.9])
        if ordered[below + 1] - ordered[below] > high - low:
            most_empty = ordered[below]
    empty = (power_db <= most_empty) & known & ~constant & ~same & ~full
    return [
        *(BadFrame(int(t), FrameReason.NO_DATA, 1.0) for t in np.flatnonzero(~is_observed)),
        *(BadFrame(int(t), FrameReason.ZERO, 1.0) for t in np.flatnonzero(zero)),
        *(BadFrame(int(t), FrameReason.CONSTANT, 1.0) for t in np.flatnonzero(constant)),
        *(BadFrame(int(t), FrameReason.DUPLICATE, 1.0) for t in np.flatnonzero(same)),
        *(BadFrame(int(t), FrameReason.SATURATED, float(saturated[t])) for t in np.flatnonzero(full)),
        *(BadFrame(int(t), FrameReason.NO_TISSUE, float(power_db[t])) for t in np.flatnonzero(empty)),
    ]


def has_tissue(power: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which frames have tissue by their power, (n,): it is not 0, and not far below the usual one."""
    least = 10 ** (NO_TISSUE_DB / 10) * float(np.quantile(power, USUAL_QUANTILE))
    return np.asarray((power != 0) & ~(power < least))


def _alike(values: Numbers, frames: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which frames are zero, the same in all of some pixels, and copies of the previous frame, (3, n)."""
    shown = values[:, frames]
    copies = (shown == values[:, np.maximum(frames - 1, 0)]).all(axis=0) & (frames > 0)
    return np.stack([~shown.any(axis=0), (shown == shown[:1]).all(axis=0), copies])


def _outliers(subset: SubsetValues, noise_rms: float | None) -> list[BadFrame]:
    """Return the worst outliers among the frames."""
    ridge, (leverage, weight, energy) = _regression(subset, noise_rms)
    # Excluded frames are zero here, and nearly zero in the regression.
    used = np.flatnonzero(subset.values.any(axis=0))
    if len(used) == 0:
        return []
    leverage, weight, energy, filled = (values[used] for values in (leverage, weight, energy, subset.filled))
    misfit = ridge**2 * weight / np.maximum(1 - leverage, 1e-12) ** 2
    of_filling = (filled > 0) & (misfit <= (LEAST_MISFIT + 4 * filled) * energy)
    score = np.log(np.maximum(misfit, np.finfo(float).tiny))
    # What was filled in from the other frames fits them too well to count.
    is_known = filled <= max(MOST_FILLED, float(filled.min()))
    median, quartile = np.quantile(_good_scores(score[is_known]), [0.5, 0.25])
    score -= median
    judged = _without_ends(score)
    # A quartile of a normal distribution is 0.674 standard deviations from the median. Outliers are in the upper half.
    limit = max(OUTLIER, OUTLIER_SPREADS * float(median - quartile) / 0.674, float(judged.max()) / 2)
    return [
        BadFrame(int(used[t]), FrameReason.OUTLIER, float(score[t] * 10 / np.log(10)))
        for t in np.flatnonzero((judged > limit) & ~of_filling)
    ]


def _regression(subset: SubsetValues, noise_rms: float | None) -> tuple[float, NDArray[np.float64]]:
    """Return lambda, and x_t^H z, |z|^2 and |x_t|^2 of each frame, (3, n_frames); see :func:`find_bad_frames`.

    Without a noise level, the spectrum is needed in any case, and gives all of them.
    """
    n_pixels = len(subset.values)
    if noise_rms is None:
        known = subset.subset
        powers = known.singular_values**2
        ridge = max(n_pixels * known.noise_rms**2, LEAST_RIDGE * float(powers.sum()), ABSOLUTE_RIDGE)
        inverses = powers / (powers + ridge)
        parts = np.stack([inverses, inverses / (powers + ridge), powers])
        some = (known.right[frames].T for frames in part_slices(*known.right.shape))
        return ridge, np.hstack([parts @ np.abs(right).astype(np.float64) ** 2 for right in some])
    values = subset.values.astype(np.result_type(subset.values.dtype, np.float64))
    gram = values @ values.conj().T
    ridge = max(n_pixels * noise_rms**2, LEAST_RIDGE * float(np.trace(gram).real), ABSOLUTE_RIDGE)
    weights = np.linalg.solve(gram + ridge * np.eye(n_pixels), values)
    pairs = ((values, weights), (weights, weights), (values, values))
    return ridge, np.stack([np.vecdot(one.T, other.T).real for one, other in pairs])


def _good_scores(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores without bad frames: all scores, or the scores below a wide gap in their lower half."""
    ordered = np.sort(score)
    counts = np.arange(LEAST_GOOD, len(score) // 2 + 1)
    steps = ordered[counts] - ordered[counts - 1]
    widest = int(np.argmax(steps)) if len(steps) else 0
    return ordered[: counts[widest]] if len(steps) and steps[widest] > OUTLIER else ordered


def _without_ends(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores in which the end frames count by half of their excess over the next inner frame."""
    n = len(score)
    n_ends = min(END_FRAMES, (n - 1) // 2)
    judged = score.copy()
    # The second pair is reversed: it begins with the last frame.
    for ends, scores in ((judged, score), (judged[::-1], score[::-1])):
        inner = scores[1 : n_ends + 1]
        ends[:n_ends] = (scores[:n_ends] - np.maximum(inner, 0)) / 2
    return judged
