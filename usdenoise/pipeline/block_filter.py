"""The filter of one block of frames: y = x - U (U^H x), and the measures of the filtered block.

Every command that removes clutter components filters with :func:`filter_block`. A block is an (n_frames, n_pixels) array
in either memory order. It needs no other block, so blocks may be filtered in any order and in any process.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.gapped_rows import fit_gapped_rows
from usdenoise.linalg.lag_sums import Parts, half_parts, padded_lag_sums
from usdenoise.linalg.row_blocks import row_blocks, row_squared_norms
from usdenoise.stack.bit_mask import pack

RANK_TOLERANCE = 1e-12
"""Energies of coefficients below this part of the largest one are 0 but for rounding errors."""

TILE_ENTRIES = 1 << 16
"""Entries of a tile of pixels: half a megabyte in complex64, which stays in the cache while it is measured."""


class FrameBlock(Protocol):
    """Some consecutive frames of a stack.

    Attributes
    ----------
    start, stop : int
        First frame, and the one after the last.
    target : (n, n_pixels) array or None
        Where the filtered frames go; None if they are returned.
    """

    @property
    def start(self) -> int: ...  # noqa: D102
    @property
    def stop(self) -> int: ...  # noqa: D102
    @property
    def target(self) -> NDArray[Any] | None: ...  # noqa: D102

    def read(self) -> NDArray[Any]:
        """Return the frames, (stop - start, n_pixels), which may hold NaN; they are not changed."""
        ...


@dataclass(frozen=True, kw_only=True)
class BlockFilter:
    """A clutter filter for the blocks of a stack.

    Attributes
    ----------
    spatial : (n_pixels, r) array
        U: orthonormal spatial components, 0 in pixels without a signal.
    low : int
        Components [0, low) are removed.
    high : int
        The components [low, high) fill unobserved entries and excluded frames; they are all that is kept where
        `keeps_residual` is false.
    keeps_residual : bool
        Whether the result is the data minus the clutter.
    n_lags : int
        Number of lags that are measured, lag 0 included; 0 for none.
    n_frames : int or None
        Frames of the stack, whose products are summed by halves of its frames. None if a block is measured by itself.
    further : (int, (n_pixels, k) array) or None
        Per-pixel cutoffs: the lags are measured on a residual from which these shares of the components from the
        given one on are subtracted, too.
    model : (n_frames, r) array or None
        Coefficients of all frames by the estimate. Excluded frames have them, and frames with unobserved entries start
        from them.
    is_given : bool
        Whether all frames have the coefficients of `model`.
    n_temporal : int
        q: number of temporal components V that are removed from a block after U, by I - V V^H: the q leading left singular
        vectors of the coefficients of the clutter in this block.
    more_temporal : (n, p) array or None
        Orthonormal temporal components that are removed from a single block besides, orthogonal to V. None for none.
    has_signal : (n_pixels,) boolean array or None
        Signal pixels; masked pixels become 0. None if no pixel is masked.
    excluded : (n_frames,) boolean array or None
        Frames that do not count.
    has_gaps : bool
        Whether entries of the stack are unobserved, so that pairs of frames are counted pixel by pixel.
    """

    spatial: NDArray[Any]
    low: int
    high: int
    keeps_residual: bool = True
    n_lags: int = 0
    n_frames: int | None = None
    further: tuple[int, NDArray[Any]] | None = None
    model: NDArray[Any] | None = None
    is_given: bool = False
    n_temporal: int = 0
    more_temporal: NDArray[Any] | None = None
    has_signal: NDArray[np.bool_] | None = None
    excluded: NDArray[np.bool_] | None = None
    has_gaps: bool = False

    def parts(self, start: int, stop: int) -> Parts:
        """Return the parts of a block by halves of the stack."""
        return [(0, stop - start, 0)] if self.n_frames is None else half_parts(self.n_frames, start, stop)

    def excluded_in(self, start: int, stop: int) -> NDArray[np.bool_] | None:
        """Return the excluded frames of a block; None if there are none."""
        out = None if self.excluded is None else self.excluded[start:stop]
        return out if out is not None and out.any() else None


@dataclass
class Measures:
    """Measures of a filtered block. The measures of neighbouring blocks add up.

    Attributes
    ----------
    start, stop : int
        First frame, and the one after the last.
    power : (n_pixels,) float64 array
        Sum over the frames of |y|^2, with 0 for unobserved entries and excluded frames.
    kept_power : (n_pixels,) float64 array
        The same for the kept components, with the entries that the model fills.
    coefficients : (n, r) array
        Coefficients of the components in each frame, U^H x.
    temporal : (n, q) array
        The temporal components that were removed, orthonormal columns V.
    sums : (2, n_pixels, n_lags) array
        Lagged products by halves of the frames, see :func:`usdenoise.linalg.lag_sums.lag_sums`.
    counts : (2, n_pixels, n_lags) float64 array or None
        Number of products, if entries of the stack are unobserved.
    first, last : (n_pixels, n_lags - 1 or fewer) arrays
        First and last filtered frames, for the products of frames in two blocks.
    first_seen, last_seen : arrays of the same shapes, or None
        1 where these are observed, if entries of the stack are unobserved.
    observed : (n, ceil(n_pixels / 8)) uint8 array or None
        Bit mask of the observed entries of all pixels; None if that is all of them.
    n_unobserved : int
        Number of unobserved entries of pixels with a signal in frames that are not excluded.
    """

    start: int
    stop: int
    power: NDArray[np.float64]
    kept_power: NDArray[np.float64]
    coefficients: NDArray[Any]
    temporal: NDArray[Any]
    sums: NDArray[Any]
    counts: NDArray[np.float64] | None
    first: NDArray[Any]
    last: NDArray[Any]
    first_seen: NDArray[np.float32] | None = None
    last_seen: NDArray[np.float32] | None = None
    observed: NDArray[np.uint8] | None = None
    n_unobserved: int = 0

    @classmethod
    def empty(
        cls, block: FrameBlock, plan: BlockFilter, coefficients: NDArray[Any], temporal: NDArray[Any]
    ) -> "Measures":
        """Return the measures of a block, to be filled in."""
        n_pixels, dtype = len(plan.spatial), coefficients.dtype
        n_ends = 0 if plan.n_frames is None else min(max(plan.n_lags - 1, 0), block.stop - block.start)
        double = np.result_type(dtype, np.float64)
        measures = cls(
            block.start,
            block.stop,
            np.zeros(n_pixels),
            np.zeros(n_pixels),
            coefficients,
            temporal,
            np.zeros((2, n_pixels, plan.n_lags), double),
            np.zeros((2, n_pixels, plan.n_lags)) if plan.has_gaps else None,
            np.zeros((n_pixels, n_ends), dtype),
            np.zeros((n_pixels, n_ends), dtype),
        )
        if plan.has_gaps:
            measures.first_seen, measures.last_seen = (
                np.zeros((n_pixels, n_ends), np.float32) for _ in range(2)
            )
        return measures


def filter_block(
    block: FrameBlock, is_finite: bool, plan: BlockFilter, is_returned: bool
) -> tuple[Measures, NDArray[Any] | None]:
    """Filter a block, and measure the residual.

    Parameters
    ----------
    block : FrameBlock
        The block.
    is_finite : bool
        Whether all of its entries are finite.
    plan : BlockFilter
        The filter.
    is_returned : bool
        Whether the filtered frames are returned if the block has no target for them.

    Returns
    -------
    measures : Measures
        The measures of the block.
    filtered : (n, n_pixels) array or None
        The filtered frames, if they are returned.
    """
    raw = block.read()
    bits = None if is_finite else pack(np.isfinite(raw))
    x, observed = observed_frames(raw, is_finite, plan.has_signal)
    out = plan.excluded_in(block.start, block.stop)
    if observed is not None and (observed.all() if out is None else observed[~out].all()):
        observed = None
    a = coefficients(x, observed, out, plan, slice(block.start, block.stop))
    temporal = leading_temporal(a[:, : plan.low], plan.n_temporal, out)
    if plan.more_temporal is not None:
        temporal = np.concatenate([temporal, plan.more_temporal], axis=1)
    measures = Measures.empty(block, plan, a, temporal)
    target = block.target
    if target is None and is_returned:
        target = np.empty_like(x)
    tiles = _Tiles(x, observed, out, a, plan, measures, target, plan.parts(block.start, block.stop))
    for pixels in row_blocks(x.shape[1], min(max(TILE_ENTRIES // len(x), 32), 1024)):
        tiles.filter(pixels)
    measures.observed = bits
    if observed is not None:
        measures.n_unobserved = int(np.count_nonzero(~(observed if out is None else observed[~out])))
    return measures, target if block.target is None else None


def observed_frames(
    x: NDArray[Any], is_finite: bool, has_signal: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return frames with 0 for entries that are not finite, and which entries of pixels with a signal are observed.

    Parameters
    ----------
    x : (n, n_pixels) array
        The frames.
    is_finite : bool
        Whether they are known to be finite.
    has_signal : (n_pixels,) boolean array or None
        Signal pixels; masked pixels count as observed. None if no pixel is masked.

    Returns
    -------
    x, observed
        Observed is None if all entries are.
    """
    if is_finite:
        return x, None
    finite = np.isfinite(x)
    x = np.where(finite, x, np.zeros((), x.dtype))
    observed = finite if has_signal is None else finite | ~has_signal
    return x, None if observed.all() else observed


