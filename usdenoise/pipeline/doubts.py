"""The doubts about a result: a code and a sentence for each reason not to trust its pictures."""

from dataclasses import dataclass

import numpy as np

from usdenoise.blood.picture_quality import MOST_QUIET_CORRELATION, PictureQuality
from usdenoise.clutter.bad_pixels import MOST_NOISY
from usdenoise.clutter.clutter_cutoff import CutoffCertainty, CutoffReason
from usdenoise.clutter.similarity import DOMINANT
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.stack.sampling import ENOUGH_FRAMES

NEAR_BELOW, NEAR_ABOVE = 0.15, 0.25
"""Distances below and above the low cutoff that the data suggest within which a given one agrees with it, over the
suggested cutoff and rounded; above it by 2 at least. On four phantoms the blood map correlated with the truth by 0.32 to
0.83 with 0.75 times the suggested components, by 0.80 to 0.95 with 1.25 times, by 0.84 to 0.96 with all."""

MOST_BAD_PIXELS = 0.05
"""Share of the image that is excluded for its noise above which the pictures are doubtful."""

MOST_TISSUE = 0.5
"""Share of tissue in the power above the noise above which the pictures are doubtful. With the automatic cutoff it was 0 to
0.27 on 32 phantoms of 16 kinds and to 0.45 in sessions, with 0.4 to 0.6 times as many components 0.37 to 0.73."""

MOST_MISSING, MOST_SPECKLE = 0.1, 0.17
"""Share of the power above its floor that the blood map lacks, and correlation of the blood map with the speckle of the
tissue, from which it is doubtful. benchmarks/RECORDS.md has both for stacks of two simulators."""

WEAK_ERRORS = 35.0
"""Blood over its error below which bright vessels may be tissue that is left (benchmarks/RECORDS.md)."""

LEAST_REPEATABLE = 0.5
"""Correlation of the blood maps of two halves of the frames below which they are doubtful."""

LARGEST_VESSEL_SHARE = 0.8
"""Share of the image in vessels above which they are doubtful: a signal everywhere is tissue or noise."""


@dataclass(frozen=True)
class Doubt:
    """A reason not to trust the pictures of a result.

    Attributes
    ----------
    code : str
        Its name for scripts; docs/quality-control.md lists them.
    sentence : str
        The reason in words.
    """

    code: str
    sentence: str


ABOUT_BLOOD = (
    "cutoff",
    "few-frames",
    "no-blood",
    "tissue",
    "map-incomplete",
    "correlated-noise",
    "repeatability",
)
"""Codes of doubts about blood and its maps, which do not apply to stacks for localisation."""


def find_doubts(fit: FitResult, picture: PictureQuality, axes: str) -> tuple[Doubt, ...]:
    """Return the doubts about a result; none if it has blood, a cutoff that suits the data, and repeats.

    Parameters
    ----------
    fit : FitResult
        How the components were found.
    picture : PictureQuality
        Metrics of the blood map.
    axes : str
        Axes of the stack, as they were read or given.
    """
    doubts, quality = list[tuple[str, str]](), fit.fit_quality
    if fit.time_letter not in (None, "t"):
        time_index = axes.index(str(fit.time_letter))
        spatial = [letter for letter in "zxy" if letter in axes]
        suggested = "".join([*spatial[:time_index], "t", *spatial[time_index:]])
        sentence = f"the axes look wrong: the stack was read as '{axes}'; the data suggest '{suggested}'"
        doubts.append(("axes", sentence))
    doubts += fit.stack_doubts
    doubts += _of_cutoff(fit)
    if fit.dominance > DOMINANT and "cutoff" not in dict(doubts):
        sentence = (
            f"one component has {100 * fit.dominance:.0f} % of what remains above the noise: it is not blood"
        )
        doubts.append(("tissue", sentence))
    if n_saturated := int(np.count_nonzero(fit.bad_pixels.saturated)):
        share = 100 * n_saturated / fit.bad_pixels.mask.size
        sentence = f"{n_saturated} pixels ({share:.2g} %) are saturated in some frames, and were excluded: lower the gain"
        doubts.append(("saturation", sentence))
    n_bad = fit.bad_pixels.n_pixels
    if n_bad > MOST_BAD_PIXELS * fit.bad_pixels.mask.size:
        doubts.append(
            ("bad-pixels", f"{n_bad} pixels are far noisier than their neighbours, and were excluded")
        )
    elif picture.noisy_share > MOST_NOISY:
        sentence = f"{100 * picture.noisy_share:.0f} % of the power that stands out is noise of some pixels, and no flow"
        doubts.append(("bad-pixels", sentence))
    # On 8 phantoms of 64 x 64 pixels a map had less than 5 % of the true power in 22 to 39 % of the vessel pixels for 12
    # frames, in 7 to 23 % for 24, in 3 to 14 % for 32, and in 1 to 9 % for 64.
    if fit.n_frames < ENOUGH_FRAMES:
        sentence = f"{fit.n_frames} frames are few: parts of vessels can be missing from the blood map"
        doubts.append(("few-frames", sentence))
    doubts += _of_picture(picture)
    if not quality.verdict.is_good:
        doubts.append(("poor-estimate", quality.sentence))
    if quality.start_caution:
        doubts.append(("poor-estimate", quality.start_caution))
    return tuple(Doubt(code, sentence) for code, sentence in doubts)


