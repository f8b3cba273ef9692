"""The components of a stack, or of the sample of a session, and how they were found."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.clutter_cutoff import CutoffChoice
from usdenoise.clutter.cutoff_reason import CutoffCertainty, CutoffReason
from usdenoise.completion.solve import Solution
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.clutter_estimate import ClutterEstimate
from usdenoise.pipeline.fit_quality import FitQuality, judge_fit, start_caution
from usdenoise.pipeline.stack_filter import MeasuredFit


@dataclass(frozen=True, repr=False)
class FitResult:
    """How the components of a stack, or of the sample of a session, were found.

    Attributes
    ----------
    options : DenoiseOptions
        The options as used, with numbers for those that were automatic.
    singular_values : (rank,) float64 array
        Singular values of all components. Those above the cutoff and a few more are estimated from every few pixels.
    solution : Solution or None
        The result of the iterative method; None for the SVD.
    cutoff : CutoffChoice
        The low cutoff that the data suggest. It is the one in `options` unless `is_cutoff_given`.
    is_cutoff_given : bool
        Whether the low cutoff was given.
    time_letter : str or None
        Letter of the axis that is time by the data; None if that is not clear.
    fit_quality : FitQuality
        The held-out error against the one that the sample allows, and the verdict.
    noise_floor : float
        Noise level: estimated rms of the noise in an entry, in the units of the data.
    n_frames : int
        Number of frames.
    n_silent : int
        Number of masked pixels: zero or unobserved in all frames, or far below the noise of the image. They
        are excluded from every computation and set to 0 in the output.
    n_sampled : int
        Number of entries that were fitted or held out.
    n_subset_pixels, n_sample_pixels : int
        Number of pixels whose exact singular vectors started the estimate, and of pixels to which it was refitted before
        the spatial vectors were fitted to all pixels.
    """

    options: DenoiseOptions
    singular_values: NDArray[np.float64]
    solution: Solution | None
    cutoff: CutoffChoice
    is_cutoff_given: bool
    time_letter: str | None
    fit_quality: FitQuality
    noise_floor: float
    n_frames: int
    n_silent: int
    n_sampled: int
    n_subset_pixels: int
    n_sample_pixels: int

    @property
    def low_cutoff(self) -> int:
        """Number of components that were removed as clutter."""
        return int(self.options.low_cutoff)

    @property
    def held_out_rmse(self) -> float | None:
        """Error of the sample's own factors on the held-out entries; None without such entries or a sample."""
        return None if self.solution is None else self.solution.held_out_rmse

    @property
    def cutoff_certainty(self) -> CutoffCertainty:
        """How certain the low cutoff is."""
        return CutoffCertainty.GIVEN if self.is_cutoff_given else self.cutoff.certainty

    @property
    def cutoff_sentence(self) -> str:
        """Why the low cutoff was chosen, in words."""
        return CutoffReason.GIVEN.value if self.is_cutoff_given else self.cutoff.sentence

    @property
    def kept(self) -> str:
        """The components that were kept, for example "[14, all)"."""
        high = {"rank": self.options.rank, "none": "all"}.get(
            str(self.options.high_cutoff), self.options.high_cutoff
        )
        return f"[{self.options.low_cutoff}, {high})"


def fit_result(
    clutter_estimate: ClutterEstimate, measured: MeasuredFit, options: DenoiseOptions
) -> FitResult:
    """Return how the components of a stack were found.

    Parameters
    ----------
    clutter_estimate : ClutterEstimate
        The estimate.
    measured : MeasuredFit
        Its measures from a pass over all blocks.
    options : DenoiseOptions
        Options of the estimate.
    """
    estimate, inspection = clutter_estimate.estimate, clutter_estimate.inspection
    return FitResult(
        options=replace(options, rank=len(measured.singular_values), low_cutoff=clutter_estimate.band.low),
        singular_values=measured.singular_values,
        solution=estimate.solution,
        cutoff=clutter_estimate.cutoff,
        is_cutoff_given=not isinstance(options.low_cutoff, str),
        time_letter=clutter_estimate.time_letter,
        fit_quality=_judge(clutter_estimate, measured, options),
        noise_floor=estimate.noise_rms,
        n_frames=len(inspection.frame_energy),
        n_silent=len(inspection.energy) - clutter_estimate.grid.n_pixels,
        n_sampled=estimate.n_sampled,
        n_subset_pixels=estimate.n_subset_pixels,
        n_sample_pixels=len(estimate.model.left),
    )


def _judge(clutter_estimate: ClutterEstimate, measured: MeasuredFit, options: DenoiseOptions) -> FitQuality:
    """Judge the fit of all components, by the energy that they leave."""
    estimate, singular_values, energy = (
        clutter_estimate.estimate,
        measured.singular_values,
        clutter_estimate.energy,
    )
    shape = (clutter_estimate.grid.n_pixels, clutter_estimate.n_used_frames)
    if not clutter_estimate.is_complete or (
        clutter_estimate.band.keeps_residual and estimate.gained_energy is not None
    ):
        # From the filtered stack: next to tissue 60 dB above it the residual would be lost in rounding errors. The
        # singular values describe the model in all entries, and tissue that it fills in would be counted, too.
        observed = 1 - measured.n_unobserved / (shape[0] * shape[1])
        left_over = measured.residual_power.sum() * shape[1]
        left_over -= observed * np.sum(singular_values[clutter_estimate.band.low :] ** 2)
    else:
        left_over = energy - np.sum(singular_values**2)
    quality = judge_fit(
        held_out_rmse=estimate.held_out_rmse,
        residual_energy=float(left_over),
        energy=energy,
        shape=shape,
        rank=len(singular_values),
        samples_per_pixel=estimate.samples_per_pixel,
        gained_energy=measured.gained_energy,
        advice=clutter_estimate.frames.advice,
    )
    if estimate.samples_per_pixel is None:
        return quality
    doubt = start_caution(options.init, estimate.samples_per_pixel / len(singular_values))
    return replace(quality, start_caution=doubt)
