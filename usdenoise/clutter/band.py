"""Keep a band [low, high) of the components, with or without the residual."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.lags import LagSums
from usdenoise.clutter.local_cutoffs import LocalCutoffs
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import block_rows, row_squared_norms
from usdenoise.stack.casorati import CasoratiMatrix


@dataclass(frozen=True)
class Band:
    """The part of a stack that a filter keeps.

    Attributes
    ----------
    low : int
        Low cutoff: the components [0, low) are removed.
    high : int
        High cutoff: the components [low, high) of the model are kept.
    keeps_residual : bool
        Whether the result is the data minus the components [0, low), as a classical clutter filter gives. Then
        `high` counts only where entries are unobserved: the model's components [low, high) fill them.
    """

    low: int
    high: int
    keeps_residual: bool


@dataclass(frozen=True)
class Residual:
    """What is measured on a stack while its clutter is taken out.

    Attributes
    ----------
    power : (n_pixels,) float64 array
        Power Doppler: mean of |s|^2 over frames, with 0 for unobserved entries.
    lags : LagSums
        Lagged products of the residual.
    """

    power: NDArray[np.float64]
    lags: LagSums

    @classmethod
    def joined(cls, blocks: Iterable[Self]) -> Self:
        """Return the residual of consecutive row blocks together."""
        blocks = list(blocks)
        return cls(
            np.concatenate([block.power for block in blocks]), LagSums.joined(block.lags for block in blocks)
        )


@singledispatch
def some_lags(
    matrix: CasoratiMatrix, model: LowRank, low: int, pixels: NDArray[np.intp], n_lags: int
) -> LagSums:
    """Return the lagged products that some pixels have without the components [0, low); the data stay as they are.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The data.
    model : LowRank
        The components.
    low : int
        Low cutoff.
    pixels : array of row numbers
        The pixels.
    n_lags : int
        Number of lags, lag 0 included.
    """
    clutter, clutter_h = model.band(0, low)

    def lags(part: slice) -> LagSums:
        rows = pixels[part]
        block = matrix.values[rows]
        block -= clutter[rows] @ clutter_h
        return _lags(matrix, rows, block, n_lags)

    return LagSums.joined(matrix.executor.map(lags, block_rows((len(pixels), matrix.n_frames))))


@singledispatch
def remove_clutter(
    matrix: CasoratiMatrix, model: LowRank, low: int, n_lags: int, cutoffs: LocalCutoffs | None = None
) -> tuple[CasoratiMatrix, Residual]:
    """Take the components [0, low) out of the data, and measure what is left.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The data. Its values become the residual.
    model : LowRank
        The components.
    low : int
        Low cutoff.
    n_lags : int
        Number of lags, lag 0 included; 0 for none.
    cutoffs : LocalCutoffs, optional
        With them, the lagged products are those of a residual from which every pixel's own share of the components is
        taken. By default they are those of the residual, as the power is in any case.

    Returns
    -------
    matrix : CasoratiMatrix
        The residual, 0 where an entry is unobserved.
    residual : Residual
        What was measured on it.
    """
    clutter, clutter_h = model.band(0, low)

    def removed(rows: slice) -> Residual:
        target = matrix.values[rows]
        target -= clutter[rows] @ clutter_h
        if cutoffs is None:
            return _measured(matrix, rows, target, n_lags)
        power = _measured(matrix, rows, target, 0).power
        return Residual(power, _lags(matrix, rows, target - _change(model, cutoffs, rows), n_lags))

    return matrix, Residual.joined(matrix.map_row_blocks(removed))


def measure(residual: CasoratiMatrix, n_lags: int) -> Residual:
    """Measure a stack that was filtered in another way than by :func:`remove_clutter`.

    Parameters
    ----------
    residual : CasoratiMatrix
        The filtered stack, 0 where an entry is unobserved.
    n_lags : int
        Number of lags, lag 0 included.
    """
    return Residual.joined(
        residual.map_row_blocks(lambda rows: _measured(residual, rows, residual.values[rows], n_lags))
    )


@singledispatch
def keep_band(
    residual: CasoratiMatrix,
    model: LowRank,
    band: Band,
    power: NDArray[np.float64],
    cutoffs: LocalCutoffs | None = None,
) -> tuple[CasoratiMatrix, NDArray[np.float64]]:
    """Turn a residual into the band that is kept, and measure its power Doppler.

    Frames that are left out are filled by the model, and do not count in the power.

    Parameters
    ----------
    residual : CasoratiMatrix
        From :func:`remove_clutter`, with the low cutoff of the band. Its values become the band. Where the band is
        without the residual, they may be anything.
    model : LowRank
        The components. Those of the band fill unobserved entries.
    band : Band
        The part that is kept.
    power : (n_pixels,) float64 array
        Power of the residual.
    cutoffs : LocalCutoffs, optional
        Share of each component that is taken out of each pixel; by default the components below the low cutoff are
        taken out of all pixels.

    Returns
    -------
    kept : CasoratiMatrix
        The band.
    power : (n_pixels,) float64 array
        Mean of |s|^2 over its frames.
    """
    left_out = residual.left_out
    if is_residual(residual, band, cutoffs):
        return residual, power
    first = band.low if cutoffs is None else min(cutoffs.first, band.low)
    kept, kept_h = model.band(first, band.high)

    def filtered(rows: slice) -> NDArray[np.float64]:
        target = residual.values[rows]
        observed = residual.observed_mask(rows)
        own = kept[rows] if cutoffs is None else kept[rows] * (1 - cutoffs.of(rows, first, band.high))
        if not band.keeps_residual:
            np.matmul(own, kept_h, out=target)
        else:
            if cutoffs is not None:
                target -= _change(model, cutoffs, rows)
            if observed is not None and not observed.all():
                target[~observed] = (own @ kept_h)[~observed]
        if left_out is not None:
            target[:, left_out] = 0
        power = row_squared_norms(target) / residual.n_used_frames
        if left_out is not None:
            target[:, left_out] = own @ kept_h[:, left_out]
        return power

    return residual, np.concatenate(list(residual.map_row_blocks(filtered)))


def is_residual(matrix: CasoratiMatrix, band: Band, cutoffs: LocalCutoffs | None) -> bool:
    """Return whether the residual of a matrix is all that a band keeps, and nothing has to be filled."""
    return band.keeps_residual and matrix.is_complete and cutoffs is None and matrix.left_out is None


def _measured(matrix: CasoratiMatrix, rows: slice, block: NDArray[Any], n_lags: int) -> Residual:
    lags = _lags(matrix, rows, block, n_lags)
    return Residual(row_squared_norms(block) / matrix.n_used_frames, lags)


def _lags(
    matrix: CasoratiMatrix, rows: slice | NDArray[np.intp], block: NDArray[Any], n_lags: int
) -> LagSums:
    """Return the lagged products of some filtered rows, in which unobserved entries are set to 0."""
    observed = _holes(matrix, rows, block)
    return LagSums.of_rows(block, observed, n_lags, matrix.used)


def _holes(
    matrix: CasoratiMatrix, rows: slice | NDArray[np.intp], block: NDArray[Any]
) -> NDArray[np.bool_] | None:
    """Set unobserved entries and frames that are left out to 0; return the mask of the observed entries.

    It is None where all are observed.
    """
    if matrix.left_out is not None:
        block[:, matrix.left_out] = 0
    observed = matrix.observed_mask(rows)
    if observed is None or observed.all():
        return None
    block[~observed] = 0
    return observed


def _change(model: LowRank, cutoffs: LocalCutoffs, rows: slice) -> NDArray[Any]:
    """Return what cutoffs by place take out of a residual in addition to the global cutoff."""
    near, near_h = model.band(cutoffs.first, cutoffs.stop)
    change: NDArray[Any] = (near[rows] * cutoffs.changed(rows)) @ near_h
    return change