def _of_cutoff(fit: FitResult) -> list[tuple[str, str]]:
    choice, common = fit.cutoff, fit.common_cutoff
    if common is not None and common.certainty == CutoffCertainty.UNSURE:
        return [("cutoff-unsure", f"the low cutoff {common.low} is unsure: {common.sentence}")]
    if common is not None and choice.certainty != CutoffCertainty.SURE:
        # The sure scans outvote it.
        return []
    if not fit.is_cutoff_given:
        if choice.certainty != CutoffCertainty.UNSURE:
            return []
        return [("cutoff-unsure", f"the low cutoff {choice.low} is unsure: {choice.sentence}")]
    low, suggested = int(fit.options.low_cutoff), choice.low
    if -round(NEAR_BELOW * suggested) <= low - suggested <= max(2, round(NEAR_ABOVE * suggested)):
        return []
    at_least = "at least " if choice.reason == CutoffReason.BEYOND_RANK else ""
    if choice.reason is CutoffReason.RANK_TOO_LOW or (at_least and low > suggested):
        return []
    verb = "may be" if choice.certainty == CutoffCertainty.UNSURE else "is"
    remains = f"tissue {'remains' if verb == 'is' else 'may remain'}"
    effect = remains if low < suggested else f"blood {verb} removed, too"
    plural = "" if low == 1 else "s"
    return [
        (
            "cutoff",
            f"{low} component{plural} removed; the data suggest {at_least}{suggested} ({choice.certainty}): {effect}",
        )
    ]


def _of_picture(picture: PictureQuality) -> list[tuple[str, str]]:
    if picture.lost_share is None:
        return [("no-blood", "no blood was found above the noise")]
    doubts = []
    if picture.errors < WEAK_ERRORS:
        sentence = (
            f"the brightest of the blood map is {picture.errors:.0f} times its error: it may be blood, or tissue that is "
            "left, which reaches as much in recordings without blood"
        )
        doubts.append(("no-blood", sentence))
    repeats, tissue = picture.reproducibility, picture.tissue_share
    if tissue is not None and tissue > MOST_TISSUE:
        doubts.append(
            ("tissue", f"about {100 * tissue:.0f} % of the remaining power above the noise is tissue")
        )
    if picture.missing_share > MOST_MISSING:
        sentence = (
            f"the blood map lacks {100 * picture.missing_share:.0f} % of what power Doppler shows above its floor: "
            "look at power Doppler"
        )
        doubts.append(("map-incomplete", sentence))
    if picture.speckle_likeness > MOST_SPECKLE:
        sentence = (
            f"the blood map has the speckle of the tissue (correlation {picture.speckle_likeness:.2f}): a part of it is "
            "tissue"
        )
        doubts.append(("tissue", sentence))
    if picture.quiet_correlation > MOST_QUIET_CORRELATION:
        sentence = (
            f"neighbouring frames correlate by {picture.quiet_correlation:.2f} where least power is left: slow flow or "
            "tissue is everywhere, or frames were averaged over time, and the map shows noise as blood"
        )
        doubts.append(("correlated-noise", sentence))
    if picture.steadiness is not None and picture.steadiness < LEAST_REPEATABLE:
        sentence = (
            "the first and the second half of the frames show different vessels (correlation "
            f"{picture.steadiness:.2f})"
        )
        doubts.append(("repeatability", sentence))
    elif repeats is None:
        doubts.append(("repeatability", "whether two halves of the frames show the same vessels is unknown"))
    elif repeats < LEAST_REPEATABLE:
        doubts.append(
            ("repeatability", f"the blood maps of two halves of the frames correlate by only {repeats:.2f}")
        )
    if picture.vessel_share > LARGEST_VESSEL_SHARE:
        doubts.append(
            (
                "tissue",
                f"vessels in {100 * picture.vessel_share:.0f} % of the image: a part of the map is not blood",
            )
        )
    return doubts
