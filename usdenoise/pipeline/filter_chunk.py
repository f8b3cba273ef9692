"""The filter of one chunk of frames, with temporal components of a block, and measures of the result.

Every command that removes clutter components filters with :func:`filter_chunk`. A chunk is an (n_frames, n_pixels) array
in either memory order. It needs no other chunk, so chunks may be filtered in any order and in any process.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.frames.alignment import Alignment
from usdenoise.frames.still_tissue import StillBlock, largest_displacement
from usdenoise.linalg.array_library import (
    Array,
    Numbers,
    columns,
    dtype_of,
    in_full_precision,
    namespace,
    to_host,
    to_library,
    zero_outside,
)
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.lag_sums import Parts, column_lag_sums, half_parts
from usdenoise.linalg.low_rank import fit_gapped_rows
from usdenoise.linalg.tall_matrices import (
    CACHED_ENTRIES,
    NEGLIGIBLE,
    column_squared_norms,
    row_parts,
    slices_of,
)
from usdenoise.pipeline.measures import Clutter, Measures, OwnComponents
from usdenoise.pipeline.recording import PIXELS_A_THREAD, Chunk, ProcessLocal, StillFrames, map_chunks
from usdenoise.stack.arrays import pack
from usdenoise.stack.sampling import MANY_PIXELS

DEVICE_TILE_ENTRIES = 33_554_432
"""Entries of a tile on a device: its copies and spectra take up to 2.5 GB in complex64. A usual block is one tile."""

FRAMES_A_TEMPORAL = 48
"""Frames of a block for each temporal component that is removed."""

OWN_RATIO = 2.0
"""How much stronger than usual components of a block's own are, and how much more the common components of a session
leave than the components of its middle block if blocks do not share them: 4 to 31 times as much in four sessions that were
lost, 0.2 to 1.6 times in 44 others (benchmarks/RECORDS.md, "Components of a block's own"). With a clutter two to seven
blocks old, on a phantom whose tissue drifts, 2 to 22 times the usual power was left; without the 5 to 8 components above
this bound 0.94 to 1.03 times, and with a bound of 3 1.04 to 1.14 times."""


@dataclass(frozen=True)
class PartOfBlock:
    """The frames of a block that a chunk is.

    Attributes
    ----------
    first : int
        Number of its first frame in the block.
    n_frames : int
        Number of frames of the block.
    by_halves : bool
        Whether the lags are summed over each half of the frames of the block (the default). Otherwise they are summed over
        all of its frames, and the chunk is the whole block.
    """

    first: int
    n_frames: int
    by_halves: bool = True


@in_full_precision
def filter_chunk(
    x: Array,
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    part: PartOfBlock | None = None,
    usual_power: float | None = None,
    out: Numbers | None = None,
    is_kept: bool = False,
    threads: ThreadExecutor | None = None,
) -> Measures:
    """Filter a chunk, and measure the filtered frames.

    With the aligned chunk X the filtered one is Y = (I - V V^H) (X - A U^T), with the spatial components U that are removed
    and the coefficients A = X conj(U) of its frames. In a block of a session V are the leading left singular vectors of A:
    the tissue that U leaves has the temporal signals of the tissue in this block. After them V has the components of the
    block's own, if these are removed (`n_own`, `usual_power`). In a scan V is empty.

    Parameters
    ----------
    x : (n, n_pixels) array
        The chunk; NaN where an entry is unobserved. It is not changed. It may be an array of any library: the frames stay on
        its device, and the small measures are arrays of NumPy.
    clutter : Clutter
        The clutter.
    excluded : (n,) boolean array
        Frames that are excluded from all measures.
    part : PartOfBlock, optional
        Which part of its block the chunk is. By default it is a whole block, whose lags are summed over all frames.
    usual_power : float, optional
        Usual power of the strongest component of a filtered block. A block may have tissue where no block of the estimate
        had it: components more than twice as strong are removed as further temporal components of this block. By default
        they are not looked for.
    out : (n, n_pixels) array of NumPy, optional
        Gets the filtered frames; it may be `x`. By default it is not needed.
    is_kept : bool
        Whether the measures contain the filtered frames, in the library of the chunk; by default not.
    threads : ThreadExecutor, optional
        Filters the pixels of a chunk of NumPy side by side; by default they are filtered one tile after the other.

    Returns
    -------
    Measures
        The measures of the chunk.
    """
    # Before: the chunk as it is in the reference of its session; its coefficients, (n, r), of which the first are A and the
    # others fill entries; V, (n, q)
    x, mask, alignment, still = in_reference(x, clutter, excluded)
    (n, n_pixels), xp, is_on_host = x.shape, namespace(x), isinstance(x, np.ndarray)
    part = part or PartOfBlock(0, n, by_halves=False)
    frames = slice(part.first, part.first + n)
    x, coefficients, bits, observed = _coefficients(x, clutter, excluded, frames, mask, threads)
    gaps = observed
    if clutter.n_own and observed is not None:
        # Components of its own come from filled frames, which have no gaps for the filter
        model, gaps = to_library(coefficients, x) @ clutter.components(x).left.T, None
        x = xp.where(to_library(observed, x), x, model)
    temporal, own = _temporal(x, coefficients[:, : clutter.low], clutter, excluded, gaps, usual_power)
    a, v, used = (to_library(values, x) for values in (coefficients, temporal, ~excluded[:, None]))
    is_observed = None if observed is None else to_library(observed, x)

    # Filter and measure, by tiles: what is measured has 0 for entries that do not count, and what is kept is filled there
    measured = _PixelMeasures.empty(clutter, x, part, observed is not None)
    wants_frames = is_kept or out is not None
    kept = _Columns((np.empty_like(x) if out is None and is_kept else out) if is_on_host else None)
    seen_by_filter = None if gaps is None else is_observed

    def measure(pixels: slice) -> None:
        tiles = filtered_tiles(
            x, clutter.components(x).removed, a[:, : clutter.low], v, seen_by_filter, pixels
        )
        if observed is not None or excluded.any() or clutter.has_gaps or not clutter.keeps_residual:
            tiles = _filled_tiles(tiles, clutter, a, used, is_observed)
        for tile in tiles:
            measured.put(tile, used)
            if wants_frames:
                kept.put(tile.pixels, tile.kept)

    if threads is None or not is_on_host:
        measure(slice(0, n_pixels))
    else:
        for _ in threads.map(measure, slices_of(n_pixels, PIXELS_A_THREAD)):
            pass

    # After: 0 in masked pixels
    filtered = kept.joined() if wants_frames else None
    measured.mask(mask)
    if filtered is not None and is_on_host:
        filtered[:, ~mask] = 0
    elif filtered is not None:
        filtered = zero_outside(filtered, to_library(mask, x))
    if still is not None and filtered is not None:
        # What leaves moves as recorded
        filtered = still.moving(filtered)
    if out is not None and filtered is not out:
        out[:] = to_host(filtered)
    power = measured.sums[:, :, 0].real.sum(axis=0, dtype=np.float64)
    # Kernels of a device that fail may leave zeros without an error
    is_empty = bits is None and not excluded.all() and coefficients.any() and not power.any()
    if not is_on_host and (is_empty or not np.isfinite(power).all()):
        raise InputError(
            "the device returned an empty or non-finite result", remedy="filter on the processor"
        )
    return Measures(
        excluded=excluded,
        power=power,
        kept_power=power.copy() if measured.filled is None else measured.filled,
        coefficients=coefficients,
        temporal=temporal,
        own=own,
        sums=measured.sums,
        counts=measured.counts,
        ends=(measured.ends[0], measured.ends[1]),
        ends_seen=(measured.seen[0], measured.seen[1]),
        observed=bits,
        n_unobserved=0 if observed is None else int(np.count_nonzero(~observed[~excluded])),
        first_power=measured.first,
        n_first=0 if measured.first is None else int(np.count_nonzero(~excluded[: n // 2])),
        alignment=alignment,
        displacement=None if still is None else largest_displacement(still.motion.displacement(~excluded)),
        filtered=filtered if is_kept else None,
    )


def in_reference(
    x: Array, clutter: Clutter, excluded: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.bool_], Alignment | None, StillBlock | None]:
    """Return a chunk as it is in the reference of its session, aligned and with its tissue held still.

    Returns
    -------
    x : (n, n_pixels) array
        The chunk; itself if its clutter has no reference.
    mask : (n_pixels,) boolean array
        Signal pixels that the reference has.
    alignment, still
        Where its image was, and the turn of its frames; None without a reference.
    """
    alignment, mask, still = None, clutter.grid.mask.ravel(), None
    if clutter.reference is not None:
        x, alignment = clutter.reference.align(x, excluded)
        mask = mask & clutter.reference.mask.ravel()
    if clutter.still is not None:
        x, still = clutter.still.hold(x, ~excluded)
    return x, mask, alignment, still


@dataclass(frozen=True)
class FilteredTile:
    """A filtered tile of m pixels of a chunk.

    Attributes
    ----------
    pixels : slice
        Its pixels.
    measured, kept : (n, m) arrays
        The filtered frames, as they are measured and as they are kept.
    counted : (n, m) or (n, 1) boolean array, optional
        Entries that count; by default all do.
    """

    pixels: slice
    measured: Array
    kept: Array
    counted: Array = None


def filtered_tiles(
    x: Array, u: Array, a: Array, v: Array, observed: Array = None, within: slice | None = None
) -> Iterator[FilteredTile]:
    """Yield Y = (I - V V^H) (X - A U^T) by tiles of pixels: the filter, which needs no other chunk.

    Parameters
    ----------
    x : (n, n_pixels) array
        Frames X, with 0 for unobserved entries.
    u : (k, n_pixels) array
        Spatial components U^T of the clutter.
    a, v : (n, k), (n, q) arrays
        Their coefficients A, and orthonormal temporal components V.
    observed : (n, n_pixels) boolean array, optional
        Observed entries, outside of which X - A U^T is set to 0 before V; by default all are observed.
    within : slice, optional
        The pixels; by default all.
    """
    xp = namespace(x)
    v_h, both = xp.conj(v).T, xp.concat([a, v], axis=1)
    v_h_a = v_h @ a
    # On the processor a tile is a copy, which stays in the cache, in the memory order of the frames
    is_copied, width = isinstance(x, np.ndarray), max(DEVICE_TILE_ENTRIES // x.shape[0], 1)
    if is_copied:
        width = min(max(CACHED_ENTRIES // len(x), 32), 512)
    start, stop = (0, x.shape[1]) if within is None else (within.start, within.stop)
    for part in slices_of(stop - start, width):
        pixels = slice(start + part.start, start + part.stop)
        y, tile_u = x[:, pixels], u[:, pixels]
        if observed is None:
            # One product: Y = X - [A V] [U^T; W] with W = V^H (X - A U^T)
            factors = xp.concat([tile_u, v_h @ y - v_h_a @ tile_u])
            if is_copied:
                removed = np.empty_like(y, np.result_type(both, factors))
                np.matmul(both, factors, out=removed)
                y = np.subtract(y, removed, out=removed if removed.dtype == y.dtype else np.empty_like(y))
            else:
                y = y - both @ factors
        else:
            y = zero_outside(y - a @ tile_u, observed[:, pixels])
            y -= v @ (v_h @ y)
        # What is measured and what is kept are the same, as long as nothing is filled
        yield FilteredTile(pixels, y, y)


def _filled_tiles(
    tiles: Iterable[FilteredTile], clutter: Clutter, a: Array, used: Array, observed: Array
) -> Iterator[FilteredTile]:
    """Yield tiles with 0 for unobserved entries and excluded frames in what is measured, and with what is kept.

    The components [low, high) with the coefficients `a` fill these entries, or are all that is kept.
    """
    xp, band, left = namespace(a), slice(clutter.low, clutter.high), clutter.components(a).left
    for tile in tiles:
        y = tile.measured
        counted = used if observed is None else used & observed[:, tile.pixels]
        kept = model = a[:, band] @ left[tile.pixels, band].T
        if clutter.keeps_residual:
            kept = xp.where(counted, y, model)
        yield FilteredTile(tile.pixels, zero_outside(y, counted), kept, counted)


@dataclass(frozen=True)
class _PixelMeasures:
    """What is measured of the pixels of a chunk, which tiles write.

    Attributes
    ----------
    parts, is_compiled
        As for :func:`usdenoise.linalg.lag_sums.column_lag_sums`.
    sums, counts, first : arrays
        As for :class:`usdenoise.pipeline.measures.Measures`.
    ends, seen : (2, n_pixels, n_ends) arrays
        As `ends` and `ends_seen` there.
    filled : (n_pixels,) array or None
        As `kept_power` there; None if it is the power.
    """

    parts: Parts
    is_compiled: bool
    sums: Numbers
    counts: NDArray[np.float64] | None
    ends: Numbers
    seen: NDArray[np.float32]
    filled: NDArray[np.float64] | None
    first: NDArray[np.float64] | None

    @classmethod
    def empty(cls, clutter: Clutter, x: Array, part: PartOfBlock, is_filled: bool) -> Self:
        """Return the measures of a chunk before all tiles."""
        (n, n_pixels), n_lags, is_whole = x.shape, max(clutter.n_lags, 1), x.shape[0] == part.n_frames
        lags = (2 if part.by_halves else 1, n_pixels, n_lags)
        # The sums of several chunks are added up in double precision, and have products across two chunks.
        n_ends = 0 if is_whole else min(n_lags - 1, n)
        return cls(
            parts=half_parts(part.n_frames, part.first, part.first + n) if part.by_halves else [(0, n, 0)],
            is_compiled=clutter.is_compiled,
            sums=np.empty(lags, np.result_type(dtype_of(x), np.float64)),
            counts=np.empty(lags) if clutter.has_gaps or is_filled else None,
            ends=np.zeros((2, n_pixels, n_ends), dtype_of(x)),
            seen=np.zeros((2, n_pixels, n_ends), np.float32),
            filled=np.empty(n_pixels) if is_filled or not clutter.keeps_residual else None,
            first=np.empty(n_pixels) if part.by_halves and is_whole else None,
        )

    def put(self, tile: FilteredTile, used: Array) -> None:
        """Measure a tile; `used`, (n, 1), are the frames that count."""
        at, y, xp = tile.pixels, tile.measured, namespace(tile.measured)
        n, n_ends, (n_halves, _, n_lags) = y.shape[0], self.ends.shape[2], self.sums.shape
        self.sums[:, at] = to_host(column_lag_sums(y, n_lags, self.parts, n_halves, self.is_compiled))
        if self.filled is not None:
            self.filled[at] = column_squared_norms(zero_outside(tile.kept, used))
        if self.first is not None:
            self.first[at] = column_squared_norms(y[: n // 2, :])
        self.ends[:, at] = to_host(y[:n_ends, :]).T, to_host(y[n - n_ends :, :]).T
        if self.counts is not None:
            seen = xp.astype(xp.broadcast_to(tile.counted, y.shape), xp.float32)
            counts = column_lag_sums(seen, n_lags, self.parts, n_halves, self.is_compiled)
            self.counts[:, at] = np.rint(to_host(counts))
            self.seen[:, at] = to_host(seen[:n_ends, :]).T, to_host(seen[n - n_ends :, :]).T

    def mask(self, mask: NDArray[np.bool_]) -> None:
        """Set what is measured outside of a mask to 0."""
        for values in (*self.sums, *self.ends, self.filled, self.first):
            if values is not None:
                values[~mask] = 0


class _Columns:
    """Values of tiles, whose axis 1 is the pixels: written into an array of NumPy, or joined at the end on a device."""

    def __init__(self, into: Numbers | None) -> None:
        self._into, self._tiles = into, list[Array]()

    def put(self, pixels: slice, values: Array) -> None:
        """Add the values of the pixels that follow."""
        if self._into is None:
            self._tiles.append(values)
        else:
            self._into[:, pixels] = values

    def joined(self) -> Array:
        """Return the values of all pixels."""
        if self._into is not None:
            return self._into
        return (
            self._tiles[0] if len(self._tiles) == 1 else namespace(self._tiles[0]).concat(self._tiles, axis=1)
        )


def filter_frames(
    chunk: Chunk,
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    target: ProcessLocal[Numbers],
    is_kept: bool,
    threads: ThreadExecutor | None = None,
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
    target : ProcessLocal
        Where the filtered frames of the block go, (n_frames, n_pixels).
    is_kept : bool
        Whether the measures contain the filtered frames if no target is given.
    threads : ThreadExecutor, optional
        As for :func:`filter_chunk`.
    """
    x, frames = chunk.read(), slice(chunk.first, chunk.stop)
    part = PartOfBlock(chunk.first, len(excluded))
    out = None if target.value is None else target.value[frames]
    is_kept &= out is None
    measures = filter_chunk(x, clutter, excluded[frames], part, out=out, is_kept=is_kept, threads=threads)
    # What leaves moves as recorded
    if isinstance(chunk.frames, StillFrames) and out is not None:
        chunk.frames.moving(out, out, threads)
    elif isinstance(chunk.frames, StillFrames) and is_kept:
        measures.filtered = chunk.frames.moving(measures.filtered)
    return measures


