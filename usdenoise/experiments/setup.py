"""Settings of the experiments that the user chooses, and the stack of the ultrasound experiments."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.formats import load
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.stack.acquisition import Acquisition

SEEDS, QUICK_SEEDS = 10, 3
PAPER_SHAPE, QUICK_SHAPE = (200, 130, 2400), (48, 40, 240)
CLUTTER_DB = -40.0
"""Tissue over blood, as after a clutter filter: every component is kept here, and strong tissue hides the blood."""


@dataclass(frozen=True)
class Stack:
    """The acquisition of the ultrasound experiments, scaled to a largest magnitude of 1.

    Attributes
    ----------
    acquisition : Acquisition
        The acquisition; a phantom has the axes z, x, t.
    noise_free : array or None
        The same stack without its noise, with the shape of `acquisition.iq`; None for a file.
    source : mapping
        Path and dataset of a file, or settings of a phantom, and the largest magnitude before scaling.
    """

    acquisition: Acquisition
    noise_free: NDArray[Any] | None
    source: Mapping[str, Any]


def _nothing(message: str) -> None:
    pass


@dataclass(frozen=True)
class Setup:
    """Settings of the experiments.

    Attributes
    ----------
    n_seeds : int or None
        Number of random seeds for each 10 x 10 experiment, one problem each; by default 10, or 3 if `quick`.
    quick : bool
        Whether to use fewer seeds and a phantom of 48 x 40 pixels and 240 frames instead of 200 x 130 and 2400;
        by default not.
    acquisition : Path or None
        File for the ultrasound experiments; by default they simulate a phantom.
    reading : mapping
        Fields of :class:`usdenoise.formats.loading.ReadOptions` for that file, by default none.
    threads : int or None
        Number of threads of the ultrasound experiments; by default all processors.
    say : callable
        Function that is called with a message before each longer step; by default messages are dropped.
    """

    n_seeds: int | None = None
    quick: bool = False
    acquisition: Path | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    say: Callable[[str], None] = _nothing

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
        settings = PhantomSettings(shape=shape, clutter_to_blood_db=CLUTTER_DB)
        self.say("simulating the phantom")
        iq = np.empty(settings.shape, np.complex64)
        noise_free = np.empty_like(iq)
        done = 0
        with ThreadExecutor(self.threads) as executor:
            for block in Phantom(settings, executor).blocks():
                frames = slice(done, done + len(block.iq))
                iq[..., frames] = np.moveaxis(block.iq, 0, -1)
                noise_free[..., frames] = np.moveaxis(block.tissue + block.blood, 0, -1)
                done = frames.stop
        spacing = dict.fromkeys("zx", settings.wavelength_mm)
        acquisition = Acquisition(
            iq, "zxt", frame_rate_hz=settings.frame_rate_hz, spacing_mm=spacing, name="phantom"
        )
        return _scaled(acquisition, noise_free, {"phantom": asdict(settings)})


def _scaled(acquisition: Acquisition, noise_free: NDArray[Any] | None, source: Mapping[str, Any]) -> Stack:
    observed = np.where(np.isfinite(acquisition.iq), np.abs(acquisition.iq), 0)
    peak = float(observed.max())
    # The solver refuses a stack that is zero everywhere with an error that says so; here it must not divide by 0.
    peak = peak if peak > 0 else 1.0
    return Stack(
        replace(acquisition, iq=acquisition.iq / np.float32(peak)),
        None if noise_free is None else noise_free / np.float32(peak),
        {**source, "peak_magnitude": peak},
    )
