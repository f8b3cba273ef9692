"""Options other than the denoiser's: output, pictures, sessions and single commands, and the signatures of Python."""

import inspect
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex, TypedDict, TypeVar, get_args

from usdenoise.errors import OptionError, check_names
from usdenoise.options import kinds
from usdenoise.options.declaration import Group, Options, option
from usdenoise.options.denoise_options import (
    PRESETS,
    SCALE_NAMES,
    DenoiseKeywords,
    DenoiseOptions,
    ReadOptions,
    StackKeywords,
)

PRODUCT_NAMES = ("power", "blood", "directional", "signed", "velocity", "none")

NO_PRODUCTS = ("none",)

COLOR_MAPS = ("inferno", "magma", "viridis", "cividis", "gray", "hot")
"""Colour maps for power, dark to bright, the default first. All but "hot" are perceptually uniform: equal steps in dB look
equally large, also in grey and to colour-blind readers."""

FORMATS = ("png", "pdf", "svg")
"""Formats of a figure."""

DynamicRange = float | tuple[float, float] | None
"""Which levels the colours cover: dB below the maximum; the lowest and the highest level in dB of the power in the square
of the file's unit; or None for a range that suits the image."""


@dataclass(frozen=True)
class Output(Options, group=Group.OUTPUTS):
    """What a job writes next to, or instead of, the filtered stack.

    Raises
    ------
    OptionError
        If a value is outside its range, or values contradict each other.

    Examples
    --------
    >>> import usdenoise
    >>> usdenoise.Output(products=("power", "velocity")).stack
    True
    """

    stack: bool = option(True, "Do not write the filtered stack, to save disk space.")
    stack_name: str | None = option(
        None,
        "Name of the filtered stack in its file. Set it to the one that the next program reads, such as "
        "iqSvdFiltered; the other variables of a .mat file are copied.",
        flag="--as",
        metavar="NAME",
        shown="as in the input",
    )
    """Letters, digits and underscores, the first one a letter, at most 63 as in MATLAB."""
    products: tuple[str, ...] = option(
        ("power", "blood"),
        "Pictures to make: power, blood, directional, signed, velocity (in mm/s with {center_frequency_hz}, which the "
        "file may have). none writes the stack without pictures, page and doubts about blood, for localisation.",
        kind=kinds.NAMES,
        choices=PRODUCT_NAMES,
    )
    """The result file holds the power and the blood map in any case, and the arrays of the other named products."""
    nifti: bool = option(False, "Write the power images as NIfTI with a JSON sidecar.")
    gzip: bool = option(True, "With {nifti}, write .nii, which SPM reads, instead of .nii.gz.")

    @property
    def nifti_suffix(self) -> str:
        """Suffix of NIfTI files."""
        return ".nii.gz" if self.gzip else ".nii"

    @property
    def judges_blood(self) -> bool:
        """Whether there are pictures, a page, and doubts about blood."""
        return self.products != NO_PRODUCTS

    def check(self) -> None:
        """Check the name of the stack, and that no product stands beside none."""
        if "none" in self.products and self.judges_blood:
            raise OptionError("none excludes other products", option="products")
        if self.stack_name is not None:
            if re.fullmatch(r"[A-Za-z]\w{0,62}", self.stack_name, re.ASCII) is None:
                raise OptionError(
                    f"'{self.stack_name}' is not a valid name of a variable",
                    option="stack_name",
                    remedy="use up to 63 letters, digits and underscores, a letter first",
                )
            if not self.stack:
                raise OptionError(
                    "requires the filtered stack", option="stack_name", remedy="omit {stack} or {stack_name}"
                )


DPI = 150
"""Dots per inch of a picture with few panels."""


