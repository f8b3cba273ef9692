"""The library call: an acquisition and names of methods in, rows of the comparison and images out."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood import metrics
from usdenoise.comparison.clutter_filters import CONTENDERS, USUAL
from usdenoise.comparison.comparison_rows import blood_row, figures_of_merit, power_row
from usdenoise.comparison.method_process import MethodResult, run_method
from usdenoise.comparison.work import Settings, Work
from usdenoise.errors import OptionError
from usdenoise.formats.phantom_file import Truth
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.checked_rows import STORAGE
from usdenoise.stack.acquisition import Acquisition, canonical_axes, spatial_order
from usdenoise.stack.casorati import image_from_pixels
from usdenoise.stack.precision import checked_conversion
from usdenoise.system.processes import ProcessDiedError, ProcessExecutor

DEFAULT_SAMPLING = (DenoiseOptions().sampling,)

PLACEHOLDER_LENGTH = 2
"""Length of each axis of the zeros that are sent to a method's process in place of the stack."""


@dataclass(frozen=True)
class Comparison:
    """Results of several methods on one acquisition.

    Attributes
    ----------
    rows : list of dict
        Two rows for each method and sampling that is done, in the order of the call: that of its power Doppler and that
        of its blood map; one row for any other. Keys: method, sampling, picture ("power Doppler" or "blood map"),
        status ("done", "failed", "diverged", "timed out" or "killed"), message, seconds, peak_memory_bytes, rank,
        low_cutoff, iterations, passes, held_out_rmse, distance_to_svd, contrast_db, cnr, gcnr, correlation, auc, note and
        citation. Values that a method does not have are None. The row of a blood map has the figures of its image
        alone: the blood map of every filter is made in the same way, by :mod:`usdenoise.blood`.
    images : list of float32 array or None
        Linear image of each row, spatial axes in the order of the acquisition; None where a method failed.
    curves : list of tuple of (passes, seconds, held-out rms error)
        Convergence of each row; empty for a blood map, and for a method that is not iterative.
    low_cutoff : int or str
        Number of components that every low-rank method removes; "auto" if each method chose its own.
    reference : float32 array or None
        Linear power Doppler of the reference: the full SVD, or the default method for a stack with unobserved
        entries. None if both failed.
    """

    rows: list[dict[str, Any]]
    images: list[NDArray[np.float32] | None]
    curves: list[tuple[tuple[int, float, float], ...]]
    low_cutoff: str | int
    reference: NDArray[np.float32] | None


