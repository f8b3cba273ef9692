"""The report of a result, as one record: JSON file, summary, page, tables and the row of a batch are its views.

Every key of the JSON object is a field here, and is always present; its value is null if it does not apply.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import PictureQuality
from usdenoise.clutter.clutter_cutoff import CutoffReason
from usdenoise.completion.solve import Iteration
from usdenoise.options.job_options import NO_PRODUCTS
from usdenoise.pipeline.fit_result import FitResult, Verdict
from usdenoise.pipeline.result import Doubt, DoubtKind, verdict_parts
from usdenoise.sessions.activation import ActivationMap, LinearModel, rule_words
from usdenoise.sessions.pose_series import POSE_AXIS
from usdenoise.sessions.regions import WHOLE_IMAGE, RegionResponse, RegionSeries, relative_change
from usdenoise.sessions.result_series import ANY_TYPE, BadFrameRecord, BlockRecord, FramesRecord, ResultSeries
from usdenoise.stack.geometry import GriddedStack
from usdenoise.system.resources import peak_memory_bytes
from usdenoise.system.text import counted, from_plain, plain, software

MOST_NAMED = 3
"""Bad blocks, and regions, that are named in words."""


@dataclass(frozen=True)
class BloodRecord(PictureQuality):
    """The metrics of the blood map, with their sentence; it is empty where blood is not judged."""

    sentence: str = ""


@dataclass(frozen=True)
class CutoffRecord:
    """The low cutoff, the code and the words of its reason, how certain it is, and the cutoff that the data suggest.

    The last four are as in :class:`usdenoise.clutter.clutter_cutoff.CutoffChoice`.
    """

    low: int
    rule: str
    reason: str
    certainty: str
    suggested: int
    two_squares: tuple[int, ...] | None
    similarity_profile: tuple[float, ...]
    similarity_threshold: float
    doppler_cycles_a_frame: tuple[float, ...]

    @property
    def is_own(self) -> bool:
        """Whether each block of a session has components of its own."""
        return self.rule == CutoffReason.BLOCK_ALONE.code


@dataclass(frozen=True)
class InputRecord:
    """The input of a job, and what was read from it.

    Attributes
    ----------
    path : str
        File, or folder of the files of a session.
    sha256 : str or None
        Digest of the file; None for several files.
    shape : tuple of int
        Shape of the stack, with all frames that were read.
    bytes, mtime_ns : int or None
        Size and modification time on disk; for several files, their total size and no time.
    passes_over_file : float or None
        How often the file was read; None for several files.
    files : dict or None
        Path -> size and modification time of each of several files.
    """

    path: str
    sha256: str | None
    dataset: str
    shape: tuple[int, ...]
    axes: str
    dtype: str
    frame_rate_hz: float | None
    spacing_mm: dict[str, float]
    assumptions: tuple[str, ...]
    bytes: int | None = None
    mtime_ns: int | None = None
    passes_over_file: float | None = None
    files: dict[str, dict[str, int]] | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Axis letter -> length."""
        return dict(zip(self.axes, self.shape, strict=True))

    @property
    def shape_text(self) -> str:
        """Axes and lengths in words, for example "t 150, z 72, x 56"."""
        return ", ".join(f"{letter} {length}" for letter, length in self.sizes.items())