@dataclass(frozen=True)
class Display(Options, group=Group.OUTPUTS):
    """Options of the pictures.

    Raises
    ------
    OptionError
        If a value is not known, or outside its range.

    Examples
    --------
    >>> import usdenoise
    >>> usdenoise.Display(dynamic_range=30).db_factor
    10.0
    """

    dynamic_range: DynamicRange = option(
        None,
        "Range of the pictures in dB below the maximum. MIN,MAX sets two levels in dB of the power itself, "
        "for one scale over all scans of a study.",
        kind=kinds.LEVELS,
        shown="suits the image",
    )
    db_factor: float = option(
        10.0,
        "Scale of the pictures: 10 log10 of the power, or 20 log10 as in the paper, which {preset} sets.",
        group=Group.RARE,
        bounds=(10, 20),
    )
    color_map: str = option(
        COLOR_MAPS[0],
        f"Colours of power: {', '.join(COLOR_MAPS)}. In all but hot, equal steps in dB look equally large.",
        choices=COLOR_MAPS,
        metavar="NAME",
        flag="--cmap",
    )
    velocity_unit: str = option(
        "mm/s",
        "Unit of the picture of velocities, mm/s or cm/s. Files have mm/s.",
        group=Group.RARE,
        choices=("mm/s", "cm/s"),
    )
    figure_formats: tuple[str, ...] = option(
        FORMATS[:1],
        "Formats of the figures, any of png, pdf and svg with commas.",
        kind=kinds.NAMES,
        choices=FORMATS,
        flag="--figure-format",
        metavar="LIST",
    )
    dpi: int = option(DPI, "Dots per inch of the figures.", bounds=(50, 1200))
    scale_bar_mm: float | None = option(
        None,
        "Draw a scale bar of this length into the figures instead of the axes, if the pixel pitch is known.",
        metavar="MM",
        positive=True,
        flag="--scale-bar",
        shown="axes",
    )

    @property
    def levels(self) -> tuple[float, float] | None:
        """The two levels of the range in dB of power, 10 log10; None if the range has none."""
        if not isinstance(self.dynamic_range, tuple):
            return None
        low, high = (level * 10.0 / self.db_factor for level in self.dynamic_range)
        return low, high


HRF_MODELS = ("boxcar", "glover", "spm", "verhoef2025", "claron2021")
"""Shapes of the response: the event itself, or the event convolved with a haemodynamic response."""

MOST_DELAYS = 100
"""Largest number of blocks in which a response is free."""


BACK_AND_FORTH, PATHS = "back-and-forth", "paths"
"""Words of the rules by which blocks show several positions of the probe."""

MOST_POSES = 1000
"""Most positions of the probe."""


def _rule(value: SupportsIndex | str | os.PathLike[str]) -> str:
    text = str(operator.index(value)) if isinstance(value, SupportsIndex) else os.fspath(value)
    if not text or not isinstance(text, str):
        raise ValueError
    kind, _, number = text.rpartition(":")
    if kind in ("", BACK_AND_FORTH) and number.isdecimal():
        if not 2 <= int(number) <= MOST_POSES:
            raise ValueError
        return f"{kind}:{int(number)}" if kind else f"{int(number)}"
    return text


POSES = kinds.Kind(
    "a number from 2 of positions, back-and-forth:N, the path of a table, or paths", str, _rule, "N|FILE|RULE"
)


