"""The library call: an acquisition and names of methods in, rows of figures and images out."""

import difflib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.comparison.contenders import CONTENDERS, Work
from usdenoise.comparison.method_process import Answer, Order
from usdenoise.errors import OptionError
from usdenoise.formats.scratch import write_array
from usdenoise.formats.truth import Truth
from usdenoise.images import metrics
from usdenoise.pipeline.denoise import STORAGE
from usdenoise.pipeline.options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition, canonical_axes, spatial_order
from usdenoise.stack.casorati import image_from_pixels

DEFAULT_SAMPLING = (DenoiseOptions().sampling,)
THUMBNAIL = 2


@dataclass(frozen=True)
class Comparison:
    """What several methods made of one acquisition.

    Attributes
    ----------
    rows : list of dict
        One for each method and sampling, in the order they were asked for: method, sampling, status ("done",
        "failed", "diverged", "timed out" or "killed"), message, seconds, peak_memory_bytes, rank, low_cutoff,
        iterations, passes, held_out_rmse, distance_to_svd, contrast_db, cnr, gcnr, correlation, auc, note and
        citation. What could not be had is None.
    images : list of float32 array or None
        Linear power Doppler of each row, spatial axes in the order of the acquisition.
    curves : list of tuple of (passes, seconds, held-out rms)
        How each row converged; empty where it is not iterative.
    low_cutoff : int or str
        Components removed by every low-rank method; "auto" where each had to choose.
    reference : float32 array or None
        Power Doppler of the method that the cutoff was taken from.
    """

    rows: list[dict[str, Any]]
    images: list[NDArray[np.float32] | None]
    curves: list[tuple[tuple[int, float, float], ...]]
    low_cutoff: str | int
    reference: NDArray[np.float32] | None


@dataclass(frozen=True)
class Settings:
    """What the methods share.

    Attributes
    ----------
    rank : int or "auto"
        Components to estimate; "auto" takes what the full SVD shows above the noise, for all methods but
        eta-decay and paper, which have rules of their own.
    low_cutoff, high_cutoff : int or str
        The band, as in :class:`usdenoise.DenoiseOptions`; "auto" is chosen once, on the full SVD.
    seed : int
        Of every random choice.
    precision : str
        "single" or "double".
    threads : int or None
        As in :class:`usdenoise.DenoiseOptions`.
    timeout : float or None
        Seconds that a method's process may take.
    parameters : mapping from method to mapping
        Parameters of single methods.
    """

    rank: str | int = "auto"
    low_cutoff: str | int = "auto"
    high_cutoff: str | int = "none"
    seed: int = 0
    precision: str = "single"
    threads: int | None = None
    timeout: float | None = None
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


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
    **given: Any,
) -> Comparison:
    """Filter one acquisition by several methods, each alone in a process of its own.

    Parameters
    ----------
    acquisition : Acquisition
        The stack; it is not changed.
    methods : sequence of str, optional
        Rows of CONTENDERS; all of them by default.
    sampling : sequence of float
        Fractions of the entries; a method that uses a sample has a row for each.
    settings : Settings, optional
        What the methods share, in place of single ones.
    signal, background : boolean arrays, optional
        Regions for contrast, CNR and gCNR, spatial axes in the order of the stack; by default the vessels
        of `truth` and the rest.
    truth : Truth, optional
        For the correlation with the true blood power and the detection AUC.
    on_row : callable, optional
        Called with each row as it is done.
    **given
        Fields of :class:`Settings`.

    Returns
    -------
    Comparison

    Raises
    ------
    OptionError
        If a method or one of its parameters is not known, or a value is outside its range.
    InputError
        If the stack holds no finite entry, or a region does not fit the images.
    """
    chosen = Settings(**given) if settings is None else settings
    names = list(dict.fromkeys(methods or CONTENDERS))
    _check(names, sampling, chosen)
    if truth is not None:
        signal = truth.vessel_mask if signal is None else signal
        background = ~truth.vessel_mask if background is None else background
    if (signal is None) != (background is None):
        raise OptionError("a contrast needs both regions; give --signal and --background")
    image = np.empty(
        [acquisition.iq.shape[acquisition.axes.index(letter)] for letter in acquisition.spatial_axes]
    )
    if signal is not None and background is not None:
        # A region that does not fit is told before the work, not after it.
        metrics.contrast_db(image, signal, background)
    judge = _Judge(signal, background, truth)
    with tempfile.TemporaryDirectory(prefix="usdenoise-") as scratch:
        ring = _Ring(acquisition, chosen, Path(scratch))
        reference = ring.reference(sampling[0])
        low = chosen.low_cutoff if reference is None else ring.low
        rows, images, curves = [], [], []
        for name in names:
            for fraction in sampling if CONTENDERS[name].sampled else (None,):
                answer = ring.answer(name, fraction)
                picture = ring.image(answer)
                row = _row(name, fraction, answer, judge.figures(picture))
                rows.append(row)
                images.append(picture)
                curves.append(answer.filtered.curve if answer.filtered is not None else ())
                if on_row is not None:
                    on_row(row)
        return Comparison(rows, images, curves, low, None if reference is None else ring.image(reference))


