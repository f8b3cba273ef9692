"""The components of a stack, or of the sample of a session, and how they were found."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.bad_pixels import BadPixels
from usdenoise.clutter.clutter_cutoff import CutoffChoice
from usdenoise.clutter.cutoff_reason import CutoffCertainty, CutoffReason
from usdenoise.clutter.similarity import dominance, noise_energy
from usdenoise.completion.solve import Solution
from usdenoise.linalg.gram_matrices import gram
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate
from usdenoise.pipeline.fit_quality import FitQuality, Verdict, judge_fit, start_caution
from usdenoise.pipeline.measures import Measures

SEPARATED = 1.02
"""Ratio of the singular values at the cutoff from which the removed components are determined."""


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
    stack_doubts : tuple of (str, str)
        Code and sentence of each reason why the stack may not be what it is read as.
    fit_quality : FitQuality
        The held-out error against the one that the sample allows, and the verdict.
    noise_floor : float
        Noise level: estimated rms of the noise in an entry, in the units of the data.
    n_frames : int
        Number of frames.
    n_silent : int
        Number of masked pixels: zero or unobserved in all frames, far below the noise of the image, or bad. They are
        excluded from every computation and set to 0 in the output.
    bad_pixels : BadPixels
        The masked pixels that are far noisier than their neighbours.
    dominance : float
        Share of the strongest remaining component in the power above the noise; 0 if there are few.
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
    stack_doubts: tuple[tuple[str, str], ...]
    fit_quality: FitQuality
    noise_floor: float
    n_frames: int
    n_silent: int
    bad_pixels: BadPixels
    dominance: float
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


def fit_result(found: ClutterEstimate, measures: Measures, options: DenoiseOptions) -> FitResult:
    """Return how the components of a recording were found.

    Parameters
    ----------
    found : ClutterEstimate
        The estimate.
    measures : Measures
        Measures of the frames from which it was made, filtered by it.
    options : DenoiseOptions
        Options of the estimate.
    """
    estimate = found.estimate
    singular_values, gained_energy = _energies(found, measures)
    return FitResult(
        options=replace(options, rank=len(singular_values), low_cutoff=found.band.low),
        singular_values=singular_values,
        solution=estimate.solution,
        cutoff=found.cutoff,
        is_cutoff_given=not isinstance(options.low_cutoff, str),
        time_letter=found.time_letter,
        stack_doubts=found.consecutive.doubts,
        fit_quality=_judge(found, measures, singular_values, gained_energy, options),
        noise_floor=estimate.noise_rms,
        n_frames=measures.n_frames,
        n_silent=found.grid.mask.size - found.grid.n_pixels,
        bad_pixels=found.bad_pixels,
        dominance=dominance(
            singular_values[found.band.low :],
            noise_energy(estimate.noise_rms, (found.grid.n_pixels, found.n_used_frames)),
        ),
        n_sampled=estimate.n_sampled,
        n_subset_pixels=estimate.n_subset_pixels,
        n_sample_pixels=len(estimate.model.left),
    )


def _energies(found: ClutterEstimate, measures: Measures) -> tuple[NDArray[np.float64], float | None]:
    """Return the singular values, and the energy that the components gained in the last pass; None without a refit.

    The coefficients U^H M of all frames hold what a further step of subspace iteration would find.
    """
    estimate = found.estimate
    if found.is_sample or estimate.gained_energy is None:
        return found.singular_values, estimate.gained_energy
    gram_values = np.linalg.eigvalsh(gram(measures.coefficients[~measures.excluded]))[::-1]
    better = np.sqrt(np.maximum(gram_values, 0))
    gained = float(np.sum(gram_values)) - float(np.sum(found.model.singular_values**2))
    remaining = np.minimum(found.singular_values[len(better) :], better[-1])
    return np.append(better, remaining), max(gained, 0.0)


def _judge(
    found: ClutterEstimate,
    measures: Measures,
    singular_values: NDArray[np.float64],
    gained_energy: float | None,
    options: DenoiseOptions,
) -> FitQuality:
    """Judge the fit of all components, by the energy that they leave."""
    estimate, shape = found.estimate, (found.grid.n_pixels, found.n_used_frames)
    if not found.is_complete or (found.band.keeps_residual and estimate.gained_energy is not None):
        # From the filtered stack: next to tissue 60 dB above it the residual would be lost in rounding errors. The
        # singular values describe the model in all entries, and tissue that it fills in would be counted, too.
        observed = 1 - measures.n_unobserved / (shape[0] * shape[1])
        left_over = measures.power.sum() - observed * np.sum(singular_values[found.band.low :] ** 2)
    else:
        left_over = found.energy - np.sum(singular_values**2)
    quality = judge_fit(
        held_out_rmse=estimate.held_out_rmse,
        residual_energy=float(left_over),
        energy=found.energy,
        shape=shape,
        rank=len(singular_values),
        samples_per_pixel=estimate.samples_per_pixel,
        gained_energy=gained_energy,
        advice=found.frames.advice,
    )
    low = found.band.low
    at_cutoff = singular_values[max(low - 1, 0) : low + 1]
    # Which of two components that are equally strong is removed is chance in the SVD, too.
    is_apart = low == 0 or len(at_cutoff) < 2 or at_cutoff[0] > SEPARATED * at_cutoff[1]
    if quality.verdict is Verdict.AS_FULL_SVD and not is_apart:
        sentence = f"{quality.sentence}, but the components at the cutoff are about equally strong"
        quality = replace(quality, sentence=sentence)
    if estimate.samples_per_pixel is None:
        return quality
    doubt = start_caution(options.init, estimate.samples_per_pixel / len(singular_values))
    return replace(quality, start_caution=doubt)
