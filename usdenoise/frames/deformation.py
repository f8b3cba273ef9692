"""Deformation of the blocks of a session: what one rigid shift leaves, a rotation and a smooth field of displacement.

It is compensated after the filter, in what adds up over the frames of a block: interpolated frames would have other noise,
and tissue that the components do not have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.frames.alignment import TINY_SINGLE, Alignment, Reference, mean_envelope, nearest_good, shifted
from usdenoise.linalg.array_library import Array, Inexact, used_frames

AFFINE_STEPS, LOCAL_STEPS = 3, 2
"""Gauss-Newton steps of the affine field, and of the local one that follows."""

WINDOW_SIGMA, RIDGE = 7.0, 0.1
"""Standard deviation in pixels of the Gaussian window in which a local displacement is constant, and the level of an
envelope, which is divided out, as a gain may change with depth; and what is added to the curvature of its least squares,
relative to the mean one: the field stays affine where the image shows nothing. On sessions that deform by 0.3 pixels (root
mean square) windows of 6 to 11 pixels left errors within 10 % of each other; the wider, the less a rotation suffers."""

NODE_STEP = 4
"""Pixels from one of these windows to the next."""

LEAST_TILE, TILE_LENGTHS = 6, 4.0
"""Pixels along each axis of the tiles that are fitted and held out in turn, at least, and over the length of the speckle,
the standard deviation of an envelope over that of its gradient: neighbouring tiles are nearly independent."""

FIELD_ERRORS = 3.0
"""Least reduction of the held-out difference from the reference, in standard errors."""

LEAST_FIELD = 0.1
"""Least root mean square of a field that is compensated, in pixels. On true powers of sessions of ten kinds, fields of 0.05
to 0.1 pixels raised the correlation of a block with the mean at rest by 0.001, and fields of 0.1 to 0.15 by 0.004."""


@dataclass(frozen=True)
class Deformation:
    """How the image of a block is deformed against the reference of its session, besides its rigid shift.

    Attributes
    ----------
    pixels : float
        Largest displacement that was compensated, in pixels; 0 (the default) if none was.
    rotation : tuple of float
        Mean rotation that was compensated, in degrees: from z towards x, and in a volume from z towards y and from x
        towards y. Pixels are square if a pitch is not known. Empty (the default) if nothing was compensated.
    """

    pixels: float = 0.0
    rotation: tuple[float, ...] = ()

    @classmethod
    def of(cls, field: NDArray[np.float64], pitches: Sequence[float]) -> Self:
        """Return the summary of a field, (n_axes, pixels along z, x, y), of an image with some pixel pitches."""

        def slope(along: int, over: int) -> float:
            return float(np.mean(np.gradient(field[along], axis=over))) * pitches[along] / pitches[over]

        pairs = combinations(range(len(field)), 2)
        rotation = (math.degrees(slope(b, a) - slope(a, b)) / 2 for a, b in pairs)
        return cls(float(np.sqrt(np.sum(field**2, axis=0)).max()), tuple(rotation))


def deformation_of(
    x: Array, excluded: NDArray[np.bool_], reference: Reference, alignment: Alignment
) -> NDArray[np.float64] | None:
    """Return the field of displacement of a block, after its rigid shift, if that is better known than 0.

    Parameters
    ----------
    x : (n, n_pixels) array
        The block, as it was measured.
    excluded : (n,) boolean array
        Frames that are excluded.
    reference : Reference
        What the blocks of the session are aligned to.
    alignment : Alignment
        The shift of the block.

    Returns
    -------
    (n_axes, pixels along z, x, y) float64 array or None
        What is at a place p of the reference is at p plus the field in the shifted block; None if nothing is compensated.
    """
    if not reference.registers or not np.isfinite(alignment.shift).all():
        return None
    image = mean_envelope(used_frames(x, ~excluded), reference.image.shape)
    if alignment.is_shifted:
        image = shifted(image[None], np.array(alignment.shift))[0]
    return find_field(image, reference.image, reference.mask & (reference.image > 0) & (image > 0))


def find_field(
    image: NDArray[np.floating], reference: NDArray[np.floating], counted: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """Return the smooth field of displacement of an image against a reference, if that is better known than 0.

    An affine field is fitted by Gauss-Newton steps on the squared difference (Lucas and Kanade, IJCAI, 1981), then a local
    one in windows. Each is used if it explains pixels to which it was not fitted: tiles of the image are held out in turn.
    There the difference of the reference from the image, displaced by the field, is compared with its difference from the
    mean of the images that are displaced by the field and by its opposite. Both are interpolated alike, and if the field
    is an error the first one is larger.

    Parameters
    ----------
    image, reference : (pixels along z, x, y) arrays
        Mean envelopes of tissue.
    counted : boolean array of this shape
        Pixels that count.

    Returns
    -------
    (n_axes, pixels along z, x, y) float64 array or None
        What is at a place p of the reference is at p plus the field in the image. None if it is not better than 0, or its
        root mean square is below LEAST_FIELD pixels.
    """
    from scipy.ndimage import spline_filter

    if not counted.any():
        return None
    fixed, zero = _levelled(reference, counted), np.zeros((image.ndim, *image.shape))
    pair = _Pair(spline_filter(_levelled(image, counted), mode="mirror"), fixed)
    # Most blocks are at rest: a step shows it
    if _size(pair.local(counted, zero, 1), counted) < LEAST_FIELD / 2:
        return None
    slopes = np.array(np.gradient(fixed))
    length = math.sqrt(image.ndim * np.sum(fixed**2) / max(float(np.sum(slopes**2)), TINY_SINGLE))
    tile = max(LEAST_TILE, round(min(TILE_LENGTHS * length, max(image.shape))))
    places = np.indices(image.shape) // tile
    is_even = places.sum(axis=0) % 2 == 0
    tiles = np.asarray(np.ravel_multi_index(tuple(places), [n // tile + 1 for n in image.shape]))
    field, held = zero, (zero, zero)
    for fit in (pair.affine, pair.local):
        gains, fitted = np.zeros(int(tiles.max()) + 1), []
        for half, before in zip((counted & is_even, counted & ~is_even), held, strict=True):
            own = fit(half, before)
            other = counted & ~half
            ahead, back = pair.moved(own), pair.moved(2 * before - own)
            gain = (fixed - (ahead + back) / 2) ** 2 - (fixed - ahead) ** 2
            gains += np.bincount(tiles[other], gain[other], len(gains))
            fitted.append(own)
        if gains.sum() > FIELD_ERRORS * math.sqrt(np.sum(gains**2)):
            held = fitted[0], fitted[1]
            field = fit(counted, (held[0] + held[1]) / 2, 1)
    return field if _size(field, counted) >= LEAST_FIELD else None


def _size(field: NDArray[np.float64], counted: NDArray[np.bool_]) -> float:
    return math.sqrt(np.mean(np.sum(field[:, counted] ** 2, axis=0)))


def _levelled(image: NDArray[np.floating], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return an image over its average in the neighbourhood, less 1; 0 in pixels that do not count."""
    around, values = Neighbourhood(counted), image[counted].astype(np.float64)
    levels = around.average(values, WINDOW_SIGMA)
    return around.everywhere(values / np.maximum(levels, TINY_SINGLE) - 1).reshape(image.shape)