def filtered_frames(chunk: Chunk, clutter: Clutter, excluded: NDArray[np.bool_]) -> Numbers:
    """Return the filtered frames of a chunk of a block, (n, n_pixels)."""
    filtered = filter_frames(chunk, clutter, excluded, ProcessLocal(), True).filtered
    assert filtered is not None
    return filtered


def filter_chunks(
    chunks: Iterable[Chunk],
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    executor: Executor,
    target: Numbers | None = None,
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
    kept, is_needed, chunks = [], is_kept or target is not None, list(chunks)
    if len(chunks) == 1 and executor.local is executor:
        # All frames at once: threads share its pixels
        return filter_frames(chunks[0], clutter, excluded, ProcessLocal(target), is_needed, executor.local)
    for measures in map_chunks(
        filter_frames, chunks, executor, clutter, excluded, ProcessLocal(target), is_needed
    ):
        if measures.filtered is not None:
            # Kept, or of a worker, which has no target
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
    x: Array,
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    frames: slice,
    mask: NDArray[np.bool_],
    threads: ThreadExecutor | None,
) -> tuple[Array, Numbers, NDArray[np.uint8] | None, NDArray[np.bool_] | None]:
    """Return frames with 0 for entries that are not finite, their coefficients, and which entries are finite and observed.

    The finite entries are bits, or None if all are. The observed ones are None if all that count are; pixels outside of the
    mask do not. The coefficients are U^H x, or least squares over the observed pixels of a frame. A frame with unobserved
    entries starts from the coefficients of the estimate, which it keeps if it has no observed pixel.
    """
    xp, u = namespace(x), clutter.components(x)
    guess, bits, observed = None if clutter.model is None else clutter.model[frames], None, None
    # An entry that is not finite shows in the coefficients of its frame, if these are computed
    a, shows = guess, u.left.shape[1] > 0 and not (guess is not None and clutter.is_given)
    with np.errstate(invalid="ignore", over="ignore"):
        if a is None or not clutter.is_given:
            if threads is None or not isinstance(x, np.ndarray):
                a = to_host(x @ u.conjugate)
            else:
                # Frames side by side, and not one by one: each product reads U
                parts = row_parts(x.shape)
                a = np.concatenate(list(threads.map(lambda part: x[part] @ u.conjugate, parts)))
    if not (np.isfinite(a).all() if shows else xp.all(xp.isfinite(x))):
        finite = xp.isfinite(x)
        x, finite = zero_outside(x, finite), to_host(finite)
        bits, is_observed = pack(finite), finite | ~mask
        if is_observed[~excluded].all():
            a = to_host(x @ u.conjugate) if shows else a
        else:
            observed = is_observed
        if shows and observed is not None:
            start = np.zeros((len(finite), u.left.shape[1]), clutter.left.dtype) if guess is None else guess
            rest = x - zero_outside(to_library(start, x) @ u.left.T, to_library(observed, x))
            a = start + fit_gapped_rows(
                to_host(rest @ u.conjugate), observed, clutter.components(a).conjugate, None
            )
    if guess is not None and excluded.any():
        a = np.where(excluded[:, None], guess, a)
    return x, a, bits, observed


