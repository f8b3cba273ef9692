"""What the filter of a chunk takes and gives: the clutter of a recording, and the measures of the filtered frames."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import ClutterProjection
from usdenoise.frames.alignment import Alignment, Reference
from usdenoise.frames.still_tissue import StillReference
from usdenoise.linalg.array_library import Array, Entry, Numbers, library_of, to_library
from usdenoise.linalg.lag_sums import LagSums, boundary_products, half_parts, pair_counts
from usdenoise.linalg.tall_matrices import weighted_squares
from usdenoise.stack.arrays import unpack


@dataclass(frozen=True)
class Components:
    """The components of a clutter in the library of a chunk, on its device.

    Attributes
    ----------
    left, conjugate : (n_pixels, r) arrays
        U and its conjugate.
    removed : (low, n_pixels) array
        The transpose of the components that are removed.
    """

    left: Array
    conjugate: Array
    removed: Array


@dataclass(frozen=True, kw_only=True)
class Clutter:
    """The clutter of a recording, as the filter of its chunks needs it. Pixels are in the order z, x, y.

    Attributes
    ----------
    left : (n_pixels, r) array
        U: orthonormal spatial components, 0 in masked pixels.
    low : int
        Components [0, low) are removed.
    high : int
        The components [low, high) fill unobserved entries and excluded frames; they are all that is kept if
        `keeps_residual` is false.
    keeps_residual : bool
        Whether the result is the data minus the clutter.
    projection : ClutterProjection or None
        The effect of the filter on the autocorrelation over time, over as many lags as are measured; None for none.
    grid : Neighbourhood
        Shape of the image, and the signal pixels. Masked pixels become 0.
    model : (n_frames, r) array or None
        Coefficients of all frames by the estimate. Excluded frames have them, and frames with unobserved entries start
        from them. None if the frames are not in the estimate.
    is_given : bool
        Whether all frames have the coefficients of `model`.
    has_gaps : bool
        Whether entries of a scan are unobserved, so that pairs of frames are counted pixel by pixel in all of its chunks.
    n_temporal : int
        Largest number q of temporal components V that are removed from a block after U, by I - V V^H: the q leading left
        singular vectors of the coefficients of the clutter in this block; at most one for FRAMES_A_TEMPORAL frames.
    n_own : int
        Number of temporal components that are removed from a block of a session whose tissue changes: the strongest of its
        frames. `low` is 0 then. By default 0.
    speckle : (2, n_pixels) float64 array
        Sums of |u_k|^2 over two halves of the components that are like the tissue that leaks through the filter.
    tissue : (n_pixels,) float64 array
        Energy of the removed components in each pixel, up to a factor.
    noise_rms, power : float
        Root mean square of the noise in an entry, and mean power of the components in an entry.
    reference : Reference or None
        What blocks are aligned to; None if they are not.
    still : StillReference or None
        What the tissue of blocks is held still by, after the alignment; None (the default) if it is not, or still already.
    replaced : pair of arrays of int, or None
        Bad pixels of the blocks of a session, and the good pixels nearest to them, whose values take their place before a
        block is aligned: interpolation would spread their noise.
    is_compiled : bool
        Whether lags are summed by compiled loops: in a recording of COMPILED_ENTRIES entries or more, and live. By default
        not.
    """

    left: Numbers
    low: int
    high: int
    keeps_residual: bool = True
    projection: ClutterProjection | None = None
    grid: Neighbourhood
    model: Numbers | None = None
    is_given: bool = False
    has_gaps: bool = False
    n_temporal: int = 0
    n_own: int = 0
    speckle: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 0)))
    tissue: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    noise_rms: float = 0.0
    power: float = 0.0
    reference: Reference | None = None
    still: StillReference | None = None
    replaced: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None
    is_compiled: bool = False

    @property
    def n_lags(self) -> int:
        """Number of lags that are measured, lag 0 included."""
        return 0 if self.projection is None else self.projection.n_lags

    @cached_property
    def _components(self) -> dict[tuple[str, str], Components]:
        return {}

    def components(self, x: Array) -> Components:
        """Return the components in the library of a chunk and on its device, made once for all chunks."""
        found = self._components.get(library := library_of(x))
        if found is None:
            left, removed = self.left, np.ascontiguousarray(self.left[:, : self.low].T)
            found = Components(*(to_library(values, x) for values in (left, left.conj(), removed)))
            if is_cupy_array(found.left):
                # Other threads use them in other streams.
                found.left.device.synchronize()
            self._components[library] = found
        return found

    @cached_property
    def kept_share(self) -> NDArray[np.float64]:
        """Share of white noise that the filter keeps in a pixel, (n_signal,): 1 - sum_k |u_k|^2."""
        taken = weighted_squares(self.left, (np.arange(self.left.shape[1]) < self.low).astype(np.float64))
        return np.maximum(1 - self.grid.at_signal(taken), 0.1)

    @property
    def is_complex(self) -> bool:
        """Whether the recording is complex."""
        return np.iscomplexobj(self.left)


@dataclass(frozen=True)
class OwnComponents:
    """Temporal components of a block that are removed besides those of the clutter.

    Attributes
    ----------
    number : int
        How many were removed; by default none.
    strongest_left : float
        Mean power of the strongest component that is left; 0 (the default) where it was not looked for.
    """

    number: int = 0
    strongest_left: float = 0.0


@dataclass
class Measures:
    """Measures of filtered frames, of a chunk or of a whole block; the chunks of a block add up.

    Attributes
    ----------
    excluded : (n,) boolean array
        Frames that are excluded.
    power : (n_pixels,) float64 array
        Sum over the frames of |y|^2, with 0 for unobserved entries and excluded frames.
    kept_power : (n_pixels,) float64 array
        The same for the kept components, with the entries that the model fills.
    coefficients : (n, r) array
        Coefficients of the components in each frame, U^H x.
    temporal : (n, q) array
        The temporal components that were removed, orthonormal columns V.
    own : OwnComponents
        Which of these are the block's own; by default none.
    sums : (2 or 1, n_pixels, n_lags) array
        Sums of the lagged products over each half of the frames of the block, or over all frames of a block alone; see
        :func:`usdenoise.linalg.lag_sums.lag_sums`.
    counts : float64 array of the same shape, or None
        Number of products, if entries of the recording are unobserved.
    ends, ends_seen : pairs of (n_pixels, n_lags - 1 or fewer) arrays
        First and last filtered frames, for the products across two chunks, and 1 where they are observed.
    observed : (n, ceil(n_pixels / 8)) uint8 array or None
        Bit mask of the finite entries of all pixels; None if that is all of them.
    n_unobserved : int
        Number of unobserved entries of signal pixels in frames that are not excluded.
    first_power, n_first : (n_pixels,) float64 array or None, int
        Sum over the first half of the frames of the block of |y|^2, and how many of them are not excluded; None and 0 (the
        defaults) if it is not known.
    alignment : Alignment or None
        Where the image of the block was; None (the default) if it was not aligned.
    displacement : float or None
        Largest displacement of the tissue in the block, in wavelengths; None (the default) if it is not known.
    filtered : (n, n_pixels) array or None
        The filtered frames, if they are kept here.
    """

    excluded: NDArray[np.bool_]
    power: NDArray[np.float64]
    kept_power: NDArray[np.float64]
    coefficients: Numbers
    temporal: Numbers
    sums: Numbers
    counts: NDArray[np.float64] | None
    ends: tuple[Numbers, Numbers]
    ends_seen: tuple[NDArray[np.float32], NDArray[np.float32]]
    observed: NDArray[np.uint8] | None = None
    n_unobserved: int = 0
    first_power: NDArray[np.float64] | None = None
    n_first: int = 0
    own: OwnComponents = OwnComponents()
    alignment: Alignment | None = None
    displacement: float | None = None
    filtered: Numbers | None = None

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.coefficients)

    @property
    def n_used_frames(self) -> int:
        """Number of frames that are not excluded."""
        return int(np.count_nonzero(~self.excluded))

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Which entries are finite and in no excluded frame, (n, n_pixels)."""
        used = np.broadcast_to(~self.excluded[:, None], (self.n_frames, len(self.power)))
        return used if self.observed is None else unpack(self.observed, len(self.power)) & used

    @property
    def n_unused(self) -> int:
        """Number of entries that are not finite or in an excluded frame."""
        n_used = self.n_used_frames * len(self.power)
        if self.observed is not None:
            n_used = int(np.count_nonzero(self.finite))
        return self.n_frames * len(self.power) - n_used

    def lag_sums(self, pixels: NDArray[np.bool_]) -> LagSums:
        """Return the lags of the pixels in a mask, with their numbers, of the measures of a whole block."""
        # All pixels need no copy.
        chosen: Any = slice(None) if pixels.all() else pixels.ravel()
        if self.counts is not None:
            return LagSums(self.sums[:, chosen], self.counts[:, chosen])
        counts = pair_counts(self.sums.shape[2], ~self.excluded, len(self.sums))
        return LagSums(self.sums[:, chosen], counts[:, None])

    def add(self, chunk: "Measures", n_frames: int) -> None:
        """Add the chunk that follows, in place; the block has `n_frames` frames.

        The sums of two chunks miss the products of a frame of the first with a frame of the second. They are
        made of the last frames of the one and the first frames of the other.
        """
        n_lags, first = self.sums.shape[2], self.n_frames - self.ends[1].shape[1]
        parts = half_parts(n_frames, first, self.n_frames)
        for sums in (chunk.sums, boundary_products(self.ends[1], chunk.ends[0], n_lags, parts)):
            np.add(self.sums, sums, out=self.sums)
        if self.counts is not None and chunk.counts is not None:
            self.counts += chunk.counts
            self.counts += boundary_products(self.ends_seen[1], chunk.ends_seen[0], n_lags, parts).real
            self.ends_seen = (
                self.ends_seen[0],
                _last_frames(self.ends_seen[1], chunk.ends_seen[1], n_lags - 1),
            )
        self.ends = self.ends[0], _last_frames(self.ends[1], chunk.ends[1], n_lags - 1)
        if self.observed is not None or chunk.observed is not None:
            width = -(-len(self.power) // 8)
            bits = [
                np.full((one.n_frames, width), 255, np.uint8) if one.observed is None else one.observed
                for one in (self, chunk)
            ]
            self.observed = np.concatenate(bits)
        if self.first_power is None and 2 * self.n_frames + chunk.n_frames > n_frames:
            self.first_power, self.n_first = self.power.copy(), self.n_used_frames
        self.power += chunk.power
        self.kept_power += chunk.kept_power
        self.n_unobserved += chunk.n_unobserved
        self.coefficients = np.concatenate([self.coefficients, chunk.coefficients])
        self.excluded = np.concatenate([self.excluded, chunk.excluded])


def _last_frames(before: NDArray[Entry], last: NDArray[Entry], count: int) -> NDArray[Entry]:
    """Return the last frames of two neighbouring chunks; a short chunk has fewer than `count`."""
    return last if last.shape[1] >= count else np.concatenate([before, last], axis=1)[:, -count:]
