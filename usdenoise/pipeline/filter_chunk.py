"""The filter of one chunk of frames: y = x - U (U^H x), and the measures of the filtered frames.

Every command that removes clutter components filters with :func:`filter_chunk`. A chunk is an (n_frames, n_pixels) array
in either memory order. It needs no other chunk, so chunks may be filtered in any order and in any process.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.linalg.array_library import (
    columns,
    dtype_of,
    in_full_precision,
    namespace,
    to_host,
    to_library,
)
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.lag_sums import column_lag_sums, half_parts
from usdenoise.linalg.low_rank import fit_gapped_rows
from usdenoise.linalg.tall_matrices import column_squared_norms, row_blocks
from usdenoise.pipeline.measures import Clutter, Measures
from usdenoise.pipeline.recording import Chunk, Here, map_chunks
from usdenoise.stack.arrays import pack, unpack

TILE_ENTRIES = 40_000
"""Entries of a tile of pixels: with its copies it stays in a cache of 1 MB. With 65,000 the tiles of a block of
128 x 128 x 300 took a fifth longer, with 20,000 as long."""

DEVICE_TILE_ENTRIES = 1 << 25
"""Entries of a tile on a device: its copies and spectra take up to 2.5 GB in complex64. A usual block is one tile."""

RANK_TOLERANCE = 1e-12
"""Energies of coefficients below this part of the largest one are 0 but for rounding errors."""

FRAMES_A_TEMPORAL = 48
"""Frames of a block for each temporal component that is removed."""

OWN_PIXELS, OWN_RATIO = 2048, 2.0
"""Pixels on which components of a block's own are looked for, and how much stronger than usual they are. With a clutter that
was two to seven blocks old, on a phantom whose tissue drifts, 2 to 22 times the usual power was left; without the 5 to 8
components above this bound 0.94 to 1.03 times, and with a bound of 3 1.04 to 1.14 times."""


@in_full_precision
def filter_chunk(
    x: Any,
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    place: tuple[int, int] | None = None,
    usual: float | None = None,
    out: NDArray[Any] | None = None,
    is_kept: bool = False,
) -> Measures:
    """Filter a chunk, and measure the filtered frames.

    With the aligned chunk X the filtered one is Y = (I - V V^H) (X - A U^T), with the spatial components U and the
    coefficients A = X conj(U) of its frames. V, if it is removed, are the leading left singular vectors of A: the tissue
    that U leaves has the temporal signals of the tissue in this block.

    Parameters
    ----------
    x : (n, n_pixels) array
        The chunk; NaN where an entry is unobserved. It is not changed. It may be an array of any library: the frames stay on
        its device, and the small measures are arrays of NumPy.
    clutter : Clutter
        The clutter.
    excluded : (n,) boolean array
        Frames that are excluded from all measures.
    place : (int, int), optional
        Number of its first frame in the block, and frames of the block, by whose halves the lags are summed. By default the
        chunk is a block of its own, all of whose frames are in one half.
    usual : float, optional
        Usual power of the strongest component of a filtered block. Components more than twice as strong are removed, too, as
        temporal components of this block: tissue at a position that the blocks of the estimate do not have. By default they
        are not looked for.
    out : (n, n_pixels) array of NumPy, optional
        Gets the filtered frames; it may be `x`. By default it is not needed.
    is_kept : bool
        Whether the measures contain the filtered frames, in the library of the chunk; by default not.

    Returns
    -------
    Measures
        The measures of the chunk.
    """
    # A block of a session as it is in the reference of the session
    alignment, mask = None, clutter.grid.mask.ravel()
    if clutter.reference is not None:
        x, alignment = clutter.reference.align(x)
        mask = mask & clutter.reference.mask.ravel()
    (n, n_pixels), n_lags, xp = x.shape, clutter.n_lags, namespace(x)
    first, n_frames = place or (0, n)
    parts = [(0, n, 0)] if place is None else half_parts(n_frames, first, first + n)
    x, coefficients, bits = _coefficients(x, clutter, excluded, slice(first, first + n))
    observed = None if bits is None else unpack(bits, n_pixels) | ~mask
    n_unobserved = 0 if observed is None else int(np.count_nonzero(~observed[~excluded]))
    if not n_unobserved:
        observed = None
    # Temporal components, (n, q), and the components of all frames that are kept or filled in, (n, r)
    temporal, strongest = _temporal(x, coefficients[:, : clutter.low], clutter, excluded, observed, usual)
    band, is_filled = slice(clutter.low, clutter.high), observed is not None or excluded.any()
    n_ends, dtype = 0 if place is None else min(max(n_lags - 1, 0), n), dtype_of(x)
    ends, seen = (np.zeros((2, n_pixels, n_ends), kind) for kind in (dtype, np.float32))
    power, kept_power = np.zeros(n_pixels), np.zeros(n_pixels)
    n_halves, wide = 1 if place is None else 2, np.result_type(dtype, np.float64)
    sums = np.empty((n_halves, n_pixels, n_lags), wide)
    counts = np.empty(sums.shape) if clutter.has_gaps or observed is not None else None
    # What every tile needs is where the chunk is
    u, zero, kept_tiles, lag_tiles = clutter.components(x), xp.zeros_like(x[:1, :1]), [], []
    matrices = (coefficients, temporal, np.ascontiguousarray(temporal.conj().T), ~excluded[:, None])
    a, v, v_h, used = (to_library(values, x) for values in matrices)
    a_low = a[:, : clutter.low]
    both, v_h_a = xp.concat([a_low, v], axis=1), v_h @ a_low
    observed = None if observed is None else to_library(observed, x)
    if is_on_host := isinstance(x, np.ndarray):
        out = np.empty_like(x) if is_kept and out is None else out
        # It stays in the cache
        of_tile = min(max(TILE_ENTRIES // n, 32), 512)
    else:
        of_tile = max(DEVICE_TILE_ENTRIES // n, 1)
    is_power_kept = observed is None and clutter.keeps_residual
    for tile in row_blocks(n_pixels, of_tile):
        y, tile_u = x[:, tile], u.removed[:, tile]
        if is_on_host:
            # Its rows are together in the cache.
            y = y.copy()
        if observed is None:
            # Y = X - [A V] [U^T; W] with W = V^H (X - A U^T)
            removed = both @ xp.concat([tile_u, v_h @ y - v_h_a @ tile_u])
            y = np.subtract(y, removed, out=y) if is_on_host else y - removed
        else:
            y = xp.where(observed[:, tile], y - a_low @ tile_u, zero)
            y -= v @ (v_h @ y)
        counted = used if observed is None else used & observed[:, tile]
        kept = measured = y
        if is_filled:
            measured = xp.where(counted, y, zero)
        if not n_lags:
            power[tile] = column_squared_norms(measured)
        if is_filled or not clutter.keeps_residual:
            # Unobserved entries and excluded frames are filled by the kept components
            model = a[:, band] @ u.left[tile, band].T
            kept = xp.where(counted, y, model) if clutter.keeps_residual else model
            if not is_power_kept:
                of_used = xp.where(used, kept, zero) if excluded.any() else kept
                kept_power[tile] = column_squared_norms(of_used)
        if out is not None:
            out[:, tile] = to_host(kept)
        if is_kept and not is_on_host:
            kept_tiles.append(xp.asarray(kept, copy=True))
        if n_lags:
            lags = column_lag_sums(measured, n_lags, parts, n_halves, clutter.is_compiled)
            if is_on_host:
                sums[:, tile] = lags
            else:
                lag_tiles.append(lags)
        if n_ends:
            ends[:, tile] = to_host(measured[:n_ends, :]).T, to_host(measured[n - n_ends :, :]).T
        if counts is not None and n_lags:
            weights = xp.astype(xp.broadcast_to(counted, y.shape), xp.float32)
            lags = column_lag_sums(weights, n_lags, parts, n_halves, clutter.is_compiled)
            counts[:, tile] = np.rint(to_host(lags))
            seen[:, tile] = to_host(weights[:n_ends, :]).T, to_host(weights[n - n_ends :, :]).T
    if lag_tiles:
        # All at once, as the device waits for each copy
        there = to_host(lag_tiles[0] if len(lag_tiles) == 1 else xp.concat(lag_tiles, axis=1))
        # The sums of chunks are added up in double precision.
        sums = np.ascontiguousarray(there, None if place is None else wide)
    if n_lags:
        # Lag 0
        power = sums[:, :, 0].real.sum(axis=0, dtype=np.float64)
    if is_power_kept:
        kept_power = power.copy()
    # Kernels of a device that fail may leave zeros without an error
    is_empty = bits is None and not excluded.all() and coefficients.any() and not power.any()
    if not is_on_host and (is_empty or not np.isfinite(power).all()):
        raise InputError(
            "the device returned an empty or non-finite result", remedy="filter on the processor"
        )
    filtered = None
    if is_kept:
        filtered = out if is_on_host else xp.concat(kept_tiles, axis=1)
    if not mask.all():
        for values in (power, kept_power, *sums, *ends):
            values[~mask] = 0
        if out is not None:
            out[:, ~mask] = 0
        if is_kept and not is_on_host:
            filtered = xp.where(to_library(mask, x), filtered, zero)
    return Measures(
        excluded=excluded,
        power=power,
        kept_power=kept_power,
        coefficients=coefficients,
        temporal=temporal,
        sums=sums,
        counts=counts,
        ends=(ends[0], ends[1]),
        ends_seen=(seen[0], seen[1]),
        observed=bits,
        n_unobserved=n_unobserved,
        strongest=strongest,
        alignment=alignment,
        filtered=filtered,
    )


def filter_frames(
    chunk: Chunk,
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    target: Here,
    is_kept: bool,
) -> Measures:
    """Read and filter a chunk of a block. The filtered frames go to the target, or into the measures if they are kept.

    Parameters
    ----------
    chunk : Chunk
        The chunk.
    clutter : Clutter
        The clutter.
    excluded : (n_frames,) boolean array
        Frames of the block that are excluded.
    target : Here
        Where the filtered frames of the block go, (n_frames, n_pixels).
    is_kept : bool
        Whether the measures contain the filtered frames if no target is given.
    """
    x, frames = chunk.read(), slice(chunk.first, chunk.stop)
    place, out = (chunk.first, len(excluded)), None if target.value is None else target.value[frames]
    return filter_chunk(x, clutter, excluded[frames], place, out=out, is_kept=is_kept and out is None)


def filtered_frames(chunk: Chunk, clutter: Clutter, excluded: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the filtered frames of a chunk of a block, (n, n_pixels)."""
    filtered = filter_frames(chunk, clutter, excluded, Here(), True).filtered
    assert filtered is not None
    return filtered


