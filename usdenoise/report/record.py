"""The report of a result, as one record: JSON file, summary, page, tables and the row of a batch are its views.

Every key of the JSON object is a field here, and is always present; its value is null if it does not apply.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

from usdenoise.completion.solve import Iteration
from usdenoise.pipeline.doubts import Doubt
from usdenoise.pipeline.fit_result import Verdict
from usdenoise.pipeline.result import verdict_parts
from usdenoise.sessions.activation import ActivationMap, LinearModel, rule_words
from usdenoise.system.provenance import from_plain, plain, software


@dataclass(frozen=True)
class BloodRecord:
    """The metrics of the blood map, as :class:`usdenoise.blood.picture_quality.PictureQuality` has them, and in words."""

    vessel_share: float
    noise_share: float
    blood_to_noise_db: float | None
    lost_share: float | None
    reproducibility: float | None
    tissue_share: float | None
    noisy_share: float
    missing_share: float
    speckle_likeness: float
    quiet_correlation: float
    steadiness: float | None
    sentence: str


@dataclass(frozen=True)
class BadFrameRecord:
    """A bad frame.

    Attributes
    ----------
    frame : int
        Its number, counted from 0 in the frames of its file that were read.
    time_s : float or None
        Its time since the first of these frames; None if the frame rate is not known.
    reason : str
        A value of :class:`usdenoise.frames.bad_frames.FrameReason`.
    score : float
        As in :class:`usdenoise.frames.bad_frames.BadFrame`.
    file : str or None
        Name of its file in a session of several files; otherwise None.
    """

    frame: int
    time_s: float | None
    reason: str
    score: float
    file: str | None = None


@dataclass(frozen=True)
class FramesRecord:
    """The frames of a stack: how many are bad, how far the image moves in pixels, and where it steps."""

    n_bad: int = 0
    n_left_out: int = 0
    n_entries_left_out: int = 0
    moves_pixels: float = 0.0
    steps: tuple[int, ...] = ()
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
    files: dict[str, Any] | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Axis letter -> length."""
        return dict(zip(self.axes, self.shape, strict=True))

    @property
    def shape_text(self) -> str:
        """Axes and lengths in words, for example "t 150, z 72, x 56"."""
        return ", ".join(f"{letter} {length}" for letter, length in self.sizes.items())


@dataclass(frozen=True)
class BlockRecord:
    """A block of a session, or a stack that is filtered at once.

    Attributes
    ----------
    time : float
        Its middle, from the first frame of the file or of the session.
    complete : bool
        Whether it is as long as the window.
    low_cutoff : int
        Number of components that were removed.
    why : str
        Why it is bad, in words; empty if it is good.
    first_frame : int
        Its first frame, of the frames of its file that were read.
    leftover : float or None
        How much more power is left than usual, in robust standard deviations; None without data.
    kept_share : float
        Share of its entries that were observed and not in an excluded frame.
    shift_pixels : tuple of float or None
        Displacement of its image along z, x and y against the session, before the correction; None if unknown.
    gain_db : float or None
        Ratio of its tissue power to the tissue power of the session, before the division; None if unknown.
    is_shifted, is_scaled : bool
        Whether the displacement was compensated, and the gain divided out.
    is_gain_uneven : bool
        Whether the gain is not the same at all depths, and so was not divided out.
    """

    time: float
    n_frames: int
    complete: bool
    low_cutoff: int
    is_bad: bool
    why: str = ""
    file: str = ""
    first_frame: int = 0
    leftover: float | None = None
    bad_frames: tuple[BadFrameRecord, ...] = ()
    frames: FramesRecord = FramesRecord()
    n_unobserved: int = 0
    kept_share: float = 1.0
    shift_pixels: tuple[float, ...] | None = None
    gain_db: float | None = None
    is_shifted: bool = False
    is_scaled: bool = False
    is_gain_uneven: bool = False


