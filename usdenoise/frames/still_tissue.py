"""Take the local phase of the tissue, followed from frame to frame, out of every frame before the filter.

A filter of fixed spatial components needs a component for each pattern in which the tissue strains, turns or pulsates,
and for each harmonic of that pattern. With the phase of the tissue around each pixel taken out, most of them go. In
frame t, with x the frames, w a kernel and s(t) the last frame before t that is not excluded,

    P_t(p) = sum_q w(p - q) x_t(q) conj(x_s(t)(q)),    e_t(p) = e_s(t)(p) P_t(p) / |P_t(p)|,    e_first = 1.

conj(e) x is filtered, and what leaves is y = x - e U U^H (conj(e) x) for orthonormal spatial components U: the frames minus
the clutter, as recorded. A phase that all pixels have in common changes nothing. White noise stays white, as the kernel
covers many pixels, and where no tissue is followed nothing turns.

The sums over q are made of tiles of pixels. The products of tiles are averaged and interpolated, never their angles.

References
----------
Tierney, J., et al. (2017). Adaptive clutter demodulation for non-contrast ultrasound perfusion imaging. IEEE Trans. Med.
Imaging 36(9).
Tierney, J., et al. (2019). Combining slow flow techniques with adaptive demodulation for improved perfusion ultrasound
imaging without contrast. IEEE Trans. Ultrason. Ferroelectr. Freq. Control 66(5).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.clutter_cutoff import CLUTTER_DOPPLER
from usdenoise.linalg.array_library import (
    Array,
    Numbers,
    dtype_of,
    finite_or_zero,
    in_full_precision,
    is_by_pixel,
    namespace,
    squared_magnitudes,
    to_host,
    to_library,
    used_frames,
    zero_outside,
)
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.tall_matrices import COMPILED_ENTRIES, TINY, part_slices, slices_of
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.sampling import FEW_PIXELS, SOME_FRAMES, spread_rows

Value = TypeVar("Value")

TILE_MM, TILE_PIXELS, LEAST_SIDE = 0.5, 6, 2
"""Side of a tile in mm, about, in pixels along an axis whose pitch is not known, and least side in pixels."""

WIDTH_TILES, LEVELS, FALL = 1.4, 3, 0.03
"""Standard deviation of the kernel in tiles, and number and height of the Gaussians, each twice as wide as the one before:
tissue is 40 dB stronger than blood, and so decides the phase in a vessel that is wider than the first one."""

ROUNDS = 3
"""Number of times that steps are corrected by the steps that they leave, and that blocks are turned to the mean of all."""

LEAST_COHERENCE = 0.5
"""Correlation of the frames around a tile with the frames before them, from which its tissue is followed. Tissue
as strong as all else there has this correlation."""

FARTHEST = 0.95
"""Quantile over the tiles, and over the frames, that is the largest displacement: some are wrong."""


@dataclass(frozen=True)
class Tiles:
    """The tiles of an image, whose axes are those of the image.

    Attributes
    ----------
    shape : tuple of int
        Pixels along z, x and y.
    sides : tuple of int
        Pixels of a tile along each axis.
    side_mm : tuple of float
        The same in units in which tiles are TILE_MM wide, about.
    is_compiled : bool
        Whether compiled loops make products and turns of frames of NumPy, in a third of the time; by default not.
    """

    shape: tuple[int, ...]
    sides: tuple[int, ...]
    side_mm: tuple[float, ...]
    is_compiled: bool = False

    @classmethod
    def of(cls, shape: Sequence[int], pitches: Sequence[float | None]) -> "Tiles":
        """Return the tiles of an image with some pixels and pitches in mm, None if that is not known, along each axis."""
        known = [pitch or TILE_MM / TILE_PIXELS for pitch in pitches]
        sides = [max(LEAST_SIDE, round(TILE_MM / pitch)) for pitch in known]
        return cls(
            tuple(shape), tuple(sides), tuple(side * pitch for side, pitch in zip(sides, known, strict=True))
        )

    def of_three(self, of_axes: Sequence[Value], of_none: Value) -> tuple[Value, Value, Value]:
        """Return what each axis has for three axes, as compiled loops take it, with something for those that are not there.

        The last axis is the one along which pixels are neighbours in memory.
        """
        x_and_y = [*(of_none,) * (3 - len(of_axes)), *of_axes[1:]]
        return of_axes[0], x_and_y[0], x_and_y[1]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of tiles along each axis."""
        return tuple(-(-n // side) for n, side in zip(self.shape, self.sides, strict=True))

    @cached_property
    def sums(self) -> list[NDArray[np.float64]]:
        """The matrix of each axis that sums pixels over tiles, (n_tiles, n_pixels)."""
        return [
            (np.arange(n) // side == np.arange(count)[:, None]).astype(np.float64)
            for n, side, count in zip(self.shape, self.sides, self.counts, strict=True)
        ]

    @cached_property
    def blurs(self) -> list[list[tuple[int, NDArray[np.float64]]]]:
        """The matrices, each along an axis, by which images of tiles are multiplied for the Gaussians of the kernel.

        Wide ones have few singular values above rounding errors, and so two factors, through few rows.
        """
        levels = []
        for level in range(LEVELS):
            width, before, after = TILE_MM * WIDTH_TILES * 2**level, [], []
            for axis, (count, side) in enumerate(zip(self.counts, self.side_mm, strict=True)):
                distance = np.subtract.outer(np.arange(count), np.arange(count)) * side
                matrix = FALL ** (level / len(self.counts)) * np.exp(-0.5 * (distance / width) ** 2)
                left, values, right = np.linalg.svd(matrix)
                rank = np.count_nonzero(values > np.finfo(np.float64).eps * count * values[0])
                if 2 * rank > count:
                    before.append((axis, matrix))
                else:
                    before.append((axis, values[:rank, None] * right[:rank]))
                    after.append((axis, left[:, :rank]))
            levels.append([*before, *after])
        return levels

    @cached_property
    def places(self) -> list[tuple[NDArray[np.intp], NDArray[np.float64]]]:
        """The first of the two tiles beside each pixel along each axis, (n_pixels,), and the weight of the second one."""
        found = []
        for n, side, count in zip(self.shape, self.sides, self.counts, strict=True):
            place = np.clip((np.arange(n) + 0.5) / side - 0.5, 0, count - 1)
            first = np.minimum(place.astype(np.intp), max(count - 2, 0))
            found.append((first, place - first))
        return found

    def summed(self, values: Array, of_pixels: bool = False) -> Array:
        """Return the sums over tiles of images, (n, n_pixels): (n, tiles along each axis).

        By pixel, images are (n_pixels, n), and the sums (tiles along each axis, n).
        """
        shape = (*self.shape, -1) if of_pixels else (-1, *self.shape)
        values, first_axis = namespace(values).reshape(values, shape), 0 if of_pixels else 1
        if not isinstance(values, np.ndarray):
            return _along(values, enumerate(self.sums, 1))
        sizes = zip(self.shape, self.sides, self.counts, strict=True)
        for axis, (n, side, count) in enumerate(sizes, first_axis):
            # Whole tiles, and then the pixels that are left
            cut, whole = (slice(None),) * axis, n // side
            total: Numbers = np.zeros((*values.shape[:axis], count, *values.shape[axis + 1 :]), values.dtype)
            for first in range(side):
                total[*cut, :whole] += values[*cut, first : whole * side : side]
            total[*cut, whole:] = values[*cut, whole * side :].sum(axis=axis, keepdims=True)
            values = total
        return values

    def averaged(self, values: Numbers) -> Numbers:
        """Return images of tiles, (tiles along each axis, n), averaged by the kernel."""
        # Real and imaginary parts beside each other: a product of complex numbers has four of real ones
        values = np.ascontiguousarray(values)
        parts = values.view(values.real.dtype)
        averages = _along(parts, self.blurs[0])
        for matrices in self.blurs[1:]:
            averages += _along(parts, matrices)
        return np.asarray(averages.view(values.dtype))

    @cached_property
    def between(self) -> list[NDArray[np.float64]]:
        """The matrix of each axis that interpolates tiles linearly at the pixels, (n_pixels, n_tiles)."""
        found = []
        for (first, weight), count in zip(self.places, self.counts, strict=True):
            tiles, second = np.eye(count), np.minimum(first + 1, count - 1)
            found.append(tiles[first] * (1 - weight)[:, None] + tiles[second] * weight[:, None])
        return found

    def at_pixels(self, values: Array, rows: slice = slice(None)) -> Array:
        """Return images of tiles at the pixels of some rows along z, (n, n_pixels), interpolated linearly."""
        first = self.places[0][0][rows]
        near = slice(int(first[0]), int(first[-1]) + 2)
        matrices = [self.between[0][rows, near], *self.between[1:]]
        # Along z at last: images become larger
        values = _along(values[:, near, ...], reversed([*enumerate(matrices, 1)]))
        return namespace(values).reshape(values, (values.shape[0], -1))

    def at_some_pixels(self, values: Numbers, pixels: NDArray[np.intp]) -> Numbers:
        """Return images of tiles, (n, tiles along each axis), at some pixels, (n, n_pixels)."""
        along = np.unravel_index(pixels, self.shape)
        firsts = [first[at] for (first, _), at in zip(self.places, along, strict=True)]
        kind = np.empty(0, values.dtype).real.dtype
        weights = [weight[at].astype(kind) for (_, weight), at in zip(self.places, along, strict=True)]
        total = np.zeros((len(values), len(pixels)), values.dtype)
        for corner in np.ndindex(*(min(2, count) for count in self.counts)):
            at = [first + more for first, more in zip(firsts, corner, strict=True)]
            of_corner = [weight if more else 1 - weight for weight, more in zip(weights, corner, strict=True)]
            total += np.multiply(values[:, *at], math.prod(of_corner))
        return total


def tiles_of(geometry: Geometry, options: DenoiseOptions, n_frames: float | None = None) -> Tiles | None:
    """Return the tiles of an image whose tissue is to be held still; None for real frames, or if it is not.

    `n_frames` is the number of frames of the recording, by default of the geometry: if there are many, loops are compiled.
    """
    if options.tissue != "still" or not geometry.is_complex:
        return None
    n_entries = (geometry.n_frames if n_frames is None else n_frames) * geometry.n_pixels
    pitches = [geometry.spacing_mm.get(letter) for letter in geometry.pixel_axes]
    return replace(Tiles.of(geometry.pixel_shape, pitches), is_compiled=n_entries >= COMPILED_ENTRIES)


@in_full_precision
def _along(values: Array, matrices: Iterable[tuple[int, NDArray[np.float64]]]) -> Array:
    """Return an array multiplied by some matrices, each along the axis of its number, one after the other."""
    xp, kind = namespace(values), dtype_of(values)
    for axis, matrix in matrices:
        before, n, after = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
        if after:
            columns = xp.reshape(values, (-1, n, math.prod(after)))
            product = to_library(matrix.astype(kind), values) @ columns
        else:
            product = xp.reshape(values, (-1, n)) @ to_library(np.ascontiguousarray(matrix.T, kind), values)
        values = xp.reshape(product, (*before, matrix.shape[0], *after))
    return values


@dataclass(frozen=True)
class ChunkProducts:
    """Products of the tiles of a chunk between frames that follow each other, and its first and last frame that count.

    Attributes
    ----------
    products : (m, tiles along each axis) array
        Sums over tiles of x_t conj(x_s).
    numbers : (m + 1,) array of int
        Numbers of the frames that count in the chunk: s and t are neighbours among them.
    ends : (2, n_pixels) array
        First and last frame that count, with 0 for entries that do not.
    n_frames : int
        Frames of the chunk.
    """

    products: Numbers
    numbers: NDArray[np.intp]
    ends: Numbers
    n_frames: int


def tile_products(
    x: Array, tiles: Tiles, used: NDArray[np.bool_], counted: NDArray[np.bool_] | None = None
) -> ChunkProducts:
    """Return the products of the tiles of a chunk between frames that follow each other.

    Parameters
    ----------
    x : (n, n_pixels) array
        The chunk, of any library; NaN where an entry is unobserved.
    tiles : Tiles
        The tiles.
    used : (n,) boolean array
        Frames that count. A frame is compared with the last one before it that counts.
    counted : (n_pixels,) boolean array, optional
        Pixels that count; by default all.
    """
    numbers, kind = np.flatnonzero(used), np.result_type(dtype_of(x), np.complex64)
    if not len(numbers):
        nothing = np.zeros((0, *tiles.counts), kind)
        return ChunkProducts(nothing, numbers, np.zeros((2, x.shape[1]), kind), len(used))
    products = lagged_products(x, tiles, numbers, counted, 1)
    ends = np.stack([to_host(x[number : number + 1, :])[0] for number in (numbers[0], numbers[-1])])
    counts = np.isfinite(ends) if counted is None else counted & np.isfinite(ends)
    return ChunkProducts(products, numbers, np.where(counts, ends, 0), len(used))


@np.errstate(invalid="ignore", over="ignore")
def lagged_products(
    x: Array, tiles: Tiles, numbers: NDArray[np.intp], counted: NDArray[np.bool_] | None, lag: int
) -> Numbers:
    """Return the sums over tiles of x_(t + lag) conj(x_t), (n - lag, tiles along each axis), of frames after each other.

    Parameters
    ----------
    x : (n_frames, n_pixels) array
        Frames, of any library.
    tiles : Tiles
        The tiles.
    numbers : (n,) array of int
        Numbers of the frames, increasing, more than `lag`.
    counted : (n_pixels,) boolean array or None
        Pixels that count; None for all. Entries that are not finite do not count.
    lag : int
        1 for the products of neighbours; 0 for energies, which are real.
    """
    xp, found, is_on_host = namespace(x), list[Numbers](), isinstance(x, np.ndarray)
    counts = None if counted is None or counted.all() else to_library(counted, x)
    of_pixels = is_by_pixel(x)

    def add(at: NDArray[np.intp], pixels: slice, tiles: Tiles) -> None:
        is_run = at[-1] - at[0] == len(at) - 1
        frames = x[at[0] : at[-1] + 1, pixels] if is_run else xp.take(x[:, pixels], to_library(at, x), axis=0)
        frames = frames if counts is None else zero_outside(frames, counts[pixels])
        sums = to_host(_summed_products(frames, tiles, of_pixels, lag))
        if not np.isfinite(sums).all():
            sums = to_host(_summed_products(finite_or_zero(frames), tiles, of_pixels, lag))
        found.append(sums)

    if of_pixels:
        # Rows of tiles after each other, each with all frames
        side, row = tiles.sides[0], math.prod(tiles.shape[1:])
        for part in part_slices(tiles.counts[0], side * row * len(numbers)):
            first, stop = part.start * side, min(part.stop * side, tiles.shape[0])
            own = replace(tiles, shape=(stop - first, *tiles.shape[1:]))
            add(numbers, slice(first * row, stop * row), own)
        return np.moveaxis(np.concatenate(found), -1, 0)
    for part in part_slices(len(numbers) - lag, x.shape[1] if is_on_host else 1):
        add(numbers[part.start : part.stop + lag], slice(None), tiles)
    kind = np.result_type(dtype_of(x), np.complex64)
    return np.concatenate(found) if found else np.zeros((0, *tiles.counts), kind)


def _summed_products(frames: Array, tiles: Tiles, of_pixels: bool, lag: int) -> Array:
    """Return :func:`lagged_products` of frames after each other; by pixel as :meth:`Tiles.summed`."""
    if isinstance(frames, np.ndarray):
        frames = np.ascontiguousarray(frames.T if of_pixels else frames)
        if tiles.is_compiled:
            return _compiled_products(frames, tiles, of_pixels, lag)
    if not lag:
        return tiles.summed(squared_magnitudes(frames), of_pixels)
    if of_pixels:
        return tiles.summed(frames[:, lag:] * frames[:, :-lag].conj(), True)
    return tiles.summed(frames[lag:, :] * namespace(frames).conj(frames[:-lag, :]))


def _compiled_products(values: Numbers, tiles: Tiles, of_pixels: bool, lag: int) -> Numbers:
    """Return the same by compiled loops, for contiguous frames (n, n_pixels), or (n_pixels, n) by pixel."""
    from usdenoise.linalg.compiled_loops import lagged_products_by_frame, lagged_products_by_pixel

    shape, counts, sides = (
        tiles.of_three(of_axes, 1) for of_axes in (tiles.shape, tiles.counts, tiles.sides)
    )
    kind, n = values.real.dtype, values.shape[1 if of_pixels else 0] - lag
    sums = np.zeros((*counts, n) if of_pixels else (n, *counts), values.dtype)
    loop = lagged_products_by_pixel if of_pixels else lagged_products_by_frame
    images = values.reshape((*shape, -1) if of_pixels else (-1, *shape))
    loop(images.view(kind), lag, sides, sums.view(kind))
    sums = sums.reshape((*tiles.counts, n) if of_pixels else (n, *tiles.counts))
    return sums if lag else sums.real


def joined_products(chunks: Sequence[ChunkProducts], tiles: Tiles) -> ChunkProducts:
    """Return the products of a block from those of its chunks, with the ones across their borders."""
    products, numbers, ends, first = list[Numbers](), list[NDArray[np.intp]](), list[Numbers](), 0
    for chunk in chunks:
        if len(chunk.numbers):
            if ends:
                products.append(tiles.summed(chunk.ends[:1] * ends[-1].conj()))
            products.append(chunk.products)
            numbers.append(chunk.numbers + first)
            ends += [*chunk.ends]
        first += chunk.n_frames
    if not ends:
        return replace(chunks[0], n_frames=first)
    both = np.stack([ends[0], ends[-1]])
    return ChunkProducts(np.concatenate(products), np.concatenate(numbers), both, first)


def _phases(products: Numbers, averaged: Numbers, tiles: Tiles) -> Numbers:
    """Return numbers of magnitude 1 with the phase of the products of tiles, (tiles along each axis, n), averaged.

    The average falls behind where the phase changes over the kernel, as at the edge of the image: it is corrected by the
    average of what it leaves.
    """
    phases = _unit(averaged)
    for _ in range(ROUNDS):
        phases = phases * _unit(tiles.averaged(products * phases.conj()))
    return phases


def _unit(values: Numbers) -> Numbers:
    """Return numbers over their magnitude, and 1 for 0."""
    size = np.abs(values)
    # A product: NumPy divides complex numbers by complex ones
    unit: Numbers = values * (1 / np.where(size > 0, size, 1))
    unit[size == 0] = 1
    return unit


@dataclass(frozen=True)
class TissueMotion:
    """The phase of the tissue of each tile from frame to frame.

    Attributes
    ----------
    tiles : Tiles
        The tiles.
    steps : (n_frames, tiles along each axis) complex array
        The step from the last frame that counts: of magnitude 1, and 1 in frames that do not count.
    followed : (tiles along each axis) boolean array
        Tiles with pixels that count whose tissue is followed.
    """

    tiles: Tiles
    steps: Numbers
    followed: NDArray[np.bool_]

    @property
    def moves(self) -> bool:
        """Whether any tissue is followed."""
        return bool(self.followed.any() and (self.steps != 1).any())

    def of_pixels(self, pixels: NDArray[np.intp]) -> Numbers:
        """Return e of some pixels, (n_frames, n_pixels)."""
        return np.asarray(np.cumprod(_unit(self.tiles.at_some_pixels(self.steps, pixels)), axis=0))

    def cut(self, first: int, stop: int) -> "TissueMotion":
        """Return the motion of the frames [first, stop)."""
        return replace(self, steps=self.steps[first:stop])

    def end(self, start: Numbers | None) -> Numbers:
        """Return e in the last frame, (n_pixels,), from e before the first one; None for 1."""
        nothing = np.zeros((0, math.prod(self.tiles.shape)), self.steps.dtype)
        turn = self._turner(nothing, nothing, start, True, np.arange(0))
        return np.concatenate([turn(part) for part in self._row_parts()])

    def _turner(
        self, x: Numbers, out: Numbers, start: Numbers | None, is_back: bool, numbers: NDArray[np.intp] | None
    ) -> Callable[[tuple[slice, slice]], Numbers]:
        """Return what turns some rows of pixels of frames of NumPy, and returns e in their last frame.

        `out` gets the frames with some numbers, which increase; None for all frames.
        """
        of_pixels = is_by_pixel(x)
        values, into = (x.T, out.T) if of_pixels else (x, out)
        if self.tiles.is_compiled and x.dtype == out.dtype and into.flags.c_contiguous:
            # Frames of a block of an array by pixel are not contiguous
            values = np.ascontiguousarray(values)
            return self._compiled_turner(values, into, start, is_back, numbers, of_pixels)

        @np.errstate(invalid="ignore")
        def turn(part: tuple[slice, slice]) -> Numbers:
            pixels, turns = part[1], np.ones((1, 1), out.dtype)
            for frames, turns in self._turns(x, start, part, is_back):
                if numbers is None:
                    np.multiply(x[frames, pixels], turns, out=out[frames, pixels])
                    continue
                some = slice(*np.searchsorted(numbers, (frames.start, frames.stop)).tolist())
                at = numbers[some]
                out[some, pixels] = x[at, pixels] * turns[at - frames.start]
            last: Numbers = turns[-1].copy()
            return last

        return turn

    def _compiled_turner(
        self,
        x: Numbers,
        out: Numbers,
        start: Numbers | None,
        is_back: bool,
        numbers: NDArray[np.intp] | None,
        of_pixels: bool,
    ) -> Callable[[tuple[slice, slice]], Numbers]:
        """Return the same with compiled loops, for contiguous frames (n, n_pixels), or (n_pixels, n) by pixel."""
        from usdenoise.linalg.compiled_loops import turned_frames, turned_pixels

        tiles, kind = self.tiles, x.real.dtype
        shape, counts = tiles.of_three(tiles.shape, 1), tiles.of_three(tiles.counts, 1)
        steps = self.steps.astype(x.dtype, copy=False).reshape(-1, *counts)
        steps = np.ascontiguousarray(np.moveaxis(steps, 0, -1) if of_pixels else steps)
        of_axes = tiles.of_three(tiles.places, (np.zeros(1, np.intp), np.zeros(1)))
        places = tuple((first, weight.astype(kind)) for first, weight in of_axes)
        as_images = (*shape, -1) if of_pixels else (-1, *shape[:2], 2 * shape[2])
        images, into = (np.asarray(array).view(kind).reshape(as_images) for array in (x, out))
        numbers = np.arange(len(self.steps)) if numbers is None else numbers
        sign = np.array(1 if is_back else -1, kind)[()]

        def turn(part: tuple[slice, slice]) -> Numbers:
            rows, pixels = part
            size = (rows.stop - rows.start, *shape[1:])
            first = np.ones(size, x.dtype) if start is None else start[pixels].astype(x.dtype).reshape(size)
            parts = np.stack([first.real, first.imag])
            loop = turned_pixels if of_pixels else turned_frames
            loop(images, steps.view(kind), places, parts, sign, numbers, rows.start, into)
            last: Numbers = (parts[0] + 1j * parts[1]).astype(x.dtype).ravel()
            return last

        return turn

    def _turns(
        self, like: Array, start: Numbers | None, part: tuple[slice, slice], is_back: bool
    ) -> Iterator[tuple[slice, Array]]:
        """Yield conj(e), or e to turn back, of frames after each other in rows and their pixels, as arrays of a library."""
        rows, pixels = part
        xp, kind = namespace(like), np.result_type(dtype_of(like), np.complex64)
        n_pixels = pixels.stop - pixels.start
        turn = np.ones(n_pixels, kind) if start is None else start[pixels].astype(kind)
        all_steps, turn = (self.steps, turn) if is_back else (self.steps.conj(), turn.conj())
        # A quarter of a part: with fewer, calls take longer than products, and with more the cache does not hold them
        together = part_slices(len(self.steps), 4 * n_pixels)
        if not isinstance(like, np.ndarray):
            turn = to_library(turn, like)
            for frames in together:
                turns = self.tiles.at_pixels(to_library(all_steps[frames].astype(kind), like), rows)
                turns, each = turns / xp.abs(turns), []
                for t in range(turns.shape[0]):
                    turn = turn * turns[t, :]
                    each.append(turn)
                yield frames, xp.stack(each)
            return
        # Interpolated with real and imaginary parts apart, which is several times as fast
        for frames in together:
            steps = all_steps[frames].astype(kind, copy=False)
            parts = self.tiles.at_pixels(np.concatenate([steps.real, steps.imag]), rows)
            turns = np.empty((len(steps), n_pixels), kind)
            turns.real, turns.imag = parts[: len(steps)], parts[len(steps) :]
            turns *= 1 / np.abs(turns)
            for each in turns:
                turn = np.multiply(each, turn, out=each)
            yield frames, turns

    def _row_parts(self, executor: ThreadExecutor | None = None) -> list[tuple[slice, slice]]:
        """Return rows along z that are turned one after the other or side by side, and their pixels."""
        n_rows, row = self.tiles.shape[0], math.prod(self.tiles.shape[1:])
        parts = part_slices(n_rows, len(self.steps) * row // 2)
        if self.tiles.is_compiled and (executor is None or executor.threads == 1):
            # Frame by frame, which are read from memory in order
            parts = slices_of(n_rows, n_rows)
        return [(rows, slice(rows.start * row, rows.stop * row)) for rows in parts]

    @np.errstate(invalid="ignore")
    def still(
        self,
        x: Array,
        start: Numbers | None = None,
        out: Numbers | None = None,
        is_back: bool = False,
        executor: ThreadExecutor | None = None,
    ) -> Array:
        """Return frames times conj(e): with the tissue held still.

        Parameters
        ----------
        x : (n, n_pixels) array
            Frames of this motion, of any library.
        start : (n_pixels,) array, optional
            e in the frame before the first one; by default 1.
        out : (n, n_pixels) array of NumPy, optional
            Gets the result; it may be `x`.
        is_back : bool
            Whether frames are multiplied by e instead: what was filtered moves as recorded again.
        executor : ThreadExecutor, optional
            Turns rows of pixels side by side; by default one part after the other.
        """
        if not isinstance(x, np.ndarray):
            whole = slice(0, self.tiles.shape[0]), slice(0, math.prod(self.tiles.shape))
            parts = [x[frames, :] * turns for frames, turns in self._turns(x, start, whole, is_back)]
            return parts[0] if len(parts) == 1 else namespace(x).concat(parts)
        into = np.empty_like(x) if out is None else out
        turn = self._turner(x, into, start, is_back, None)
        for _ in (map if executor is None else executor.map)(turn, self._row_parts(executor)):
            pass
        return into

    @np.errstate(invalid="ignore")
    def still_frames(self, x: Numbers, numbers: NDArray[np.intp]) -> Numbers:
        """Return some of the frames, (n, n_pixels) of NumPy, by their numbers, with the tissue held still."""
        out = np.empty((len(numbers), x.shape[1]), x.dtype, "F" if is_by_pixel(x) else "C")
        order = np.argsort(numbers)
        turn = self._turner(x, out, None, False, numbers[order])
        for part in self._row_parts():
            turn(part)
        is_sorted = (numbers[order] == numbers).all()
        return out if is_sorted else out[np.argsort(order)]

    def displacement(self, used: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the displacement of the tissue along depth in each frame, (n_frames, 2), in wavelengths.

        A tile is displaced from its median position in the frames that count, to larger depths if that is positive, and a
        phase of 2 pi is half a wavelength. The columns are the median over the tiles that are followed, and the 95th
        percentile of the magnitude over them. They are NaN in frames that do not count, if no tissue is followed, and if it
        moves by more than an eighth of a wavelength from frame to frame: from a quarter on the direction is not known.
        """
        followed = np.flatnonzero(self.followed)
        steps = self.steps.reshape(len(self.steps), -1)[:, followed[spread_rows(len(followed), FEW_PIXELS)]]
        found = np.full((len(steps), 2), np.nan)
        if steps.size and used.any():
            angles = np.angle(steps).astype(np.float64)
            if np.quantile(np.median(np.abs(angles), axis=1), FARTHEST) > np.pi / 2:
                return found
            paths = np.cumsum(angles, axis=0)[used] / (-4 * np.pi)
            paths -= np.median(paths, axis=0)
            found[used] = np.stack(
                [np.median(paths, axis=1), np.quantile(np.abs(paths), FARTHEST, axis=1)], axis=1
            )
        return found


def motion_and_strengths(
    tiles: Tiles, products: ChunkProducts, of_tiles: NDArray[np.float64]
) -> tuple[TissueMotion, NDArray[np.float64]]:
    """Return the motion of a block, and how strong each of its steps is: the sum of the kernel's averages.

    Parameters
    ----------
    tiles : Tiles
        The tiles.
    products : ChunkProducts
        Products of the tiles.
    of_tiles : (tiles along each axis) array
        Energy of the tiles in a frame that counts, on average.
    """
    usual = tiles.averaged(of_tiles[..., None])[..., 0]
    steps = np.ones((products.n_frames, *tiles.counts), products.products.dtype)
    squares, sizes, strengths = np.zeros(tiles.counts), np.zeros(tiles.counts), list[NDArray[np.float64]]()
    net, numbers = np.zeros(tiles.counts, np.complex128), products.numbers[1:]
    # Some frames at a time take less memory
    for frames in part_slices(len(numbers), 4 * math.prod(tiles.counts)):
        # Products of matrices are faster with the frames side by side
        own = np.ascontiguousarray(np.moveaxis(products.products[frames], 0, -1))
        averaged = tiles.averaged(own)
        size = np.abs(averaged).astype(np.float64)
        squares, sizes = squares + (size**2).sum(axis=-1), sizes + size.sum(axis=-1)
        strengths.append(size.reshape(-1, size.shape[-1]).sum(axis=0))
        net += averaged.sum(axis=-1, dtype=np.complex128)
        steps[numbers[frames]] = np.moveaxis(_phases(own, averaged, tiles), -1, 0)
    coherence = np.sqrt(squares / max(len(numbers), 1))
    # Tissue goes to and fro; what moves on steadily, and faster than tissue does, is flow
    is_flow = (np.abs(net) > LEAST_COHERENCE * sizes) & (np.abs(np.angle(net)) > 2 * np.pi * CLUTTER_DOPPLER)
    is_tissue = (coherence > LEAST_COHERENCE * usual) & ~is_flow
    steps[:, ~is_tissue] = 1
    return TissueMotion(tiles, steps, is_tissue & (of_tiles > 0)), np.concatenate([np.zeros(0), *strengths])


def largest_displacement(displacement: NDArray[np.float64]) -> float | None:
    """Return the largest of displacements, (n_frames, 2), from :meth:`TissueMotion.displacement`; None if none is known."""
    known = displacement[np.isfinite(displacement[:, 1]), 1]
    return float(np.quantile(known, FARTHEST)) if len(known) else None


def judged(n_frames: int, n_pixels: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the numbers of the frames and pixels by which :func:`usdenoise.linalg.low_rank.compared_contents` compares."""
    return spread_rows(n_frames, SOME_FRAMES), spread_rows(n_pixels, FEW_PIXELS)


@dataclass(frozen=True)
class StillBlock:
    """The turn of the frames of a block whose tissue is held still: e of its motion, from a first turn on.

    Attributes
    ----------
    motion : TissueMotion
        Motion of the tissue in the block.
    start : (n_pixels,) array
        Turn of the block against the reference.
    """

    motion: TissueMotion
    start: Numbers

    def moving(self, y: Array) -> Array:
        """Return filtered frames, (n, n_pixels), with the tissue as recorded."""
        return self.motion.still(y, self.start, is_back=True)


@dataclass(frozen=True)
class StillReference:
    """The reference of phase that the blocks of a session have in common.

    Attributes
    ----------
    tiles : Tiles
        The tiles.
    image : (n_pixels,) complex array
        Mean over the blocks of their mean frames, whose tissue is still.
    """

    tiles: Tiles
    image: Numbers

    @classmethod
    def of(cls, tiles: Tiles, means: Numbers) -> "StillReference":
        """Return the reference of blocks by their mean frames, (n_blocks, n_pixels), each with its tissue held still.

        First each block is turned as a whole, then ROUNDS times tile by tile, to the mean of all blocks.
        """
        products = means @ means.conj().T
        leading = np.linalg.eigh(products.astype(np.complex128))[1][:, -1]
        turns = np.where(leading == 0, 1, leading / np.maximum(np.abs(leading), TINY))
        found = cls(tiles, (turns.conj() @ means / len(means)).astype(means.dtype))
        for _ in range(ROUNDS if len(means) > 1 else 0):
            total = sum(mean * found.turn(mean).conj() for mean in means)
            found = cls(tiles, total / len(means))
        return found

    def turn(self, mean: Numbers) -> Numbers:
        """Return the turn of a block against the reference, (n_pixels,), by its mean frame."""
        sums = np.moveaxis(self.tiles.summed((mean * self.image.conj())[None]), 0, -1)
        phases = _phases(sums, self.tiles.averaged(sums), self.tiles)
        return _unit(self.tiles.at_pixels(np.moveaxis(phases, -1, 0))[0]).astype(mean.dtype)

    @np.errstate(invalid="ignore", over="ignore")
    def hold(self, x: Array, used: NDArray[np.bool_]) -> tuple[Array, StillBlock]:
        """Return the frames of a block, (n, n_pixels), with the tissue held still, and their turn."""
        xp = namespace(x)
        motion, used = motion_of(x, self.tiles, used)
        x = motion.still(x)
        counted = used_frames(x, used)
        total = to_host(xp.sum(counted, axis=0))
        if not np.isfinite(total).all():
            total = to_host(xp.sum(finite_or_zero(counted), axis=0))
        start = self.turn(np.asarray(total / max(int(np.count_nonzero(used)), 1)))
        x *= to_library(start.conj(), x)
        return x, StillBlock(motion, start)


def motion_of(
    x: Array, tiles: Tiles, used: NDArray[np.bool_], counted_pixels: NDArray[np.bool_] | None = None
) -> tuple[TissueMotion, NDArray[np.bool_]]:
    """Return the motion of the tissue in the frames of a block, (n, n_pixels), and the frames that count.

    Frames that are like neither of their neighbours, such as damaged ones, do not count, nor do entries that are not finite.
    The phase comes from some pixels, by default from all.
    """
    energies = lagged_products(x, tiles, np.arange(x.shape[0]), counted_pixels, 0).astype(np.float64)
    of_frames = energies.reshape(len(energies), -1).sum(axis=1)
    for _ in range(2):
        products = tile_products(x, tiles, used, counted_pixels)
        of_tiles = energies[used].sum(axis=0) / max(int(np.count_nonzero(used)), 1)
        motion, strengths = motion_and_strengths(tiles, products, of_tiles)
        # Once more without those that are apart
        apart = _frames_apart(products, strengths, tiles, of_frames)
        if not apart.any():
            break
        used = used & ~apart
    return motion, used


def _frames_apart(
    products: ChunkProducts, strengths: NDArray[np.float64], tiles: Tiles, energy: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return the frames, (n,), that are correlated with neither of the frames beside them that count, by their energy."""
    apart, at = np.zeros(len(energy), bool), products.numbers
    if len(at) < 2:
        return apart
    # The sum of the kernel over the pixels
    whole = tiles.averaged(np.ones((*tiles.counts, 1))).mean()
    is_like = strengths > LEAST_COHERENCE * whole * np.sqrt(energy[at[:-1]] * energy[at[1:]])
    apart[at] = ~(np.append(is_like, False) | np.append(False, is_like))
    return apart
