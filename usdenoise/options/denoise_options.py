"""The options of the denoiser, declared once: name, default, type and range.

The command line, presets and provenance read this module. It imports only the standard library, so that
``usdenoise --help`` is quick.
"""

import numbers
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from usdenoise.errors import OptionError, check_names

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "method": ("eta-decay", "precgd", "scaledgd-lambda", "scaledgd", "gd", "svd"),
        "init": ("pixels", "spectral", "random", "small"),
        "refit": ("all", "none"),
        "precision": ("single", "double"),
    }
)


@dataclass(frozen=True)
class DenoiseOptions:
    """Options of :func:`usdenoise.denoise`. None means the default.

    Attributes
    ----------
    method : str
        A row of METHODS, or "svd" for the truncated SVD of the whole stack.
    rank : "auto" or int
        Number of components that are estimated. "auto" takes those above the noise and 16 more, at most 100 or what
        the sample determines, and as many as given cutoffs need. Where the rest of the stack is kept, those far beyond
        the tissue are left out.
    sampling : float
        Fraction of the observed entries that is used, in (0, 1]. With `refit` "all" the entries are sampled from a
        random subset of the pixels that determines the temporal components; the refit then uses all entries.
    seed : int
        Seed of every random choice: the same seed gives the same sample and the same start.
    iterations : int
        Largest number of accepted steps.
    decay : float
        Ratio of successive dampings (beta), in (0, 1].
    damping : float or None
        First damping eta0 of eta-decay, in the units of the singular values; for precgd the proxy sigma_hat, for
        scaledgd-lambda its lambda. None means sqrt(f) at the start, the noise level, and the noise edge.
    step : float or None
        Step tau for the sum-of-squares objective divided by the sampling fraction; None is the method's default.
        Not together with `alpha`.
    alpha : float or None
        Step in the paper's units, tau n_pixels n_frames / 2.
    ridge : "auto" or float
        Penalty on the squared norms of the factors, in units of the noise edge of the sample. It decays with the
        damping to this value. "auto" is 0.5, or none for the start "pixels", which has a ridge for each component.
    init : str
        Start: "pixels" (the pixel subset, then the posterior of the sample), "spectral", "random" or "small".
    patience : int
        Iterations without a fall of the held-out error after which the loop stops and keeps the best factors. 0
        does all iterations and keeps the last factors.
    low_cutoff : "auto" or int
        Number of components removed as clutter: the band [low, high) is kept, counted from 0.
    high_cutoff : "rank", "none" or int
        End of the band, exclusive. "rank" keeps [low, rank); "none" keeps all components from low on, residual
        included.
    local_cutoff : bool
        Whether the components near the low cutoff are taken out pixel by pixel, as far as they are tissue there
        (docs/blood.md). The blood map is made so in any case; this is for the filtered stack and its power.
    refit : str
        "all" fits both factors to all observed entries after the sample, in one step of subspace iteration; "none"
        uses the sample alone.
    bad_frames : "auto", "keep", or tuple of int
        "auto" leaves out frames that are damaged, unlike all others or displaced, at most a fifth of them; "keep"
        keeps all; numbers, counted from 0 in the frames that were read, are left out.
    precision : str
        "single" (float32, complex64) or "double" storage; sums are in double precision either way.
    threads : int or None
        Number of threads; None takes every available processor. The results do not depend on it.

    Raises
    ------
    OptionError
        If a value has the wrong type or is outside its range, or `step` and `alpha` are both given.

    Examples
    --------
    >>> import usdenoise
    >>> options = usdenoise.DenoiseOptions(rank=20, low_cutoff=5)
    >>> options.rank, options.sampling
    (20, 0.5)
    """

    method: str = "eta-decay"
    rank: str | int = "auto"
    sampling: float = 0.5
    seed: int = 0
    iterations: int = 10
    decay: float = 0.5
    damping: float | None = None
    step: float | None = None
    alpha: float | None = None
    ridge: str | float = "auto"
    init: str = "pixels"
    patience: int = 1
    low_cutoff: str | int = "auto"
    high_cutoff: str | int = "none"
    local_cutoff: bool = False
    refit: str = "all"
    bad_frames: str | tuple[int, ...] = "auto"
    precision: str = "single"
    threads: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _typed(field.name, getattr(self, field.name), field.default))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, str | None) and not value >= least:
                raise OptionError(f"{name} {value} must be at least {least}; change {flag(name)}")
        if not 0 < self.sampling <= 1:
            raise OptionError(
                f"sampling {self.sampling:g} is outside (0, 1]; give --sampling the fraction of entries to use"
            )
        if not 0 < self.decay <= 1:
            raise OptionError(f"decay {self.decay:g} is outside (0, 1]; change --decay")
        for name in ("step", "alpha"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise OptionError(f"{name} {value:g} must be positive; change {flag(name)}")
        if self.damping is not None and not self.damping >= 0:
            raise OptionError(f"damping {self.damping:g} must not be negative; change --damping")
        if self.step is not None and self.alpha is not None:
            raise OptionError("step and alpha set the same thing; give --step or --alpha, not both")
        self._check_band()

    def _check_band(self) -> None:
        low, high = self.low_cutoff, self.high_cutoff
        # Automatic values are made to fit once they are known.
        rank = None if isinstance(self.rank, str) else self.rank
        if rank is not None and not isinstance(high, str) and high > rank:
            raise OptionError(
                f"high_cutoff {high} must not be above rank {rank}; raise --rank or lower --high-cutoff"
            )
        end = rank if isinstance(high, str) else high
        if end is None or isinstance(low, str):
            return
        if low > end or (low == end and high != "none"):
            name = "rank" if isinstance(high, str) else "high_cutoff"
            raise OptionError(
                f"low_cutoff {low} must be below {name} {end}; raise {flag(name)} or lower --low-cutoff"
            )


_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"rank": ("auto",), "ridge": ("auto",), "low_cutoff": ("auto",), "high_cutoff": ("rank", "none")}
)
"""Words that stand for numbers, by option."""