class _Judge:
    """Figures of merit of an image, those that can be had."""

    def __init__(
        self,
        signal: NDArray[np.bool_] | None,
        background: NDArray[np.bool_] | None,
        truth: Truth | None,
    ) -> None:
        self._signal, self._background, self._truth = signal, background, truth

    def figures(self, image: NDArray[np.float32] | None) -> dict[str, float | None]:
        figures: dict[str, float | None] = dict.fromkeys(
            ("contrast_db", "cnr", "gcnr", "correlation", "auc"), None
        )
        if image is None:
            return figures
        if self._signal is not None and self._background is not None:
            for name, figure in (
                ("contrast_db", metrics.contrast_db),
                ("cnr", metrics.cnr),
                ("gcnr", metrics.gcnr),
            ):
                figures[name] = figure(image, self._signal, self._background)
        if self._truth is not None:
            figures["correlation"] = metrics.correlation(image, self._truth.blood_power)
            figures["auc"] = metrics.detection_auc(image, self._truth.vessel_mask)
        return figures


class _Ring:
    """The stack in a scratch folder, and the processes that work on it one at a time."""

    def __init__(self, acquisition: Acquisition, settings: Settings, scratch: Path) -> None:
        axes = canonical_axes(acquisition.axes)
        dtype = STORAGE[settings.precision, np.iscomplexobj(acquisition.iq)]
        stack = spatial_order(acquisition.iq, acquisition.axes, axes)
        self._complete = all(bool(np.isfinite(part).all()) for part in stack)
        self._like = acquisition
        self._stack = scratch / "stack.npy"
        write_array(self._stack, np.ascontiguousarray(stack, dtype=dtype))
        # Only what the stack means travels with an order; its numbers are read from the scratch folder.
        part: NDArray[Any] = np.zeros([THUMBNAIL] * stack.ndim, dtype)
        self._thumbnail = replace(acquisition, iq=part, axes=axes)
        self._settings = settings
        self._scratch = scratch
        self._done: dict[tuple[str, float | None], Answer] = {}
        self._kept: Path | None = None
        self._rank: str | int = settings.rank
        self.low: str | int = settings.low_cutoff

    def reference(self, sampling: float) -> Answer | None:
        """The full SVD where every entry is known, otherwise the default method; None where that failed."""
        for name in ["svd", "eta-decay"] if self._complete else ["eta-decay"]:
            fraction = sampling if CONTENDERS[name].sampled else None
            keep = self._scratch / "reference.npy" if name == "svd" else None
            answer = self.answer(name, fraction, keep)
            if answer.filtered is not None:
                self._kept = keep
                if answer.filtered.low is not None:
                    self.low = answer.filtered.low
                if isinstance(self._rank, str) and answer.filtered.rank is not None:
                    self._rank = answer.filtered.rank
                return answer
        return None

    def answer(self, name: str, sampling: float | None, keep: Path | None = None) -> Answer:
        """What a contender makes of the stack; a second time it is not run again."""
        if (name, sampling) not in self._done:
            self._done[name, sampling] = self._run(name, sampling, keep)
        return self._done[name, sampling]

    def image(self, answer: Answer) -> NDArray[np.float32] | None:
        if answer.filtered is None:
            return None
        return image_from_pixels(answer.filtered.power, self._like).astype(np.float32)

    def _run(self, name: str, sampling: float | None, keep: Path | None) -> Answer:
        contender, settings = CONTENDERS[name], self._settings
        work = Work(
            stack=self._thumbnail,
            low=self.low,
            high=settings.high_cutoff,
            rank=settings.rank if name in ("eta-decay", "svd") else self._rank,
            sampling=sampling,
            seed=settings.seed,
            precision=settings.precision,
            threads=settings.threads,
            parameters={**contender.defaults, **settings.parameters.get(name, {})},
        )
        answer = self._scratch / "answer.pickle"
        answer.unlink(missing_ok=True)
        order = Order(name, work, self._stack, answer, self._kept, keep)
        paths = [path for path in sys.path if path]
        with subprocess.Popen(
            [sys.executable, "-c", "from usdenoise.comparison.method_process import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        ) as process:
            try:
                _, said = process.communicate(pickle.dumps(order), settings.timeout)
            except subprocess.TimeoutExpired:
                return Answer("timed out", f"it took more than {settings.timeout:g} s; raise --timeout")
            finally:
                process.kill()
        if process.returncode < 0:
            return Answer(
                "killed",
                f"signal {-process.returncode} ended it; the memory may not be enough, take fewer --frames",
            )
        if process.returncode or not answer.exists():
            last = said.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            return Answer("failed", last[0])
        with answer.open("rb") as file:
            result: Answer = pickle.load(file)
        return result


def _row(name: str, sampling: float | None, answer: Answer, figures: Mapping[str, Any]) -> dict[str, Any]:
    filtered = answer.filtered
    return {
        "method": name,
        "sampling": sampling,
        "status": answer.status,
        "message": answer.message,
        "seconds": answer.seconds,
        "peak_memory_bytes": answer.peak_memory_bytes,
        "rank": filtered and filtered.rank,
        "low_cutoff": filtered and filtered.low,
        "iterations": filtered and filtered.iterations,
        "passes": filtered and filtered.passes,
        "held_out_rmse": filtered and filtered.held_out_rmse,
        "distance_to_svd": answer.distance,
        **figures,
        "note": filtered.note if filtered else "",
        "citation": CONTENDERS[name].citation,
    }


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
    DenoiseOptions(
        rank=settings.rank,
        low_cutoff=settings.low_cutoff,
        high_cutoff=settings.high_cutoff,
        seed=settings.seed,
        precision=settings.precision,
        threads=settings.threads,
    )
    if settings.timeout is not None and not settings.timeout > 0:
        raise OptionError(f"timeout {settings.timeout:g} must be positive; change --timeout")
