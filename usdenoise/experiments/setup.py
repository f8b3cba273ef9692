"""What the user asks of the experiments, and the stack of the ultrasound ones."""

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
"""Tissue as after a clutter filter: these experiments keep every component, so it must not cover the blood."""


@dataclass(frozen=True)
class Stack:
    """The acquisition of the ultrasound experiments, scaled to a largest magnitude of 1.

    Attributes
    ----------
    acquisition : Acquisition
        Axes z, x, t for a phantom.
    noise_free : array or None
        The same stack without its noise, where that is known.
    source : mapping
        Where it comes from.
    """

    acquisition: Acquisition
    noise_free: NDArray[Any] | None
    source: Mapping[str, Any]


def _nothing(message: str) -> None:
    pass


@dataclass(frozen=True)
class Setup:
    """How the experiments are to be done.

    Attributes
    ----------
    n_seeds : int or None
        Problems of each 10 x 10 setting; by default 10, or 3 where it has to be quick.
    quick : bool
        Fewer seeds, and a small phantom.
    acquisition : Path or None
        A file for the ultrasound experiments in place of the phantom.
    reading : mapping
        Fields of :class:`usdenoise.formats.loading.ReadOptions`.
    threads : int or None
        Threads of the ultrasound experiments; None takes every processor at hand.
    say : callable
        Told what is being done.
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
    # A stack of nothing but zeros is refused, with its own sentence, where it is solved.
    peak = peak if peak > 0 else 1.0
    return Stack(
        replace(acquisition, iq=acquisition.iq / np.float32(peak)),
        None if noise_free is None else noise_free / np.float32(peak),
        {**source, "peak_magnitude": peak},
    )
