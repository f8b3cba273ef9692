"""What is done to one chunk of a stack, wherever the chunk is: plain functions of arrays.

A chunk is an (n, n_t) array: some pixels in some consecutive frames. NaN marks an unobserved entry, also after the clutter
is taken out. Quantities of a pixel are sums over the chunks of its frames, and quantities of a frame are sums over the
chunks of its pixels. So no chunk has to be cut or joined.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.lag_sums import LagSums, part_lag_sums
from usdenoise.linalg.row_blocks import row_squared_norms, third_difference_norms
from usdenoise.stack.precision import checked_conversion


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
    chunk: NDArray[Any], excluded: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return a chunk with 0 for what does not count, and which of its entries are observed; None where all are.

    Parameters
    ----------
    chunk : (n, n_t) array
        The chunk.
    excluded : (n_t,) boolean array or None
        Excluded frames. They count as observed zeros.
    """
    finite = np.isfinite(chunk)
    complete = bool(finite.all())
    if complete and excluded is None:
        return chunk, None
    values = np.where(finite, chunk, 0)
    if excluded is not None:
        values[:, excluded] = 0
        finite[:, excluded] = True
    return values, None if complete else finite


def look(
    chunk: NDArray[Any], rows: NDArray[np.intp]
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.int64], float]:
    """Return a copy of some rows of a chunk, and what a first look at all of them finds.

    Returns
    -------
    picked : (k, n_t) array
        The rows that were asked for.
    energy : (n,) float64 array
        Sum of |x|^2 over the observed entries of each row.
    n_unobserved : (n,) int64 array
        Number of unobserved entries of each row.
    largest : float
        Largest magnitude of a real or imaginary part.
    """
    values, observed = observed_part(chunk, None)
    missing = np.zeros(len(chunk), np.int64) if observed is None else (~observed).sum(axis=1)
    parts = values.view(values.real.dtype)
    return chunk[rows].copy(), row_squared_norms(values), missing, float(max(parts.max(), -parts.min()))


def take(chunk: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Return a copy of some rows."""
    return chunk[rows].copy()


def pick(chunk: NDArray[Any], rows: NDArray[np.intp]) -> tuple[NDArray[Any]]:
    """Return a copy of some rows, as the first item of a tuple as :func:`look` does."""
    return (take(chunk, rows),)


def placed(chunk: NDArray[Any], rows: NDArray[np.intp], n_rows: int) -> NDArray[Any]:
    """Return a chunk of `n_rows` rows with the rows of a smaller one in some places, and 0 elsewhere."""
    whole = np.zeros((n_rows, chunk.shape[1]), chunk.dtype)
    whole[rows] = chunk
    return whole


def project(chunk: NDArray[Any], right: NDArray[Any], excluded: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Return M V over the frames of a chunk, with 0 for unobserved entries."""
    projected: NDArray[Any] = observed_part(chunk, excluded)[0] @ right
    return projected


def moments(
    chunk: NDArray[Any], left: NDArray[Any], right: NDArray[Any], excluded: NDArray[np.bool_] | None
) -> NDArray[Any]:
    """Return U^H M over the pixels of a chunk, with U V^H for unobserved entries."""
    values, observed = observed_part(chunk, excluded)
    if observed is not None:
        values = np.where(observed, values, left @ right.conj().T)
    product: NDArray[Any] = left.conj().T @ values
    return product


def subtracted(chunk: NDArray[Any], factor: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return a chunk minus A B^T; unobserved entries stay NaN."""
    rest: NDArray[Any] = chunk - factor @ other.T
    return rest


def filled(
    chunk: NDArray[Any],
    factor: NDArray[Any],
    other: NDArray[Any],
    keep_observed: bool,
    excluded: NDArray[np.bool_] | None,
) -> NDArray[Any]:
    """Return a chunk with A B^T for unobserved entries and excluded frames, or for all entries."""
    product: NDArray[Any] = factor @ other.T
    if not keep_observed:
        return product
    missing = ~np.isfinite(chunk)
    if excluded is not None:
        missing |= excluded
    return np.where(missing, product, chunk)


def energy(chunk: NDArray[Any], excluded: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Return the sum of |x|^2 of each row over the observed entries in frames that are not excluded."""
    return row_squared_norms(np.ascontiguousarray(observed_part(chunk, excluded)[0]))


def third_differences(chunk: NDArray[Any], before: NDArray[Any] | None) -> NDArray[np.float64]:
    """Return the sum of the squared third differences of each row, with the three frames before the chunk."""
    joined = chunk if before is None else np.concatenate([before, chunk], axis=1)
    return third_difference_norms(observed_part(joined, None)[0])


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
    power_chunk: NDArray[Any],
    start: int,
    n_frames: int,
    n_lags: int,
    excluded: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.float64], LagSums]:
    """Return the energy of one filtered chunk, and the lagged products of one that may be filtered in another way.

    Products count in the chunk of their later frame. So the sums over the chunks are those over all pairs of frames.

    Parameters
    ----------
    chunk : (n, n_t) array
        The chunk whose lagged products are returned.
    before : (n, k) array or None
        The frames before it, up to n_lags - 1; None for the first chunk.
    power_chunk : (n, n_t) array
        The chunk whose energy is returned, of the same pixels and frames.
    start : int
        Number of its first frame.
    n_frames : int
        Number of frames of the stack.
    n_lags : int
        Number of lags, lag 0 included.
    excluded : (n_frames,) boolean array or None
        Excluded frames of the stack.

    Returns
    -------
    energy : (n,) float64 array
        Sum of |x|^2 of each row.
    lags : LagSums
        The lagged products.
    """
    joined = chunk if before is None else np.concatenate([before, chunk], axis=1)
    first = start - (joined.shape[1] - chunk.shape[1])
    out = None if excluded is None else excluded[first : first + joined.shape[1]]
    values, observed = observed_part(joined, out)
    used = np.ones((1, values.shape[1]), bool) if out is None else ~out[None]
    counted = used.astype(np.float64) if observed is None else (observed & used).astype(np.float32)
    sums, counts = (part_lag_sums(rows, first, start, n_frames, n_lags) for rows in (values, counted))
    return energy(power_chunk, None if out is None else out[start - first :]), LagSums(sums, counts)


def add(parts: list[Any]) -> Any:
    """Return the sum of arrays, in double precision and in the order of the list."""
    wide = np.result_type(parts[0].dtype, np.float64)
    total = parts[0].astype(wide)
    for part in parts[1:]:
        total += part
    return total


def add_measured(parts: list[tuple[NDArray[np.float64], LagSums]]) -> tuple[NDArray[np.float64], LagSums]:
    """Return the sums of what :func:`measure_chunk` returns for chunks of the same pixels."""
    energies, lags = zip(*parts, strict=True)
    # A chunk without unobserved entries has one row of counts for all of its pixels.
    counts: Any = sum(each.counts for each in lags)
    return add(list(energies)), LagSums(add([each.sums for each in lags]), counts)
