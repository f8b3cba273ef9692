"""Settings of the experiments that the user chooses, and the stack of the ultrasound experiments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.experiments.filtered_stack import draw_filtered_stack
from usdenoise.formats import load
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.gram_matrices import normal_product
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import casorati

SEEDS, QUICK_SEEDS = 10, 2
PAPER_SHAPE, QUICK_SHAPE = (200, 130, 2400), (48, 40, 240)
RANK, ALPHA, GD_ALPHA = 100, 1e7, 1e3
LARGEST_SINGULAR_VALUE = ALPHA / GD_ALPHA
"""Singular value to which the stack is scaled. The paper does not give the unit of its data. In this unit the
published step of gradient descent moves the strongest component as fast as that of eta-decay, so that it is neither
too small to move nor too large to be stable. Eta-decay does not depend on the unit."""

POWER_ITERATIONS = 10


@dataclass(frozen=True)
class Stack:
    """The acquisition of the ultrasound experiments, scaled to a largest singular value of 1e4.

    Attributes
    ----------
    acquisition : Acquisition
        The acquisition; a phantom has the axes z, x, t.
    noise_free : array or None
        The same stack without its noise, with the shape of `acquisition.iq`; None for a file.
    source : mapping
        Path and dataset of a file, or settings of a phantom, and the largest singular value before scaling.
    rank : int
        Search rank: 100 for the paper's number of frames, and the same part of another number, or of the number of
        pixels where those are fewer. It is also the number of components of a phantom.
    """

    acquisition: Acquisition
    noise_free: NDArray[Any] | None
    source: Mapping[str, Any]
    rank: int


@dataclass(frozen=True)
class Setup:
    """Settings of the experiments.

    Attributes
    ----------
    n_seeds : int or None
        Number of random seeds for each 10 x 10 experiment, one problem each; by default 10, or 2 if `quick`.
    quick : bool
        Whether to use fewer seeds, only the paper's gradient from two starts, and a phantom of 48 x 40 pixels and
        240 frames instead of 200 x 130 and 2400; by default not.
    acquisition : Path or None
        File for the ultrasound experiments; by default they simulate a phantom.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions` for that file, by default none.
    threads : int or None
        Number of threads of the ultrasound experiments; by default all processors.
    say : callable
        Function that is called with a message before each longer step; by default messages are dropped.
    outcomes : dict
        Results of the ultrasound runs so far, by method and sampling; at first none.
    """

    n_seeds: int | None = None
    quick: bool = False
    acquisition: Path | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    say: Callable[[str], None] = lambda message: None
    outcomes: dict[Any, Any] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the 10 x 10 experiments."""
        return tuple(range(self.n_seeds or (QUICK_SEEDS if self.quick else SEEDS)))

    @cached_property
    def stack(self) -> Stack:
        """The acquisition of the ultrasound experiments, read or simulated once."""
        if self.acquisition is not None:
            self.say(f"reading {self.acquisition}")
            acquisition = load(self.acquisition, dtype="single", **self.reading)
            return _scaled(acquisition, None, {"path": str(self.acquisition), "dataset": acquisition.name})
        shape = QUICK_SHAPE if self.quick else PAPER_SHAPE
        self.say("drawing the phantom")
        with ThreadExecutor(self.threads) as executor:
            rank = search_rank(shape[0] * shape[1], shape[2])
            acquisition, blood, settings = draw_filtered_stack(shape, rank, executor)
        return _scaled(acquisition, blood, {"phantom": settings})


def search_rank(n_pixels: int, n_frames: int) -> int:
    """Return 100 for 2400 frames, and the same part of another number of frames, or of pixels where those are fewer.

    Parameters
    ----------
    n_pixels, n_frames : int
        Size of the stack.
    """
    return max(1, min(RANK, round(RANK * min(n_pixels, n_frames) / PAPER_SHAPE[-1])))


def _scaled(acquisition: Acquisition, noise_free: NDArray[Any] | None, source: Mapping[str, Any]) -> Stack:
    largest = _largest_singular_value(casorati(acquisition))
    # The solver refuses a stack that is zero everywhere with an error that says so; here it must not divide by 0.
    scale = np.float32(LARGEST_SINGULAR_VALUE / largest if largest > 0 else 1.0)
    return Stack(
        replace(acquisition, iq=acquisition.iq * scale),
        None if noise_free is None else noise_free * scale,
        {**source, "largest_singular_value": largest},
        search_rank(acquisition.n_pixels, acquisition.n_frames),
    )


def _largest_singular_value(matrix: NDArray[Any]) -> float:
    """Return the largest singular value, with 0 for unobserved entries, by power iterations."""
    vector = np.random.default_rng(0).standard_normal((matrix.shape[1], 1))
    square = 0.0
    with ThreadExecutor() as executor:
        for _ in range(POWER_ITERATIONS):
            vector = vector.astype(matrix.dtype) / max(float(np.linalg.norm(vector)), 1e-30)
            vector = normal_product(
                lambda rows: np.where(np.isfinite(matrix[rows]), matrix[rows], 0),
                block_rows(matrix.shape),
                vector,
                executor,
            )
            square = float(np.linalg.norm(vector))
    return float(np.sqrt(square))