@dataclass(frozen=True)
class SessionOptions(Options, group=Group.SESSION):
    """Options of a session of several blocks.

    Raises
    ------
    OptionError
        If a value is of another kind or outside its range, or values contradict each other.

    Examples
    --------
    >>> SessionOptions(block_interval_s=1.5).skip_bad_files
    False
    """

    window: int | None = option(
        None,
        "Cut a long file into blocks of N frames. Frames at its end make a shorter block; a few join the last one.",
        bounds=(2, None),
        shown="a file is a block",
    )
    stride: int | None = option(
        None,
        "Frames from one block to the next. Fewer than the window make blocks overlap.",
        metavar="M",
        bounds=(1, None),
        shown="the window",
    )
    blocks: slice | None = option(
        None,
        "Filter blocks A to B-1 alone, every S-th one, counted from 0: a period in which the probe did not move out of the "
        "plane. Their times, and those of events, stay.",
        kind=kinds.FRAMES,
        shown="all blocks",
    )
    block_interval_s: float | None = option(
        None, "Time from one block start to the next.", metavar="S", positive=True, shown="from the files"
    )
    poses: int | str | os.PathLike[str] | None = option(
        None,
        "Blocks show several positions of the probe (poses), each of which is a session of its own: N in turn, "
        "back-and-forth:N, FILE (a table with the columns pose, and block or file), or paths (each PATH is one).",
        kind=POSES,
        shown="one position",
    )
    pose_step_mm: float | None = option(
        None,
        "Distance from one position of the probe to the next.",
        metavar="MM",
        bounds=kinds.PITCHES_MM,
        shown="by the table, or unknown",
    )
    skip_bad_files: bool = option(
        False,
        "Mark a file that cannot be read, or differs from the other files, as a missing block, instead of failing.",
    )
    registration: bool = option(True, "Do not register blocks to each other.")
    gain_correction: bool = option(True, "Do not divide blocks by the gain of the tissue.")
    bad_blocks: str = option(
        "auto",
        "Values of bad blocks in the series: keep, or interpolate between the good blocks before and after. auto keeps them "
        "in the series file and interpolates them in NIfTI. Bad blocks are excluded from means and from the activation in "
        "any case.",
        choices=("auto", "keep", "interpolate"),
        metavar="RULE",
    )
    events: str | None = option(
        None,
        "Map the activation by the events in FILE: a BIDS table with onset, duration (s) and trial_type.",
        metavar="FILE",
    )
    hrf: str = option(
        "boxcar",
        "Response to an event: boxcar (the event itself), or the event convolved with glover or spm (human BOLD), "
        "verhoef2025 (human brain, ultrasound) or claron2021 (rat spinal cord, ultrasound). fir:N leaves it free in each of "
        "N blocks after the onset, and tests them together by F.",
        kind=kinds.tagged_number(
            f"{', '.join(HRF_MODELS)} or fir:N", kinds.WHOLE, {"fir": (1, MOST_DELAYS)}, HRF_MODELS
        ),
        metavar="NAME|fir:N",
    )
    delay: float | str = option(
        0.0,
        "Delay of the response to the events. auto finds one for the session, by the vessels.",
        metavar="S",
        words=("auto",),
        bounds=(-60, 60),
    )
    confounds: str = option(
        "motion",
        "Further columns of the model of the activation: motion (within blocks, and the framewise displacement), or none.",
        choices=("motion", "none"),
    )
    threshold: str = option(
        "fdr:0.05",
        "Significance of the activation: fdr:Q (false discovery rate), bonferroni:P (family-wise error), cluster:P "
        "(family-wise error of the mass of clusters; cluster is cluster:0.05) or t:X (a value of |t|).",
        kind=kinds.tagged_number(
            "fdr:Q, bonferroni:P, cluster, cluster:P with P from 0.01, or t:X",
            kinds.NUMBER,
            {"fdr": (1e-12, 1), "bonferroni": (1e-12, 1), "cluster": (0.01, 0.5), "t": (0.1, 1000)},
            ("cluster:0.05",),
        ),
        metavar="RULE",
    )
    contrasts: tuple[str, ...] = option(
        (),
        "Test a sum of responses to types of events, such as 'on - off' or '2*a - b', besides each of them. Repeat it for "
        "several contrasts.",
        flag="--contrast",
        metavar="SUM",
        repeated=True,
    )
    smoothing_mm: float = option(
        0.0,
        "Smooth the series for the activation map by a Gaussian of this full width at half maximum.",
        metavar="MM",
        bounds=(0, None),
    )
    stacks: bool = option(False, "Write every filtered block too, for example for localisation.")
    zarr: bool = option(False, "Write the series as Zarr too, for xarray and ConfUSIus.")
    movie: str | None = option(None, "Write the series as a film.", kind=kinds.FILM, choices=("gif",))
    live: bool = option(
        False,
        "Filter the files of a folder as they arrive, and show pictures meanwhile. Ctrl-C or {until_idle_s} ends it; then "
        "the series is computed from all blocks.",
    )
    until_idle_s: float | None = option(
        None, "End a live session after S seconds without a new file.", metavar="S", positive=True
    )

    def check(self) -> None:
        """Check that windows leave no frame out, and that a live session has none."""
        if self.live:
            problem = "does not apply to a live session, in which a file is a block"
            self.refuse(("window", "stride", "blocks"), problem, "omit it, or omit {live}")
            problem = "does not apply to a live session, whose events may be still to come"
            self.refuse(("contrasts",), problem, "omit it, or filter the finished session without {live}")
        if self.hrf.startswith("fir"):
            problem = "does not apply to a free response, whose blocks are tested together"
            self.refuse(("contrasts",), problem, "omit it, or give another {hrf}, such as boxcar")
        if self.delay == "auto" and self.hrf.startswith("fir"):
            raise OptionError(
                "does not apply to a free response, which shows the delay", option="delay", remedy="omit it"
            )
        if self.pose_step_mm is not None and self.poses is None:
            raise OptionError("requires several positions", option="pose_step_mm", remedy="give {poses} too")
        if self.poses is not None:
            problem = "does not apply to several positions of the probe"
            self.refuse(("live", "stacks"), problem, "omit it, or omit {poses}")
        if self.until_idle_s is not None and not self.live:
            raise OptionError("requires a live session", option="until_idle_s", remedy="give {live} too")
        if self.stride is None:
            return
        if self.window is None:
            raise OptionError("requires a window", option="stride", remedy="give {window} too")
        if self.stride > self.window:
            raise OptionError(
                f"{self.stride} is longer than the window of {self.window} frames",
                option="stride",
                remedy="lower {stride}, so that no frame is missed",
            )