@dataclass(frozen=True)
class ActivationRecord:
    """The activation by a type of event, or by any of several.

    Attributes
    ----------
    trial_type : str
        The type; empty for any.
    n_active : int
        Number of significant pixels.
    threshold : float or None
        Least absolute t, or F, of these; None without any.
    statistic : str
        "t" or "F".
    rule : str
        The rule by which they are significant, such as "fdr:0.05".
    correlations : dict
        Measure of the motion of the tissue -> how it correlates with the events.
    clusters : tuple of float
        Mass of each cluster of active pixels; empty without a rule on clusters.
    smoothing_mm, n_active_smoothed : float or None, int or None
        As for :class:`usdenoise.sessions.activation.ActivationMap`.
    """

    trial_type: str
    n_active: int
    threshold: float | None
    statistic: str
    rule: str
    correlations: dict[str, float]
    clusters: tuple[float, ...] = ()
    smoothing_mm: float | None = None
    n_active_smoothed: int | None = None

    @classmethod
    def of(cls, trial_type: str, activation: ActivationMap) -> Self:
        """Return the record of an activation map."""
        return cls(
            trial_type=trial_type,
            n_active=int(activation.active.sum()),
            threshold=activation.threshold,
            statistic=activation.letter,
            rule=activation.rule,
            correlations=dict(activation.correlations),
            clusters=activation.clusters,
            smoothing_mm=activation.smoothing_mm,
            n_active_smoothed=activation.n_active_smoothed,
        )

    @property
    def name(self) -> str:
        """The type, or ANY_TYPE."""
        return self.trial_type or ANY_TYPE

    @property
    def sentence(self) -> str:
        """The number of active pixels and their threshold, in words."""
        rule = rule_words(self.rule)
        if self.threshold is None:
            return f"no pixel is significant ({rule})"
        sign = "|t|" if self.statistic == "t" else self.statistic
        if self.clusters:
            n_clusters = counted(len(self.clusters), "cluster")
            rule = f"{n_clusters} of a mass up to {max(self.clusters):.4g}; {rule}"
        # Rounded down: the pixel whose value it is has it
        least = math.floor(100 * self.threshold) / 100
        return f"{counted(self.n_active, 'pixel')} with {sign} of {least:.2f} or more ({rule})"

    @property
    def title(self) -> str:
        """The type, and its active pixels in words."""
        return f"{self.name}: {self.sentence}"

    @property
    def proposal(self) -> str:
        """The smoothing that would show more, in words; empty if there is none."""
        if self.smoothing_mm is None or not self.n_active_smoothed:
            return ""
        return f"with --smoothing {self.smoothing_mm:g}, {self.n_active_smoothed} pixels are active"


@dataclass(frozen=True)
class RegionRecord:
    """A region of a session.

    Attributes
    ----------
    name : str
        Its name.
    n_pixels : int
        Number of its pixels.
    lowest, highest : float or None
        Blood power in the good blocks in per cent above its mean; None if it is not known.
    responses : tuple of RegionResponse
        The response to each type of event; empty without events.
    pose : str
        The position of the probe, if there are several; by default empty.
    """

    name: str
    n_pixels: int
    lowest: float | None
    highest: float | None
    responses: tuple[RegionResponse, ...]
    pose: str = ""

    @classmethod
    def of(cls, name: str, pose: str, region: RegionSeries, is_bad: NDArray[np.bool_]) -> Self:
        """Return the record of a region."""
        change = relative_change(region.blood_power, is_bad)[~is_bad]
        known = change[np.isfinite(change)]
        return cls(
            name=name,
            n_pixels=int(region.mask.sum()),
            lowest=float(known.min()) if known.size else None,
            highest=float(known.max()) if known.size else None,
            responses=tuple(region.responses.values()),
            pose=pose,
        )

    @property
    def title(self) -> str:
        """Its name, and the position of the probe if there are several."""
        return f"{self.name}, pose {self.pose}" if self.pose else self.name

    @property
    def range(self) -> str:
        """Smallest and largest blood power against the mean, in words."""
        if self.lowest is None or self.highest is None:
            return "not known"
        return f"{self.lowest:+.1f} to {self.highest:+.1f} %"

    @property
    def sentence(self) -> str:
        """The responses of the region, or without events its range, in words."""
        responses = ", ".join(each.words for each in self.responses)
        return f"{self.title}: {responses or self.range}"


@dataclass(frozen=True)
class PoseRecord:
    """A position of the probe.

    Attributes
    ----------
    name : str
        Its name.
    position_mm : float or None
        Where it is; None if that is not known.
    low_cutoff, certainty : int, str
        Clutter components that are removed from its blocks, and how sure this number is; empty in a model.
    is_own : bool
        Whether each block has components of its own.
    blood_to_noise_db : float or None
        Median of blood over noise in its vessels; None without any.
    n_blocks, n_bad : int
        Number of its blocks, and of bad ones among them.
    moves_pixels : float or None
        Largest displacement of a block against its reference; None if blocks were not aligned.
    n_active : dict
        Type of event -> number of active pixels.
    doubts : tuple of Doubt
        Reasons not to trust its maps.
    page : str
        Path of its page from the folder of the results; empty without pages.
    """

    name: str
    position_mm: float | None
    low_cutoff: int
    certainty: str
    is_own: bool
    blood_to_noise_db: float | None
    n_blocks: int
    n_bad: int
    moves_pixels: float | None
    n_active: dict[str, int]
    doubts: tuple[Doubt, ...]
    page: str


