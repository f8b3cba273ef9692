"""What the user chooses for all experiments, and the stack of the ultrasound experiments."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from usdenoise.experiments.filtered_stack import FilteredStack, draw_filtered_stack
from usdenoise.linalg.executor import ThreadExecutor

SEEDS, QUICK_SEEDS = 10, 2
PAPER_SHAPE, QUICK_SHAPE = (200, 130, 2400), (48, 40, 240)
RANK = 100


@dataclass(frozen=True)
class Setup:
    """Settings of the experiments.

    Attributes
    ----------
    n_seeds : int or None
        Number of random seeds for each 10 x 10 experiment, one problem each; by default 10, or 2 if `quick`.
    quick : bool
        Whether to use fewer seeds, and a phantom of 48 x 40 pixels and 240 frames instead of 200 x 130 and 2400; by
        default not.
    threads : int or None
        Number of threads of the ultrasound experiments; by default all processors.
    say : callable
        Function that is called with a message before each longer step; by default messages are dropped.
    outcomes : dict
        Results of the ultrasound runs so far, by method and sampling; at first none.
    """

    n_seeds: int | None = None
    quick: bool = False
    threads: int | None = None
    say: Callable[[str], None] = lambda message: None
    outcomes: dict[tuple[str, float], Any] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the 10 x 10 experiments."""
        return tuple(range(self.n_seeds or (QUICK_SEEDS if self.quick else SEEDS)))

    @cached_property
    def stack(self) -> FilteredStack:
        """The stack of the ultrasound experiments, simulated once. Its number of components is the search rank."""
        shape = QUICK_SHAPE if self.quick else PAPER_SHAPE
        self.say("drawing the phantom")
        with ThreadExecutor(self.threads) as executor:
            return draw_filtered_stack(shape, round(RANK * shape[-1] / PAPER_SHAPE[-1]), executor)
