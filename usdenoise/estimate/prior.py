"""The prior of the coefficients of a pixel."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PRIOR_FLOOR = 1e-3
"""Smallest prior variance of a component, in units of the noise variance."""


@dataclass(frozen=True)
class Prior:
    """Prior of the coefficients of a pixel: independent Gaussian components, next to white noise.

    Attributes
    ----------
    variances : (r,) float64 array
        Variance of each component.
    noise_variance : float
        Variance of the noise in an entry.
    """

    variances: NDArray[np.float64]
    noise_variance: float

    @property
    def ridge(self) -> NDArray[np.float64]:
        """Weight of each squared coefficient next to the squared errors: noise variance over variance."""
        floor = max(PRIOR_FLOOR * self.noise_variance, float(np.finfo(np.float64).tiny))
        return self.noise_variance / np.maximum(self.variances, floor)
