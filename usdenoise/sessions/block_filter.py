"""The filter of one block of a session: the common components are taken out, and the rest is measured."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import FrameSearch
from usdenoise.frames.displacement import displacements
from usdenoise.frames.frame_check import check_frames
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.checked_rows import checked_rows
from usdenoise.sessions.session_clutter import SessionClutter
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.rows import Rows

_GAPPED_ROUNDS = 8
"""Rounds in which unobserved entries are filled by the components that are fitted to the others."""


@dataclass(frozen=True)
class FilteredBlock:
    """A block without the clutter of its session.

    Attributes
    ----------
    stack : Acquisition
        The block, filtered; 0 where an entry was unobserved and in frames that were left out.
    lags : (n_live, L + 1) array
        Lagged products of the pixels that have a signal, as :meth:`usdenoise.linalg.lag_sums.LagSums.mean` gives them.
    frames : FrameSearch
        Bad frames and movement.
    n_unobserved : int
        Number of entries that were unobserved, or in a frame that was left out.
    """

    stack: Acquisition
    lags: NDArray[np.inexact]
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
        rest, _, lags = rows.subtract((left, right_h), clutter.projection.n_lags)
        filtered = rest if live is None else whole.put_back(rest, live)
    return FilteredBlock(
        replace(stack, iq=filtered.as_stack(stack)),
        lags.mean(slice(None), stack.n_frames),
        checked.search,
        filtered.n_unused,
    )


def _coefficients(rows: Rows, left: NDArray[np.inexact]) -> NDArray[np.inexact]:
    """Return the coefficients U^H M of orthonormal components, those of least squares where entries are unobserved."""
    values, left_h = rows.take(slice(None)).values, left.conj().T
    found = left_h @ values
    if rows.is_complete:
        return found
    gaps = ~rows.observed_mask(slice(None))
    for _ in range(_GAPPED_ROUNDS):
        found = left_h @ np.where(gaps, left @ found, values)
    return found