def _temporal(
    x: Array,
    a: Numbers,
    clutter: Clutter,
    excluded: NDArray[np.bool_],
    observed: NDArray[np.bool_] | None,
    usual_power: float | None,
) -> tuple[Numbers, OwnComponents]:
    """Return the temporal components that are removed from a block, and which of them are its own.

    They are the q leading left singular vectors of the coefficients A of the clutter, or fewer if these have a lower rank,
    0 in excluded frames, and components of the residual: as many as the clutter says, or those that are far stronger than
    usual, if these are looked for.
    """
    leading = leading_temporal(a, min(clutter.n_temporal, len(a) // FRAMES_A_TEMPORAL), excluded)
    if usual_power is None and not clutter.n_own:
        return leading, OwnComponents()
    signal = np.flatnonzero(clutter.grid.mask)
    pixels = signal[:: max(1, len(signal) // (2 * MANY_PIXELS))]
    y: Numbers = columns(x, pixels) - a @ clutter.components(a).removed[:, pixels]
    if observed is not None:
        y *= observed[:, pixels]
    y[excluded] = 0
    y -= leading @ (leading.conj().T @ y)
    energies, vectors = np.linalg.eigh(y @ y.conj().T)
    powers = energies / y.size
    n_own = clutter.n_own or int(np.count_nonzero(powers > OWN_RATIO * (usual_power or 0.0)))
    n_own = min(n_own, len(powers) - 1)
    own = vectors[:, len(powers) - n_own :]
    found = OwnComponents(n_own, float(powers[-1 - n_own]))
    return np.concatenate([leading, own], axis=1), found


def leading_temporal(a: Numbers, q: int, excluded: NDArray[np.bool_]) -> Numbers:
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
    leading = np.flatnonzero(energies > energies[-1] * NEGLIGIBLE)[::-1][:q]
    left = counted @ (vectors[:, leading] / np.sqrt(energies[leading]))
    return np.ascontiguousarray(left, a.dtype)