@dataclass(frozen=True)
class SequenceRecord:
    """The blocks of a session, or the sweeps over several positions of the probe.

    Attributes
    ----------
    window, stride : int or None
        Frames of a usual block, and from the start of a window to the start of the next; None for blocks that are files.
    size : str
        Frames of the blocks in words.
    time : tuple of float
        Middle of each block, in `time_unit`: "s", or "frames" if the frame rate is not known.
    sampled_frames : int
        Frames of the sample that the clutter was estimated from; 0 in a model.
    design : tuple of str
        Columns of the general linear model of the activation; empty without events.
    model : LinearModel or None
        Properties of this model; None without events.
    has_modulation : bool
        Whether events have heights other than 1; by default not.
    activation : tuple of ActivationRecord
        The activation by each type of event, and by any of several; empty without events.
    regions : tuple of RegionRecord
        The regions, the whole image first, each in each of several positions that has it; empty without any.
    alignment : str
        What was compensated for in which blocks, in words; empty if nothing was.
    delay_s : float
        Delay of the response to the events in s; by default 0.
    n_unusual : int
        Number of unusual blocks that the estimate of the clutter left out; by default none.
    poses : tuple of PoseRecord
        The positions of the probe, if there are several. What describes the estimate is of the position in the middle then.
    """

    window: int
    size: str
    stride: int | None
    time: tuple[float, ...]
    time_unit: str
    sampled_frames: int
    n_bad: int
    blocks: tuple[BlockRecord, ...]
    alignment: str = ""
    design: tuple[str, ...] = ()
    model: LinearModel | None = None
    has_modulation: bool = False
    activation: tuple[ActivationRecord, ...] = ()
    regions: tuple[RegionRecord, ...] = ()
    delay_s: float = 0.0
    n_unusual: int = 0
    poses: tuple[PoseRecord, ...] = ()

    @property
    def n_blocks(self) -> int:
        """Number of blocks, of all positions."""
        return sum(pose.n_blocks for pose in self.poses) or len(self.blocks)

    @property
    def removed(self) -> str:
        """Components that were removed from the blocks of each position, in words."""
        cutoffs = sorted({pose.low_cutoff for pose in self.poses})
        return " to ".join(dict.fromkeys(map(str, cutoffs[:1] + cutoffs[-1:])))

    @property
    def named_regions(self) -> tuple[RegionRecord, ...]:
        """The regions besides the whole image."""
        return tuple(region for region in self.regions if region.name != WHOLE_IMAGE)

    @property
    def region_sentences(self) -> list[str]:
        """The sentences of the first regions, and how many more there are."""
        sentences = [region.sentence for region in self.named_regions[:MOST_NAMED]]
        more = len(self.named_regions) - MOST_NAMED
        return [*sentences, *([f"{more} more"] if more > 0 else [])]

    @property
    def answers(self) -> list[str]:
        """What was asked of the session, in words: the active pixels of each type of event, and the regions."""
        activation = [f"activation by {each.title}" for each in self.activation]
        return [*activation, *(f"region {words}" for words in self.region_sentences)]

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The columns of the model after the responses."""
        return self.design[0 if self.model is None else self.model.n_responses :]

    @property
    def column_words(self) -> str:
        """The columns of the model in words."""
        others = [name for name in self.other_columns if not name.startswith(("drift", "bad_block"))]
        words = [*self.design[: len(self.design) - len(self.other_columns)]]
        words += [name.replace("_", " ") for name in others]
        if self.n_drifts:
            words.append(f"{counted(self.n_drifts, 'cosine')} for slow drifts")
        if n_bad := sum(name.startswith("bad_block") for name in self.other_columns):
            words.append("one for the bad block" if n_bad == 1 else f"one for each of {n_bad} bad blocks")
        return ", ".join(words)

    @property
    def n_drifts(self) -> int:
        """Number of cosines for slow drifts in the model."""
        return sum(name.startswith("drift") for name in self.other_columns)

    @property
    def n_parts(self) -> int:
        """Number of the parts of the session between long pauses."""
        return 1 + sum(name.startswith("part_") for name in self.other_columns)


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """The report of a model of a series, and what the report of every job has.

    Attributes
    ----------
    verdict : str
        Active pixels and regions of a session, and the quality of the picture, the frames and the estimate, in words.
    doubts : tuple of Doubt
        Reasons not to trust the pictures; empty if there are none.
    requested : dict
        The options as requested.
    timings_s : dict
        Seconds of each stage, and in total.
    output, output_bytes : dict
        Key -> path of each file, and its bytes, without the report itself.
    notes : tuple of str
        Sentences on what the files have otherwise than the input, or have not.
    command : tuple of str or None
        The command line; None for a library call.
    sequence : SequenceRecord or None
        The blocks of a session; None for a run.
    """

    verdict: str = ""
    doubts: tuple[Doubt, ...]
    timings_s: dict[str, float]
    peak_memory_bytes: int
    input: InputRecord
    output: dict[str, str]
    notes: tuple[str, ...]
    software: dict[str, str]
    command: tuple[str, ...] | None
    requested: dict[str, Any]
    sequence: SequenceRecord | None
    output_bytes: dict[str, int | None] = field(default_factory=dict)
    memory_limit_bytes: int | None = None

    @property
    def sentences(self) -> list[str]:
        """The parts of the verdict."""
        return [] if self.sequence is None else self.sequence.answers

    def as_json(self) -> dict[str, Any]:
        """Return the report as the JSON object of its file."""
        return plain(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Return the report of a JSON object.

        Raises
        ------
        ValueError
            If it is not a report of this version.
        """
        try:
            report_version = values["software"]["usdenoise"]
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError("its report cannot be read") from error
        now = software()["usdenoise"]
        if report_version != now:
            raise ValueError(f"made by version {report_version}, this is {now}")
        try:
            return from_plain(cls, values)
        except ValueError as error:
            raise ValueError(f"its report cannot be read ({error})") from error