def coefficients(
    x: NDArray[Any],
    observed: NDArray[np.bool_] | None,
    excluded: NDArray[np.bool_] | None,
    plan: BlockFilter,
    frames: slice,
) -> NDArray[Any]:
    """Return the coefficients of some frames: U^H x, or least squares over the observed pixels of a frame.

    A frame with unobserved entries starts from the coefficients of the estimate, which it keeps if it has no observed
    pixel.
    """
    u = plan.spatial
    guess = None if plan.model is None else plan.model[frames]
    if plan.is_given:
        assert guess is not None
        return guess
    if observed is None:
        a: NDArray[Any] = x @ u.conj()
    else:
        start = np.zeros((len(x), u.shape[1]), u.dtype) if guess is None else guess
        residual = x - np.where(observed, start @ u.T, 0)
        a = start + fit_gapped_rows(residual @ u.conj(), observed, u.conj(), None)
    if excluded is not None and guess is not None:
        a[excluded] = guess[excluded]
    return a


def leading_temporal(a: NDArray[Any], q: int, excluded: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Return the q leading left singular vectors of the coefficients of the clutter, or fewer if these have a lower rank.

    Parameters
    ----------
    a : (n, k) array
        Coefficients of the clutter in each frame.
    q : int
        Number of vectors.
    excluded : (n,) boolean array or None
        Frames that do not count; the vectors are 0 there. None for none.
    """
    if not q or not a.shape[1]:
        return np.zeros((len(a), 0), a.dtype)
    counted = a.astype(np.result_type(a, np.float64))
    if excluded is not None:
        counted[excluded] = 0
    energies, vectors = np.linalg.eigh(counted.conj().T @ counted)
    leading = np.flatnonzero(energies > energies[-1] * RANK_TOLERANCE)[::-1][:q]
    left = counted @ (vectors[:, leading] / np.sqrt(energies[leading]))
    return np.ascontiguousarray(left, a.dtype)


class _Tiles:
    """The filter of a block, a tile of pixels at a time, so that a tile stays in the cache."""

    def __init__(
        self,
        x: NDArray[Any],
        observed: NDArray[np.bool_] | None,
        excluded: NDArray[np.bool_] | None,
        a: NDArray[Any],
        plan: BlockFilter,
        measures: Measures,
        target: NDArray[Any] | None,
        parts: Parts,
    ) -> None:
        self.x, self.observed, self.excluded, self.a = x, observed, excluded, a
        self.plan, self.measures, self.target, self.parts = plan, measures, target, parts
        self.clutter = np.ascontiguousarray(plan.spatial[:, : plan.low].T)
        self.is_plain = plan.keeps_residual and observed is None and excluded is None
        self.band = None if self.is_plain else plan.spatial[:, plan.low : plan.high].T

    def filter(self, pixels: slice) -> None:
        """Filter and measure some pixels."""
        plan, n = self.plan, len(self.x)
        y = self.x[:, pixels] - self.a[:, : plan.low] @ self.clutter[:, pixels]
        if plan.has_signal is not None:
            y[:, ~plan.has_signal[pixels]] = 0
        temporal = self.measures.temporal
        if temporal.shape[1]:
            if self.observed is not None:
                y[~self.observed[:, pixels]] = 0
            y -= temporal @ (temporal.conj().T @ y)
        counted = self._counted(pixels)
        padded = np.zeros((y.shape[1], n + max(plan.n_lags - 1, 0)), y.dtype)
        rows = padded[:, :n]
        rows[:] = y.T
        if counted is not None:
            rows *= counted
        power = row_squared_norms(rows)
        self.measures.power[pixels] = self.measures.kept_power[pixels] = power
        if not self.is_plain:
            self._keep(pixels, y)
        elif self.target is not None:
            self.target[:, pixels] = y
        if plan.n_lags:
            self._measure_lags(pixels, padded, rows, counted)

    def _counted(self, pixels: slice) -> NDArray[Any] | None:
        """Return 1 for the entries that count, otherwise 0, (m, n) or (1, n); None if all entries count."""
        counted = None
        if self.observed is not None:
            counted = self.observed[:, pixels].T.astype(np.float32)
        if self.excluded is not None:
            used = (~self.excluded[None]).astype(np.float32)
            counted = used if counted is None else counted * used
        return counted

    def _keep(self, pixels: slice, y: NDArray[Any]) -> None:
        """Fill entries by the model, or keep it alone, and measure the power of the frames that count."""
        assert self.band is not None
        plan = self.plan
        band = self.a[:, plan.low : plan.high] @ self.band[:, pixels]
        if not plan.keeps_residual:
            y = band
        if self.observed is not None:
            y = np.where(self.observed[:, pixels], y, band)
        used = y if self.excluded is None else y[~self.excluded]
        self.measures.kept_power[pixels] = row_squared_norms(np.ascontiguousarray(used.T))
        if self.excluded is not None:
            y[self.excluded] = band[self.excluded]
        if self.target is not None:
            self.target[:, pixels] = y

    def _measure_lags(
        self, pixels: slice, padded: NDArray[Any], rows: NDArray[Any], counted: NDArray[Any] | None
    ) -> None:
        """Sum up the lags of some pixels."""
        plan, measures = self.plan, self.measures
        if plan.further is not None:
            first, shares = plan.further
            a = self.a[:, first : first + shares.shape[1]]
            rows -= (plan.spatial[pixels, first : first + shares.shape[1]] * shares[pixels]) @ a.T
            if counted is not None:
                rows *= counted
        measures.sums[:, pixels] = padded_lag_sums(padded, plan.n_lags, self.parts)
        n_ends, n = measures.first.shape[1], rows.shape[1]
        measures.first[pixels] = rows[:, :n_ends]
        measures.last[pixels] = rows[:, n - n_ends :]
        if measures.counts is not None:
            assert measures.first_seen is not None
            assert measures.last_seen is not None
            weights = np.ones((1, n), np.float32) if counted is None else counted
            ends = ((0, 0), (0, plan.n_lags - 1))
            measures.counts[:, pixels] = padded_lag_sums(np.pad(weights, ends), plan.n_lags, self.parts)
            measures.first_seen[pixels] = weights[:, :n_ends]
            measures.last_seen[pixels] = weights[:, n - n_ends :]