def filter_block(
    chunks: Iterable[Any],
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    executor: Executor,
    target: NDArray[Any] | None = None,
    is_kept: bool = False,
) -> Measures:
    """Filter all chunks of a block, and return the measures of the block.

    Parameters
    ----------
    chunks : iterable of Chunk
        The chunks.
    clutter : Clutter
        The clutter.
    excluded : (n_frames,) boolean array
        Frames that are excluded.
    executor : Executor
        Maps over the chunks.
    target : (n_frames, n_pixels) array of NumPy, optional
        Gets the filtered frames; by default they are not needed.
    is_kept : bool
        Whether the measures contain the filtered frames, in the library of the chunks; by default not.
    """
    total: Measures | None = None
    kept, is_needed = [], is_kept or target is not None
    for measures in map_chunks(filter_frames, chunks, executor, clutter, excluded, Here(target), is_needed):
        if measures.filtered is not None:
            first = 0 if total is None else total.n_frames
            if target is None:
                kept.append(measures.filtered)
            else:
                target[first : first + measures.n_frames] = to_host(measures.filtered)
            measures.filtered = None
        if total is None:
            total = measures
        else:
            total.add(measures, len(excluded))
    assert total is not None
    if kept:
        total.filtered = namespace(kept[0]).concat(kept)
    return total


