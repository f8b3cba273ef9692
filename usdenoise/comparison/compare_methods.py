"""The library call: an acquisition and names of methods in, rows of the comparison and images out."""

import difflib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood import metrics
from usdenoise.comparison.clutter_filters import CLUTTER_FILTERS, SHARED, USUAL, ClutterFilter, Filtered
from usdenoise.comparison.figures_of_merit import (
    BLOOD_MAP,
    FIGURES,
    POWER_DOPPLER,
    figures_of_merit,
    relative_distance,
)
from usdenoise.errors import (
    OUT_OF_MEMORY,
    DivergedError,
    OptionError,
    UsdenoiseError,
    check_names,
    is_out_of_memory,
)
from usdenoise.formats.phantom_file import Truth
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition

Curve = tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Comparison:
    """Results of several methods on one acquisition.

    Attributes
    ----------
    rows : list of dict
        Two rows for each method that is done, in the order of the call: its power Doppler, then its blood map. A method
        that failed has one row. Keys: method, picture ("power Doppler" or "blood map"), status ("done", "failed" or
        "diverged"), message, seconds, rank, low_cutoff, iterations, passes, held_out_rmse, distance_to_svd, contrast_db,
        cnr, gcnr, correlation, auc, note and citation. Values that a method does not have are None. The row of a blood
        map has only the figures of merit of its image: the blood map of every filter is computed in the same way, by
        :mod:`usdenoise.blood`.
    images : list of float32 array or None
        Linear image of each row, spatial axes in the order of the acquisition; None if the method failed.
    curves : list of tuple of (passes, seconds, held-out rms error)
        Convergence of each row; empty for a blood map, and for a method that is not iterative.
    low_cutoff : int or str
        Number of components that every low-rank method removes; "auto" if it could not be determined.
    reference : float32 array or None
        Linear power Doppler of the reference: the full SVD, or the default method if the SVD failed, as it does with
        missing entries. None if both failed.
    """

    rows: list[dict[str, Any]]
    images: list[NDArray[np.float32] | None]
    curves: list[Curve]
    low_cutoff: str | int
    reference: NDArray[np.float32] | None


def compare(
    acquisition: Acquisition,
    methods: Sequence[str] | None = None,
    *,
    signal: NDArray[np.bool_] | None = None,
    background: NDArray[np.bool_] | None = None,
    truth: Truth | None = None,
    on_start: Callable[[str, int, int], None] | None = None,
    **given: Any,
) -> Comparison:
    """Filter one acquisition by several methods, one after the other.

    The full SVD runs first: all other methods are compared with it, and use its automatic low cutoff. The seconds of the
    first methods include the compilation of kernels if they are not in numba's cache yet.

    Parameters
    ----------
    acquisition : Acquisition
        The stack. It is not changed.
    methods : sequence of str, optional
        Names in ``usdenoise.comparison.CLUTTER_FILTERS``, or "all" alone; by default eta-decay, svd, rsvd and highpass.
    signal, background : boolean arrays, optional
        Regions for contrast, CNR and gCNR, spatial axes in the order of the stack. By default they are the vessels of
        `truth` and all other pixels.
    truth : Truth, optional
        True blood power and vessels, for the correlation and the detection AUC.
    on_start : callable, optional
        Called before each method with its name, the number of methods that have ended, and the number of all.
    **given
        The options rank, sampling, low_cutoff, high_cutoff, seed, precision and threads of
        :class:`usdenoise.DenoiseOptions`.

    Returns
    -------
    Comparison

    Raises
    ------
    OptionError
        If a method or an option is not known, a value is outside its range, or only one of the two regions is given.
    InputError
        If a region does not fit the images.

    Examples
    --------
    >>> import numpy as np
    >>> import usdenoise
    >>> rng = np.random.default_rng(0)
    >>> tissue = 100 * np.exp(0.02j * np.arange(40))[:, None, None] * rng.random((12, 10))
    >>> blood_and_noise = rng.standard_normal((40, 12, 10)) + 1j * rng.standard_normal((40, 12, 10))
    >>> stack = usdenoise.Acquisition(tissue + blood_and_noise, axes="tzx")
    >>> comparison = usdenoise.compare(stack, ["svd", "polynomial"], rank=4, low_cutoff=1)
    >>> for row in comparison.rows:
    ...     print(row["method"], row["picture"], row["status"])
    svd power Doppler done
    svd blood map done
    polynomial power Doppler done
    polynomial blood map done
    >>> comparison.images[0].shape
    (12, 10)
    """
    check_names(given, SHARED)
    options = DenoiseOptions(**given)
    names = _checked_names(methods)
    if truth is not None:
        signal = truth.vessel_mask if signal is None else signal
        background = ~truth.vessel_mask if background is None else background
    _check_regions(acquisition, signal, background)

    def start(name: str, ended: int) -> None:
        if on_start is not None:
            on_start(name, ended, len({"svd", *names}))

    runner = _Runner(acquisition, options, start)
    runner.run_reference()
    result = Comparison(
        rows=[], images=[], curves=[], low_cutoff=runner.low_cutoff, reference=runner.reference
    )

    def add(row: dict[str, Any], image: NDArray[np.float32] | None, curve: Curve = ()) -> None:
        figures = {} if image is None else figures_of_merit(image, signal, background, truth)
        result.rows.append({**row, **figures})
        result.images.append(image)
        result.curves.append(curve)

    for name in names:
        outcome = runner.run(name)
        filtered, row = outcome.filtered, _row(name, outcome)
        if filtered is None:
            add(row, None)
        else:
            add(row, filtered.power, filtered.curve)
            add(_row_of_map(row), filtered.blood_power)
    return result