ANY_TYPE = "any type"
"""Name of the map of the responses to all types, in files and on pages."""


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
    smoothing_mm, n_active_smoothed : float or None, int or None
        As for :class:`usdenoise.sessions.activation.ActivationMap`.
    """

    trial_type: str
    n_active: int
    threshold: float | None
    statistic: str
    rule: str
    correlations: dict[str, float]
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
        pixels = f"{self.n_active} pixel{'s' * (self.n_active != 1)}"
        return f"{pixels} with {sign} of {self.threshold:.2f} or more ({rule})"

    @property
    def proposal(self) -> str:
        """The smoothing that would show more, in words; empty if there is none."""
        if self.smoothing_mm is None:
            return ""
        return f"with --smoothing {self.smoothing_mm:g}, {self.n_active_smoothed} pixels are active"


@dataclass(frozen=True)
class SequenceRecord:
    """The blocks of a session.

    Attributes
    ----------
    window, stride : int or None
        Frames of a usual block, and from the start of a window to the start of the next; None for blocks that are files.
    size : str
        Frames of the blocks in words.
    time : tuple of float
        Middle of each block, in `time_unit`: "s", or "frames" if the frame rate is not known.
    sampled_frames : int
        Frames of the sample that the clutter was estimated from.
    design : tuple of str
        Columns of the general linear model of the activation; empty without events.
    model : LinearModel or None
        Properties of this model; None without events.
    activation : tuple of ActivationRecord
        The activation by each type of event, and by any of several; empty without events.
    alignment : str
        What was compensated for in which blocks, in words; empty if nothing was.
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
    activation: tuple[ActivationRecord, ...] = ()

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The columns of the model after the responses."""
        return self.design[0 if self.model is None else self.model.n_responses :]

    @property
    def n_drifts(self) -> int:
        """Number of cosines for slow drifts in the model."""
        return sum(name.startswith("drift") for name in self.other_columns)


@dataclass(frozen=True)
class Report:
    """The report of a run or a session. The report of a session describes the fit to its sample.

    docs/batch.md and docs/quality-control.md explain the codes. Other fields are as in :class:`usdenoise.DenoiseResult`.

    Attributes
    ----------
    fit, estimate : str
        Code and words of the judgement on the estimate.
    start_caution : str
        Why the iterations cannot be expected to converge from their start; empty if they can.
    verdict : str
        Quality of the picture, the frames and the estimate, in words.
    doubts : tuple of Doubt
        Reasons not to trust the pictures; empty if there are none.
    parameters, requested : dict
        The options as used, and as requested.
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
    verdict: str
    doubts: tuple[Doubt, ...]
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
    timings_s: dict[str, float]
    peak_memory_bytes: int
    input: InputRecord
    output: dict[str, str]
    notes: tuple[str, ...]
    software: dict[str, str]
    command: tuple[str, ...] | None
    requested: dict[str, Any]
    sequence: SequenceRecord | None
    output_bytes: dict[str, int | None]

    @property
    def sentences(self) -> list[str]:
        """The parts of the verdict."""
        return verdict_parts(self.blood.sentence, self.frames.sentence, self.estimate, self.start_caution)

    @property
    def is_good_fit(self) -> bool:
        """Whether nothing better is to be expected from the rank and the sample."""
        return Verdict.from_code(self.fit).is_good

    @property
    def n_missing(self) -> int:
        """Number of entries that were NaN or infinite, besides entries of excluded frames."""
        return self.n_unobserved - self.frames.n_entries_left_out

    @property
    def sampled_share(self) -> str:
        """Share of the entries that were sampled, for example "2.1 %"; in a session, of its sample of frames."""
        sizes = self.input.sizes
        n_frames = sizes.pop("t") if self.sequence is None else self.sequence.sampled_frames
        sizes.pop("t", None)
        n_entries = (math.prod(sizes.values()) - self.n_silent) * n_frames
        return f"{100 * self.n_sampled / n_entries:.3g} %"

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
