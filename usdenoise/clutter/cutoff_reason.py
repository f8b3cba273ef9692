"""Why a low cutoff was chosen, and how certain it is: enums with their sentences, which import nothing heavy."""

from enum import StrEnum

from usdenoise.system.coded_enum import CodedEnum


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