@dataclass(frozen=True)
class _Outcome:
    """Outcome of a method: the filtered stack, or why it failed."""

    status: str
    message: str = ""
    seconds: float | None = None
    filtered: Filtered | None = None
    distance: float | None = None


class _Runner:
    """Runs methods on one acquisition, and measures their distance to the full SVD."""

    def __init__(
        self, acquisition: Acquisition, options: DenoiseOptions, on_start: Callable[[str, int], None]
    ) -> None:
        self._acquisition = acquisition
        self._options = options
        self._on_start = on_start
        self._outcomes: dict[str, _Outcome] = {}
        self._exact: NDArray[Any] | None = None
        self._rank: int | str = options.rank
        self.low_cutoff: int | str = options.low_cutoff
        self.reference: NDArray[np.float32] | None = None

    def run_reference(self) -> None:
        """Run the full SVD, or the default method if it fails, and use its automatic cutoff and rank from now on."""
        for name in ("svd", "eta-decay"):
            found = self.run(name).filtered
            if found is not None:
                self.reference = found.power
                self.low_cutoff = self.low_cutoff if found.low_cutoff is None else found.low_cutoff
                self._rank = found.rank if self._rank == "auto" and found.rank is not None else self._rank
                return

    def run(self, name: str) -> _Outcome:
        """Run a method, or return its earlier outcome."""
        if name not in self._outcomes:
            self._on_start(name, len(self._outcomes))
            outcome = self._run(CLUTTER_FILTERS[name])
            if outcome.filtered is not None:
                outcome = self._without_matrix(name, outcome, outcome.filtered)
            self._outcomes[name] = outcome
        return self._outcomes[name]

    def _run(self, row: ClutterFilter) -> _Outcome:
        rank = self._options.rank if row.chooses_rank else self._rank
        options = replace(self._options, low_cutoff=self.low_cutoff, rank=rank)
        began = time.perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                filtered = row.run(self._acquisition, options)
        except DivergedError as error:
            return _Outcome("diverged", str(error))
        except UsdenoiseError as error:
            return _Outcome("failed", str(error))
        except Exception as error:
            text = OUT_OF_MEMORY if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
            return _Outcome("failed", text)
        seconds = time.perf_counter() - began
        if not np.isfinite(filtered.power).all():
            return _Outcome("diverged", "the filtered stack is not finite")
        return _Outcome("done", seconds=seconds, filtered=filtered)

    def _without_matrix(self, name: str, outcome: _Outcome, filtered: Filtered) -> _Outcome:
        """Measure the distance to the full SVD, and drop the filtered stack: only the SVD's stays in memory."""
        distance = None
        if name == "svd":
            self._exact = filtered.matrix
        elif self._exact is not None:
            distance = relative_distance(filtered.matrix, self._exact)
        return replace(
            outcome, distance=distance, filtered=replace(filtered, matrix=filtered.matrix[:0].copy())
        )


_OF_FILTER = ("rank", "low_cutoff", "iterations", "passes", "held_out_rmse")
"""Columns with a number of the filter."""

_OF_BOTH = ("method", "status", "message", "low_cutoff", "citation")
"""Columns that the two rows of a method have in common."""


def _row(name: str, outcome: _Outcome) -> dict[str, Any]:
    """Return the row of a method's power Doppler, without its figures of merit."""
    return {
        "method": name,
        "picture": POWER_DOPPLER,
        "status": outcome.status,
        "message": outcome.message,
        "seconds": outcome.seconds,
        **{column: getattr(outcome.filtered, column, None) for column in _OF_FILTER},
        "distance_to_svd": outcome.distance,
        **dict.fromkeys(FIGURES),
        "note": outcome.filtered.note if outcome.filtered else "",
        "citation": CLUTTER_FILTERS[name].citation,
    }


def _row_of_map(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a method's blood map, without its figures of merit."""
    return {
        **{name: row[name] if name in _OF_BOTH else None for name in row},
        "picture": BLOOD_MAP,
        "note": "",
    }


def _checked_names(methods: Sequence[str] | None) -> list[str]:
    names = list(dict.fromkeys(methods or USUAL))
    if names == ["all"]:
        return list(CLUTTER_FILTERS)
    for name in names:
        if name not in CLUTTER_FILTERS:
            near = difflib.get_close_matches(name, CLUTTER_FILTERS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(CLUTTER_FILTERS)
            raise OptionError(f"method '{name}' is not known; {hint}the methods are {known}")
    return names


def _check_regions(
    acquisition: Acquisition, signal: NDArray[np.bool_] | None, background: NDArray[np.bool_] | None
) -> None:
    """Check, before any method runs, that both regions or none are given, and that they fit."""
    if (signal is None) != (background is None):
        raise OptionError("a contrast needs both regions", remedy="give {signal} and {background}")
    if signal is not None and background is not None:
        metrics.contrast_db(np.ones(acquisition.shape_in(acquisition.spatial_axes)), signal, background)
