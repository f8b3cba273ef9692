"""The options of reading a stack and of the denoiser, the same as keyword arguments of Python, and the presets.

A function takes ``**keywords: Unpack[SomeKeywords]``; type checkers and editors know them from the class, and
:func:`usdenoise.options.job_options.shows_options` puts the same names and the declared defaults into the signature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypedDict

from usdenoise.errors import OptionError, check_names
from usdenoise.options import kinds
from usdenoise.options.declaration import Group, Options, option

_key = partial(option, group=Group.ESTIMATOR_KEYS)


SCALE_NAMES = {
    "frame_rate": "frame_rate_hz",
    "spacing": "spacing_mm",
    "center_frequency": "center_frequency_hz",
}
"""Names of the scales in calls of the library, which have no units -> fields."""


@dataclass(frozen=True)
class ReadOptions(Options, group=Group.INPUT):
    """What to read from a file, and metadata that override the metadata of the file, which None keeps.

    Raises
    ------
    OptionError
        If a value is of another kind.
    """

    dataset: str | None = option(
        None, "Name of the stack in the file. Needed when the file holds several.", metavar="NAME"
    )
    axes: str | None = option(
        None,
        "Order of the axes in the file, in letters z x y t: tzx has the frames first. Needed if info shows a "
        "wrong order. b is an axis of blocks, such as packets, for session: btzx.",
        metavar="ORDER",
    )
    """z is depth, x lateral, y elevation, t frames, in the file's own order, which for .mat files is MATLAB's."""
    frames: slice | None = option(
        None,
        "Read frames A to B-1, every S-th one, counted from 0. Read fewer to save memory.",
        kind=kinds.FRAMES,
    )
    frame_rate_hz: float | None = option(
        None,
        "Frames per second. Use it if the file has no frame rate, or a wrong one.",
        metavar="HZ",
        bounds=kinds.SCALES,
    )
    """After compounding."""
    spacing_mm: tuple[float, ...] | None = option(
        None,
        "Pixel pitch in mm: one number, or one for each spatial axis in the file's order. Use it if the file "
        "has no pixel pitch, or a wrong one.",
        kind=kinds.positive_numbers("MM[,MM[,MM]]", ",", kinds.NUMBER, range(1, 4), kinds.PITCHES_MM),
    )

    center_frequency_hz: float | None = option(
        None,
        "Centre frequency of the received signal, for velocities in mm/s. Use it if the file has none, or a wrong one.",
        metavar="HZ",
        bounds=kinds.SCALES,
    )

    @property
    def n_axes(self) -> int | None:
        """Number of axes that the user named; None for none."""
        return None if self.axes is None else len(self.axes)


def reading_options(options: Mapping[str, Any]) -> ReadOptions:
    """Return named options as :class:`ReadOptions`; `frame_rate`, `spacing` and `center_frequency` have their units too.

    Raises
    ------
    OptionError
        If a name is unknown, or a value is of another kind.
    """
    check_names(options, [*ReadOptions.declared, *SCALE_NAMES])
    given = {SCALE_NAMES.get(name, name): value for name, value in options.items() if value is not None}
    return ReadOptions(**given)


class StackKeywords(TypedDict, total=False):
    """Axes and scales of a stack; None is not known, or as the file has them."""

    axes: str | None
    frame_rate: float | None
    spacing: float | Sequence[float] | None
    center_frequency: float | None


class LoadKeywords(StackKeywords, total=False):
    """The options of :func:`usdenoise.load` that it shares with other functions, the scales also with their units."""

    frame_rate_hz: float | None
    spacing_mm: float | Sequence[float] | None
    center_frequency_hz: float | None


@dataclass(frozen=True)
class DenoiseOptions(Options, group=Group.ESTIMATOR):
    """Options of :func:`usdenoise.denoise`. None means the default.

    Raises
    ------
    OptionError
        If a value has the wrong type or is outside its range, if `step` and `alpha` are both given, or if the cutoffs
        leave no component.

    Examples
    --------
    >>> import usdenoise
    >>> options = usdenoise.DenoiseOptions(rank=20, low_cutoff=5)
    >>> options.rank, options.sampling
    (20, 0.5)
    """

    method: str = option(
        "eta-decay",
        "How the components are estimated: eta-decay, precgd, scaledgd-lambda, scaledgd, gd, or svd, the full SVD "
        "without missing entries.",
        choices=("eta-decay", "precgd", "scaledgd-lambda", "scaledgd", "gd", "svd"),
        metavar="NAME",
    )
    rank: int | str = option(
        "auto",
        "Number of components to estimate: at least those that {low_cutoff} removes. Raise it when tissue reaches the "
        "last one.",
        group=Group.CUTOFFS,
        words=("auto",),
        bounds=(1, None),
    )
    """ "auto" takes the components above the noise and 16 more, at most 100 or what the sample determines, and as many
    as given cutoffs need. If the residual is kept, components far beyond the tissue are excluded."""
    sampling: float = _key(
        0.5,
        "Fraction of the entries to sample in each sampled pixel. It matters most without the refit.",
        metavar="P",
        bounds=(1e-6, 1),
    )
    """With `refit` "all" the entries are sampled from a random subset of the pixels that determines the temporal
    components; the refit then uses all entries."""
    seed: int = option(
        0, "Seed of every random choice. The same seed gives the same result.", bounds=(0, None)
    )
    iterations: int = _key(10, "Largest number of iterations.", bounds=(0, None))
    decay: float = _key(
        0.5,
        "Ratio of each damping to the previous one; 1 keeps the damping constant.",
        metavar="BETA",
        positive=True,
        bounds=(None, 1),
    )
    damping: float | None = _key(
        None,
        "First damping (eta-decay), sigma_hat (precgd) or lambda (scaledgd-lambda).",
        metavar="ETA0",
        bounds=(0, None),
        shown="from the data",
    )
    """In the units of the singular values. By default it is sqrt(f) at the start for eta-decay, the noise level for
    precgd, and the noise edge for scaledgd-lambda."""
    step: float | None = _key(
        None,
        "Step size tau, relative to the objective. Lower it if the solver diverges.",
        metavar="TAU",
        positive=True,
    )
    """For the sum-of-squares objective divided by the sampling fraction."""
    alpha: float | None = _key(
        None, "Step size of the paper, tau n_pixels n_frames / 2, instead of step.", positive=True
    )
    ridge: float | str = _key(
        "auto",
        "Penalty on the factors, in units of the noise edge. It shrinks weak components.",
        words=("auto",),
        bounds=(0, None),
    )
    """On the squared norms of the factors. It decays with the damping to this value. "auto" is 0.5, and for the start
    "pixels" the noise variance over the variance of each component."""
    init: str = _key(
        "pixels",
        "Start: a subset of the pixels with all frames (pixels), the paper's (spectral), or random factors of the size of "
        "the data (random) or near zero (small).",
        choices=("pixels", "spectral", "random", "small"),
        metavar="NAME",
    )
    patience: int = _key(
        1, "Stop after N iterations without a lower held-out error; 0 does all iterations.", bounds=(0, None)
    )
    """The best factors are kept; 0 keeps the last ones."""
    low_cutoff: int | str = option(
        "auto",
        "Remove the N largest components as clutter. Raise it when haze remains over the image, lower it when vessels "
        "fade.",
        group=Group.CUTOFFS,
        words=("auto",),
        bounds=(0, None),
    )
    """The band [low, high) is kept, counted from 0."""
    high_cutoff: int | str = option(
        "none",
        "Keep the components from {low_cutoff} up to N. rank keeps those up to {rank}, for a cleaner image of strong "
        "blood; none keeps everything but the clutter.",
        group=Group.CUTOFFS,
        words=("rank", "none"),
        # A band that ends at component 0 would keep nothing.
        bounds=(1, None),
    )
    refit: str = _key(
        "all",
        "Fit the factors to all observed entries at the end (all), or use the sample alone as the paper does (none).",
        choices=("all", "none"),
    )
    """The refit is one step of subspace iteration."""
    bad_frames: str | tuple[int, ...] = option(
        "auto",
        "Frames to exclude, for example 3,17,40:45 (40 to 44). auto finds frames that are damaged or unlike all other ones; "
        "keep excludes none.",
        group=Group.FRAMES,
        kind=kinds.FRAME_NUMBERS,
        words=("auto", "keep"),
        metavar="LIST",
    )
    """Counted from 0 in the frames that were read. "auto" excludes a fifth of the frames at most."""
    tissue: str = _key(
        "still",
        "Hold the tissue still before the filter (still), or filter the frames as they are (recorded).",
        choices=("still", "recorded"),
    )
    """The local phase of the tissue is taken out of complex frames; real ones are filtered as they are."""
    precision: str = _key(
        "single",
        "Precision of the stored values; double takes twice the memory.",
        choices=("single", "double"),
    )
    """Sums are in double precision either way."""
    threads: int | None = option(
        None,
        "Number of threads. Lower it to spare processors for other programs; the result stays the same.",
        group=Group.RESOURCES,
        bounds=(1, None),
        shown="all processors",
    )
    device: str = option(
        "cpu",
        "Where frames are filtered: cpu, cuda or cuda:N, the GPU of number N. A GPU pays for volumes and for many blocks.",
        group=Group.RESOURCES,
        kind=kinds.DEVICE,
    )
    """cuda needs CuPy, the extra `gpu`. Results are the same, up to rounding."""

    def check(self) -> None:
        """Check that one step is given, and that the cutoffs leave components of the rank."""
        if self.step is not None and self.alpha is not None:
            raise OptionError(
                "sets the same step size as alpha", option="step", remedy="give {step} or {alpha}, not both"
            )
        low, high = self.low_cutoff, self.high_cutoff
        # Automatic values are made to fit once they are known.
        rank = None if isinstance(self.rank, str) else self.rank
        if rank is not None and not isinstance(high, str) and high > rank:
            raise OptionError(
                f"{high} is above the rank {rank}",
                option="high_cutoff",
                remedy="raise {rank} or lower {high_cutoff}",
            )
        end = rank if isinstance(high, str) else high
        if end is None or isinstance(low, str):
            return
        if low > end or (low == end and high != "none"):
            name = "rank" if isinstance(high, str) else "high_cutoff"
            raise OptionError(
                f"{low} must be below the {name.replace('_', ' ')} {end}",
                option="low_cutoff",
                remedy=f"raise {{{name}}} or lower {{low_cutoff}}",
            )


class SharedKeywords(TypedDict, total=False):
    """The options of the denoiser that all filters of a comparison share; None is the default."""

    rank: int | str | None
    sampling: float | None
    low_cutoff: int | str | None
    high_cutoff: int | str | None
    seed: int | None
    precision: str | None
    threads: int | None


class DenoiseKeywords(SharedKeywords, total=False):
    """The fields of :class:`usdenoise.DenoiseOptions`; None is the default."""

    method: str | None
    iterations: int | None
    decay: float | None
    damping: float | None
    step: float | None
    alpha: float | None
    ridge: float | str | None
    init: str | None
    patience: int | None
    refit: str | None
    tissue: str | None
    bad_frames: str | Sequence[int] | None
    device: str | None


class FilterKeywords(StackKeywords, DenoiseKeywords, total=False):
    """The options of :func:`usdenoise.denoise`."""


PAPER = MappingProxyType(
    {
        "method": "eta-decay",
        "init": "spectral",
        "rank": 100,
        "sampling": 0.5,
        "iterations": 30,
        "alpha": 1e7,
        "decay": 0.05,
        "ridge": 0.0,
        "patience": 0,
        "refit": "none",
        "tissue": "recorded",
        "bad_frames": "keep",
        "low_cutoff": 0,
        "high_cutoff": "rank",
        "db_factor": 20,
    }
)
"""The ultrasound experiment of Zhang, Chiu and Zhang (AISTATS 2024)."""

PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType({"paper": PAPER})


def make_options(preset: str | None = None, **requested_options: object) -> DenoiseOptions:
    """Return options: the given ones, else the ones of the preset, else the defaults.

    Parameters
    ----------
    preset : str, optional
        Name of a preset.
    **requested_options
        Fields of :class:`DenoiseOptions`; None counts as not given.

    Raises
    ------
    OptionError
        If the preset or an option is unknown, or a value is wrong.
    """
    check_names(requested_options, DenoiseOptions.declared)
    values = with_preset(preset, requested_options)
    return DenoiseOptions(**{name: values[name] for name in DenoiseOptions.declared if name in values})


def with_preset(preset: str | None, requested_options: Mapping[str, object]) -> dict[str, Any]:
    """Return given values, and the values of a preset for all other options, including options of the pictures.

    Parameters
    ----------
    preset : str or None
        Name of a preset; None has no values.
    requested_options : mapping from str to value
        Values by the names of their options; None counts as not given.

    Raises
    ------
    OptionError
        If there is no such preset.
    """
    if preset is not None and preset not in PRESETS:
        raise OptionError(f"'{preset}' is not known; choose one of {', '.join(PRESETS)}", option="preset")
    values = {} if preset is None else dict(PRESETS[preset])
    requested_options = {name: value for name, value in requested_options.items() if value is not None}
    if "step" in requested_options:
        # It sets the same thing as the preset's alpha.
        values.pop("alpha", None)
    return {**values, **requested_options}