@dataclass(frozen=True, kw_only=True)
class Report(ModelReport):
    """The report of a run or a session. The report of a session describes the fit to its sample.

    docs/batch.md and docs/quality-control.md explain the codes. Other fields are as in :class:`usdenoise.DenoiseResult`.

    Attributes
    ----------
    fit, estimate : str
        Code and words of the judgement on the estimate.
    start_caution : str
        Why the iterations cannot be expected to converge from their start; empty if they can.
    parameters : dict
        The options as used.
    """

    method: str
    rank: int
    sampling: float
    seed: int
    low_cutoff: int
    high_cutoff: int | str
    iterations: int
    passes: int
    stop_reason: str
    held_out_rmse: float | None
    held_out_allowed: float | None
    held_out_ratio: float | None
    residual_rms: float
    blood: BloodRecord
    reproducibility: float | None
    bad_frames: tuple[BadFrameRecord, ...]
    frames: FramesRecord
    fit: str
    estimate: str
    start_caution: str
    cutoff: CutoffRecord
    noise_floor: float
    n_sampled: int
    n_subset_pixels: int
    n_sample_pixels: int
    n_unobserved: int
    n_silent: int
    n_bad_pixels: int
    bad_pixels: tuple[str, ...]
    n_saturated: int
    flicker: dict[str, float]
    trace: tuple[Iteration, ...]
    singular_values: tuple[float, ...]
    parameters: dict[str, Any]

    @property
    def sentences(self) -> list[str]:
        """The parts of the verdict."""
        answers = super().sentences
        if self.sequence is not None and self.sequence.poses:
            # The pages of the positions have their quality.
            return [*answers, f"{self.sequence.n_bad} of {self.sequence.n_blocks} blocks are bad"]
        quality = verdict_parts(self.blood.sentence, self.frames.sentence, self.estimate, self.start_caution)
        return [*answers, *quality]

    @property
    def is_good_fit(self) -> bool:
        """Whether nothing better is to be expected from the rank and the sample."""
        return self.fit in {verdict.code for verdict in Verdict if verdict.is_good}

    @property
    def n_missing(self) -> int:
        """Number of entries that were NaN or infinite, besides entries of excluded frames."""
        return self.n_unobserved - self.frames.n_entries_left_out

    @property
    def sampled_share(self) -> str:
        """Share of the entries that were sampled, for example "2.1 %"; in a session, of its sample of frames."""
        sizes = self.input.sizes
        n_frames = sizes["t"] if self.sequence is None else self.sequence.sampled_frames
        n_pixels = math.prod(n for letter, n in sizes.items() if letter != "t") - self.n_silent
        return f"{100 * self.n_sampled / (n_pixels * n_frames):.3g} %"


