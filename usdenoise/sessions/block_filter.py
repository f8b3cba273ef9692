"""The filter of one block of a session: the common components are taken out, and the rest is measured."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import FrameSearch, find_bad_frames
from usdenoise.frames.displacement import displacements
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.gapped_rows import fit_gapped_rows
from usdenoise.linalg.low_rank import Product
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.checked_rows import checked_rows
from usdenoise.sessions.session_clutter import SessionClutter
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.rows import Rows

OWN_PIXELS, OWN_RATIO = 2048, 2.0
"""Pixels on which components of a block's own are looked for, and how much stronger than usual they are. With a clutter that
was two to seven blocks old, on a phantom whose tissue drifts, 2 to 22 times the usual power was left; without the 5 to 8
components above this bound 0.94 to 1.03 times, and with a bound of 3 1.04 to 1.14 times."""


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
    strongest : float
        Mean power of the strongest temporal component of what is kept; 0 where it was not looked for.
    """

    stack: Acquisition
    lags: NDArray[np.inexact]
    power: NDArray[np.float64]
    frames: FrameSearch
    n_unobserved: int
    strongest: float


def filter_block(
    stack: Acquisition, clutter: SessionClutter, options: DenoiseOptions, usual: float | None = None
) -> FilteredBlock:
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
    usual : float, optional
        Usual power of the strongest component of what is kept. What is more than twice as strong is taken out too, as a
        temporal component of this block: tissue that has moved to where it was in no block from which the clutter is known.
        By default nothing is.

    Raises
    ------
    InputError
        If the block is zero or unobserved everywhere.
    """
    with ThreadExecutor(1) as executor:
        whole, _ = checked_rows(stack, options, executor, in_place=True)
        live, grid = clutter.grid.live, clutter.grid
        moved = displacements(whole, grid.shape, None if live is None else grid.mask)
        rows = whole if live is None else whole.keep(live)
        left = clutter.left if live is None else clutter.left[live]
        # Where the blocks are copies of each other, the noise of the session is 0, and that of the block counts.
        search, _ = find_bad_frames(rows, options.bad_frames, options.seed, moved, clutter.noise_rms or None)
        if search.left_out is not None:
            rows, _ = rows.exclude(search.left_out)
        right_h = _coefficients(rows, left)
        k = clutter.cutoff
        removed, strongest = (left[:, :k], right_h[:k]), 0.0
        if usual is not None:
            removed, strongest = _with_own(rows, removed, OWN_RATIO * usual)
        kept, _, lag_sums = rows.subtract(removed, clutter.projection.n_lags, in_halves=False)
        lags = lag_sums.mean(slice(None), stack.n_frames)
        power = lags[:, 0].real
        if options.high_cutoff != "none":
            kept, power = kept.fill((left[:, k:], right_h[k:]), keep_observed=False)
        filtered = kept if live is None else whole.put_back(kept, live)
    return FilteredBlock(
        replace(stack, iq=filtered.as_stack(stack)),
        lags,
        power,
        search,
        filtered.n_unused,
        strongest,
    )


def _with_own(rows: Rows, product: Product, bound: float) -> tuple[Product, float]:
    """Return a product with the components of what it leaves that are above a bound, and the power of the next one."""
    left, right_h = product
    some = slice(None, None, max(1, rows.n_pixels // OWN_PIXELS))
    values, observed = rows.take(slice(None)).values, rows.observed_mask(slice(None))
    rest = values[some] - left[some] @ right_h
    if observed is not None:
        rest *= observed[some]
    energies, vectors = np.linalg.eigh(rest.conj().T @ rest)
    powers = energies / rest.size
    n_own = min(int(np.count_nonzero(powers > bound)), len(powers) - 1)
    if n_own:
        own = np.ascontiguousarray(vectors[:, -n_own:])
        left_own = values @ own - left @ (right_h @ own)
        if observed is not None:
            # Unobserved values are 0, and nothing is left there.
            left_own += ((left @ right_h) * ~observed) @ own
        left = np.concatenate([left, left_own], axis=1)
        right_h = np.concatenate([right_h, own.conj().T])
    return (left, right_h), float(powers[-1 - n_own])


def _coefficients(rows: Rows, left: NDArray[Any]) -> NDArray[Any]:
    """Return the coefficients U^H M of orthonormal components, those of least squares where entries are unobserved."""
    found: NDArray[Any] = left.conj().T @ rows.take(slice(None)).values
    observed = rows.observed_mask(slice(None))
    # A frame is a row of the transposed matrix.
    return found if observed is None else fit_gapped_rows(found.T, observed.T, left.conj(), None).T