@dataclass(frozen=True)
class _Pair:
    """An image, by the coefficients of its cubic spline, and the reference to which a field displaces it."""

    moving: NDArray[np.float64]
    fixed: NDArray[np.float64]

    def moved(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the image at the places of a field."""
        from scipy.ndimage import map_coordinates

        places = np.indices(field.shape[1:]) + field
        return np.asarray(map_coordinates(self.moving, places, order=3, mode="mirror", prefilter=False))

    def differences(
        self, counted: NDArray[np.bool_], field: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the difference of both at a field, (n_pixels,), and their mean gradients, (n_axes, n_pixels)."""
        fixed, moved = self.fixed, self.moved(field)
        # With the gradient of one image, its noise would make the field small.
        slopes = [np.gradient((fixed + moved) / 2, axis=axis) * counted for axis in range(fixed.ndim)]
        return ((fixed - moved) * counted).ravel(), np.stack(slopes).reshape(len(slopes), -1)

    def affine(
        self, counted: NDArray[np.bool_], field: NDArray[np.float64], n_steps: int = AFFINE_STEPS
    ) -> NDArray[np.float64]:
        """Return a field with an affine one added, fitted to the pixels that count."""
        axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in self.fixed.shape), indexing="ij")
        basis = np.stack([np.ones(self.fixed.size), *(axis.ravel() for axis in axes)])
        for _ in range(n_steps):
            difference, slopes = self.differences(counted, field)
            columns = (slopes[:, None] * basis).reshape(-1, self.fixed.size)
            curvature = columns @ columns.T
            # Where the image does not change along an axis nothing is known of a displacement along it
            curvature += max(RIDGE * float(np.mean(np.diag(curvature))), TINY_SINGLE) * np.eye(len(columns))
            weights = np.linalg.solve(curvature, columns @ difference)
            field = field + (weights.reshape(len(field), -1) @ basis).reshape(field.shape)
        return field

    def local(
        self, counted: NDArray[np.bool_], field: NDArray[np.float64], n_steps: int = LOCAL_STEPS
    ) -> NDArray[np.float64]:
        """Return a field with one added that is fitted to the pixels that count in the window around each pixel."""
        n_axes, around = len(field), Neighbourhood.whole(self.fixed.shape)
        pairs = [*combinations_with_replacement(range(n_axes), 2)]
        # Linear interpolation between the nodes, at which the windows are
        nodes = [np.arange(min(NODE_STEP // 2, n - 1), n, NODE_STEP) for n in self.fixed.shape]
        between = [
            np.stack([np.interp(np.arange(n), along, one) for one in np.eye(len(along))], axis=1)
            for n, along in zip(self.fixed.shape, nodes, strict=True)
        ]
        for _ in range(n_steps):
            difference, slopes = self.differences(counted, field)
            products = [slopes[a] * slopes[b] for a, b in pairs] + [slope * difference for slope in slopes]
            values = np.stack(products, axis=1)
            averages, _ = around.average_at_nodes(values.__getitem__, WINDOW_SIGMA, NODE_STEP)
            curvature = np.empty((len(averages), n_axes, n_axes))
            for at, (a, b) in enumerate(pairs):
                curvature[:, a, b] = curvature[:, b, a] = averages[:, at]
            ridge = RIDGE * np.trace(curvature.mean(axis=0)) / n_axes
            curvature += max(float(ridge), TINY_SINGLE) * np.eye(n_axes)
            step = np.linalg.solve(curvature, averages[:, len(pairs) :, None])[:, :, 0].T
            step = step.reshape(n_axes, *map(len, nodes))
            for axis, matrix in enumerate(between, 1):
                step = np.moveaxis(np.tensordot(matrix, step, (1, axis)), 0, axis)
            field = field + step
        return field


def at_places(values: NDArray[Inexact], field: NDArray[np.float64]) -> NDArray[Inexact]:
    """Return values of all pixels, (n_pixels, ...), at the places of a field, by splines of order 5.

    Beyond the edge an image is mirrored. White noise keeps 0.83 of its variance on average, with linear interpolation 0.5.
    """
    from scipy.ndimage import map_coordinates

    places, found = np.indices(field.shape[1:]) + field, np.empty_like(values)
    for column, out in zip(values.reshape(len(values), -1).T, found.reshape(len(values), -1).T, strict=True):
        image = column.reshape(field.shape[1:])
        out[:] = map_coordinates(image, places, order=5, mode="mirror").ravel()
    return found


@dataclass(frozen=True)
class AtRest:
    """What is measured of a deformed block, in the signal pixels of the reference.

    Attributes
    ----------
    field : (n_axes, pixels along z, x, y) float64 array
        The field of the block, in pixels.
    grid : Neighbourhood
        The signal pixels.
    observed : (n_signal,) boolean array
        Signal pixels that were observed in the block.
    """

    field: NDArray[np.float64]
    grid: Neighbourhood
    observed: NDArray[np.bool_]

    @cached_property
    def _sources(self) -> NDArray[np.intp]:
        """Number of the nearest pixel that was observed, of all pixels: the others have no values to interpolate."""
        known = self.grid.everywhere(self.observed)
        sources = np.arange(known.size)
        if not known.all():
            sources[~known] = nearest_good(~known.reshape(self.grid.shape))[1]
        return sources

    @cached_property
    def _nearest(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Number of the pixel nearest to where each signal pixel is in the block, and whether that was observed."""
        places = np.rint(np.indices(self.grid.shape) + self.field).astype(np.intp)
        sizes = np.array(self.grid.shape).reshape(-1, *(1,) * self.grid.n_axes)
        is_inside = ((places >= 0) & (places < sizes)).all(axis=0).ravel()
        numbers = np.ravel_multi_index(tuple(places), self.grid.shape, mode="clip").ravel()
        is_known = is_inside & self.grid.everywhere(self.observed)[numbers]
        return self.grid.at_signal(numbers), self.grid.at_signal(is_known)

    def means(self, values: NDArray[Inexact]) -> NDArray[Inexact]:
        """Return means over the frames, (n_signal, ...), interpolated at the places of the field."""
        return self.grid.at_signal(at_places(self.grid.everywhere(values)[self._sources], self.field))

    def counts(self, values: NDArray[Inexact]) -> NDArray[Inexact]:
        """Return numbers of frames or products, (n_signal, ...), of the nearest pixel: 0 if it was not observed."""
        numbers, is_known = self._nearest
        found = self.grid.everywhere(values)[numbers]
        found[~is_known] = 0
        return found