def input_record(
    path: Path, stack: GriddedStack, shape: Sequence[int], state: Mapping[str, int] | None = None
) -> InputRecord:
    """Return the record of a stack that was read.

    Parameters
    ----------
    path : Path
        File, or folder of files.
    stack : Geometry or Acquisition
        Its metadata.
    shape : sequence of int
        Its shape, with all frames.
    state : mapping, optional
        The bytes and the modification time of its file; by default not known.
    """
    return InputRecord(
        path=str(path),
        sha256=None,
        dataset=stack.name,
        shape=tuple(shape),
        axes=stack.axes,
        dtype=str(stack.stored_dtype or stack.dtype),
        frame_rate_hz=stack.frame_rate_hz,
        spacing_mm=dict(stack.spacing_mm),
        assumptions=tuple(stack.assumptions),
        bytes=state.get("bytes") if state else None,
        mtime_ns=state.get("mtime_ns") if state else None,
    )


def report_of(
    series: ResultSeries,
    source: InputRecord,
    output: Mapping[str, str],
    notes: Sequence[str],
    timings_s: Mapping[str, float],
    command: Sequence[str] | None,
    requested: Mapping[str, Any],
    pages: Sequence[str] = (),
) -> ModelReport:
    """Return the report of a job: a :class:`Report`, or without a fit the one of a model.

    Parameters
    ----------
    series : ResultSeries
        The result.
    source : InputRecord
        The input.
    output, notes, timings_s, command, requested
        As in :class:`usdenoise.report.record.Report`.
    pages : sequence of str
        Path of the page of each position of the probe; none by default.
    """
    result, picture, blocks = series.fit, series.picture_quality, series.all_blocks
    judges_blood = tuple(requested.get("output", {}).get("products", ())) != NO_PRODUCTS
    doubts = tuple(doubt for doubt in series.doubts if judges_blood or not doubt.has(DoubtKind.ABOUT_BLOOD))
    # A doubt is not an assumption besides.
    doubted = {doubt.sentence for doubt in doubts}
    of_poses = series.geometry.assumptions if series.by_pose else ()
    assumptions = tuple(
        note for note in dict.fromkeys((*source.assumptions, *of_poses)) if note not in doubted
    )
    common = ModelReport(
        doubts=doubts,
        timings_s=dict(timings_s),
        peak_memory_bytes=peak_memory_bytes(),
        input=replace(source, assumptions=assumptions),
        output=dict(output),
        notes=tuple(notes),
        software=dict(software()),
        command=None if command is None else tuple(command),
        requested=dict(requested),
        sequence=_sequence(series, pages) if series.is_session else None,
    )
    if result is None or picture is None:
        return replace(common, verdict="; ".join(common.sentences))
    solution, options, fit = result.solution, result.options, result.fit_quality
    # A bad frame of two windows that overlap counts once. A session of one file does not name it.
    bad_frames = {(block.file, frame.frame): (block, frame) for block in blocks for frame in block.bad_frames}
    report = Report(
        **vars(common),
        method=options.method,
        rank=int(options.rank),
        sampling=options.sampling,
        seed=options.seed,
        low_cutoff=series.low_cutoff,
        high_cutoff=series.high_cutoff,
        iterations=solution.iterations if solution else 0,
        passes=solution.passes if solution else 0,
        stop_reason=solution.stop_reason.value if solution else "the SVD is not iterative",
        held_out_rmse=result.held_out_rmse,
        held_out_allowed=fit.allowed_rmse,
        held_out_ratio=fit.held_out_ratio,
        residual_rms=fit.residual_rms,
        blood=BloodRecord(**asdict(picture), sentence=picture.sentence if judges_blood else ""),
        reproducibility=picture.reproducibility,
        bad_frames=tuple(
            replace(frame, file=None if source.files is None else block.file)
            for block, frame in bad_frames.values()
        ),
        frames=_frames_of_session(series) if series.is_session else blocks[0].frames,
        fit=fit.verdict.code,
        estimate=fit.sentence,
        start_caution=fit.start_caution,
        cutoff=_cutoff(result),
        noise_floor=result.noise_floor,
        n_sampled=result.n_sampled,
        n_subset_pixels=result.n_subset_pixels,
        n_sample_pixels=result.n_sample_pixels,
        n_unobserved=sum(block.n_unobserved for block in blocks),
        n_silent=result.n_silent,
        n_bad_pixels=result.bad_pixels.n_pixels,
        bad_pixels=tuple(result.bad_pixels.places(series.geometry.pixel_axes)),
        n_saturated=int(np.count_nonzero(result.bad_pixels.saturated)),
        # The first round of an axis measures its flicker, and later ones what was left of it
        flicker={series.geometry.pixel_axes[each.axis]: each.spread for each in reversed(result.flickers)},
        trace=tuple(solution.trace) if solution else (),
        singular_values=tuple(map(float, result.singular_values)),
        parameters=asdict(options),
    )
    return replace(report, verdict="; ".join(report.sentences))


