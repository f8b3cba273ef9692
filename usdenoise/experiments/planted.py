"""An experiment on random 10 x 10 problems: what it declares, and how it is run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usdenoise.experiments.conventions import Convention
from usdenoise.experiments.instances import SIZE, Instance
from usdenoise.experiments.record import ExperimentResult
from usdenoise.experiments.setup import Setup
from usdenoise.experiments.start_condition import condition_of_starts
from usdenoise.experiments.trials import Setting, panels


@dataclass(frozen=True)
class PlantedExperiment:
    """An experiment that finds a planted matrix M* by several methods.

    Attributes
    ----------
    title : str
        Title of the figure.
    where : str
        Place in the paper.
    settings : sequence of Setting
        Problems with their methods and checks.
    parameters : mapping
        Settings of the experiment by name, for the record.
    choices : sequence of str
        Sentences on what the paper leaves open or cannot mean, each with the choice made here.
    draw : callable
        Function that draws a problem without noise from a generator, for the condition of the theorem on the start.
    smallest_eigenvalue : float
        Smallest nonzero eigenvalue of M*.
    hermitian : bool
        Whether the A_i are Hermitian, so that their general form is the symmetric one; by default not.
    x_label : str
        Axis label of all panels, by default "iteration".
    """

    title: str
    where: str
    settings: Sequence[Setting]
    parameters: Mapping[str, Any]
    choices: Sequence[str]
    draw: Callable[[np.random.Generator], Instance]
    smallest_eigenvalue: float
    hermitian: bool = False
    x_label: str = "iteration"

    def run(self, setup: Setup) -> ExperimentResult:
        """Run every method in every setting, and check the claims on each panel."""
        tried = dict(setup.tried)
        if self.hermitian:
            tried.pop(Convention.OF_BOTH_GENERAL, None)
        found = [
            (panel, setting) for setting in self.settings for panel in panels(setting, setup.seeds, tried)
        ]
        return ExperimentResult(
            self.title,
            {"size": SIZE, **self.parameters},
            tuple(self.choices),
            setup.seeds,
            tuple(panel for panel, _ in found),
            tuple(check.claim(panel, self.where) for panel, setting in found for check in setting.checks),
            x_label=self.x_label,
            numbers=condition_of_starts(self.draw, setup.seeds, self.smallest_eigenvalue),
        )