def _coefficients(
    x: Any, clutter: Clutter, excluded: NDArray[np.bool_], frames: slice
) -> tuple[Any, NDArray[Any], NDArray[np.uint8] | None]:
    """Return frames with 0 for entries that are not finite, their coefficients, and the bits of their finite entries.

    The coefficients are U^H x, or least squares over the observed pixels of a frame. A frame with unobserved entries starts
    from the coefficients of the estimate, which it keeps if it has no observed pixel.
    """
    xp, u = namespace(x), clutter.components(x)
    guess = None if clutter.model is None else clutter.model[frames]
    # An entry that is not finite shows in the coefficients of its frame.
    shows, a = u.left.shape[1] > 0 and not (guess is not None and clutter.is_given), guess
    with np.errstate(invalid="ignore", over="ignore"):
        if a is None or not clutter.is_given:
            a = to_host(x @ u.conjugate)
    if np.isfinite(a).all() if shows else xp.all(xp.isfinite(x)):
        bits = None
    else:
        finite = xp.isfinite(x)
        x, finite = xp.where(finite, x, xp.zeros_like(x[:1, :1])), to_host(finite)
        bits, is_observed = pack(finite), finite | ~clutter.grid.mask.ravel()
        observed = None if is_observed[~excluded].all() else is_observed
        if shows:
            start = np.zeros((len(finite), u.left.shape[1]), clutter.left.dtype) if guess is None else guess
            left = x
            if observed is not None:
                model = to_library(start, x) @ u.left.T
                left = x - xp.where(to_library(observed, x), model, xp.zeros_like(x[:1, :1]))
            a = to_host(left @ u.conjugate)
            if observed is not None:
                a = start + fit_gapped_rows(a, observed, clutter.components(a).conjugate, None)
    if guess is not None and excluded.any():
        a = np.where(excluded[:, None], guess, a)
    return x, a, bits


