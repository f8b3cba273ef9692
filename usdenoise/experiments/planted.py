"""An experiment on random 10 x 10 problems: what it declares, and how it is run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from usdenoise.experiments.conventions import MAIN_TEXT, Tried
from usdenoise.experiments.instances import SIZE
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
    choices : sequence of str
        Sentences on what the paper leaves open or cannot mean, each with the choice made here.
    smallest_eigenvalue : float
        Smallest nonzero eigenvalue of M*, by default 1.
    tried : mapping from Convention to starts
        Conventions of the gradient with their starts, the paper's reading first; by default MAIN_TEXT.
    """

    title: str
    where: str
    settings: Sequence[Setting]
    choices: Sequence[str]
    smallest_eigenvalue: float = 1.0
    tried: Tried = field(default_factory=lambda: MAIN_TEXT)

    def run(self, setup: Setup) -> ExperimentResult:
        """Run every method in every setting, and check the claims on each panel."""
        convention, starts = next(iter(self.tried.items()))
        tried = {convention: starts[:2]} if setup.quick else self.tried
        found = [
            (panel, setting) for setting in self.settings for panel in panels(setting, setup.seeds, tried)
        ]
        first, words = self.settings[0], f"the paper's reading: {starts[0]} start, gradient {convention}"
        clean = partial(first.draw, **{**first.problem, "sigma": 0.0})
        return ExperimentResult(
            self.title,
            {"size": SIZE, "settings": {setting.name: setting.as_dict() for setting in self.settings}},
            (words, *self.choices),
            setup.seeds,
            tuple(panel for panel, _ in found),
            tuple(check.claim(panel, self.where) for panel, setting in found for check in setting.checks),
            x_label="iteration" if first.seconds is None else "seconds",
            numbers=condition_of_starts(clean, setup.seeds, self.smallest_eigenvalue),
        )
