"""One method alone in its own process, so that its time and memory are measured alone and it can be stopped."""

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.comparison.clutter_filters import CONTENDERS
from usdenoise.comparison.work import Filtered, Work
from usdenoise.errors import DivergedError, UsdenoiseError
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.memory import peak_memory_bytes


@dataclass(frozen=True)
class MethodResult:
    """Outcome of a method.

    Attributes
    ----------
    status : str
        "done", "failed", "diverged", "timed out" or "killed".
    message : str
        Why the method did not finish; empty if it did.
    seconds : float or None
        Time of the method alone, without the start of the process; None if it did not finish.
    peak_memory_bytes : int or None
        Peak memory of the whole process, interpreter included, until the method ended; None if it did not finish.
    filtered : Filtered or None
        Output of the method with an empty matrix; None if it did not finish.
    distance : float or None
        Relative Frobenius distance to the reference; None without a reference.
    """

    status: str
    message: str = ""
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    filtered: Filtered | None = None
    distance: float | None = None


def run_method(
    name: str, work: Work, stack: Path, reference: Path | None = None, keep: Path | None = None
) -> MethodResult:
    """Run a method on a stack in the scratch folder, after a warm-up that is not timed.

    Parameters
    ----------
    name : str
        Name of the method in CONTENDERS.
    work : Work
        Input of the method. Its stack is a few zeros with the metadata; the data are read from `stack`.
    stack : Path
        File of the stack.
    reference : Path, optional
        File of the filtered matrix that the distance is measured to; by default none is measured.
    keep : Path, optional
        File that the filtered matrix is written to; by default it is discarded.
    """
    method = CONTENDERS[name].run
    # stderr is for the comparison.
    warnings.simplefilter("ignore")
    _warm_up(method, work)
    work = replace(work, stack=replace(work.stack, iq=np.load(stack)))
    began = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            filtered = method(work)
    except DivergedError as error:
        return MethodResult("diverged", error.command_line_text)
    except UsdenoiseError as error:
        return MethodResult("failed", error.command_line_text)
    except MemoryError:
        return MethodResult(
            "failed", "the memory is not enough for this method; take fewer frames with --frames"
        )
    seconds, peak = time.perf_counter() - began, peak_memory_bytes()
    if not np.isfinite(filtered.power).all():
        return MethodResult("diverged", "the filtered stack is not finite; try --precision double")
    if keep is not None:
        np.save(keep, filtered.matrix)
    distance = None
    if reference is not None:
        distance = relative_distance(filtered.matrix, np.load(reference, mmap_mode="r"))
    return MethodResult("done", "", seconds, peak, replace(filtered, matrix=filtered.matrix[:0]), distance)


def relative_distance(matrix: NDArray[Any], reference: NDArray[Any]) -> float:
    """Return the relative distance |A - B| / |B| of two matrices in the Frobenius norm, summed in double precision.

    Parameters
    ----------
    matrix, reference : (n_pixels, n_frames) arrays
        The matrices A and B.

    Returns
    -------
    float
        The distance; NaN if B is zero everywhere.
    """
    difference = total = 0.0
    # Blocks of 1024 rows keep the double-precision copies small.
    for start in range(0, len(matrix), 1024):
        wanted = np.asarray(reference[start : start + 1024], np.complex128)
        difference += float(np.sum(np.abs(matrix[start : start + 1024] - wanted) ** 2))
        total += float(np.sum(np.abs(wanted) ** 2))
    return float(np.sqrt(difference / total)) if total > 0 else float("nan")


def _warm_up(run: Any, work: Work) -> None:
    """Run the method on a few pixels of noise, so that its time contains no loading of libraries and kernels.

    A second scan in the same process would not wait for that either.
    """
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((12, 12, 64))
    if np.iscomplexobj(work.stack.iq):
        noise = noise + 1j * rng.standard_normal((12, 12, 64))
    small = Acquisition(noise.astype(work.stack.iq.dtype), "zxt", frame_rate_hz=work.stack.frame_rate_hz)
    with suppress(UsdenoiseError):
        settings = replace(work.settings, low_cutoff=1, high_cutoff="none", rank=3)
        run(replace(work, stack=small, settings=settings))
