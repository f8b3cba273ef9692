"""The filter of one block of a session: the common components are taken out, and the rest is measured."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import FrameSearch
from usdenoise.frames.displacement import displacements
from usdenoise.frames.frame_check import check_frames
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.gapped_rows import fit_gapped_rows
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.checked_rows import checked_rows
from usdenoise.sessions.session_clutter import SessionClutter
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.rows import Rows


@dataclass(frozen=True)
class FilteredBlock:
    """A block without the clutter of its session.

    Attributes
    ----------
    stack : Acquisition
        The block, filtered; 0 where an entry was unobserved and in frames that were left out.
    lags : (n_live, L + 1) array
        Lagged products of the residual in the pixels that have a signal, from
        :meth:`usdenoise.linalg.lag_sums.LagSums.mean`.
    power : (n_live,) float64 array
        Power Doppler of what is kept.
    frames : FrameSearch
        Bad frames and movement.
    n_unobserved : int
        Number of entries that were unobserved, or in a frame that was left out.
    """

    stack: Acquisition
    lags: NDArray[np.inexact]
    power: NDArray[np.float64]
    frames: FrameSearch
    n_unobserved: int


def filter_block(stack: Acquisition, clutter: SessionClutter, options: DenoiseOptions) -> FilteredBlock:
    """Take the clutter of a session out of a block.

    The coefficients are those of this block: tissue moves differently in each.

    Parameters
    ----------
    stack : Acquisition
        The block, whose values may be changed.
    clutter : SessionClutter
        The common components.
    options : DenoiseOptions
        Precision, and which frames are bad.

    Raises
    ------
    InputError
        If the block is zero or unobserved everywhere.
    """
    with ThreadExecutor(1) as executor:
        whole, energy = checked_rows(stack, options, executor, in_place=True)
        live, grid = clutter.grid.live, clutter.grid
        moved = displacements(whole, grid.shape, None if live is None else grid.mask)
        rows = whole if live is None else whole.keep(live)
        left = clutter.left if live is None else clutter.left[live]
        checked = check_frames(rows, clutter.of_live(energy), moved, options)
        rows = checked.rows
        right_h = _coefficients(rows, left)
        k = clutter.cutoff
        kept, _, lag_sums = rows.subtract((left[:, :k], right_h[:k]), clutter.projection.n_lags)
        lags = lag_sums.mean(slice(None), stack.n_frames)
        power = lags[:, 0].real
        if options.high_cutoff != "none":
            kept, power = kept.fill((left[:, k:], right_h[k:]), keep_observed=False)
        filtered = kept if live is None else whole.put_back(kept, live)
    return FilteredBlock(
        replace(stack, iq=filtered.as_stack(stack)),
        lags,
        power,
        checked.search,
        filtered.n_unused,
    )


def _coefficients(rows: Rows, left: NDArray[Any]) -> NDArray[Any]:
    """Return the coefficients U^H M of orthonormal components, those of least squares where entries are unobserved."""
    found: NDArray[Any] = left.conj().T @ rows.take(slice(None)).values
    observed = rows.observed_mask(slice(None))
    # A frame is a row of the transposed matrix.
    return found if observed is None else fit_gapped_rows(found.T, observed.T, left.conj(), None).T