_WHOLE = frozenset({"rank", "seed", "iterations", "patience", "low_cutoff", "high_cutoff", "threads"})
"""Options whose numbers are whole."""

_LEAST: Mapping[str, int] = MappingProxyType(
    {
        "rank": 1,
        "seed": 0,
        "iterations": 0,
        "patience": 0,
        "low_cutoff": 0,
        "high_cutoff": 1,
        "ridge": 0,
        "threads": 1,
    }
)
"""Least value of an option. A band that ends at component 0 would keep nothing."""


def _typed(name: str, value: Any, default: Any) -> Any:
    """Return the value of an option as its type, or its default for None."""
    if value is None:
        return default
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise OptionError(f"{name} {value!r} is not known; choose one of {', '.join(CHOICES[name])}")
        return value
    if name == "bad_frames":
        return _frame_numbers(value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise OptionError(f"{name} {value!r} is not known; give {flag(name)} True or False")
        return value
    words = _WORDS.get(name, ())
    if isinstance(value, str) and value in words:
        return value
    number = _whole_number(value) if name in _WHOLE else _number(value)
    if number is None:
        kind = "a whole number" if name in _WHOLE else "a number"
        allowed = f"{', '.join(words)} or {kind}" if words else kind
        raise OptionError(f"{name} {value!r} is not known; give {flag(name)} {allowed}")
    return number


def _frame_numbers(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, str) and value in ("auto", "keep"):
        return value
    numbers = [] if isinstance(value, str) else [_whole_number(number) for number in _listed(value)]
    if not numbers or None in numbers:
        raise OptionError(
            f"bad_frames {value!r} is not known; give --bad-frames auto, keep or frame numbers, for example 3,17,40:45"
        )
    return tuple(sorted({number for number in numbers if number is not None}))


def _listed(value: Any) -> list[Any]:
    try:
        return list(value)
    except TypeError:
        return [value]


def _whole_number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if is_number else None


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
        "bad_frames": "keep",
        "low_cutoff": 0,
        "high_cutoff": "rank",
        "db_factor": 20,
    }
)
"""The ultrasound experiment of Zhang, Chiu and Zhang (AISTATS 2024)."""

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"paper": PAPER})


def make_options(preset: str | None = None, **given: Any) -> DenoiseOptions:
    """Return options: the given ones, else those of the preset, else the defaults.

    Parameters
    ----------
    preset : str, optional
        Name of a preset.
    **given
        Fields of :class:`DenoiseOptions`; None counts as not given.

    Raises
    ------
    OptionError
        If the preset or an option is unknown, or a value is wrong.
    """
    known = [field.name for field in fields(DenoiseOptions)]
    check_names(given, known)
    chosen = {name: value for name, value in preset_values(preset).items() if name in known}
    given = {name: value for name, value in given.items() if value is not None}
    if "step" in given:
        # It sets the same thing as the preset's alpha.
        chosen.pop("alpha", None)
    return replace(DenoiseOptions(), **{**chosen, **given})


def preset_values(preset: str | None) -> Mapping[str, Any]:
    """Return the values that a preset sets, those of the pictures included; none for None.

    Raises
    ------
    OptionError
        If there is no such preset.
    """
    if preset is None:
        return {}
    if preset not in PRESETS:
        raise OptionError(f"preset '{preset}' is not known; choose one of {', '.join(PRESETS)}")
    return PRESETS[preset]


def flag(name: str) -> str:
    """Return the command-line flag of an option."""
    return "--" + name.replace("_", "-")
