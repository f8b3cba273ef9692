"""What is done to one chunk of a stack, wherever the chunk is: plain functions of arrays.

A chunk is an (n, n_t) array: some pixels in some consecutive frames. NaN marks an unobserved entry, also after the clutter
is taken out. Quantities of a pixel are sums over the chunks of its frames, and quantities of a frame are sums over the
chunks of its pixels. So no chunk has to be cut or joined.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.lag_sums import QUARTERS, quarter_edges
from usdenoise.linalg.row_blocks import row_squared_norms
from usdenoise.stack.precision import checked_conversion


@dataclass(frozen=True)
class ChunkEntries:
    """What a first look at a chunk finds.

    Attributes
    ----------
    energy : (n,) float64 array
        Sum of |x|^2 over the observed entries of each row.
    n_unobserved : (n,) int64 array
        Number of unobserved entries of each row.
    largest : float
        Largest magnitude of a real or imaginary part.
    picked : (k, n_t) array
        The rows that were asked for.
    """

    energy: NDArray[np.float64]
    n_unobserved: NDArray[np.int64]
    largest: float
    picked: NDArray[Any]


@dataclass(frozen=True)
class ChunkSums:
    """Sums over the frames of a filtered chunk.

    Attributes
    ----------
    energy : (n,) float64 array
        Sum of |x|^2 of each row.
    sums : (2, n, n_lags) array
        Lagged products, as in :class:`usdenoise.blood.lags.LagSums`.
    pairs : (2, n_lags) float64 array
        Number of the products if every entry is observed.
    counts : (2, n, n_lags) float64 array or None
        Number of the products; None where every entry is observed.
    """

    energy: NDArray[np.float64]
    sums: NDArray[Any]
    pairs: NDArray[np.float64]
    counts: NDArray[np.float64] | None

    @property
    def all_counts(self) -> NDArray[np.float64]:
        """Number of the products, (2, n, n_lags)."""
        return np.broadcast_to(self.pairs[:, None], self.sums.shape) if self.counts is None else self.counts


def as_rows(values: Any, order: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return a chunk of a stack as rows of pixels.

    Parameters
    ----------
    values : array
        The chunk, in the axes of the stack.
    order : tuple of int
        The axes in the order z, x, y, t.
    dtype : numpy.dtype
        Type of the rows.
    name : str
        Name of the stack, for the message.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    ordered = np.ma.filled(values, np.nan) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    ordered = ordered.transpose(order)
    with checked_conversion(ordered, dtype, name):
        rows = np.array(ordered.reshape(-1, ordered.shape[-1]), dtype=dtype, order="C")
    # A part that is infinite leaves the whole entry unobserved.
    finite = np.isfinite(rows)
    if not finite.all():
        rows[~finite] = np.nan
    return rows


def as_chunk(rows: NDArray[Any], shape: tuple[int, ...], order: tuple[int, ...]) -> NDArray[Any]:
    """Return rows of pixels as a chunk of the stack: the inverse of :func:`as_rows`.

    Parameters
    ----------
    rows : (n, n_t) array
        The rows.
    shape : tuple of int
        Shape of the chunk in the order z, x, y, t.
    order : tuple of int
        As for :func:`as_rows`.
    """
    return rows.reshape(shape).transpose(np.argsort(order))


def observed_part(
    chunk: NDArray[Any], left_out: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return a chunk with 0 for what does not count, and which of its entries are observed; None where all are.

    Parameters
    ----------
    chunk : (n, n_t) array
        The chunk.
    left_out : (n_t,) boolean array or None
        Frames that are left out. They count as observed zeros.
    """
    finite = np.isfinite(chunk)
    complete = bool(finite.all())
    if complete and left_out is None:
        return chunk, None
    values = np.where(finite, chunk, 0)
    if left_out is not None:
        values[:, left_out] = 0
        finite[:, left_out] = True
    return values, None if complete else finite


def look(chunk: NDArray[Any], rows: NDArray[np.intp]) -> ChunkEntries:
    """Return what a first look at a chunk finds, and a copy of some of its rows."""
    values, observed = observed_part(chunk, None)
    missing = np.zeros(len(chunk), np.int64) if observed is None else (~observed).sum(axis=1)
    parts = values.view(values.real.dtype)
    largest = float(max(parts.max(), -parts.min()))
    return ChunkEntries(row_squared_norms(values), missing, largest, chunk[rows].copy())


