"""The table of experiments by name."""

from collections.abc import Mapping
from types import MappingProxyType

from usdenoise.experiments import exact_and_over, sensing, ultrasound
from usdenoise.experiments.planted import PlantedExperiment
from usdenoise.experiments.ultrasound import UltrasoundExperiment

EXPERIMENTS: Mapping[str, PlantedExperiment | UltrasoundExperiment] = MappingProxyType(
    {
        "sensing-lambda": sensing.AGAINST_SCALEDGD_LAMBDA,
        "sensing-precgd": sensing.AGAINST_PRECGD,
        "sensing-small-start": sensing.FROM_SMALL_START,
        "sensing-well-conditioned": exact_and_over.SENSING,
        "high-noise": sensing.HIGH_NOISE,
        "wall-time": sensing.WALL_TIME,
        "one-bit": exact_and_over.ONE_BIT,
        "phase": exact_and_over.PHASE,
        "ultrasound": ultrasound.SINGLE,
        "ultrasound-grid": ultrasound.GRID,
    }
)
