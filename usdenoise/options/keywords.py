"""Options as keyword arguments of Python: their names and types, and the signatures that show their defaults.

A function takes ``**keywords: Unpack[SomeKeywords]``; type checkers and editors know them from the class, and
:func:`shows_options` puts the same names and the declared defaults into the signature.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, get_args

from usdenoise.errors import check_names
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import SCALE_NAMES, ReadOptions, SessionOptions

Function = TypeVar("Function", bound=Callable[..., object])


class StackKeywords(TypedDict, total=False):
    """Axes and scales of a stack; None is not known, or as the file has them."""

    axes: str | None
    frame_rate: float | None
    spacing: float | Sequence[float] | None
    center_frequency: float | None


class ScaleKeywords(TypedDict, total=False):
    """The scales with their units; None keeps the metadata of the file."""

    frame_rate_hz: float | None
    spacing_mm: float | Sequence[float] | None
    center_frequency_hz: float | None


class LoadKeywords(StackKeywords, ScaleKeywords, total=False):
    """The options of :func:`usdenoise.load` that it shares with other functions."""


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
    bad_frames: str | Sequence[int] | None
    device: str | None


class BlockKeywords(TypedDict, total=False):
    """The fields of :class:`usdenoise.options.SessionOptions` that a session without files has; None is the default."""

    block_interval_s: float | None
    registration: bool | None
    gain_correction: bool | None
    hrf: str | None


class SeriesKeywords(BlockKeywords, total=False):
    """The fields of :class:`usdenoise.options.SessionOptions` of a session from files or in memory."""

    skip_bad_files: bool | None
    confounds: str | None
    threshold: str | None
    smoothing_mm: float | None
    until_idle_s: float | None


class FilterKeywords(StackKeywords, DenoiseKeywords, total=False):
    """The options of :func:`usdenoise.denoise`."""


class LiveKeywords(StackKeywords, BlockKeywords, DenoiseKeywords, total=False):
    """The options of :class:`usdenoise.Session`."""


class SessionKeywords(StackKeywords, SeriesKeywords, DenoiseKeywords, total=False):
    """The options of :func:`usdenoise.session`."""


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
