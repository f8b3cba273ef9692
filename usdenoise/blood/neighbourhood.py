"""Averages over a pixel's neighbours, and medians over a wide window at its depth."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Entry
from usdenoise.linalg.tall_matrices import CACHED_ENTRIES, NEGLIGIBLE, part_slices, slices_of

DEPTH_WINDOW = 7
"""Pixels of the wide window in depth: with a gain of 20 dB over 100 pixels noise differs by 0.6 dB from its middle."""

WIDTH_WINDOWS = (21, 13)
"""Pixels of the wide window in the other direction of an image, and in each of the two others of a volume. In windows
of 41 pixels a vessel of 30 of 64 columns was the median everywhere; with 21 no map of ordinary stacks changed by .001."""

COARSE = 3
"""The wide median is taken at every third of a window, and interpolated: it is smoothed over two pixels afterwards."""

SMOOTHING_SIGMAS = (2.0, 6.0)
"""Standard deviations in pixels, in depth and across it, by which wide medians are smoothed."""

SLOPE_DEPTH = 16
"""Pixels in depth, from the first and the last median, over which the slope beyond them is fitted."""

RISE_SHARE, MOST_RISE = 0.5, 0.1 * math.log(10)
"""Part of an axis within which a wide median may not rise and fall again, and by how much it may: 1 dB. Across the depth it
may change by as much from a median to the next one."""

GAUSSIAN_REACH = 4
"""Standard deviations beyond which a Gaussian weight is 0."""

REACHES = 6
"""Least depth of a slab in reaches of the neighbours that its values need: the margins are then a third of it. In double
precision 25 channels take 13 MB in a slab of 65,536 pixels, and 200 MB in 10^6 voxels."""


@dataclass(frozen=True, eq=False)
class Slab:
    """Some depths of an image, with as many beside them as the averages at these depths need.

    Attributes
    ----------
    grid : Neighbourhood
        The depths and the margins, as an image.
    rows : slice
        Signal pixels of this image, by their numbers in the whole image.
    own : slice
        Signal pixels of the depths without the margins, by their numbers in the whole image.
    inner : slice
        The same pixels, by their numbers in this image.
    """

    grid: "Neighbourhood"
    rows: slice
    own: slice
    inner: slice


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Pixels on a grid, in the order of the Casorati matrix.

    Attributes
    ----------
    mask : boolean array, (n_z,), (n_z, n_x) or (n_z, n_x, n_y)
        Signal pixels. Other pixels are masked: they have no values, and are excluded from every computation.
    """

    mask: NDArray[np.bool_]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Self:
        """Return an image of a shape in which every pixel has a value."""
        return cls(np.ones(shape, bool))

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels along each axis."""
        return self.mask.shape

    @cached_property
    def n_pixels(self) -> int:
        """Number of pixels that have values."""
        return int(np.count_nonzero(self.mask))

    @property
    def is_whole(self) -> bool:
        """Whether every pixel has a value."""
        return self.n_pixels == self.mask.size

    @property
    def n_axes(self) -> int:
        """Number of spatial axes."""
        return self.mask.ndim

    def everywhere(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """Return the values of the signal pixels as values of all pixels, with 0 in masked pixels."""
        if self.is_whole:
            return values
        whole = np.zeros((self.mask.size, *values.shape[1:]), values.dtype)
        whole[self.mask.ravel()] = values
        return whole

    def at_signal(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """Return the values of the signal pixels from values of all pixels, (n_all_pixels, ...)."""
        return values if self.is_whole else values[self.mask.ravel()]

    def slabs(self, sigma: float = 0.0) -> list[Slab]:
        """Return slabs of depths that together have all pixels; a usual image is one.

        Parameters
        ----------
        sigma : float
            Standard deviation in pixels of the averages that are made in a slab; by default 0, none.
        """
        n_depths, reach = len(self.mask), math.ceil(GAUSSIAN_REACH * sigma)
        length = max(CACHED_ENTRIES * n_depths // self.mask.size, REACHES * reach, 1)
        firsts = np.append(0, np.cumsum(np.count_nonzero(self.mask.reshape(n_depths, -1), axis=1))).tolist()
        slabs = []
        for own in slices_of(n_depths, -(-n_depths // max(n_depths // length, 1))):
            start, stop = max(own.start - reach, 0), min(own.stop + reach, n_depths)
            first, inner = firsts[start], slice(firsts[own.start], firsts[own.stop])
            slabs.append(
                Slab(
                    grid=self if stop - start == n_depths else Neighbourhood(self.mask[start:stop]),
                    rows=slice(first, firsts[stop]),
                    own=inner,
                    inner=slice(inner.start - first, inner.stop - first),
                )
            )
        return slabs

    def average(self, values: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
        """Return Gaussian averages over neighbours; the weights of pixels that have values sum to 1.

        Parameters
        ----------
        values : (n_pixels, ...) array
            Values by pixel.
        sigma : float
            Standard deviation in pixels.
        """
        averages, _ = self.average_at_nodes(values.__getitem__, sigma, 1)
        return self.at_signal(averages.reshape(-1, *values.shape[1:]))

    def spread(self, values: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
        """Return the transpose of :meth:`average`: each pixel gives its value to the pixels that its average is made of.

        The sum over pixels of a value times an average is the sum of what is spread times the averaged values, so that
        many images need not be averaged for such a sum.

        Parameters
        ----------
        values : (n_pixels,) array
            Values by pixel.
        sigma : float
            Standard deviation in pixels.
        """
        matrices = [_averaged_along(np.eye(n), sigma, 0) for n in self.shape]
        image = self.everywhere(values).reshape(self.shape)
        if not self.is_whole:
            weights = self.mask.astype(np.float64)
            for axis, matrix in enumerate(matrices):
                weights = np.moveaxis(np.tensordot(matrix, weights, (1, axis)), 0, axis)
            image /= np.maximum(weights, np.finfo(float).tiny)
        for axis, matrix in enumerate(matrices):
            image = np.moveaxis(np.tensordot(matrix, image, (0, axis)), 0, axis)
        return self.at_signal(image.reshape(-1))

    def average_at_nodes(
        self, values: Callable[[slice], NDArray[np.floating]], sigma: float, step: int
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return Gaussian averages at every few pixels along each axis, and the number of the node of each pixel.

        Parameters
        ----------
        values : callable
            Returns the values, (n, ...), of a slice of the pixels.
        sigma : float
            Standard deviation in pixels.
        step : int
            Pixels from one node to the next; far fewer than `sigma`, the averages of neighbouring nodes are alike.

        Returns
        -------
        averages : (n_nodes, n_values) array
            0 at nodes without a pixel near them.
        nodes : (n_pixels,) array of int
            Number of the node that is nearest to each pixel.
        """
        places = [np.arange(min(step // 2, n - 1), n, step) for n in self.shape]
        numbers = [
            np.minimum(np.arange(n) // step, len(along) - 1)
            for n, along in zip(self.shape, places, strict=True)
        ]
        # Across the depth, slab by slab, and then over it
        images, weights = [], []
        for slab in self.slabs():
            of_slab = values(slab.own).astype(np.float64, copy=False)
            image = slab.grid.everywhere(of_slab).reshape(*slab.grid.shape, -1)
            weight = slab.grid.mask[..., None].astype(np.float64)
            for axis, along in enumerate(places[1:], start=1):
                image = _averaged_along(image, sigma, axis, along)
                weight = weight if self.is_whole else _averaged_along(weight, sigma, axis, along)
            images.append(image)
            weights.append(weight)
        image, weight = (each[0] if len(each) == 1 else np.concatenate(each) for each in (images, weights))
        averages = _averaged_along(image, sigma, 0, places[0])
        if not self.is_whole:
            averages /= np.maximum(_averaged_along(weight, sigma, 0, places[0]), np.finfo(float).tiny)
        nodes = np.ravel_multi_index(np.ix_(*numbers), averages.shape[:-1]).reshape(-1)
        return averages.reshape(-1, averages.shape[-1]), self.at_signal(nodes)

    def wide_median(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the median over a wide window around each pixel, without vessels that are wider than the window.

        The window is narrow in depth and wide across it. The noise of the electronics does not rise and fall again along an
        axis, and a vessel does: there the medians are interpolated. They are taken on a coarse grid.
        Their logarithms are interpolated and smoothed, and continued over depth with the slope that they have near the
        edge: what grows with depth is not taken from inside the image.

        Parameters
        ----------
        values : (n_pixels,) array
            Values by pixel, not negative in most pixels; the least median is 1e-12 of the largest one.
        """
        width = WIDTH_WINDOWS[len(self.shape) > 2]
        sizes = [min(size, n) for size, n in zip((DEPTH_WINDOW, width, width), self.shape, strict=False)]
        image = self.everywhere(values).reshape(self.shape)
        if not self.is_whole:
            image[~self.mask] = np.nan
        windows = np.lib.stride_tricks.sliding_window_view(image, sizes)
        centres = []
        for last, size in zip(np.subtract(self.shape, sizes), sizes, strict=True):
            n_steps = math.ceil(last / max(size // COARSE, 1))
            centres.append(np.unique(np.linspace(0, last, n_steps + 1).round()).astype(np.int64))
        # Some depths of windows at a time: all windows of a volume are hundreds of megabytes
        lengths = [len(centre) for centre in centres]
        coarse, of_depth = np.empty(lengths), math.prod((*lengths[1:], *sizes))
        for depths in part_slices(lengths[0], of_depth):
            chosen = windows[np.ix_(centres[0][depths], *centres[1:])]
            coarse[depths] = _medians(chosen.reshape(*chosen.shape[: len(sizes)], -1))
        # A window without any value gets the median of the nearest window
        known = ~np.isnan(coarse)
        coarse = Neighbourhood(known).filled(coarse[known]).reshape(coarse.shape)
        largest = float(coarse.max())
        if largest <= 0:
            return np.zeros(len(values))
        image = np.log(np.maximum(coarse / largest, NEGLIGIBLE))
        for axis, (n, centre) in enumerate(zip(self.shape, centres, strict=True)):
            image = _without_rises(image, centre, n, axis)
        for axis, (n, size, centre) in enumerate(zip(self.shape, sizes, centres, strict=True)):
            matrix = _continued(n, tuple((centre + (size - 1) / 2).tolist()), axis)
            image = np.moveaxis(np.tensordot(matrix, image, (1, axis)), 0, axis)
        return self.at_signal(largest * np.exp(image).reshape(-1))

    def floor(self, values: NDArray[np.float64], quantile: float) -> NDArray[np.float64]:
        """Return the floor at each pixel: a low quantile of its depth, corrected for each line across the depth.

        Over depth the quantile is smoothed, and without its rises. Noise may differ between lines, so the floor of a line is
        multiplied by the quantile of the values over the floor in the line, over the one in the image.

        Parameters
        ----------
        values : (n_pixels,) array
            Values by pixel, not negative.
        quantile : float
            The quantile.
        """
        n_depths, mask = len(self.mask), self.mask.reshape(len(self.mask), -1)
        image, depths = self.everywhere(values).reshape(mask.shape), np.flatnonzero(mask.any(axis=1))
        if self.is_whole:
            floors = np.quantile(image, quantile, axis=1)
        else:
            floors = np.array([np.quantile(image[depth, mask[depth]], quantile) for depth in depths])
        log = np.log(np.maximum(floors, NEGLIGIBLE * max(float(floors.max()), np.finfo(float).tiny)))
        log = _averaged_along(log, SMOOTHING_SIGMAS[0], 0)
        floors = np.interp(np.arange(n_depths), depths, np.exp(_without_rises(log, depths, n_depths, 0)))
        floors = np.repeat(floors, mask.shape[1])[mask.ravel()]
        places = np.unravel_index(np.flatnonzero(self.mask), self.shape)
        for axis, along in enumerate(places[1:], start=1):
            relative = values / np.maximum(floors, np.finfo(float).tiny)
            if not (usual := float(np.quantile(relative, quantile))) > 0:
                continue
            if self.is_whole:
                across = tuple(other for other in range(len(self.shape)) if other != axis)
                lines = np.arange(self.shape[axis])
                of_lines = np.quantile(relative.reshape(self.shape), quantile, across)
            else:
                order = np.argsort(along, kind="stable")
                lines, firsts = np.unique(along[order], return_index=True)
                of_lines = np.array(
                    [np.quantile(part, quantile) for part in np.split(relative[order], firsts[1:])]
                )
            floors = floors * (of_lines / usual)[np.searchsorted(lines, along)]
        return floors

    def filled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of all pixels: those without any take the value of the nearest pixel that has one."""
        if self.is_whole:
            return values
        # Loading scipy takes longer than most calls of this class, and few images have a mask.
        from scipy.ndimage import distance_transform_edt

        nearest = distance_transform_edt(~self.mask, return_distances=False, return_indices=True)
        whole: NDArray[np.float64] = self.everywhere(values).reshape(self.shape)[tuple(nearest)]
        return whole.reshape(-1)


def _medians(windows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median along the last axis without NaN, or NaN where nothing else is; the windows are sorted in place.

    numpy.median takes five times as long: it copies the windows, and looks for NaN by a second partition.
    """
    n = windows.shape[-1]
    if np.isnan(windows).any():
        windows.sort(axis=-1)
        counts = np.count_nonzero(~np.isnan(windows), axis=-1)
    else:
        windows.partition((n - 1) // 2 if n % 2 else (n // 2 - 1, n // 2), axis=-1)
        counts = np.full(windows.shape[:-1], n)
    middle = (np.maximum(counts - 1, 0) // 2, np.minimum(counts // 2, n - 1))
    lower, upper = (np.take_along_axis(windows, at[..., None], axis=-1)[..., 0] for at in middle)
    return (lower + upper) / 2


def _without_rises(
    log: NDArray[np.float64], nodes: NDArray[np.floating | np.integer], n: int, axis: int
) -> NDArray[np.float64]:
    """Return logarithms of a level at some nodes along an axis of n pixels, interpolated where they rise and fall again.

    They do where they exceed their opening, the maximum of the minima over windows of RISE_SHARE of the axis, by more than
    MOST_RISE. Beyond its ends the level is continued with the slope near them: a level that grows towards an end does not.
    Across the depth a vessel may be at the edge of the image, and noise changes little. So there they also do where they
    exceed by more than MOST_RISE the largest level below them that changes by MOST_RISE from node to node.
    """
    lines: NDArray[np.float64] = np.moveaxis(log, axis, 0)
    if len(nodes) < 3:
        return log
    width = max(math.ceil(RISE_SHARE * n * (len(nodes) - 1) / (nodes[-1] - nodes[0])), 2)
    steps, beyond = np.arange(1, width).reshape(-1, *[1] * (log.ndim - 1)), []
    for end, offsets in ((lines, nodes - nodes[0]), (lines[::-1], nodes[-1] - nodes[::-1])):
        near = max(int(np.count_nonzero(offsets <= SLOPE_DEPTH)), 2)
        centred = np.arange(near) - (near - 1) / 2
        beyond.append(end[0] - np.tensordot(centred, end[:near], (0, 0)) / (centred @ centred) * steps)
    opened = np.concatenate([beyond[0][::-1], lines, beyond[1]])
    for extreme in (np.min, np.max):
        opened = extreme(np.lib.stride_tricks.sliding_window_view(opened, width, axis=0), axis=-1)
    if axis:
        ramp = MOST_RISE * np.arange(len(lines)).reshape(-1, *[1] * (log.ndim - 1))
        opened = np.minimum(opened, np.minimum.accumulate(lines - ramp) + ramp)
        opened = np.minimum(opened, np.minimum.accumulate((lines + ramp)[::-1])[::-1] - ramp)
    without = lines.copy().reshape(len(lines), -1)
    rises = (lines > opened + MOST_RISE).reshape(len(lines), -1)
    for place in np.flatnonzero(rises.any(axis=0)).tolist():
        line, known = without[:, place], ~rises[:, place]
        without[:, place] = np.minimum(line, np.interp(nodes, nodes[known], line[known]))
    return np.moveaxis(without.reshape(lines.shape), 0, axis)


@lru_cache
def _continued(n: int, places: tuple[float, ...], axis: int) -> NDArray[np.float64]:
    """Return the (n, nodes) matrix of interpolation to 0..n-1 and smoothing along an axis.

    Beyond the nodes, values in depth have the slope of those near the edge, and values along other axes are constant.
    """
    sigma, nodes = SMOOTHING_SIGMAS[axis > 0], np.array(places)
    margin = math.ceil(GAUSSIAN_REACH * sigma)
    positions = np.arange(-margin, n + margin)
    # Linear interpolation from nodes to positions, constant beyond the nodes
    matrix = np.stack([np.interp(positions, nodes, column) for column in np.eye(len(nodes))], axis=1)
    if axis == 0:
        for end, extreme in ((0, np.minimum), (-1, np.maximum)):
            beyond = extreme(positions - nodes[end], 0)
            near = np.abs(nodes - nodes[end]) <= SLOPE_DEPTH
            offsets = np.where(near, nodes - nodes[near].mean(), 0)
            matrix += beyond[:, None] * offsets / max(float(offsets @ offsets), 1.0)
    return _averaged_along(matrix, sigma, 0)[margin : n + margin]


def _averaged_along(
    image: NDArray[np.float64], sigma: float, axis: int, places: NDArray[np.intp] | None = None
) -> NDArray[np.float64]:
    """Return the averages of an image along an axis with Gaussian weights, which sum to 1 also at the edges.

    They are at some increasing places along the axis, by default at all pixels.
    """
    n, reach = image.shape[axis], math.ceil(GAUSSIAN_REACH * sigma)
    places = np.arange(n) if places is None else places
    lines = image.reshape(math.prod(image.shape[:axis]), n, -1)
    averages = np.empty((len(lines), len(places), lines.shape[2]))
    # A matrix product for each part of the axis, from the pixels within its reach. Importing the filters of scipy.ndimage
    # takes 0.17 s of processor time, more than all averages of a block of 128 x 128 pixels
    for part in slices_of(len(places), 2 * reach):
        near = np.arange(max(places[part][0] - reach, 0), min(places[part][-1] + 1 + reach, n))
        offsets = np.abs(places[part][:, None] - near)
        weights = np.where(offsets <= reach, np.exp(-0.5 * (offsets / sigma) ** 2), 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        np.matmul(weights, lines[:, near[0] : near[-1] + 1], out=averages[:, part])
    return averages.reshape(*image.shape[:axis], len(places), *image.shape[axis + 1 :])