def compare(
    acquisition: Acquisition,
    methods: Sequence[str] | None = None,
    *,
    sampling: Sequence[float] = DEFAULT_SAMPLING,
    settings: Settings | None = None,
    signal: NDArray[np.bool_] | None = None,
    background: NDArray[np.bool_] | None = None,
    truth: Truth | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    on_start: Callable[[str, int, int], None] | None = None,
    **given: Any,
) -> Comparison:
    """Filter one acquisition by several methods, each alone in its own process.

    Parameters
    ----------
    acquisition : Acquisition
        The stack. It is not changed.
    methods : sequence of str, optional
        Names in ``usdenoise.comparison.CONTENDERS``, or "all" alone; by default eta-decay, svd, rsvd and highpass.
    sampling : sequence of float
        Fractions of the entries to sample. A method that uses a sample has one row for each.
    settings : Settings, optional
        All shared settings at once, instead of single ones in `given`.
    signal, background : boolean arrays, optional
        Regions for contrast, CNR and gCNR, spatial axes in the order of the stack. By default they are the vessels of
        `truth` and all other pixels.
    truth : Truth, optional
        True blood power and vessels, for the correlation and the detection AUC.
    on_row : callable, optional
        Called with the row of each method's power Doppler when the method has ended.
    on_start : callable, optional
        Called before each method with its label, the number of methods that have ended, and the number of all. The full
        SVD, which all others are compared with, comes first.
    **given
        Fields of :class:`Settings`, for example ``rank=20``.

    Returns
    -------
    Comparison

    Raises
    ------
    OptionError
        If a method or one of its parameters is not known, a value is outside its range, or only one of the two
        regions is given.
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
    chosen = Settings(**given) if settings is None else settings
    names = list(dict.fromkeys(methods or USUAL))
    if names == ["all"]:
        names = list(CONTENDERS)
    _check(names, sampling, chosen)
    if truth is not None:
        signal = truth.vessel_mask if signal is None else signal
        background = ~truth.vessel_mask if background is None else background
    if (signal is None) != (background is None):
        raise OptionError("a contrast needs both regions; give --signal and --background")
    if signal is not None and background is not None:
        shape = acquisition.shape_in(acquisition.spatial_axes)
        # A region that does not fit raises an error here, before any method has run.
        metrics.contrast_db(np.ones(shape), signal, background)
    figures = partial(figures_of_merit, signal=signal, background=background, truth=truth)
    planned = [(name, part) for name in names for part in (sampling if CONTENDERS[name].sampled else (None,))]
    begin = on_start or (lambda label, ended, total: None)
    with TemporaryDirectory(prefix="usdenoise-") as scratch:
        runner = _MethodRunner(acquisition, chosen, Path(scratch))
        begin("the full SVD as reference", 0, len(planned) + 1)
        reference = runner.reference(sampling[0])
        low = chosen.low_cutoff if reference is None else runner.low
        rows, images, curves = [], [], []
        for number, (name, fraction) in enumerate(planned, start=1):
            begin(name if fraction is None else f"{name} at {fraction:g}", number, len(planned) + 1)
            result = runner.result(name, fraction)
            image = runner.image(result)
            rows.append(power_row(name, fraction, result, figures(image)))
            images.append(image)
            curves.append(result.filtered.curve if result.filtered is not None else ())
            if on_row is not None:
                on_row(rows[-1])
            if result.filtered is not None:
                image = runner.image(result, "blood_power")
                rows.append(blood_row(rows[-1], figures(image)))
                images.append(image)
                curves.append(())
        return Comparison(rows, images, curves, low, None if reference is None else runner.image(reference))


class _MethodRunner:
    """Runs methods one at a time, each in its own process, on a stack that it keeps in a scratch folder."""

    def __init__(self, acquisition: Acquisition, settings: Settings, scratch: Path) -> None:
        axes = canonical_axes(acquisition.axes)
        dtype = STORAGE[settings.precision, np.iscomplexobj(acquisition.iq)]
        stack = spatial_order(acquisition.iq, acquisition.axes, axes)
        self._complete = all(bool(np.isfinite(part).all()) for part in stack)
        self._like = acquisition
        self._stack = scratch / "stack.npy"
        with checked_conversion(stack, dtype, acquisition.name):
            np.save(self._stack, np.ascontiguousarray(stack, dtype=dtype))
        # A process is sent the metadata of the stack alone; it reads the entries from the scratch folder.
        zeros: NDArray[Any] = np.zeros([PLACEHOLDER_LENGTH] * stack.ndim, dtype)
        self._placeholder = replace(acquisition, iq=zeros, axes=axes)
        self._settings = settings
        self._scratch = scratch
        self._results: dict[tuple[str, float | None], MethodResult] = {}
        self._reference: Path | None = None
        self._rank: str | int = settings.rank
        self.low: str | int = settings.low_cutoff

    def reference(self, sampling: float) -> MethodResult | None:
        """Run the reference method, and take its low cutoff and rank for the others if they are automatic.

        The reference is the full SVD if every entry is observed and the SVD does not fail, otherwise the default
        method eta-decay. Return its result, or None if it failed.
        """
        for name in ["svd", "eta-decay"] if self._complete else ["eta-decay"]:
            fraction = sampling if CONTENDERS[name].sampled else None
            keep = self._scratch / "reference.npy" if name == "svd" else None
            result = self.result(name, fraction, keep)
            if result.filtered is not None:
                self._reference = keep
                if result.filtered.low_cutoff is not None:
                    self.low = result.filtered.low_cutoff
                if isinstance(self._rank, str) and result.filtered.rank is not None:
                    self._rank = result.filtered.rank
                return result
        return None

    def result(self, name: str, sampling: float | None, keep: Path | None = None) -> MethodResult:
        """Run a method on the stack, or return its earlier result."""
        if (name, sampling) not in self._results:
            self._results[name, sampling] = self._run(name, sampling, keep)
        return self._results[name, sampling]

    def image(self, result: MethodResult, name: str = "power") -> NDArray[np.float32] | None:
        """Return an image, "power" or "blood_power", spatial axes in the order of the acquisition; None without a result."""
        if result.filtered is None:
            return None
        return image_from_pixels(getattr(result.filtered, name), self._like).astype(np.float32)

    def _run(self, name: str, sampling: float | None, keep: Path | None) -> MethodResult:
        contender, settings = CONTENDERS[name], self._settings
        rank = settings.rank if contender.chooses_rank else self._rank
        work = Work(
            self._placeholder,
            replace(settings, low_cutoff=self.low, rank=rank),
            sampling,
            {**contender.defaults, **settings.parameters.get(name, {})},
        )
        with ProcessExecutor(1, [run_method.__module__], timeout_s=settings.timeout) as executor:
            future = executor.submit(run_method, name, work, self._stack, self._reference, keep)
            try:
                result: MethodResult = future.result()
            except TimeoutError:
                return MethodResult("timed out", f"it took more than {settings.timeout:g} s; raise --timeout")
            except ProcessDiedError as error:
                return MethodResult("killed", f"its process {error}; take fewer --frames")
            except Exception as error:
                return MethodResult("failed", f"{type(error).__name__}: {error}")
        return result


def _check(names: Sequence[str], sampling: Sequence[float], settings: Settings) -> None:
    for name in [*names, *settings.parameters]:
        if name not in CONTENDERS:
            near = difflib.get_close_matches(name, CONTENDERS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise OptionError(f"method '{name}' is not known; {hint}the methods are {', '.join(CONTENDERS)}")
    for name, parameters in settings.parameters.items():
        known = sorted({*CONTENDERS[name].defaults, *CONTENDERS[name].further} - {"method"})
        for key in parameters:
            if key not in known:
                raise OptionError(
                    f"{name} has no parameter '{key}'; it has {', '.join(known) or 'none that can be set'}"
                )
    if not sampling:
        raise OptionError("no sampling was given; give at least one fraction of the entries")
    for fraction in sampling:
        DenoiseOptions(sampling=fraction)
    DenoiseOptions(**settings.options)
    if settings.timeout is not None and not settings.timeout > 0:
        raise OptionError(f"timeout {settings.timeout:g} must be positive; change --timeout")