class ResponseKeywords(TypedDict, total=False):
    """The fields of :class:`usdenoise.options.SessionOptions` that every session and model has; None is the default."""

    block_interval_s: float | None
    hrf: str | None
    delay: float | str | None


class MapKeywords(TypedDict, total=False):
    """The fields of activation maps that a session and a model of its series have."""

    confounds: str | None
    threshold: str | None
    contrasts: Sequence[str] | None
    smoothing_mm: float | None


class ModelKeywords(ResponseKeywords, MapKeywords, total=False):
    """The options of :func:`usdenoise.model`."""


class BlockKeywords(ResponseKeywords, total=False):
    """The fields of :class:`usdenoise.options.SessionOptions` that a session without files has."""

    registration: bool | None
    gain_correction: bool | None


class SeriesKeywords(BlockKeywords, MapKeywords, total=False):
    """The fields of :class:`usdenoise.options.SessionOptions` of a session from files or in memory."""

    blocks: slice | None
    poses: int | str | os.PathLike[str] | None
    pose_step_mm: float | None
    skip_bad_files: bool | None
    bad_blocks: str | None
    until_idle_s: float | None


class LiveKeywords(StackKeywords, BlockKeywords, DenoiseKeywords, total=False):
    """The options of :class:`usdenoise.Session`."""


class SessionKeywords(StackKeywords, SeriesKeywords, DenoiseKeywords, total=False):
    """The options of :func:`usdenoise.session`."""


Function = TypeVar("Function", bound=Callable[..., object])

_DEFAULTS: Mapping[str, object] = dict.fromkeys(SCALE_NAMES) | {
    name: declared.default
    for options in (ReadOptions, SessionOptions, DenoiseOptions)
    for name, declared in options.declared.items()
}


def shows_options(function: Function) -> Function:
    """Give a function that takes options as keyword arguments a signature with their names and defaults."""
    signature, shown = inspect.signature(function), list[inspect.Parameter]()
    for each in signature.parameters.values():
        if each.kind is not inspect.Parameter.VAR_KEYWORD:
            shown.append(each)
            continue
        (keywords,) = get_args(each.annotation)
        shown += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=keyword_type
            )
            for name, keyword_type in keywords.__annotations__.items()
        ]
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


def parted(keywords: Mapping[str, object], *parts: type) -> list[dict[str, Any]]:
    """Return keyword arguments by the classes that have their names.

    Raises
    ------
    OptionError
        If no class has one of the names.

    Examples
    --------
    >>> parted({"axes": "tzx", "rank": 4}, StackKeywords, DenoiseKeywords)
    [{'axes': 'tzx'}, {'rank': 4}]
    """
    check_names(keywords, [name for part in parts for name in part.__annotations__])
    return [{name: keywords[name] for name in part.__annotations__ if name in keywords} for part in parts]


