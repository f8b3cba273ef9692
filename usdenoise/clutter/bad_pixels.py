"""Pixels with far more power than their neighbours after the filter, such as a noisy line of the probe, and clipped ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.linalg.array_library import Array, Numbers, columns, finite_or_zero, namespace, to_host
from usdenoise.linalg.tall_matrices import (
    CACHED_COLUMNS,
    TINY,
    cached_slices,
    column_squared_norms,
    slices_of,
)

PIXEL, LINE = 10.0, 5.0
"""Power of a pixel over both neighbours along an axis, and median of it over a line, from which they stand out. A vessel is
as wide as the point-spread function: neighbours have 0.3 of its power or more. On 44 phantoms and recordings a line had at
most 1.8 times the power of its neighbours, on a carotid 3; one with noise 34 dB below the tissue 16 times."""

LEAST_LINE = 8
"""Pixels of a line, at least."""

BESIDE = 0.1
"""Part of a pixel in its neighbours from which they have it by the point-spread function: 0.14 if this has a standard
deviation of half a pixel. Of noise it is a few hundredths."""

COHERENT, THE_SAME = 0.3, 0.9
"""Correlation of neighbouring frames, or of neighbouring pixels, from which they have flow in common, and from which they
are the same. Of noise it is about 0."""

OWN, FEWEST_OWN_LINES = 0.5, 16
"""A removed component describes a line, of FEWEST_OWN_LINES or more, if it has more than this share there. Several
components may describe one pixel: their shares in it count together."""

OWN_PART = 0.05
"""Share of a component in a pixel from which it is one of these. In 1920 pixels without noisy ones the sum over the removed
components was at most 0.05; in noisy ones 1."""


@dataclass(frozen=True)
class BadPixels:
    """Pixels that are excluded for their noise, or because they are saturated.

    Attributes
    ----------
    mask : boolean array, (n_z,), (n_z, n_x) or (n_z, n_x, n_y)
        The pixels.
    saturated : boolean array of the same shape
        The saturated pixels among them.
    lines : tuple of (int, int)
        Axis and number of each line of which all pixels are excluded for their noise, of a plane in a volume.
    """

    mask: NDArray[np.bool_]
    saturated: NDArray[np.bool_]
    lines: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, mask: NDArray[np.bool_], signal: NDArray[np.bool_], saturated: NDArray[np.bool_]
    ) -> "BadPixels":
        """Return the description of bad pixels among pixels with a signal, of which some are saturated."""
        lines, whole_mask, mask = [], mask, mask & ~saturated
        for axis in range(mask.ndim):
            across = tuple(other for other in range(mask.ndim) if other != axis)
            whole = mask.any(axis=across) & (mask | ~signal).all(axis=across)
            lines += [(axis, int(number)) for number in np.flatnonzero(whole)]
        return cls(whole_mask, saturated & whole_mask, tuple(lines) if mask.ndim > 1 else ())

    @property
    def n_pixels(self) -> int:
        """Number of pixels that are excluded for their noise."""
        return int(np.count_nonzero(self.mask & ~self.saturated))

    def places(self, letters: str) -> list[str]:
        """Return the noisy lines and then the other noisy pixels in words: "x = 17", "z = 5, x = 9"."""
        others = self.mask & ~self.saturated
        for axis, number in self.lines:
            others.swapaxes(0, axis)[number] = False
        lines = [f"{letters[axis]} = {number}" for axis, number in self.lines]
        pixels = (zip(letters, place, strict=True) for place in np.argwhere(others))
        return lines + [", ".join(f"{letter} = {number}" for letter, number in pixel) for pixel in pixels]


AT_EXTREME, NEAR_EXTREME = 1e-4, 0.02
"""Relative distances from the extreme within which values are clipped, and near it."""

FEWEST_SATURATED, MOST_SATURATED = 3, 0.5
"""Fewest pixels at an extreme that are clipped, and largest share of the image: more are a stack of few levels."""


def part_extremes(x: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest and the smallest value of the real and the imaginary parts of each pixel, (n_pixels,).

    Parameters
    ----------
    x : (n, n_pixels) array
        Frames, of any library and in either order of the memory; NaN counts as 0.
    """
    xp = namespace(x)
    if isinstance(x, np.ndarray):
        # Memory is read in its order, both parts at once, without a copy
        by_pixel = abs(x.strides[0]) < abs(x.strides[1])
        values = x.T if by_pixel else x
        values = values if values.strides[1] == values.itemsize else np.ascontiguousarray(values)
        parts, extremes = values.view(values.real.dtype), (np.fmax, np.fmin)
        if by_pixel:
            blocks = [parts[rows] for rows in slices_of(len(parts), CACHED_COLUMNS)]
            of_blocks = [[extreme.reduce(block, axis=1) for extreme in extremes] for block in blocks]
            found = [np.concatenate(values) for values in zip(*of_blocks, strict=True)]
        else:
            found = [np.full(parts.shape[1], np.nan, parts.dtype) for _ in extremes]
            # Frames of a file are read in their order
            for rows in cached_slices(len(parts), CACHED_COLUMNS):
                for at in slices_of(parts.shape[1], CACHED_COLUMNS):
                    for extreme, so_far in zip(extremes, found, strict=True):
                        extreme(so_far[at], extreme.reduce(parts[rows, at], axis=0), out=so_far[at])
        if np.iscomplexobj(x) and not by_pixel:
            # A reduction over pairs would take as long as that over all frames
            pairs = zip(extremes, found, strict=True)
            found = [extreme(values[::2], values[1::2]) for extreme, values in pairs]
    else:
        finite = finite_or_zero(x)
        is_complex = xp.isdtype(x.dtype, "complex floating")
        real_parts = [xp.real(finite), xp.imag(finite)] if is_complex else [finite]
        of_parts = [xp.stack([extreme(part, axis=0) for part in real_parts]) for extreme in (xp.max, xp.min)]
        found = [to_host(xp.max(of_parts[0], axis=0)), to_host(xp.min(of_parts[1], axis=0))]
    highest, lowest = (np.where(np.isfinite(values), values, 0).astype(np.float64) for values in found)
    return highest, lowest


