"""One method in a process of its own, so that its time and memory are its own and it can be stopped."""

import pickle
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.comparison.contenders import CONTENDERS, Filtered, Work
from usdenoise.errors import DivergedError, UsdenoiseError
from usdenoise.formats.scratch import read_array, write_array
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.memory import peak_memory_bytes


@dataclass(frozen=True)
class Order:
    """What the parent wants done.

    Attributes
    ----------
    contender : str
        A row of CONTENDERS.
    work : Work
        Its stack holds a thumbnail in the place of the data, which are in the scratch folder.
    stack : Path
        The data.
    answer : Path
        Where the answer goes.
    reference : Path or None
        The filtered matrix to measure the distance to, if there is one.
    keep : Path or None
        Where the filtered matrix is to be kept, if it is.
    """

    contender: str
    work: Work
    stack: Path
    answer: Path
    reference: Path | None
    keep: Path | None


@dataclass(frozen=True)
class Answer:
    """What came of it.

    Attributes
    ----------
    status : str
        "done", "failed" or "diverged".
    message : str
        Of the failure.
    seconds : float
        Of the method alone.
    peak_memory_bytes : int
        Of the whole process, interpreter included, until the method ended.
    filtered : Filtered or None
        Without its matrix.
    distance : float or None
        Relative Frobenius distance to the reference.
    """

    status: str
    message: str = ""
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    filtered: Filtered | None = None
    distance: float | None = None


def carry_out(order: Order) -> Answer:
    """Run the contender of an order on the data in the scratch folder."""
    contender = CONTENDERS[order.contender]
    _warm_up(contender.run, order.work)
    work = replace(order.work, stack=replace(order.work.stack, iq=read_array(order.stack)))
    began = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            filtered = contender.run(work)
    except DivergedError as error:
        return Answer("diverged", error.command_line_text)
    except UsdenoiseError as error:
        return Answer("failed", error.command_line_text)
    except MemoryError:
        return Answer("failed", "the memory is not enough")
    seconds, peak = time.perf_counter() - began, peak_memory_bytes()
    if not np.isfinite(filtered.power).all():
        return Answer("diverged", "the filtered stack is not finite")
    if order.keep is not None:
        write_array(order.keep, filtered.matrix)
    distance = None
    if order.reference is not None:
        distance = relative_distance(filtered.matrix, read_array(order.reference, mapped=True))
    return Answer("done", "", seconds, peak, replace(filtered, matrix=filtered.matrix[:0]), distance)


def relative_distance(matrix: NDArray[Any], reference: NDArray[Any]) -> float:
    """|A - B| / |B|, Frobenius, summed in double precision.

    Parameters
    ----------
    matrix, reference : (n_pixels, n_frames) arrays
        A and B, B not zero everywhere.
    """
    difference = total = 0.0
    for start in range(0, len(matrix), 1024):
        wanted = np.asarray(reference[start : start + 1024], np.complex128)
        difference += float(np.sum(np.abs(matrix[start : start + 1024] - wanted) ** 2))
        total += float(np.sum(np.abs(wanted) ** 2))
    return float(np.sqrt(difference / total)) if total > 0 else float("nan")


def _warm_up(run: Any, work: Work) -> None:
    """Load libraries and compiled kernels, which a second scan would not wait for."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((12, 12, 64))
    if np.iscomplexobj(work.stack.iq):
        noise = noise + 1j * rng.standard_normal((12, 12, 64))
    small = Acquisition(noise.astype(work.stack.iq.dtype), "zxt", frame_rate_hz=work.stack.frame_rate_hz)
    with suppress(UsdenoiseError):
        run(replace(work, stack=small, low=1, high="none", rank=3))


def main() -> None:
    """Read an order from stdin, carry it out, and leave the answer where it says."""
    order = pickle.load(sys.stdin.buffer)
    with order.answer.open("wb") as file:
        pickle.dump(carry_out(order), file)
