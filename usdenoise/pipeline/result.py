"""The result of denoising a stack, also as labelled arrays of xarray, and the doubts about a result."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Flag, auto
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES, FlowImage, axial_velocity
from usdenoise.blood.picture_quality import MOST_QUIET_CORRELATION, PictureQuality
from usdenoise.clutter.bad_pixels import MOST_NOISY
from usdenoise.clutter.clutter_cutoff import CutoffCertainty, CutoffReason
from usdenoise.clutter.similarity import DOMINANT
from usdenoise.frames.frame_quality import FrameQuality
from usdenoise.linalg.low_rank import LowRank
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import NamedArray, unpack
from usdenoise.stack.data_arrays import IMAGE_NAMES, import_xarray, to_data_array
from usdenoise.stack.geometry import FREE_NAME
from usdenoise.stack.sampling import ENOUGH_FRAMES
from usdenoise.system.text import PROVENANCE, counted, record, to_json

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


class DoubtKind(Flag):
    """What applies to a doubt."""

    ABOUT_BLOOD = auto()
    """It is about blood and its maps, and does not apply to stacks for localisation."""
    SETTLES = auto()
    """A live session does not show it: as blocks come, it may go."""


DOUBT_KINDS: Mapping[str, DoubtKind] = {
    "cutoff": DoubtKind.ABOUT_BLOOD | DoubtKind.SETTLES,
    "cutoff-unsure": DoubtKind.SETTLES,
    "few-frames": DoubtKind.ABOUT_BLOOD | DoubtKind.SETTLES,
    "no-blood": DoubtKind.ABOUT_BLOOD | DoubtKind.SETTLES,
    "tissue": DoubtKind.ABOUT_BLOOD,
    "map-incomplete": DoubtKind.ABOUT_BLOOD,
    "correlated-noise": DoubtKind.ABOUT_BLOOD,
    "repeatability": DoubtKind.ABOUT_BLOOD | DoubtKind.SETTLES,
    "poor-estimate": DoubtKind.SETTLES,
}
"""What applies to doubts, by their code; to others nothing does."""


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

    def has(self, kind: DoubtKind) -> bool:
        """Return whether something applies to the doubt."""
        return kind in DOUBT_KINDS.get(self.code, DoubtKind(0))


def codes_of(doubts: Iterable[Doubt]) -> str:
    """Return the codes of doubts, each once, with commas; empty without any."""
    return ", ".join(dict.fromkeys(doubt.code for doubt in doubts))


def find_doubts(fit: FitResult, picture: PictureQuality) -> tuple[Doubt, ...]:
    """Return the doubts about a result; none if it has blood, a cutoff that suits the data, and repeats.

    Parameters
    ----------
    fit : FitResult
        How the components were found.
    picture : PictureQuality
        Metrics of the blood map.
    """
    return tuple(Doubt(code, sentence) for code, sentence in _codes_and_sentences(fit, picture))


def _codes_and_sentences(fit: FitResult, picture: PictureQuality) -> Iterator[tuple[str, str]]:
    yield from fit.stack_doubts
    # The components of another axis than time have no cutoff
    of_cutoff = [] if "axes" in dict(fit.stack_doubts) else _of_cutoff(fit)
    yield from of_cutoff
    if fit.dominance > DOMINANT and "cutoff" not in dict(of_cutoff):
        share = 100 * fit.dominance
        yield "tissue", f"one component has {share:.0f} % of what remains above the noise: it is not blood"
    n_saturated = int(np.count_nonzero(fit.bad_pixels.saturated))
    if n_saturated and "saturation" not in dict(fit.stack_doubts):
        share = 100 * n_saturated / fit.bad_pixels.mask.size
        sentence = f"{n_saturated} pixels ({share:.2g} %) exceed the range at times, and were excluded: lower the gain"
        yield "saturation", sentence
    n_bad = fit.bad_pixels.n_pixels
    if n_bad > MOST_BAD_PIXELS * fit.bad_pixels.mask.size:
        yield "bad-pixels", f"{n_bad} pixels are far noisier than their neighbours, and were excluded"
    elif picture.noisy_share > MOST_NOISY:
        share = 100 * picture.noisy_share
        yield "bad-pixels", f"{share:.0f} % of the power that stands out is noise of some pixels, and no flow"
    # On 8 phantoms of 64 x 64 pixels a map had less than 5 % of the true power in 22 to 39 % of the vessel pixels for 12
    # frames, in 7 to 23 % for 24, in 3 to 14 % for 32, and in 1 to 9 % for 64.
    if fit.n_frames < ENOUGH_FRAMES:
        # A rule for the remedies of all doubts. One component above the suggested ones lowered the correlation with the
        # truth in 14 phantoms of 10 to 31 frames, and raised the velocity error of another simulator (12 to 24 pulses).
        sentence = (
            f"{fit.n_frames} frames are few: parts of vessels can be missing from the blood map, and each further component "
            "removes blood: whatever the doubt, remove at most the suggested number of components; record more frames, or "
            "filter several recordings as a session"
        )
        yield "few-frames", sentence
    yield from _of_picture(picture)
    if not fit.fit_quality.verdict.is_good:
        yield "poor-estimate", fit.fit_quality.sentence
    if fit.fit_quality.start_caution:
        yield "poor-estimate", fit.fit_quality.start_caution


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
    suggestion = f"the data suggest {at_least}{suggested} ({choice.certainty})"
    return [("cutoff", f"{counted(low, 'component')} removed; {suggestion}: {effect}")]


def _of_picture(picture: PictureQuality) -> Iterator[tuple[str, str]]:
    if picture.lost_share is None:
        yield "no-blood", "no blood was found above the noise"
        return
    if picture.errors < WEAK_ERRORS:
        sentence = (
            f"the brightest of the blood map is {picture.errors:.0f} times its error: it may be blood, or tissue that is "
            "left, which reaches as much in recordings without blood"
        )
        yield "no-blood", sentence
    repeats, tissue = picture.reproducibility, picture.tissue_share
    if tissue is not None and tissue > MOST_TISSUE:
        yield "tissue", f"about {100 * tissue:.0f} % of the remaining power above the noise is tissue"
    if picture.missing_share > MOST_MISSING:
        sentence = (
            f"the blood map lacks {100 * picture.missing_share:.0f} % of what power Doppler shows above its floor: "
            "look at power Doppler"
        )
        yield "map-incomplete", sentence
    if picture.speckle_likeness > MOST_SPECKLE:
        sentence = (
            f"the blood map has the speckle of the tissue (correlation {picture.speckle_likeness:.2f}): a part of it is "
            "tissue"
        )
        yield "tissue", sentence
    if picture.quiet_correlation > MOST_QUIET_CORRELATION:
        sentence = (
            f"neighbouring frames correlate by {picture.quiet_correlation:.2f} where least power is left: slow flow or "
            "tissue is everywhere, or frames were averaged over time, and the map shows noise as blood"
        )
        yield "correlated-noise", sentence
    if picture.steadiness is not None and picture.steadiness < LEAST_REPEATABLE:
        sentence = (
            "the first and the second half of the frames show different vessels (correlation "
            f"{picture.steadiness:.2f})"
        )
        yield "repeatability", sentence
    elif repeats is None:
        yield "repeatability", "whether two halves of the frames show the same vessels is unknown"
    elif repeats < LEAST_REPEATABLE:
        yield "repeatability", f"the blood maps of two halves of the frames correlate by only {repeats:.2f}"
    if picture.vessel_share > LARGEST_VESSEL_SHARE:
        vessels = 100 * picture.vessel_share
        yield "tissue", f"vessels in {vessels:.0f} % of the image: a part of the map is not blood"


def verdict_parts(picture: str, frames: str, estimate: str, start_caution: str) -> list[str]:
    """Return the sentences of a verdict: on the picture, the frames and the estimate; empty ones are dropped."""
    return [part for part in (picture, frames, f"estimate: {estimate}", start_caution) if part]


@dataclass(frozen=True, repr=False)
class DenoiseResult(FitResult):
    """A filtered acquisition, and how it was obtained.

    Attributes
    ----------
    acquisition : Acquisition
        The filtered stack, in the axis order of the input. From a Dask array it is a Dask array, not made yet.
    power_doppler : float32 array
        Mean power over frames, in the squared units of the stack; spatial axes in the order of the input.
    blood_power : float32 array
        Blood map: power of the blood before the clutter filter, without the noise, in the units of `power_doppler`
        (docs/how-it-works.md).
    noise_power : float32 array
        Power of the noise in the stack, smooth over the image, in the same units.
    model : LowRank
        The estimated singular triplets. A large stack whose residual is kept has only the triplets below the low cutoff
        and eight more, unless all were requested.
    singular_values : (rank,) float64 array
        Singular values of all components. Those that the model does not have are estimated from every few pixels.
    options : DenoiseOptions
        The options as used, with numbers for those that were automatic.
    solution : Solution or None
        The result of the iterative method; None for the SVD.
    cutoff : CutoffChoice
        The low cutoff that the data suggest. It is the one in `options` unless `is_cutoff_given`.
    is_cutoff_given : bool
        Whether the low cutoff was given.
    picture_quality : PictureQuality
        Blood over noise, the share of the image where noise dominates, the loss to the clutter filter, and the
        correlation of the blood maps of two halves of the scan.
    frame_quality : FrameQuality
        Bad frames, and curves over all frames.
    fit_quality : FitQuality
        The held-out error against the one that the sample allows, and the verdict.
    noise_floor : float
        Noise level: estimated rms of the noise in an entry, in the units of the data.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the entries of the Casorati matrix that were observed and not in an excluded frame; None
        when that is all of them.
    n_unobserved : int
        Number of entries that were NaN or infinite, or in an excluded frame.
    n_frames : int
        Number of frames.
    n_silent : int
        Number of masked pixels: zero or unobserved in all frames, far below the noise of the image, or bad. They are
        excluded from every computation and set to 0 in the output.
    bad_pixels : BadPixels
        The masked pixels that are far noisier than their neighbours: a mask in the order z, x, y, and the whole lines.
    dominance : float
        Share of the strongest remaining component in the power above the noise; 0 if there are few.
    n_sampled : int
        Number of entries that were fitted or held out.
    n_subset_pixels, n_sample_pixels : int
        As for :class:`usdenoise.pipeline.fit_result.FitResult`.
    timings_s : dict
        Seconds of the stages "solve" and "filter".

    Examples
    --------
    >>> import usdenoise
    >>> result = usdenoise.denoise(usdenoise.load("sample_data/phantom.h5"), low_cutoff=8)
    >>> result.kept, result.power_doppler.shape, result.cutoff_sentence
    ('[8, all)', (72, 56), 'as given')
    """

    acquisition: Acquisition
    power_doppler: NDArray[np.float32]
    blood_power: NDArray[np.float32]
    noise_power: NDArray[np.float32]
    model: LowRank
    picture_quality: PictureQuality
    frame_quality: FrameQuality
    observed: NDArray[np.uint8] | None
    n_unobserved: int
    timings_s: dict[str, float]

    @property
    def stack(self) -> Any:
        """The filtered frames, an array in the axis order of the input."""
        return self.acquisition.iq

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons not to trust the pictures; empty if there are none."""
        return find_doubts(self, self.picture_quality)

    @property
    def verdict(self) -> str:
        """Quality of the picture, the frames and the estimate, in words."""
        picture, frames, fit = self.picture_quality, self.frame_quality, self.fit_quality
        return "; ".join(verdict_parts(picture.sentence, frames.sentence, fit.sentence, fit.start_caution))

    @property
    def sampled(self) -> str:
        """The share of all entries that were fitted or held out, for example "7.1 %"."""
        n_entries = math.prod(self.acquisition.shape) - self.n_silent * self.acquisition.n_frames
        return f"{100 * self.n_sampled / n_entries:.3g} %"

    def images(self, flow: Mapping[str, FlowImage]) -> list[NamedArray]:
        """Return the power images, and flow images after them, as files and xarray have them.

        Parameters
        ----------
        flow : mapping
            Name -> flow image.
        """
        stack = self.acquisition
        spatial = stack.spatial_axes
        shape = stack.shape_in(spatial)
        # The images of a result for a DataArray have the dimensions of the input.
        power = [
            NamedArray(name, np.asarray(getattr(self, name)).reshape(shape), spatial, attributes)
            for name, attributes in POWER_IMAGES.items()
        ]
        return power + [
            NamedArray(name, image.values, spatial, {"unit": image.unit, "formula": image.formula})
            for name, image in flow.items()
        ]

    def contents(self, flow: Mapping[str, FlowImage]) -> list[NamedArray]:
        """Return all arrays of the result besides the stack: the images, the singular values, and unobserved entries.

        Parameters
        ----------
        flow : mapping
            Name -> flow image, as for :meth:`images`.
        """
        stack, unit = self.acquisition, {"unit": "the stack's unit"}
        arrays = self.images(flow)
        arrays.append(NamedArray("singular_values", self.singular_values, "", unit, ("component",)))
        if self.observed is not None:
            missing = stack.as_stack(~unpack(self.observed, stack.n_frames).T)
            unit = {"unit": "1 where the input was NaN or infinite"}
            arrays.append(NamedArray("unobserved", missing, stack.axes, unit))
        return arrays

    def to_xarray(self) -> Any:
        """Return the filtered stack and its images as an xarray.Dataset, with positions, units and provenance.

        The stack has its own name, or `filtered_stack` where an image or a coordinate has that name.

        Raises
        ------
        OptionError
            If xarray is not installed.
        """
        stack = self.acquisition
        flow = {"axial_velocity": axial_velocity(stack)} if stack.is_complex else {}
        arrays = {array.name: self._labelled(array) for array in self.contents(flow) if array.axes}
        attributes = {
            "low_cutoff": self.options.low_cutoff,
            "rank": self.options.rank,
            "cutoff": self.cutoff_sentence,
            "verdict": self.verdict,
            PROVENANCE: self.provenance,
        }
        stack_array = self._stack()
        # A stack with the name of an image or of a coordinate would be lost, and a coordinate with the name of an image.
        is_name_used = (
            stack.name in arrays or stack.name in stack_array.coords or stack.name in stack_array.dims
        )
        named = {FREE_NAME if is_name_used else stack.name: stack_array, **arrays}
        variables = {name: array.drop_vars(arrays, errors="ignore") for name, array in named.items()}
        return import_xarray().Dataset(variables, attrs=attributes)

    def _stack(self) -> Any:
        stack_array = self.acquisition.to_xarray()
        stack_array.attrs[PROVENANCE] = self.provenance
        return stack_array

    def _labelled(self, array: NamedArray) -> Any:
        """Return an array of the result as a DataArray."""
        attributes = {"long_name": IMAGE_NAMES[array.name]}
        if "formula" in array.attributes:
            attributes |= {"units": array.attributes["unit"], "formula": array.attributes["formula"]}
            attributes[PROVENANCE] = self.provenance
        return to_data_array(array.values, self.acquisition, array.axes, array.name, attributes)

    @property
    def provenance(self) -> str:
        """What made the result, as JSON text."""
        stack = self.acquisition
        source = {"dataset": stack.name, "shape": list(stack.shape), "axes": stack.axes}
        return to_json(record(None, asdict(self.options), source))

    def __repr__(self) -> str:
        stack, options = self.acquisition, self.options
        iterations = "not iterative" if self.solution is None else self.solution.stop_reason.value
        n_iterations = 0 if self.solution is None else self.solution.iterations
        error = "-" if self.held_out_rmse is None else f"{self.held_out_rmse:.4g}"
        seconds = ", ".join(f"{stage} {value:.2f} s" for stage, value in self.timings_s.items())
        lines = {
            "stack": f"{stack.name}, {stack.shape_text}, {stack.dtype}, {self.n_unobserved} entries unobserved",
            "method": f"{options.method}, rank {options.rank}, {self.sampled} of the entries sampled, seed {options.seed}",
            "kept": f"components {self.kept}",
            "low cutoff": f"{options.low_cutoff}, {self.cutoff_certainty}: {self.cutoff_sentence}",
            "iterations": f"{n_iterations}: {iterations}",
            "error": f"held-out {error}, noise {self.noise_floor:.4g}",
            "picture": self.picture_quality.sentence,
            "frames": self.frame_quality.sentence or "none is bad",
            "estimate": self.fit_quality.sentence,
            "power": f"mean {float(self.power_doppler.mean()):.4g}, largest {float(self.power_doppler.max()):.4g}",
            "doubts": f"\n{'':14}".join(doubt.sentence for doubt in self.doubts) or "none",
            "time": seconds,
        }
        width = max(map(len, lines))
        rows = [f"  {name:<{width}}  {text}" for name, text in lines.items()]
        return "\n".join([f"<{type(self).__name__}", *rows]) + ">"