def saturated_pixels(highest: NDArray[np.float64], lowest: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the pixels that are clipped: those at an extreme of all, if there are several.

    The largest values of pixels that are not clipped differ: few are at the extreme, and more are near it.

    Parameters
    ----------
    highest, lowest : (n_pixels,) arrays
        Largest and smallest value of the parts of each pixel, from :func:`part_extremes`.
    """
    found: NDArray[np.bool_] = np.zeros(len(highest), bool)
    for values in (highest, -lowest):
        extreme = float(np.max(values))
        at, near = (values >= (1 - within) * extreme for within in (AT_EXTREME, NEAR_EXTREME))
        n_at = int(np.count_nonzero(at))
        if extreme > 0 and n_at >= max(FEWEST_SATURATED, int(np.count_nonzero(near)) - n_at):
            found |= at
    return found if found.mean() <= MOST_SATURATED else np.zeros(len(found), bool)


WRAPPED = 0.1
"""Part of the range of integers by which a jump that wraps around may differ from it. If the median step from frame to frame
is larger, it is fast motion. In 18 stacks that did not wrap, with rotations of up to half a turn a frame, noise and
interference, no pixel jumped so; in one with bursts of 0.45 turns a frame 2 of 4096 did."""


def may_wrap(
    highest: NDArray[np.float64], lowest: NDArray[np.float64], step: float
) -> tuple[NDArray[np.intp], float]:
    """Return the numbers of pixels whose values may wrap around, and the range of the integers.

    Parameters
    ----------
    highest, lowest : (n_pixels,) arrays
        As for :func:`saturated_pixels`.
    step : float
        Step of which the values are multiples; 0 without one.
    """
    span = float(highest.max() - lowest.min())
    whole = step * 2.0 ** round(np.log2(span / step)) if 0 < step < span else 0.0
    # Of few levels, a single step is a jump
    is_whole = step < WRAPPED * whole and abs(span - whole) <= NEAR_EXTREME * whole
    return np.flatnonzero(is_whole & (highest - lowest > (1 - WRAPPED) * whole)), whole


def wrapped_pixels(x: Array, pixels: NDArray[np.intp], whole: float) -> NDArray[np.bool_]:
    """Return the pixels, (n_pixels,), whose values wrap around: those beyond the range of integers have the other sign.

    They jump by nearly the whole range from frame to frame, and change little otherwise.

    Parameters
    ----------
    x : (n, n_pixels) array
        Consecutive frames, of any library.
    pixels, whole
        From :func:`may_wrap`.
    """
    wrapped = np.zeros(x.shape[1], bool)
    if not len(pixels):
        return wrapped
    values = finite_or_zero(columns(x, pixels))
    for part in (values.real, values.imag):
        jumps = np.abs(np.diff(part, axis=0, prepend=part[:1]))
        is_slow = np.median(jumps, axis=0) < WRAPPED * whole
        wrapped[pixels] |= is_slow & (jumps.max(axis=0) > (1 - WRAPPED) * whole)
    return wrapped


NOISY, MOST_NOISY = 3.0, 0.3
"""Power of a pixel over the median around it from which it stands out, and share of noise in the power that stands out above
which the pictures are doubtful. On 44 phantoms and recordings it was 0; with nine noisy pixels together 0.88."""


def share_of_noise(power: NDArray[np.float64], is_noise: NDArray[np.bool_], grid: Neighbourhood) -> float:
    """Return the share of noise in the power that stands out after the filter; 0 if nothing does.

    Parameters
    ----------
    power : (n_signal,) array
        Power of each pixel after the filter.
    is_noise : (n_signal,) boolean array
        Pixels that show no flow.
    grid : Neighbourhood
        Shape of the image, and its signal pixels.
    """
    around = grid.wide_median(power)
    above = np.where(power > NOISY * around, power - around, 0)
    return float(above[is_noise].sum()) / max(float(above.sum()), TINY)


def own_entries(squares: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the entries of components, (n_pixels, k), that describe one pixel or one line, whose noise the filter removes.

    Parameters
    ----------
    squares : (n_pixels, k) array
        |u_k|^2 of the removed components.
    shape : tuple of int
        Pixels along each axis of the image.
    """
    own: NDArray[np.bool_] = (squares.sum(axis=1, keepdims=True) > OWN) & (squares > OWN_PART)
    images, entries = squares.reshape(*shape, -1), own.reshape(*shape, -1)
    for axis, length in enumerate(shape):
        if len(shape) > 1 and length >= FEWEST_OWN_LINES:
            lines = images.swapaxes(0, axis).sum(axis=tuple(range(1, len(shape))))
            for number, component in np.argwhere(lines > OWN).tolist():
                entries.swapaxes(0, axis)[number, ..., component] = True
    return own


def standing_out(
    power: NDArray[np.floating], signal: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield groups of pixels with far more power than their neighbours: the axis across which it falls, and their numbers.

    A group is one pixel with more than PIXEL times the power of both neighbours along an axis, or a line (a plane of a
    volume) whose median is LINE times as strong as those beside it, or as the second ones, where two are noisy.

    Parameters
    ----------
    power : array, shape of the image
        Power after the filter.
    signal : boolean array of the same shape
        Pixels that count.
    """
    numbers, image = np.arange(signal.size).reshape(signal.shape), np.where(signal, power, 0)
    for axis, length in enumerate(signal.shape):
        for step in (1, 2)[: length // 2]:
            padded = np.pad(image, [(step if axis == other else 0,) * 2 for other in range(image.ndim)])
            around = (np.take(padded, np.arange(length) + shift, axis=axis) for shift in (0, 2 * step))
            beside = np.maximum(*around)
            # At an edge, and beside masked pixels, one neighbour decides; without any, nothing is known.
            ratio = np.divide(image, beside, out=np.zeros(image.shape), where=beside > 0)
            for pixel in np.flatnonzero(ratio > PIXEL)[:, None] if step == 1 else ():
                yield axis, pixel
            lines, known = (values.swapaxes(0, axis).reshape(length, -1) for values in (ratio, signal))
            if not known.all():
                lines = np.where(known, lines, np.nan)
            enough = known.sum(axis=1) >= LEAST_LINE
            median = np.median if known.all() else np.nanmedian
            strong = np.flatnonzero(enough)[median(lines[enough], axis=1) > LINE]
            for number in strong.tolist():
                yield axis, numbers.swapaxes(0, axis)[number][signal.swapaxes(0, axis)[number]]


Filtered = Callable[[slice | NDArray[np.intp]], Numbers]
"""Returns consecutive frames of some pixels, (n, m), after the filter."""


def power_after(x: Numbers, left: Numbers, used: NDArray[np.bool_]) -> tuple[Filtered, NDArray[np.float64]]:
    """Return what filters pixels of consecutive frames, 0 in those that do not count, and the power of each pixel after it.

    Parameters
    ----------
    x : (n, n_pixels) array
        Consecutive frames; entries that are not finite count as 0.
    left : (n_pixels, k) array
        Orthonormal spatial components that are removed.
    used : (n,) boolean array
        Frames that count.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        coefficients = x @ left.conj()
    if not np.isfinite(coefficients).all():
        x = finite_or_zero(x)
        coefficients = x @ left.conj()

    def filtered(pixels: slice | NDArray[np.intp]) -> Numbers:
        y: Numbers = x[:, pixels] if isinstance(pixels, slice) else columns(x, pixels)
        y = y - coefficients @ left[pixels].T
        y[~used] = 0
        return y

    parts = cached_slices(x.shape[1], len(x))
    return filtered, np.concatenate([column_squared_norms(filtered(part)) for part in parts])


def coherence(
    filtered: Filtered, power: NDArray[np.float64], shape: tuple[int, ...], pixels: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the correlation of some pixels with the next frame and with a neighbour after the filter.

    Parameters
    ----------
    filtered, power
        What filters them, and the power of all pixels, from :func:`power_after`.
    shape : tuple of int
        Pixels along each axis of the image.
    pixels : (m,) array of int
        Numbers of the pixels.

    Returns
    -------
    in_time : (m,) float64 array
        |r(1)| / r(0) of neighbouring frames.
    in_space : (n_axes, m) float64 array
        Product with a neighbour along each axis over the larger power of both: how much of a pixel its neighbour has, or the
        other way. The larger one of both sides.
    """
    places, own = np.unravel_index(pixels, shape), power[pixels]
    in_time, in_space = np.zeros(len(pixels)), np.zeros((len(shape), len(pixels)))
    for part in slices_of(len(pixels), CACHED_COLUMNS):
        x = filtered(pixels[part]).T
        products = np.abs(np.vecdot(x[:, :-1], x[:, 1:]))
        in_time[part] = np.divide(products, own[part], out=np.zeros(len(products)), where=own[part] > 0)
        for axis, length in enumerate(shape):
            for step in (-1, 1):
                # At an edge a pixel is its own neighbour, which does not count
                place = [along[part] for along in places]
                there = (place[axis] + step >= 0) & (place[axis] + step < length)
                place[axis] = np.clip(place[axis] + step, 0, length - 1)
                beside = np.ravel_multi_index(place, shape)
                scale = np.maximum(own[part], power[beside])
                products = np.abs(np.vecdot(x, filtered(beside).T))
                shares = np.divide(products, scale, out=np.zeros(len(scale)), where=there & (scale > 0))
                in_space[axis, part] = np.maximum(in_space[axis, part], shares)
    return in_time, in_space


def is_noise(axis: int, in_time: NDArray[np.float64], in_space: NDArray[np.float64]) -> bool:
    """Return whether pixels that stand out are noise, by their correlations from :func:`coherence`.

    By the point-spread function the pixels beside flow have a part of it. Where a vessel is narrower, flow is correlated
    from frame to frame, and along a line, but not the same along it, as hum is.

    Parameters
    ----------
    axis : int
        The axis across which their power falls, from :func:`standing_out`.
    in_time, in_space
        Correlations.
    """
    is_flow = np.median(in_time) > COHERENT
    if is_flow and len(in_time) > 1:
        along = np.delete(in_space, axis, axis=0).max(axis=0)
        is_flow = COHERENT < np.median(along) < THE_SAME
    return bool(np.median(in_space[axis]) < BESIDE and not is_flow)
