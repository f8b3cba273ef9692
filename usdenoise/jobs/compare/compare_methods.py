"""The library call: an acquisition and names of methods in, rows of the comparison and images out."""

import difflib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood import metrics
from usdenoise.errors import (
    OUT_OF_MEMORY,
    DivergedError,
    OptionError,
    UsdenoiseError,
    check_names,
    is_out_of_memory,
)
from usdenoise.files.phantom_file import Truth
from usdenoise.jobs.compare.clutter_filters import (
    BASELINES,
    CLUTTER_FILTERS,
    SHARED,
    USUAL,
    Filtered,
    SharedKeywords,
    run_filter,
)
from usdenoise.jobs.compare.figures_of_merit import FIGURES, PICTURES, figures_of_merit, relative_distance
from usdenoise.options.denoise_options import DenoiseOptions, make_options
from usdenoise.stack.acquisition import Acquisition

NUMBERS = ("rank", "low_cutoff", "iterations", "passes", "held_out_rmse")
"""Columns with a number of the filter."""

Images = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Power Doppler and blood map of a method."""


@dataclass(frozen=True)
class Comparison:
    """Results of several methods on one acquisition.

    Attributes
    ----------
    rows : list of dict
        Two rows for each method that is done, in the order of the call: its power Doppler, then its blood map. A method
        that failed has one row. Keys: method, picture ("power Doppler" or "blood map"), status ("done", "failed" or
        "diverged"), message, seconds, rank, low_cutoff, iterations, passes, held_out_rmse, distance_to_svd, contrast_db,
        cnr, gcnr, correlation, auc, note and citation. Values that a method does not have are None. The two rows of a
        method differ in the metrics of the image: the blood map of every filter is computed in the same way,
        by :mod:`usdenoise.blood`.
    images : list of float32 array or None
        Linear image of each row, spatial axes in the order of the acquisition; None if the method failed.
    low_cutoff : int or str
        Number of components that every low-rank method removes; "auto" if it could not be determined.
    reference : float32 array or None
        Linear power Doppler of the full SVD. If it failed, for example because of missing entries, the power Doppler
        of the first method that succeeded. None if all failed.
    """

    rows: list[dict[str, Any]]
    images: list[NDArray[np.float32] | None]
    low_cutoff: str | int
    reference: NDArray[np.float32] | None


def compare(
    acquisition: Acquisition,
    methods: Sequence[str] | None = None,
    *,
    signal: NDArray[np.bool_] | None = None,
    background: NDArray[np.bool_] | None = None,
    truth: Truth | None = None,
    on_start: Callable[[str], None] | None = None,
    **requested_options: Unpack[SharedKeywords],
) -> Comparison:
    """Filter one acquisition by several methods, one after the other.

    The full SVD runs first: all other methods are compared with it, and use its automatic low cutoff. The seconds of the
    first methods include the compilation of kernels if they are not in numba's cache yet.

    Parameters
    ----------
    acquisition : Acquisition
        The stack. It is not changed.
    methods : sequence of str, optional
        Names in ``usdenoise.jobs.compare.CLUTTER_FILTERS``, or "all" alone; by default eta-decay, svd, rsvd and highpass.
    signal, background : boolean arrays, optional
        Regions for contrast, CNR and gCNR, spatial axes in the order of the stack. By default they are the vessels of
        `truth` and all other pixels.
    truth : Truth, optional
        True blood power and vessels, for the correlation and the detection AUC.
    on_start : callable, optional
        Called before each method with its name.
    **requested_options
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
    check_names(requested_options, SHARED)
    options = make_options(**requested_options)
    names = _checked_names(methods)
    signal, background = _regions(acquisition, signal, background, truth)
    exact: NDArray[Any] | None = None
    reference: NDArray[np.float32] | None = None
    reference_rank = options.rank
    done: dict[str, tuple[dict[str, Any], Images | None]] = {}
    for name in dict.fromkeys(["svd", *names]):
        if on_start is not None:
            on_start(name)
        rank = reference_rank if name in BASELINES else options.rank
        row, filtered = _run(name, acquisition, replace(options, rank=rank))
        if filtered is None:
            done[name] = row, None
            continue
        if exact is not None:
            row["distance_to_svd"] = relative_distance(filtered.matrix, exact)
        if reference is None:
            reference = filtered.power
            reference_rank = filtered.rank if options.rank == "auto" and filtered.rank else options.rank
            if filtered.low_cutoff is not None:
                options = replace(options, low_cutoff=filtered.low_cutoff)
        if name == "svd":
            exact = filtered.matrix
        done[name] = row, (filtered.power, filtered.blood_power)
    result = Comparison(rows=[], images=[], low_cutoff=options.low_cutoff, reference=reference)
    for name in names:
        row, images = done[name]
        for picture, image in zip(PICTURES, images or (None,), strict=False):
            figures = {} if image is None else figures_of_merit(image, signal, background, truth)
            result.rows.append({**row, "picture": picture, **figures})
            result.images.append(image)
    return result


def _run(
    name: str, acquisition: Acquisition, options: DenoiseOptions
) -> tuple[dict[str, Any], Filtered | None]:
    """Run a method, and return its row without metrics; the filtered stack is None if it failed."""
    row: dict[str, Any] = {
        "method": name,
        "picture": "",
        "status": "failed",
        "message": "",
        "seconds": None,
        **dict.fromkeys((*NUMBERS, "distance_to_svd", *FIGURES)),
        "note": "",
        "citation": CLUTTER_FILTERS[name],
    }
    began = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            filtered = run_filter(name, acquisition, options)
        if not np.isfinite(filtered.power).all():
            raise DivergedError("the filtered stack is not finite")
    except UsdenoiseError as error:
        status = "diverged" if isinstance(error, DivergedError) else "failed"
        return {**row, "status": status, "message": str(error)}, None
    except Exception as error:
        text = OUT_OF_MEMORY if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        return {**row, "message": text}, None
    row["seconds"] = time.perf_counter() - began
    row.update({column: getattr(filtered, column) for column in (*NUMBERS, "note")})
    return {**row, "status": "done"}, filtered


def _checked_names(methods: Sequence[str] | None) -> list[str]:
    names = list(dict.fromkeys(methods or USUAL))
    if names == ["all"]:
        return list(CLUTTER_FILTERS)
    for name in names:
        if name not in CLUTTER_FILTERS:
            near = difflib.get_close_matches(name, CLUTTER_FILTERS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(CLUTTER_FILTERS)
            raise OptionError(f"unknown method '{name}'; {hint}the methods are {known}")
    return names


def _regions(
    acquisition: Acquisition,
    signal: NDArray[np.bool_] | None,
    background: NDArray[np.bool_] | None,
    truth: Truth | None,
) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Return both regions or none, by default the regions of the truth, and check that they fit."""
    if truth is not None:
        signal = truth.vessel_mask if signal is None else signal
        background = ~truth.vessel_mask if background is None else background
    if (signal is None) != (background is None):
        raise OptionError("contrast requires both regions", remedy="give {signal} and {background}")
    if signal is not None and background is not None:
        metrics.contrast_db(np.ones(acquisition.shape_in(acquisition.spatial_axes)), signal, background)
    return signal, background
