"""How good an estimate is, against the best that its rank and sample allow."""

import math
from dataclasses import dataclass

from usdenoise.system.coded_enum import CodedEnum

CLOSE = 1.1
"""Ratio of the held-out error to the allowed one up to which an estimate counts as exact: the error of exact fits
scatters by a few per cent between seeds (docs/evidence.md)."""

REFITTED, NEARLY_REFITTED = 0.5, 5.0
"""Energy gained by the last pass of the refit, over the remaining energy, up to which the components equal the full
SVD, or are close to it. Each pass gains far less than the previous one. On 30 runs, random starts with two iterations among
them, it was up to 1.2, and the power Doppler correlated with the full SVD's at 0.9999 or better; at 0.994 or better in
seven of them with a sampling of 0.1 or less."""

ROUNDING = 2.0**-23
"""Share of the energy of a stack in single precision that is rounding."""

SAMPLES_PER_COMPONENT = 3.0
"""Samples of a pixel for each component below which factors from the sample alone are not trusted."""

WELL_POSED = 4.0
"""The same for the iterations from a start that does not come from the data of all frames. On stacks of 300 frames with 1.8
samples per unknown, 100 iterations from the spectral start ended at 30 to 200 times the noise; the paper's stack has 12."""


class Verdict(CodedEnum):
    """A judgement on an estimate; the value is its sentence, with placeholders for the numbers."""

    EXACT = "the full SVD of the frames that were not excluded"
    AS_FULL_SVD = "as good as the full SVD"
    AS_SAMPLE_ALLOWS = "as good as the sample allows"
    CLOSE_TO_FULL_SVD = (
        "close to the full SVD: the last pass over all entries gained {gain:.1f} times the remaining energy"
    )
    NOT_REFITTED = (
        "poor fit: the last pass over all entries gained {gain:.0f} times the remaining energy; {advice}, or "
        "raise the iterations"
    )
    NOT_FITTED = "poor fit: the held-out error is {ratio:.1f} times the expected one; {advice}, or raise the iterations"
    NOT_JUDGED = "no entry was held out, so the fit cannot be judged; {advice}"
    TOO_FEW_SAMPLES = (
        "too few samples: {per_pixel:.0f} per pixel for rank {rank}; {advice}, or lower the rank"
    )

    @property
    def is_good(self) -> bool:
        """Whether nothing better is to be expected from this rank and sample."""
        return self in (Verdict.EXACT, Verdict.AS_FULL_SVD, Verdict.AS_SAMPLE_ALLOWS)


@dataclass(frozen=True)
class FitQuality:
    """The held-out error of an estimate against the error that rank and sample allow.

    Attributes
    ----------
    residual_rms : float
        Rms of the stack minus its components, over the degrees of freedom left: noise, and blood above the rank.
    allowed_rmse : float or None
        residual_rms sqrt(1 + r / (p n_frames - r)), the held-out error of an exact fit of each pixel. None if a
        pixel has no more samples than components, or nothing is held out.
    held_out_ratio : float or None
        Held-out error over the allowed one; None if either is None.
    verdict : Verdict
        The judgement.
    sentence : str
        The judgement in words, with its figures.
    start_caution : str
        Why the iterations cannot be expected to converge from their start; empty if they can.
    """

    residual_rms: float
    allowed_rmse: float | None
    held_out_ratio: float | None
    verdict: Verdict
    sentence: str
    start_caution: str = ""


def judge_fit(
    *,
    held_out_rmse: float | None,
    residual_energy: float,
    shape: tuple[int, int],
    rank: int,
    samples_per_pixel: float | None,
    gained_energy: float | None,
    energy: float,
    advice: str | None = None,
) -> FitQuality:
    """Judge an estimate from a sample.

    Parameters
    ----------
    held_out_rmse : float or None
        Error of the sample's own factors on the held-out entries; None if nothing was held out.
    residual_energy : float
        Sum of |M - model|^2 over the stack.
    shape : (int, int)
        (n_pixels, n_frames).
    rank : int
        Number of components.
    samples_per_pixel : float or None
        Sampled entries of an average sampled pixel; None for the SVD of the whole stack.
    gained_energy : float or None
        Energy that the last pass of the refit gained; None without a refit.
    energy : float
        Sum of |M|^2 over the stack, whose rounding errors do not count as gain.
    advice : str, optional
        What helps where the fit is poor; by default a larger sample.
    """
    n_pixels, n_frames = shape
    freedom = max(n_pixels * n_frames - rank * (n_pixels + n_frames - rank), 1)
    residual_rms = math.sqrt(max(residual_energy, 0.0) / freedom)
    if samples_per_pixel is None:
        return FitQuality(residual_rms, None, None, Verdict.EXACT, Verdict.EXACT.value)
    allowed = None
    if held_out_rmse is not None and samples_per_pixel > rank:
        allowed = residual_rms * math.sqrt(1 + rank / (samples_per_pixel - rank))
    ratio = None
    if held_out_rmse is not None and allowed is not None:
        # Without a residual above rounding nothing better can be expected.
        ratio = held_out_rmse / allowed if allowed > 0 else 1.0
    gain = None if gained_energy is None else _relative_gain(gained_energy, residual_energy, energy)
    has_held_out = held_out_rmse is not None
    verdict = _verdict(ratio, samples_per_pixel, rank, gain) if has_held_out else Verdict.NOT_JUDGED
    more = "raise the sampling" if gain is not None else "raise the sampling, or refit to all entries"
    sentence = verdict.value.format(
        ratio=ratio, per_pixel=samples_per_pixel, rank=rank, gain=gain, advice=advice or more
    )
    return FitQuality(residual_rms, allowed, ratio, verdict, sentence)


def start_caution(start: str, samples_per_component: float) -> str:
    """Return why iterations cannot be expected to converge from their start, as in :class:`FitQuality`.

    Parameters
    ----------
    start : str
        Start of the iterations.
    samples_per_component : float
        Sampled entries of an average sampled pixel over the rank.
    """
    if start == "pixels" or samples_per_component >= WELL_POSED:
        return ""
    return (
        f"the sample has {samples_per_component:.1f} entries per pixel and component, and the start '{start}' requires "
        f"{WELL_POSED:g}: raise the sampling, lower the rank, or use the start 'pixels'"
    )


def _relative_gain(gained_energy: float, residual_energy: float, energy: float) -> float:
    least = max(ROUNDING * energy, math.ulp(0.0))
    return gained_energy / max(residual_energy, least)


def _verdict(ratio: float | None, samples_per_pixel: float, rank: int, gain: float | None) -> Verdict:
    if ratio is None:
        return Verdict.TOO_FEW_SAMPLES
    if gain is not None:
        if gain <= REFITTED:
            return Verdict.AS_FULL_SVD
        return Verdict.CLOSE_TO_FULL_SVD if gain <= NEARLY_REFITTED else Verdict.NOT_REFITTED
    if samples_per_pixel < SAMPLES_PER_COMPONENT * rank:
        return Verdict.TOO_FEW_SAMPLES
    return Verdict.AS_SAMPLE_ALLOWS if ratio <= CLOSE else Verdict.NOT_FITTED
