"""The clutter of a session: spatial components that all blocks have in common, from a sample of their frames.

Tissue looks alike in all blocks, and moves differently in each. So the columns of the space-time matrix of the whole
session have few dimensions in common, and a sample of them is enough to find these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.clutter_projection import ClutterProjection, blocks_projection
from usdenoise.blood.leaked_tissue import weak_speckle
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.frames.filling import interpolated
from usdenoise.pipeline.clutter_estimate import ClutterEstimate
from usdenoise.sessions.alignment import Reference
from usdenoise.stack.acquisition import canonical_axes, spatial_order
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.random_streams import RandomStream

SAMPLED_FRAMES = 1200
"""Frames of the sample, about; each block has one at least. On two sessions with tissue 40 and
45 dB over blood 4000 frames gave no better series."""


@dataclass(frozen=True)
class SessionClutter:
    """What the blocks of a session have in common.

    Attributes
    ----------
    left : (n_pixels, r) array
        Orthonormal spatial components, 0 in pixels without a signal. Pixels in the order z, x, y. The first `cutoff` are
        clutter; others are there if they are all that is kept.
    cutoff : int
        Number of components that are clutter.
    leaking : (2, n_pixels) float64 array
        Sums of |u_k|^2 over two halves of the components that are like the tissue that leaks through the filter.
    projection : ClutterProjection
        The effect of the filter on the lags of a block.
    grid : Neighbourhood
        Shape of the image, and the pixels that have a signal.
    axes : str
        Spatial axes in the order of the stack.
    noise_rms : float
        Root mean square of the noise in an entry.
    power : float
        Mean power of the components in an entry.
    reference : Reference or None
        What blocks are aligned to; None (the default) if they are not.
    """

    left: NDArray[np.inexact]
    cutoff: int
    leaking: NDArray[np.float64]
    projection: ClutterProjection
    grid: Neighbourhood
    axes: str
    noise_rms: float
    power: float
    reference: Reference | None = None

    @cached_property
    def kept_share(self) -> NDArray[np.float64]:
        """Share of white noise that the filter keeps in a pixel, (n_signal,): 1 - sum_k |u_k|^2."""
        removed_share = np.sum(np.abs(self.left[:, : self.cutoff].astype(np.complex128)) ** 2, axis=1)
        return np.maximum(1 - self.at_signal_pixels(removed_share), 0.1)

    @property
    def is_complex(self) -> bool:
        """Whether the stack is complex."""
        return np.iscomplexobj(self.left)

    def pixels_of(self, image: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return an image in the axis order of the stack as the values of the pixels that have a signal."""
        pixels = spatial_order(np.asarray(image), self.axes, canonical_axes(self.axes)).ravel()
        return self.at_signal_pixels(pixels.astype(np.float64))

    def image_of(self, pixels: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return values of the pixels that have a signal as an image in the axis order of the stack, 0 in masked pixels."""
        canonical = canonical_axes(self.axes)
        image = self.grid.everywhere(pixels).reshape(self.grid.shape)
        return np.ascontiguousarray(spatial_order(image, canonical, self.axes), np.float32)

    def at_signal_pixels(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values of the pixels that have a signal."""
        return values if self.grid.signal_pixels is None else values[self.grid.signal_pixels]


def sampled_frames(lengths: Sequence[int], seed: int) -> list[NDArray[np.intp]]:
    """Return the frames of each block that are in the sample, increasing: all where there are few, and of one block.

    Parameters
    ----------
    lengths : sequence of int
        Frames of each block.
    seed : int
        Seed of the choice.

    Examples
    --------
    >>> [len(frames) for frames in sampled_frames([300] * 40, seed=0)][:3]
    [30, 30, 30]
    """
    # The map of one block comes from its sample, and so requires neighbouring frames.
    share = 1.0 if len(lengths) == 1 else min(1.0, SAMPLED_FRAMES / sum(lengths))
    rng = RandomStream.SAMPLED_FRAMES.generator(seed)
    return [
        np.sort(rng.permutation(length)[: max(1, round(share * length))]).astype(np.intp)
        for length in lengths
    ]


@dataclass(frozen=True)
class SessionFrames:
    """Frames of blocks that are in a sample.

    Attributes
    ----------
    frames : sequence of arrays
        Their numbers in each block.
    lengths : sequence of int
        Frames of each block.
    columns : sequence of arrays
        Where these frames are in the sample.
    """

    frames: Sequence[NDArray[np.intp]]
    lengths: Sequence[int]
    columns: Sequence[NDArray[np.intp]]


def session_clutter(
    clutter_estimate: ClutterEstimate,
    sampled: SessionFrames,
    geometry: Geometry,
    high_cutoff: int | str,
    reference: Reference | None = None,
) -> SessionClutter:
    """Return the clutter of a session.

    Parameters
    ----------
    clutter_estimate : ClutterEstimate
        The estimate of a sample of its frames.
    sampled : SessionFrames
        Which frames are in the sample.
    geometry : Geometry
        Axes of the blocks.
    high_cutoff : int, "rank" or "none"
        End of the components that are kept; all of the residual with "none".
    reference : Reference, optional
        What the sample was aligned to.
    """
    low, grid = clutter_estimate.band.low, clutter_estimate.grid
    model = interpolated(clutter_estimate.model, clutter_estimate.frames.left_out)
    left = grid.everywhere(model.left)
    blocks = []
    for numbers, columns, length in zip(sampled.frames, sampled.columns, sampled.lengths, strict=True):
        block = np.zeros((length, low), np.complex128)
        block[numbers] = model.right[columns, :low]
        blocks.append(block)
    n_kept = low if high_cutoff == "none" else min(clutter_estimate.band.high, model.rank)
    return SessionClutter(
        left=np.ascontiguousarray(left[:, :n_kept]),
        cutoff=low,
        leaking=weak_speckle(left, low),
        projection=blocks_projection(blocks),
        grid=grid,
        axes=geometry.spatial_axes,
        noise_rms=clutter_estimate.estimate.noise_rms,
        power=float(np.sum(clutter_estimate.singular_values**2)) / (grid.n_pixels * len(model.right)),
        reference=reference,
    )