def pick(chunk: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Return a copy of some rows."""
    return chunk[rows].copy()


def observed_entries(chunk: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which entries are observed."""
    finite: NDArray[np.bool_] = np.isfinite(chunk)
    return finite


def project(chunk: NDArray[Any], right: NDArray[Any], left_out: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Return M V over the frames of a chunk, with 0 for unobserved entries."""
    projected: NDArray[Any] = observed_part(chunk, left_out)[0] @ right
    return projected


def moments(
    chunk: NDArray[Any], left: NDArray[Any], right: NDArray[Any], left_out: NDArray[np.bool_] | None
) -> NDArray[Any]:
    """Return U^H M over the pixels of a chunk, with U V^H for unobserved entries."""
    values, observed = observed_part(chunk, left_out)
    if observed is not None:
        values = np.where(observed, values, left @ right.conj().T)
    product: NDArray[Any] = left.conj().T @ values
    return product


def without(chunk: NDArray[Any], factor: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return a chunk minus A B^T; unobserved entries stay NaN."""
    rest: NDArray[Any] = chunk - factor @ other.T
    return rest


def band_of(
    chunk: NDArray[Any],
    own: NDArray[Any],
    kept: NDArray[Any],
    keeps_residual: bool,
    left_out: NDArray[np.bool_] | None,
) -> NDArray[Any]:
    """Return what a filter keeps of a chunk of the residual: the residual, or the model's band A B^T instead of it.

    Unobserved entries and frames that are left out get the model's band.
    """
    band: NDArray[Any] = own @ kept.T
    if not keeps_residual:
        return band
    missing = ~np.isfinite(chunk)
    if left_out is not None:
        missing |= left_out
    return np.where(missing, band, chunk)


def energy(chunk: NDArray[Any], left_out: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Return the sum of |x|^2 of each row."""
    return row_squared_norms(np.ascontiguousarray(observed_part(chunk, left_out)[0]))


def frames_energy(chunk: NDArray[Any], frames: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the sum of |x|^2 of each row over some frames."""
    return row_squared_norms(np.ascontiguousarray(observed_part(chunk[:, frames], None)[0]))


def last_frames(before: NDArray[Any] | None, chunk: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the last `count` frames up to the end of a chunk, or fewer where there are fewer.

    Parameters
    ----------
    before : (n, k) array or None
        The last frames before the chunk; None where the chunk has enough, or is the first one.
    chunk : (n, n_t) array
        The chunk.
    count : int
        Number of frames.
    """
    joined = chunk if before is None else np.concatenate([before, chunk], axis=1)
    return joined[:, max(0, joined.shape[1] - count) :].copy()


def measure_chunk(
    chunk: NDArray[Any],
    before: NDArray[Any] | None,
    power_of: NDArray[Any],
    start: int,
    n_frames: int,
    n_lags: int,
    left_out: NDArray[np.bool_] | None,
) -> ChunkSums:
    """Return the lagged products of a chunk, and the energy of one that may be filtered in another way.

    Products count in the chunk of their later frame. So the sums over the chunks are those over all pairs of frames.

    Parameters
    ----------
    chunk : (n, n_t) array
        The filtered chunk.
    before : (n, k) array or None
        The frames before it, up to n_lags - 1; None for the first chunk.
    power_of : (n, n_t) array
        The chunk, or another one of the same pixels and frames, whose energy is returned.
    start : int
        Number of its first frame.
    n_frames : int
        Number of frames of the stack.
    n_lags : int
        Number of lags, lag 0 included.
    left_out : (n_frames,) boolean array or None
        Frames of the stack that are left out.
    """
    joined = chunk if before is None else np.concatenate([before, chunk], axis=1)
    first = start - (joined.shape[1] - chunk.shape[1])
    out = None if left_out is None else left_out[first : first + joined.shape[1]]
    values, observed = observed_part(joined, out)
    used = np.ones((1, values.shape[1]), bool) if out is None else ~out[None]

    def lagged(rows: NDArray[Any]) -> NDArray[Any]:
        return _lagged(rows, first, start, n_frames, n_lags)

    return ChunkSums(
        energy(power_of, None if out is None else out[start - first :]),
        lagged(values),
        lagged(used.astype(np.float64))[:, 0],
        None if observed is None else lagged((observed & used).astype(np.float32)),
    )


def _lagged(rows: NDArray[Any], first: int, start: int, n_frames: int, n_lags: int) -> NDArray[Any]:
    """Return the lagged products of frames `first` and later, whose later frame is `start` or later."""
    double = np.complex128 if np.iscomplexobj(rows) else np.float64
    sums = np.zeros((2, len(rows), n_lags), double)
    edges, stop = quarter_edges(n_frames), first + rows.shape[1]
    for quarter in range(QUARTERS):
        for lag in range(n_lags):
            begin = max(int(edges[quarter]), start - lag, first)
            end = min(int(edges[quarter + 1]), stop - lag)
            if begin < end:
                early, late = (
                    rows[:, begin - first : end - first],
                    rows[:, begin + lag - first : end + lag - first],
                )
                sums[quarter % 2, :, lag] += np.vecdot(early, late)
    return sums


def add(parts: list[Any]) -> Any:
    """Return the sum of arrays, in double precision and in the order of the list."""
    wide = np.result_type(parts[0].dtype, np.float64)
    total = parts[0].astype(wide)
    for part in parts[1:]:
        total += part
    return total


def add_sums(parts: list[ChunkSums]) -> ChunkSums:
    """Return the sums over several chunks of the same pixels."""
    complete = all(part.counts is None for part in parts)
    return ChunkSums(
        add([part.energy for part in parts]),
        add([part.sums for part in parts]),
        add([part.pairs for part in parts]),
        None if complete else add([part.all_counts for part in parts]),
    )
