"""Per-pixel cutoffs: the share of clutter in each component near the global cutoff, pixel by pixel; every second pixel."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import BloodMap
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import CELL_SIGMA, TINY
from usdenoise.clutter.similarity import dominance, noise_energy
from usdenoise.linalg.low_rank import LowRank
from usdenoise.stack.sampling import spread_rows

LATTICE_STEP, THINNED_PIXELS = 2, 16
"""Pixels from one of the lattice to the next along an axis, and pixels of the shortest axis that is thinned out."""

LATTICE_PIXELS = 2000
"""Pixels of a lattice, at least. On images of 64 x 64 pixels with tissue 60 dB over blood and blood 6 dB below noise, one of
1024 pixels cost up to 0.013 of the correlation of the blood map with the truth; 2000 pixels cost at most 0.0004."""


def lattice_places(shape: tuple[int, ...]) -> tuple[NDArray[np.intp], ...]:
    """Return every second position along each of the longer axes of an image, or all positions of a small image.

    Parameters
    ----------
    shape : tuple of int
        Pixels along each axis.
    """
    thin = tuple(np.arange(0, n, LATTICE_STEP if n >= THINNED_PIXELS else 1) for n in shape)
    return thin if math.prod(map(len, thin)) >= LATTICE_PIXELS else tuple(map(np.arange, shape))


@dataclass(frozen=True)
class Lattice:
    """Some rows and columns of an image.

    Attributes
    ----------
    grid : Neighbourhood
        The image.
    places : tuple of arrays
        Positions of the pixels along each axis of the image.
    """

    grid: Neighbourhood
    places: tuple[NDArray[np.intp], ...]

    @property
    def pixels(self) -> NDArray[np.intp]:
        """Numbers of the pixels among the signal pixels of the image, in order."""
        numbers = self.grid.everywhere(np.arange(self.grid.n_pixels)).reshape(self.grid.shape)
        own: NDArray[np.intp] = numbers[np.ix_(*self.places)][self.coarse.mask]
        return own

    @property
    def coarse(self) -> Neighbourhood:
        """The lattice as an image of its own."""
        return Neighbourhood(self.grid.mask[np.ix_(*self.places)])

    def interpolated(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of the lattice in all pixels of the image, linear between them and constant beyond the last.

        Parameters
        ----------
        values : (n_lattice,) array
            Values by pixel of the lattice.
        """
        return self.grid.interpolated(self.coarse.filled(values), self.places)


BELOW, ABOVE = 4, 8
"""Components below and above the global cutoff whose share is decided pixel by pixel. With eight below it, tissue
came back into vessels: on the worst of eight development phantoms the correlation with the true power fell by 0.12."""

REFERENCES_FROM, REFERENCES_TO = 8, 2
"""The tissue map is the mean power of the components from 8 to 2 below the cutoff: tissue near the cutoff is like them."""

ALONE = 0.8
"""Share in the power of a component and the later ones above the noise from which it has next to no blood. It is tissue in
every pixel, and part of the tissue map. In 32 to 120 frames the last components of tissue had shares of 0.3 to 0.77."""

MOST_OF_NEXT = 2.0
"""Largest energy of blood and noise in a component below the cutoff, over the energy of the first component above it."""

CAUTION = 2.0
"""Weight of blood against tissue. With 2 the mean correlation with the true blood power of eight development phantoms was
0.001 to 0.004 higher than with 1, for each of five kinds of noise."""

LEAST_LEVEL = 0.01
"""Level added to each map, in units of its mean, so that no pixel is certain to have none of a source."""

LEAST_SHARE = 1e-9
"""Least share of a source in a component of mean power 1, so that the model of a component without any power is not 0."""

SHARE_PIXELS, SHARE_ROUNDS = 2000, 60
"""Pixels from which the shares of a component are fitted, and multiplicative updates."""