@dataclass(frozen=True)
class JobOptions(Options, group=Group.RESOURCES):
    """Options of commands that work on files: which files, where the results go, and what the work may use.

    Raises
    ------
    OptionError
        If a value is of another kind.
    """

    config: tuple[Path, ...] = option(
        (),
        "TOML file with options, named as the flags. Flags win over it.",
        kind=kinds.PATH,
        group=Group.INPUT,
        repeated=True,
    )
    patterns: tuple[str, ...] = option(
        (),
        "Use only files with matching names in folders, for example '*.mat'. Repeat it for several patterns.",
        group=Group.INPUT,
        flag="--pattern",
        metavar="GLOB",
        shown="by their suffixes",
        repeated=True,
    )
    regions: tuple[tuple[str, str], ...] = option(
        (),
        "Write the mean blood power of a region over the blocks: rect:Z0,X0,Z1,X1 or circle:Z,X,R in pixels, or in mm with "
        "mm at the end, or a mask image. Repeat it for several regions.",
        kind=kinds.NAMED_REGION,
        group=Group.SESSION,
        flag="--region",
        repeated=True,
    )
    collect: bool = option(
        False,
        "Join the responses of regions in folders of results into one long table with a page, for a group analysis.",
        group=Group.SESSION,
    )
    preset: str | None = option(
        None,
        "Use the settings of the paper's ultrasound experiment, to compare with it. They remove no clutter. Other options "
        "win over them.",
        group=Group.ESTIMATOR,
        choices=tuple(PRESETS),
    )
    output: Path | None = option(
        None, "Folder of the results.", kind=kinds.PATH, group=Group.OUTPUTS, metavar="DIR", short="-o"
    )
    bids: str | None = option(
        None,
        "Name the results as in BIDS, for example sub-01_task-rest, in a derivative data set. auto takes the name of the "
        "acquisition; it is the default with {nifti} in a BIDS data set, unless you give none. Requires {nifti}.",
        group=Group.OUTPUTS,
        metavar="ENTITIES",
    )
    overwrite: bool = option(False, "Replace existing results, also complete ones.", group=Group.OUTPUTS)
    memory: int | None = option(
        None,
        "Largest memory to use, for example 600M. A larger stack goes into a temporary file in the folder of the results.",
        kind=kinds.BYTES,
        positive=True,
        shown="the free memory",
    )
    dask: str | None = option(
        None,
        "Work on Dask workers: on N processes that are started here, or on the workers of the scheduler at ADDRESS, which "
        "see the same files.",
        metavar="N|ADDRESS",
    )


@dataclass(frozen=True)
class BatchOptions(Options, group=Group.BATCH):
    """Options of a batch.

    Raises
    ------
    OptionError
        If a value is of another kind or outside its range.
    """

    low_cutoff: int | str = option(
        "auto",
        "Remove the N largest components as clutter. auto chooses N for each scan; common chooses one N for all: the median "
        "of the sure ones among scans that are spread over all.",
        group=Group.CUTOFFS,
        words=("auto", "common"),
        bounds=(0, None),
    )
    jobs: int | None = option(
        None,
        "Scans to work on at a time, without {dask}. Fewer run when memory is short.",
        bounds=(1, None),
        shown="one for each processor",
    )
    dry_run: bool = option(False, "Show what would be done with each scan, and why; write nothing.")
    flat: bool = option(
        False,
        "Also put the filtered stacks into DIR/stacks, each under the name of its input, and nothing else; if names "
        "are the same, in the folders of the inputs. With {method} svd, pictures, pages and doubts about blood require "
        "{products}.",
        group=Group.OUTPUTS,
    )


@dataclass(frozen=True)
class CompareOptions(Options, group=Group.REGIONS):
    """Options of a comparison.

    Raises
    ------
    OptionError
        If a value is of another kind.
    """

    methods: tuple[str, ...] = option(
        (),
        "Method to run, or all. Repeat it for several methods.",
        group=Group.ESTIMATOR,
        flag="--method",
        short="-m",
        metavar="NAME",
        shown="eta-decay, svd, rsvd, highpass",
        repeated=True,
    )
    signal: str | None = option(
        None,
        "Region of blood: rect:Z0,X0,Z1,X1 or circle:Z,X,R in pixels, or in mm with mm at the end, or a mask image.",
        metavar="REGION",
    )
    background: str | None = option(
        None, "Region to compare the signal with, in the same forms.", metavar="REGION"
    )


@dataclass(frozen=True)
class ReproduceOptions(Options, group=Group.EXPERIMENTS):
    """Options of the paper's experiments.

    Raises
    ------
    OptionError
        If a value is of another kind or outside its range.
    """

    n_seeds: int | None = option(
        None,
        "Number of random seeds for each 10 x 10 experiment.",
        flag="--seeds",
        bounds=(1, None),
        shown="10, or 2 with --quick",
    )
    quick: bool = option(
        False, "Use fewer seeds and a small phantom: all experiments take less than a minute."
    )
