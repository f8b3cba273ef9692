"""Split the powers of the components into a tissue map, a blood map and noise, to score low cutoffs."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.noise_spectrum import noise_edge
from usdenoise.linalg.row_blocks import block_rows, row_squared_norms
from usdenoise.stack.pixel_sample import PixelSample

SPLIT_PIXELS = 2000
"""Pixels of the maps: a correlation over 2000 independent pixels is known to 1 / sqrt(2000) = 0.02."""

SPLIT_ROUNDS = 30
"""Multiplicative updates of maps and weights. On phantoms 5 to 60 of them gave the same cutoffs."""

_TISSUE_COMPONENTS = 4
"""Leading components whose mean power starts the tissue map."""

_TISSUE_SHARE, _BLOOD_SHARE = 0.9, 0.1
"""Share of tissue with which a component below the edge of the tissue square starts, and one from the edge on."""

_LEAST_NOISE, _MOST_NOISE = 1e-12, 0.98
"""Least and largest share of noise in a component, so that no model is 0 and every component has some signal to split."""

_TISSUE_LEVEL, _BLOOD_LEVEL, _LEAST_BLOOD, _LEAST_MAP = 0.05, 0.02, 0.02, 1e-3
"""Levels, in units of the mean power, that keep the starts and the maps above 0: multiplicative updates cannot leave
0."""

_CUTOFFS_BEYOND = 3
"""Cutoffs that are scored beyond the first blood component."""


def score_cutoffs(
    model: LowRank, rows: PixelSample, noise_rms: float, edge: int, blood: range
) -> NDArray[np.float64]:
    """Return the correlation of the power Doppler with a blood map, by low cutoff.

    The power of component k in pixel x is modelled as w_k T(x) + b_k B(x) + noise. The tissue map T starts from the
    leading components, and the blood map B from the components that resemble them least. Maps and weights minimise
    the Itakura-Saito divergence, which is the likelihood of complex Gaussian amplitudes, by multiplicative updates
    (Fevotte, Bertin and Durrieu, Neural Comput. 21(3), 2009).

    Parameters
    ----------
    model : LowRank
        Components of the stack.
    rows : PixelSample
        Pixels of the stack; `numbers` are their rows in the model. The maps are computed in these pixels.
    noise_rms : float
        Noise level, in the units of the data.
    edge : int
        Edge of the tissue square: components below start as tissue.
    blood : range
        Components that start the blood map.

    Returns
    -------
    array indexed by the low cutoff
        -1 for a cutoff of 0, and where a map is the same everywhere.
    """
    split_rows = rows.spread(SPLIT_PIXELS)
    left = model.left[split_rows.numbers]
    end, tiny = blood.stop, float(np.finfo(np.float32).tiny)
    power = np.abs(left).astype(np.float64) ** 2
    residual_energy = _residual_energy(replace(model, left=left), split_rows)
    # Column k is the power without the components [0, k). Subtracting from |M|^2 would lose it in rounding errors
    # where tissue is 60 dB above it.
    kept = np.cumsum((power * model.singular_values**2)[:, ::-1], axis=1)[:, ::-1]
    kept += residual_energy[:, None]
    # A component without any power stays 0 everywhere.
    power = power[:, :end] / np.maximum(power[:, :end].mean(axis=0), tiny)
    # The largest singular value that noise adds to a component, relative to the component.
    edges = noise_edge(noise_rms, (len(model.left), len(model.right))) / np.maximum(
        model.singular_values[:end], tiny
    )
    noise = np.clip(edges**2, _LEAST_NOISE, _MOST_NOISE)
    blood_map = _blood_map(power, noise, edge, blood.start)
    # A map that is the same everywhere has no correlation.
    with np.errstate(divide="ignore", invalid="ignore"):
        cutoffs = range(1, min(blood.start + _CUTOFFS_BEYOND, end))
        scores = [-1.0] + [np.corrcoef(kept[:, low], blood_map)[0, 1] for low in cutoffs]
    correlations: NDArray[np.float64] = np.nan_to_num(np.array(scores), nan=-1)
    return correlations


def _blood_map(
    power: NDArray[np.float64], noise: NDArray[np.float64], edge: int, blood_from: int
) -> NDArray[np.float64]:
    """Return the blood map of component powers of mean 1, (n_pixels, k), with shares `noise` of noise."""
    tissue = power[:, :_TISSUE_COMPONENTS].mean(axis=1) + _TISSUE_LEVEL
    blood = power[:, blood_from:].mean(axis=1) - noise[blood_from:].mean()
    blood = np.maximum(blood, _LEAST_BLOOD) + _BLOOD_LEVEL
    maps = np.stack([tissue / tissue.mean(), blood / blood.mean()], axis=1)
    share = np.where(np.arange(len(noise)) < edge, _TISSUE_SHARE, _BLOOD_SHARE)
    tissue_weight = share * (1 - noise)
    weights = np.stack([tissue_weight, (1 - noise) - tissue_weight])
    for _ in range(SPLIT_ROUNDS):
        inverse = 1 / (maps @ weights + noise)
        ratio = power * inverse**2
        weights *= np.sqrt((maps.T @ ratio) / (maps.T @ inverse))
        inverse = 1 / (maps @ weights + noise)
        ratio = power * inverse**2
        maps = np.maximum(maps * np.sqrt((ratio @ weights.T) / (inverse @ weights.T)), _LEAST_MAP)
        size = maps.mean(axis=0)
        maps, weights = maps / size, weights * size[:, None]
    return np.asarray(maps[:, 1])


def _residual_energy(model: LowRank, rows: PixelSample) -> NDArray[np.float64]:
    """Return the sum of |M - model|^2 over the observed entries of each of the pixels."""
    factor, factor_h = model.band(0, model.rank)
    energies = []
    for block in block_rows(rows.shape):
        residual: NDArray[Any] = factor[block] @ factor_h
        np.subtract(rows.values[block], residual, out=residual)
        observed = rows.observed_mask(block)
        if observed is not None:
            residual *= observed
        energies.append(row_squared_norms(residual))
    return np.concatenate(energies)
