"""Every option of the denoiser, declared once: name, default, what it must satisfy.

The command line, presets and provenance all read this module; it imports nothing but the standard library.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from usdenoise.errors import OptionError

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
    """Options of :func:`usdenoise.denoise`.

    Attributes
    ----------
    method : str
        A row of METHODS, or "svd" for the truncated SVD of the whole stack.
    rank : "auto" or int
        Number of components that are estimated; "auto" takes those above the noise, 100 at most.
    sampling : float
        Fraction of the observed entries that is used, in (0, 1]. With `refit` "all" the entries are drawn
        from as many pixels, spread over the image, as fix the temporal components; the refit then uses all.
    seed : int
        Same seed, same sample and same start.
    iterations : int
        Accepted steps at most.
    decay : float
        Ratio of successive dampings (beta).
    damping : float or None
        First damping eta0 of eta-decay, in the units of the singular values; for precgd the proxy
        sigma_hat, by default the noise rms; for scaledgd-lambda its lambda, by default the largest singular
        value of the noise.
    step : float or None
        Step tau for the sum-of-squares objective divided by the sampling fraction; None is the method's
        default. Not together with `alpha`.
    alpha : float or None
        Step in the paper's units, tau n_pixels n_frames / 2.
    ridge : "auto" or float
        Penalty on the factors' squared norms, in units of the largest singular value of the sampled noise;
        it decays with the damping to this value. "auto" is 0.5, or none from the start "pixels", which
        has a ridge of its own for each component.
    init : str
        Start: pixels (all frames of a few pixels, then the sample's posterior), spectral, random or small.
    patience : int
        Iterations without a fall of the held-out error after which to stop, the best factors being kept;
        0 does all iterations and keeps the last ones.
    low_cutoff : "auto" or int
        Components removed as clutter: the band [low, high) is kept, counted from 0.
    high_cutoff : "rank", "none" or int
        End of the band, exclusive. "rank" keeps [low, rank); "none" keeps all above low, residual included.
    refit : str
        "all" fits both factors again to all observed entries, in one step of subspace iteration; "none"
        uses the samples alone.
    precision : str
        "single" (float32, complex64) or "double" storage; sums are in double precision either way.
    threads : int or None
        Threads; None takes every processor at hand. The results do not depend on it.

    Raises
    ------
    OptionError
        If a value is outside its range, or `step` and `alpha` are both given.
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
    refit: str = "all"
    precision: str = "single"
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise OptionError(
                    f"{name} '{getattr(self, name)}' is not known; choose one of {', '.join(allowed)}"
                )
        if not 0 < self.sampling <= 1:
            raise OptionError(
                f"sampling {self.sampling:g} is outside (0, 1]; give --sampling the fraction of entries to use"
            )
        lowest = {"rank": 1, "seed": 0, "iterations": 0, "patience": 0, "low_cutoff": 0, "ridge": 0}
        for name, least in lowest.items():
            value = getattr(self, name)
            if isinstance(value, str):
                if value != "auto":
                    raise OptionError(f"{name} '{value}' is not known; give {flag(name)} auto or a number")
            elif not value >= least:
                raise OptionError(f"{name} {value} must be at least {least}; change {flag(name)}")
        if self.threads is not None and self.threads < 1:
            raise OptionError(f"threads {self.threads} must be at least 1; change --threads")
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
        if isinstance(high, str) and high not in ("rank", "none"):
            raise OptionError(f"high_cutoff '{high}' is not known; give --high-cutoff rank, none or a number")
        # What is automatic is made to fit once it is known.
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
        "low_cutoff": 0,
        "high_cutoff": "rank",
        "db_factor": 20,
    }
)
"""The ultrasound experiment of Zhang, Chiu and Zhang (AISTATS 2024)."""

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"paper": PAPER})


def make_options(preset: str | None = None, **given: Any) -> DenoiseOptions:
    """Options from the defaults, a preset over them, and what was given over both.

    Raises
    ------
    OptionError
        If the preset or an option is unknown, or the values do not fit together.
    """
    known = {field.name for field in fields(DenoiseOptions)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise OptionError(f"unknown option {', '.join(unknown)}; the options are {', '.join(sorted(known))}")
    chosen = {name: value for name, value in preset_values(preset).items() if name in known}
    if given.get("step") is not None:
        chosen.pop("alpha", None)
    return replace(DenoiseOptions(), **{**chosen, **given})


def preset_values(preset: str | None) -> Mapping[str, Any]:
    """The values that a preset sets, display options included; nothing for None.

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
    """The command-line flag of an option."""
    return "--" + name.replace("_", "-")