def _cutoff(result: FitResult) -> CutoffRecord:
    choice = result.cutoff
    return CutoffRecord(
        low=result.low_cutoff,
        rule=result.cutoff_rule.code,
        reason=result.cutoff_sentence,
        certainty=result.cutoff_certainty.value,
        suggested=choice.low,
        two_squares=choice.two_squares,
        similarity_profile=tuple(map(float, choice.profile)),
        similarity_threshold=choice.threshold,
        doppler_cycles_a_frame=tuple(map(float, choice.doppler_cycles)),
    )


def _sequence(series: ResultSeries, pages: Sequence[str]) -> SequenceRecord:
    """Return the record of the blocks of a session."""
    lengths = [block.n_frames for block in series.block_records if block.n_frames]
    # The last one may be shorter.
    is_even = len(set(lengths[:-1])) <= 1
    model = next(iter(series.activation.values()), None)
    return SequenceRecord(
        window=series.window,
        size=f"{lengths[0]} frames" if is_even else f"{min(lengths)} to {max(lengths)} frames",
        stride=series.options.stride or series.options.window,
        time=tuple(series.time.tolist()),
        time_unit=series.time_unit,
        sampled_frames=0 if series.fit is None else series.fit.n_frames,
        n_bad=sum(block.is_bad for block in series.all_blocks),
        alignment=_in_words(series, _alignment),
        delay_s=series.delay_s,
        poses=_poses(series, pages),
        n_unusual=series.n_unusual,
        design=() if model is None else model.columns,
        model=None if model is None else model.model,
        has_modulation=any(event.modulation != 1 for event in series.events),
        activation=tuple(ActivationRecord.of(name, found) for name, found in series.activations.items()),
        regions=tuple(RegionRecord.of(*each) for each in series.all_regions),
        blocks=series.block_records,
    )


def _in_words(series: ResultSeries, words_of: Callable[[ResultSeries], str]) -> str:
    """Return what there is to say of a session, or of each of several positions of the probe."""
    if not series.by_pose:
        return words_of(series)
    of_poses = {name: words_of(of_pose) for name, of_pose in series.by_pose.items()}
    return "; ".join(f"pose {name}: {words}" for name, words in of_poses.items() if words)


