"""How good the estimate can be, and a plain word on how good it is."""

import math
from dataclasses import dataclass

CLOSE = 1.1
FAR = 1.5
SAMPLES_A_COMPONENT = 3.0


@dataclass(frozen=True)
class Judgement:
    """The held-out error against what rank and sample allow.

    Attributes
    ----------
    residual_rms : float
        Rms of the stack less its components, over the degrees of freedom that are left: noise, and blood
        above the rank.
    allowed_rmse : float or None
        residual_rms sqrt(1 + r / (p n_frames - r)), the held-out error of exact fits of each pixel; None
        where a pixel has no more samples than components, or nothing is held out.
    held_out_ratio : float or None
        Held-out error over the allowed one.
    verdict : str
        A sentence.
    """

    residual_rms: float
    allowed_rmse: float | None
    held_out_ratio: float | None
    verdict: str


def judge(
    *,
    held_out_rmse: float | None,
    residual_energy: float,
    shape: tuple[int, int],
    rank: int,
    samples_a_pixel: float | None,
    refitted: bool,
) -> Judgement:
    """Judge an estimate from a sample.

    Parameters
    ----------
    held_out_rmse : float or None
        Error of the sample's own factors on held-out entries.
    residual_energy : float
        Sum of |M - model|^2 over the stack.
    shape : (int, int)
        (n_pixels, n_frames).
    rank : int
        Components.
    samples_a_pixel : float or None
        Sampled entries of a pixel, on average over those that were sampled; None where the SVD of the whole
        stack was taken.
    refitted : bool
        Whether the factors were fitted again to all entries.
    """
    n_pixels, n_frames = shape
    freedom = max(n_pixels * n_frames - rank * (n_pixels + n_frames - rank), 1)
    residual_rms = math.sqrt(max(residual_energy, 0.0) / freedom)
    if samples_a_pixel is None:
        return Judgement(residual_rms, None, None, "the full SVD itself")
    allowed = None
    if held_out_rmse is not None and samples_a_pixel > rank:
        allowed = residual_rms * math.sqrt(1 + rank / (samples_a_pixel - rank))
    ratio = held_out_rmse / allowed if held_out_rmse is not None and allowed else None
    return Judgement(residual_rms, allowed, ratio, _verdict(ratio, samples_a_pixel, rank, refitted))


def _verdict(ratio: float | None, per_pixel: float, rank: int, refitted: bool) -> str:
    few = f"too few samples for this rank: {per_pixel:.0f} a pixel for rank {rank}"
    advice = "raise --sampling" + ("" if refitted else ", or give --refit all")
    if ratio is None:
        return f"{few}; {advice}"
    if refitted:
        if ratio <= CLOSE:
            return "as good as the full SVD"
        if ratio <= FAR:
            return (
                f"close to the full SVD: the sample's own fit missed by {ratio:.2f} times what its size allows, "
                "and the refit to all entries mends most of that"
            )
    elif per_pixel < SAMPLES_A_COMPONENT * rank:
        return f"{few}; {advice}"
    elif ratio <= CLOSE:
        return "as good as the sample allows"
    return f"the sample was not fitted: its error is {ratio:.1f} times what its size allows; {advice} or --iterations"