@dataclass(frozen=True)
class LocalCutoffs:
    """Share of each component that a filter removes from each pixel.

    Attributes
    ----------
    low : int
        The global cutoff.
    first : int
        Components [0, first) are removed from every pixel.
    removed : (n_pixels, k) float32 array
        Share in [0, 1] of the amplitude of the components [first, first + k).
    """

    low: int
    first: int
    removed: NDArray[np.float32]

    @property
    def stop(self) -> int:
        """End of the components that are removed anywhere."""
        return self.first + int(self.removed.shape[1])

    def up_to(self, low: int) -> Self:
        """Return the same shares for a global cutoff that is as high or higher: its components are removed nowhere else."""
        more = np.zeros((len(self.removed), max(low - self.stop, 0)), np.float32)
        return replace(self, low=low, removed=np.concatenate([self.removed, more], axis=1))

    @property
    def further(self) -> NDArray[np.float32]:
        """Share of the components from `first` on that is removed besides those below the global cutoff, (n_pixels, k)."""
        more = self.removed.copy()
        more[:, : self.low - self.first] -= 1
        return more

    def removed_power_share(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of the power of the components [0, stop) that is removed, averaged with weights over pixels."""
        total = float(weights.sum())
        if total <= TINY:
            return self.removed_power_share(np.ones_like(weights))
        shares = np.ones(self.stop)
        shares[self.first :] = 1 - (weights / total) @ (1 - self.removed.astype(np.float64)) ** 2
        return shares


def local_cutoffs(model: LowRank, low: int, blood: BloodMap, grid: Neighbourhood) -> LocalCutoffs:
    """Return per-pixel cutoffs from the components of the global estimate and a first blood map.

    The power of component k in pixel x is modelled as t_k T(x) + b_k B(x) + n_k N(x), with the tissue map T (mean
    power of components below the cutoff), the blood map B and the noise map N. The shares t, b and n minimise the
    Itakura-Saito divergence (Fevotte, Bertin and Durrieu, Neural Comput. 21(3), 2009). A Wiener filter then takes
    the part of tissue, t T / (t T + c b B + n N) with c = CAUTION, from each pixel; above the global cutoff only
    where t T is more than c b B. Shares b and n of more energy than all blood and noise have become tissue's.

    Parameters
    ----------
    model : LowRank
        Components, in all pixels.
    low : int
        The global cutoff, at least 1.
    blood : BloodMap
        The maps made with it.
    grid : Neighbourhood
        Shape of the image.
    """
    noise = noise_energy(float(np.sqrt(blood.noise_power.mean())), (len(model.left), len(model.right)))
    n_alone = max(
        (k + 1 for k in range(low) if dominance(model.singular_values[k:], noise) > ALONE), default=0
    )
    first, stop = max(1, low - BELOW, n_alone), min(low + ABOVE, model.rank)
    references = model.left[:, max(0, low - REFERENCES_FROM) : max(1, low - REFERENCES_TO, n_alone)]
    tissue = np.mean(np.abs(references).astype(np.float64) ** 2, axis=1)
    maps = np.stack([_levelled(m) for m in (tissue, blood.blood_power, blood.noise_power)], axis=1)
    pixels = spread_rows(len(maps), SHARE_PIXELS)
    shares = _shares(model.left[pixels, first:stop], maps[pixels])
    # No component has more blood and noise than the stack, and one below the cutoff not much more than the first one above
    # it: the rest is tissue, however little it looks like the map.
    energy = np.full(stop - first, len(model.right) * float(np.sum(blood.blood_power + blood.noise_power)))
    if low < stop and np.isfinite(noise):
        energy[: low - first] = np.minimum(
            energy[: low - first], MOST_OF_NEXT * model.singular_values[low] ** 2
        )
    other, squares = shares[1:].sum(axis=0), model.singular_values[first:stop] ** 2
    within = np.minimum(energy / np.maximum(other * squares, TINY), 1)
    shares[0] += (1 - within) * other
    shares[1:] *= within
    around = grid.average(maps, CELL_SIGMA)
    tissue, vessels, noise = (
        around[:, source, None] * weight
        for source, weight in enumerate(shares * np.array([[1.0], [CAUTION], [1.0]]))
    )
    removed = tissue / np.maximum(tissue + vessels + noise, TINY)
    beyond = low - first
    removed[:, beyond:] *= tissue[:, beyond:] > vessels[:, beyond:]
    return LocalCutoffs(low, first, removed.astype(np.float32))


def _levelled(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a map of mean 1 without zeros; one that is zero everywhere becomes 1."""
    relative = power / max(float(power.mean()), TINY) + LEAST_LEVEL
    levelled: NDArray[np.float64] = relative / relative.mean()
    return levelled


def _shares(left: NDArray[Any], maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares of the maps in the power of each component, (3, k), by multiplicative updates."""
    power = np.abs(left).astype(np.float64) ** 2
    power /= np.maximum(power.mean(axis=0), TINY)
    shares = np.full((maps.shape[1], power.shape[1]), 1 / maps.shape[1])
    for _ in range(SHARE_ROUNDS):
        inverse = 1 / (maps @ shares)
        shares *= np.sqrt((maps.T @ (power * inverse**2)) / (maps.T @ inverse))
        shares = np.maximum(shares, LEAST_SHARE)
    return shares
