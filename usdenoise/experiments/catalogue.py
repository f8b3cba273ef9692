"""The table of experiments by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from usdenoise.experiments import exact_and_over, sensing, ultrasound
from usdenoise.experiments.record import ExperimentResult
from usdenoise.experiments.setup import Setup


@dataclass(frozen=True)
class Experiment:
    """One experiment of the table.

    Attributes
    ----------
    title : str
        Title of one line, as `usdenoise reproduce` lists it.
    do : callable
        Function that runs the experiment with a :class:`Setup` and returns its :class:`ExperimentResult`.
    """

    title: str
    do: Callable[[Setup], ExperimentResult]


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        "sensing-lambda": Experiment(
            "Gaussian sensing against ScaledGD(lambda)", sensing.AGAINST_SCALEDGD_LAMBDA.run
        ),
        "sensing-precgd": Experiment(
            "Gaussian sensing against PrecGD with several proxies", sensing.AGAINST_PRECGD.run
        ),
        "sensing-small-start": Experiment(
            "Gaussian sensing, the other methods from a small start", sensing.FROM_SMALL_START.run
        ),
        "sensing-well-conditioned": Experiment(
            "Gaussian sensing, condition number 1", exact_and_over.SENSING.run
        ),
        "high-noise": Experiment("Gaussian sensing with high noise", sensing.HIGH_NOISE.run),
        "wall-time": Experiment("Gaussian sensing against wall time", sensing.WALL_TIME.run),
        "one-bit": Experiment("One-bit sensing, rank exact or doubled", exact_and_over.ONE_BIT.run),
        "phase": Experiment("Phase retrieval, rank exact or doubled", exact_and_over.PHASE.run),
        "ultrasound": Experiment("Power Doppler, three methods, half of the entries", ultrasound.single),
        "ultrasound-grid": Experiment(
            "Power Doppler, four methods, 50 % to 20 % of entries", ultrasound.grid
        ),
    }
)