def _poses(series: ResultSeries, pages: Sequence[str]) -> tuple[PoseRecord, ...]:
    """Return the records of several positions of the probe."""
    places = series.geometry.coordinates.get(POSE_AXIS)
    return tuple(
        PoseRecord(
            name=name,
            position_mm=None if places is None else float(places.values[number]),
            low_cutoff=of_pose.low_cutoff,
            certainty="" if of_pose.fit is None else of_pose.fit.cutoff_certainty.value,
            is_own=of_pose.fit is not None and of_pose.fit.cutoff_rule is CutoffReason.BLOCK_ALONE,
            blood_to_noise_db=getattr(of_pose.picture_quality, "blood_to_noise_db", None),
            n_blocks=len(of_pose.block_records),
            n_bad=int(of_pose.bad.sum()),
            moves_pixels=_largest_shift(of_pose.block_records),
            n_active={name: int(found.active.sum()) for name, found in of_pose.activation.items()},
            doubts=of_pose.doubts,
            page=pages[number] if pages else "",
        )
        for number, (name, of_pose) in enumerate(series.by_pose.items())
    )


def _largest_shift(blocks: Sequence[BlockRecord]) -> float | None:
    """Return the largest displacement of a block along an axis; None if no block has a known one."""
    shifts = [abs(shift) for block in blocks for shift in block.shift_pixels or () if not math.isnan(shift)]
    return max(shifts, default=None)


def _alignment(series: ResultSeries) -> str:
    """Return what was compensated for in which blocks, in words."""
    blocks, shifts = series.block_records, series.shifts
    is_shifted = np.array([block.is_shifted for block in blocks])
    scaled = [block for block in blocks if block.is_scaled and block.gain_db is not None]
    gains = [db for block in scaled for db in block.gain_range_db or (block.gain_db or 0.0,)]
    sentences = []
    if shifts is not None and is_shifted.any():
        largest = np.abs(shifts[is_shifted]).max(axis=0)
        along = " and ".join(
            f"{pixels:.2f} pixels in {letter}"
            for letter, pixels in zip(series.geometry.pixel_axes, largest, strict=True)
        )
        sentences.append(f"{is_shifted.sum()} blocks were shifted, by up to {along}")
    if gains:
        sentences.append(
            f"{len(scaled)} blocks were divided by a gain"
            f"{' that changes with depth' * any(block.gain_range_db for block in scaled)}"
            f", of {min(gains):+.2f} to {max(gains):+.2f} dB"
        )
    deformed = [block.deformation_pixels for block in blocks if block.deformation_pixels]
    if deformed:
        turned = max((np.nanmax(np.abs(one)) for one in series.rotations.values()), default=0.0)
        sentences.append(
            f"{len(deformed)} blocks were turned and deformed back after the filter, by up to {max(deformed):.2f} pixels "
            f"and {turned:.2f} degrees"
        )
    return "; ".join(sentences)


def _frames_of_session(series: ResultSeries) -> FramesRecord:
    """Return the record of the frames of a session, in which the sentence names the position of each bad block."""
    sentence = _in_words(series, lambda of_pose: _frames_of_blocks(of_pose.block_records).sentence)
    return replace(_frames_of_blocks(series.all_blocks), sentence=sentence)


def _frames_of_blocks(blocks: Sequence[BlockRecord]) -> FramesRecord:
    """Return the record of the frames of all blocks; those in two blocks count twice. Bad blocks are named in words."""
    frames = [block.frames for block in blocks]
    sentences = [
        f"block {number}{f' ({block.file})' if block.file else ''} is bad: {block.why}"
        for number, block in enumerate(blocks)
        if block.is_bad
    ]
    if (more := len(sentences) - MOST_NAMED) > 0:
        sentences[MOST_NAMED:] = [f"and {counted(more, 'more block')}"]
    if sentences:
        sentences.append("blocks are counted from 0")
    n_left_out = sum(quality.n_left_out for quality in frames)
    moves = [quality.displacement for quality in frames if quality.displacement is not None]
    if n_left_out:
        sentences.insert(0, f"{n_left_out} bad frames are excluded")
    return FramesRecord(
        n_bad=sum(quality.n_bad for quality in frames),
        n_left_out=n_left_out,
        n_entries_left_out=sum(quality.n_entries_left_out for quality in frames),
        displacement=max(moves, default=None),
        displacement_unit=next((one.displacement_unit for one in frames if one.displacement_unit), ""),
        sentence="; ".join(sentences),
    )