def _temporal(
    x: Any,
    a: NDArray[Any],
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    observed: NDArray[np.bool_] | None,
    usual: float | None,
) -> tuple[NDArray[Any], float]:
    """Return the temporal components that are removed from a block, and the power of the next one if it is looked for.

    They are the q leading left singular vectors of the coefficients A of the clutter, or fewer if these have a lower rank,
    0 in excluded frames, and the components of the residual that are far stronger than usual.
    """
    leading = leading_temporal(a, min(clutter.n_temporal, len(a) // FRAMES_A_TEMPORAL), excluded)
    if usual is None:
        return leading, 0.0
    signal = np.flatnonzero(clutter.grid.mask)
    pixels = signal[:: max(1, len(signal) // OWN_PIXELS)]
    y: NDArray[Any] = columns(x, pixels) - a @ clutter.components(a).removed[:, pixels]
    if observed is not None:
        y *= observed[:, pixels]
    y[excluded] = 0
    y -= leading @ (leading.conj().T @ y)
    energies, vectors = np.linalg.eigh(y @ y.conj().T)
    powers = energies / y.size
    n_own = min(int(np.count_nonzero(powers > OWN_RATIO * usual)), len(powers) - 1)
    own = vectors[:, len(powers) - n_own :]
    return np.concatenate([leading, own], axis=1), float(powers[-1 - n_own])


def leading_temporal(a: NDArray[Any], q: int, excluded: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the q leading left singular vectors of the coefficients of the clutter, or fewer if these have a lower rank.

    Parameters
    ----------
    a : (n, k) array
        Coefficients of the clutter in each frame.
    q : int
        Number of vectors.
    excluded : (n,) boolean array
        Frames that do not count; the vectors are 0 there.
    """
    if not q or not a.shape[1]:
        return np.zeros((len(a), 0), a.dtype)
    counted = a.astype(np.result_type(a, np.float64))
    counted[excluded] = 0
    energies, vectors = np.linalg.eigh(counted.conj().T @ counted)
    leading = np.flatnonzero(energies > energies[-1] * RANK_TOLERANCE)[::-1][:q]
    left = counted @ (vectors[:, leading] / np.sqrt(energies[leading]))
    return np.ascontiguousarray(left, a.dtype)