@dataclass(frozen=True, repr=False)
class LabelledResult(DenoiseResult):
    """The result for an xarray.DataArray: its images are DataArrays, with the labels of the input.

    Attributes
    ----------
    power_doppler, blood_power, noise_power : xarray.DataArray
        As in :class:`usdenoise.DenoiseResult`.
    """

    power_doppler: Any
    blood_power: Any
    noise_power: Any

    @classmethod
    def from_result(cls, result: DenoiseResult) -> Self:
        """Return a result with its images as DataArrays."""
        images = {array.name: result._labelled(array) for array in result.images({})}
        return cls(**{**vars(result), **images})

    @cached_property
    def stack(self) -> Any:
        """The filtered stack as an xarray.DataArray."""
        return self._stack()

    @cached_property
    def axial_velocity(self) -> Any:
        """The axial velocity as an xarray.DataArray; see :func:`usdenoise.axial_velocity`."""
        *_, velocity = self.images({"axial_velocity": axial_velocity(self.acquisition)})
        return self._labelled(velocity)

    @cached_property
    def unobserved(self) -> Any:
        """Which entries were NaN or infinite, or in an excluded frame, as an xarray.DataArray of bool."""
        stack, known = self.acquisition, [array for array in self.contents({}) if array.name == "unobserved"]
        none = NamedArray("unobserved", np.zeros(stack.shape, bool), stack.axes)
        return self._labelled(known[0] if known else none)
