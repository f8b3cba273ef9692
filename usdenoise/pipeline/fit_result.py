"""The components of a stack, or of the sample of a session, how they were found, how good they are, and their filter."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.noise import clutter_projection
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.clutter.bad_pixels import BadPixels
from usdenoise.clutter.clutter_cutoff import CommonCutoff, CutoffCertainty, CutoffChoice, CutoffReason
from usdenoise.clutter.similarity import dominance, noise_energy
from usdenoise.completion.solve import Solution
from usdenoise.frames.gains import Flicker
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.low_rank import LowRank, interpolated
from usdenoise.linalg.tall_matrices import COMPILED_ENTRIES, gram
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate
from usdenoise.pipeline.measures import Clutter, Measures
from usdenoise.system.text import CodedEnum

CLOSE = 1.1
"""Ratio of the held-out error to the allowed one up to which an estimate counts as exact: the error of exact fits
scatters by a few per cent between seeds (docs/evidence.md)."""

REFITTED, NEARLY_REFITTED = 0.5, 5.0
"""Energy gained by the last pass of the refit, over the remaining energy, up to which the components equal the full
SVD, or are close to it. Each pass gains far less than the previous one. On 30 runs, random starts with two iterations among
them, it was up to 1.2, and the power Doppler correlated with the full SVD's at 0.9999 or better; at 0.994 or better in
seven of them with a sampling of 0.1 or less."""

ROUNDING = float(np.finfo(np.float32).eps)
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
    least = max(residual_energy, ROUNDING * energy, math.ulp(0.0))
    gain = None if gained_energy is None else gained_energy / least
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
        The masked pixels that are far noisier than their neighbours, or saturated.
    flickers : tuple of Flicker
        Flicker of lines or depths that was divided out, by rounds.
    dominance : float
        Share of the strongest remaining component in the power above the noise; 0 if there are few.
    n_sampled : int
        Number of entries that were fitted or held out.
    n_subset_pixels, n_sample_pixels : int
        Number of pixels whose exact singular vectors started the estimate, and of pixels to which it was refitted before
        the spatial vectors were fitted to all pixels.
    common_cutoff : CommonCutoff or None
        How the cutoff that was given follows from several scans of a batch; None (the default) if it does not.
    """

    options: DenoiseOptions
    singular_values: NDArray[np.float64]
    solution: Solution | None
    cutoff: CutoffChoice
    is_cutoff_given: bool
    stack_doubts: tuple[tuple[str, str], ...]
    fit_quality: FitQuality
    noise_floor: float
    n_frames: int
    n_silent: int
    bad_pixels: BadPixels
    flickers: tuple[Flicker, ...]
    dominance: float
    n_sampled: int
    n_subset_pixels: int
    n_sample_pixels: int
    common_cutoff: CommonCutoff | None = field(default=None, kw_only=True)

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
        if self.common_cutoff is not None:
            return self.common_cutoff.certainty
        return CutoffCertainty.GIVEN if self.is_cutoff_given else self.cutoff.certainty

    @property
    def cutoff_rule(self) -> CutoffReason:
        """The rule by which the low cutoff was chosen."""
        if self.common_cutoff is not None:
            return CutoffReason.COMMON
        return CutoffReason.GIVEN if self.is_cutoff_given else self.cutoff.reason

    @property
    def cutoff_sentence(self) -> str:
        """Why the low cutoff was chosen, in words."""
        if self.common_cutoff is not None:
            return self.common_cutoff.sentence
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
        Measures of the estimate's own frames after the filter.
    options : DenoiseOptions
        Options of the estimate.
    """
    estimate = found.estimate
    singular_values, gained_energy = _energies(found, measures)
    return FitResult(
        options=replace(
            options,
            rank=len(singular_values),
            low_cutoff=found.band.low,
            tissue="still" if found.scan_findings.is_still else "recorded",
        ),
        singular_values=singular_values,
        solution=estimate.solution,
        cutoff=found.cutoff,
        is_cutoff_given=not isinstance(options.low_cutoff, str),
        stack_doubts=found.scan_findings.doubts,
        flickers=found.scan_findings.flickers,
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


def scan_clutter(found: ClutterEstimate, options: DenoiseOptions) -> Clutter:
    """Return the clutter of a scan by its estimate, with the effect of its filter on the autocorrelation."""
    model, low, clutter = found.model, found.band.low, components_only(found, options)
    return replace(
        clutter,
        projection=clutter_projection(model.right[:, :low], ~found.excluded),
        speckle=weak_speckle(clutter.left, low),
        tissue=removed_energy(clutter.left, model.singular_values, low),
        power=found.power,
    )


def components_only(found: ClutterEstimate, options: DenoiseOptions) -> Clutter:
    """Return the clutter of an estimate, by which its components are measured without lags."""
    model = interpolated(found.model, found.excluded)
    return Clutter(
        left=found.grid.everywhere(model.left),
        low=found.band.low,
        high=min(found.band.high, model.rank),
        keeps_residual=found.band.keeps_residual,
        grid=found.grid,
        model=model_coefficients(model),
        is_given=options.refit == "none" and options.method != "svd",
        has_gaps=found.has_gaps,
        noise_rms=found.estimate.noise_rms,
        is_compiled=len(found.excluded) * found.grid.mask.size >= COMPILED_ENTRIES,
    )


def model_coefficients(model: LowRank) -> Numbers:
    """Return the coefficients of the components in each frame, (n_frames, r)."""
    a: Numbers = model.right.conj() * model.singular_values.astype(model.right.real.dtype)
    return a
