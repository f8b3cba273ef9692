"""What a clutter filter of the comparison gets and returns, and what the filters share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.band import Band
from usdenoise.completion.identifiability import highest_rank
from usdenoise.components.rank import least_rank
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.checked_rows import checked_rows
from usdenoise.recipe.filter_rows import filter_rows
from usdenoise.recipe.live_pixels import live_pixels
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.rows import ArrayRows
from usdenoise.stack.sampling import HELD_OUT_FRACTION


@dataclass(frozen=True)
class Settings:
    """Settings that the methods of a comparison share.

    Attributes
    ----------
    rank : int or "auto"
        Number of components to estimate. "auto" takes the number that the full SVD finds above the noise. The methods
        eta-decay and paper keep their own rules instead.
    low_cutoff, high_cutoff : int or str
        The band, as in :class:`usdenoise.DenoiseOptions`. "auto" is decided once, on the full SVD.
    seed : int
        Seed of every random choice.
    precision : str
        "single" or "double".
    threads : int or None
        Number of threads, as in :class:`usdenoise.DenoiseOptions`.
    timeout : float or None
        Longest time of a method's process in seconds; None for no limit.
    parameters : mapping from method to mapping
        Parameters of single methods, for example ``{"highpass": {"cutoff_hz": 60}}``.
    """

    rank: str | int = "auto"
    low_cutoff: str | int = "auto"
    high_cutoff: str | int = "none"
    seed: int = 0
    precision: str = "single"
    threads: int | None = None
    timeout: float | None = None
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The settings that are options of the denoiser, by name."""
        names = ("rank", "low_cutoff", "high_cutoff", "seed", "precision", "threads")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Work:
    """Input of one clutter filter: a stack, and the settings to filter it with.

    Attributes
    ----------
    stack : Acquisition
        The stack, with its axes in canonical order. The filter may overwrite its memory.
    settings : Settings
        What all filters share; the rank and the low cutoff are those of the full SVD where they were automatic.
    sampling : float or None
        Fraction of the entries to sample; None for a filter that uses all entries.
    parameters : mapping
        Parameters of the filter: its defaults, overridden by those that the user set.
    """

    stack: Acquisition
    settings: Settings
    sampling: float | None
    parameters: Mapping[str, Any]

    @property
    def highest_rank(self) -> int:
        """The highest rank that the fitted entries determine."""
        n_pixels, observed = 0, 0
        for block in self.stack.iq:
            finite = np.isfinite(block)
            has_signal = (finite & (block != 0)).any(axis=-1)
            n_pixels += int(has_signal.sum())
            observed += int(finite[has_signal].sum())
        # The numbers of sampled and held-out entries are rounded, so one fitted entry fewer is on the safe side.
        fitted = int((1 - HELD_OUT_FRACTION) * observed * (self.sampling or 1.0)) - 1
        return max(1, highest_rank((n_pixels, self.stack.n_frames), fitted))

    def number(self, name: str) -> int:
        """Return a setting that must be a number for this filter."""
        value: str | int = getattr(self.settings, name)
        if isinstance(value, str):
            raise OptionError(f"{name} must be a number for this method; give --{name.replace('_', '-')} N")
        return value

    def rows(self, executor: Executor, missing: bool = False) -> tuple[ArrayRows, Neighbourhood]:
        """Return the rows of the stack that have a signal, in its memory, and the image that they make.

        Parameters
        ----------
        executor : Executor
            Maps over the row blocks.
        missing : bool
            Whether the filter can fill unobserved entries; otherwise they raise an InputError.
        """
        options = DenoiseOptions(**self.settings.options)
        rows, energy = checked_rows(self.stack, options, executor, in_place=True)
        assert isinstance(rows, ArrayRows)
        live = live_pixels(rows, energy, least_rank(options))
        grid = Neighbourhood(self.stack.shape_in(canonical_axes(self.stack.spatial_axes)), live)
        rows = rows if live is None else rows.keep(live)
        if rows.n_unobserved and not missing:
            raise InputError(
                f"this method needs every entry, and {rows.n_unobserved} are NaN or infinite; "
                "compare methods that fill unobserved entries, such as eta-decay and rpca"
            )
        return rows, grid


@dataclass(frozen=True)
class Filtered:
    """Output of one clutter filter: the filtered stack, and figures of how it was computed.

    Attributes
    ----------
    matrix : (n_pixels, n_frames) array
        The filtered Casorati matrix.
    power : (n_pixels,) float64 array
        Mean power of each pixel over the frames.
    blood_power : (n_pixels,) float64 array
        Blood map of the filtered stack, with the same correction for every filter. Filters with components have
        cutoffs by place in it, as `usdenoise run` has.
    rank, low_cutoff : int or None
        Number of components estimated and removed; None for a filter without components.
    held_out_rmse : float or None
        Root mean square error of the filter's own low-rank estimate on the held-out entries, before any refit, in the
        units of the data; None where no entries were held out.
    iterations, passes : int or None
        Number of iterations and of evaluations of the sampled residual; None for a filter that does not count them.
    note : str
        Why the filter stopped, or which filter it is.
    curve : tuple of (passes, seconds, held-out rms error)
        Convergence of an iterative filter, one point an iteration. The time counts from the beginning of the filter,
        the start of the iteration included.
    """

    matrix: NDArray[Any]
    power: NDArray[np.float64]
    blood_power: NDArray[np.float64]
    rank: int | None = None
    low_cutoff: int | None = None
    held_out_rmse: float | None = None
    iterations: int | None = None
    passes: int | None = None
    note: str = ""
    curve: tuple[tuple[int, float, float], ...] = ()


def keep_shared_band(
    work: Work, rows: ArrayRows, grid: Neighbourhood, model: LowRank, **figures: Any
) -> Filtered:
    """Keep the shared band of a low-rank estimate, as `usdenoise run` does, in the memory of the rows.

    Parameters
    ----------
    work : Work
        The settings that hold the band.
    rows, grid
        The data and their image, from :meth:`Work.rows`.
    model : LowRank
        The estimate of their components.
    **figures
        Further fields of the result.
    """
    low, high = work.number("low_cutoff"), work.settings.high_cutoff
    band = Band(low, model.rank if isinstance(high, str) else high, high == "none")
    done = filter_rows(rows, model, band, grid, with_halves=False)
    return filtered_image(
        grid, rows.values, done.power, done.blood.blood_power, rank=model.rank, low_cutoff=low, **figures
    )


def filtered_image(grid: Neighbourhood, *values: NDArray[Any], **figures: Any) -> Filtered:
    """Return the matrix, power and blood power of the rows of :meth:`Work.rows` as those of all pixels."""
    matrix, power, blood_power = map(grid.everywhere, values)
    return Filtered(matrix, power, blood_power, **figures)
