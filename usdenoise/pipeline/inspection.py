"""The first pass over the blocks of a stack: energies, unobserved entries, and the pixels that the estimate looks at."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.lattice import lattice_places
from usdenoise.errors import InputError
from usdenoise.frames.displacement import envelope, middle_part
from usdenoise.linalg.row_blocks import row_blocks, squared_norms, third_difference_norms
from usdenoise.pipeline.block_filter import FrameBlock
from usdenoise.pipeline.passes import Passes
from usdenoise.stack.pixel_sample import THIRD_DIFFERENCE_GAIN
from usdenoise.stack.sampling import spread_rows

SAMPLE_PIXELS = (1000, 4000)
"""Least and largest number of pixels, about, whose values the estimate looks at. The cutoff is chosen by the components in
all pixels: by those in 1000 of 4096 pixels of 4800 frames it was 54 instead of 62, and blood was mixed with tissue."""

SAMPLE_ENTRIES = 1 << 22
"""Entries of these pixels that are held in memory, about: in a longer stack they are fewer."""

LATTICE_ENTRIES, LATTICE_FRAMES = 1 << 21, 200
"""Entries from which the first blood map is made, about, and the least number of its frames."""

PICKED_FRAMES = 64
"""Frames of a block whose pixels are gathered at a time."""

SCALES = (1e-12, 1e14)
"""Range of the largest magnitude of a stack: float32 holds its power, the sum of it, and power 60 dB below."""


@dataclass(frozen=True)
class GatheredValues:
    """Values of some pixels in all frames.

    Attributes
    ----------
    sample : (n_sampled, n_frames) array
        Values of the sample.
    envelopes : (n_frames, ...) float32 array
        Envelopes of the middle of the image.
    lattice : (n_lattice, n) array
        Values of the lattice.
    """

    sample: NDArray[Any]
    envelopes: NDArray[np.float32]
    lattice: NDArray[Any]


@dataclass(frozen=True)
class Gathered:
    """Pixels whose values are gathered, by their numbers in the order of a block. Those that are pickled have no target.

    Attributes
    ----------
    sample : array
        Pixels of the estimate, in all frames.
    middle : array
        Pixels of the middle of the image, of which the envelopes are gathered, in all frames.
    lattice : array
        Pixels of the first blood map.
    lattice_frames : (int, int)
        Its frames.
    target : GatheredValues or None
        Where the values go; None if they are returned.
    """

    sample: NDArray[np.intp]
    middle: NDArray[np.intp]
    lattice: NDArray[np.intp]
    lattice_frames: tuple[int, int]
    target: GatheredValues | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "target": None}


@dataclass(frozen=True)
class BlockInspection:
    """What the first look at a block finds.

    Attributes
    ----------
    start : int
        Number of the first frame.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each pixel.
    frame_energy : (n,) float64 array
        The same of each frame.
    missing, frame_missing : (n_pixels,) and (n,) arrays or None
        Number of entries of each pixel, and of each frame, that are not finite; None if all are finite.
    values : GatheredValues or None
        Values of the gathered pixels; None if they are in their target.
    """

    start: int
    energy: NDArray[np.float64]
    frame_energy: NDArray[np.float64]
    missing: NDArray[np.int64] | None
    frame_missing: NDArray[np.int64] | None
    values: GatheredValues | None


@dataclass(frozen=True)
class Inspection:
    """What the first look at a stack finds. Pixels are in the order z, x, y.

    Attributes
    ----------
    energy, missing : (n_pixels,) arrays
        As for :class:`BlockInspection`; zeros for a stack that is finite.
    frame_energy, frame_missing : (n_frames,) arrays
        The same of each frame.
    is_finite : list of bool
        Whether all entries of each block are finite.
    sample_pixels : array of pixel numbers, increasing
        Pixels of the sample.
    lattice : array
        Values of the lattice.
    lattice_places : tuple of arrays
        Positions of the pixels of the lattice along each axis.
    lattice_frames : (int, int)
        Frames of its values.
    """

    energy: NDArray[np.float64]
    missing: NDArray[np.int64]
    frame_energy: NDArray[np.float64]
    frame_missing: NDArray[np.int64]
    is_finite: list[bool]
    sample_pixels: NDArray[np.intp]
    lattice: NDArray[Any]
    lattice_places: tuple[NDArray[np.intp], ...]
    lattice_frames: tuple[int, int]


def inspect(passes: Passes, needs_all: bool) -> tuple[Inspection, GatheredValues]:
    """Look at all blocks of a stack, and gather values of some pixels.

    Parameters
    ----------
    passes : Passes
        The blocks.
    needs_all : bool
        Whether the estimate looks at all pixels.

    Raises
    ------
    InputError
        If the stack is zero or unobserved everywhere, or its magnitudes are outside SCALES.
    """
    stack = passes.source.stack
    n_frames, n_pixels, shape = stack.n_frames, stack.n_pixels, passes.shape
    count = int(np.clip(SAMPLE_ENTRIES // n_frames, *SAMPLE_PIXELS))
    sample = spread_rows(n_pixels, n_pixels if needs_all else count)
    numbers = np.arange(n_pixels).reshape(shape)
    middle = numbers[middle_part(shape)]
    positions = lattice_places(shape)
    lattice = numbers[np.ix_(*positions)].ravel()
    length = min(n_frames, max(LATTICE_FRAMES, LATTICE_ENTRIES // len(lattice)))
    frames = ((n_frames - length) // 2, (n_frames - length) // 2 + length)
    dtype = passes.source.dtype
    values = GatheredValues(
        np.empty((len(sample), n_frames), dtype),
        np.empty((n_frames, *middle.shape), np.float32),
        np.empty((len(lattice), length), dtype),
    )
    gathered = Gathered(
        passes.places(sample), passes.places(middle.ravel()), passes.places(lattice), frames, values
    )
    inspection = Inspection(
        energy=np.zeros(n_pixels),
        missing=np.zeros(n_pixels, np.int64),
        frame_energy=np.empty(n_frames),
        frame_missing=np.zeros(n_frames, np.int64),
        is_finite=[],
        sample_pixels=sample,
        lattice=values.lattice,
        lattice_places=positions,
        lattice_frames=frames,
    )
    for block_inspection in passes.map(inspect_block, gathered):
        _add(inspection, block_inspection, gathered)
    energy, missing = passes.by_pixel(inspection.energy), passes.by_pixel(inspection.missing)
    _check(
        energy, int(missing.sum()), (n_frames, n_pixels), stack.name, lambda: max(passes.map(largest_part))
    )
    return replace(inspection, energy=energy, missing=missing), values


def _add(total: Inspection, block_inspection: BlockInspection, gathered: Gathered) -> None:
    """Add what the look at the next block found, with pixels in the order of a block."""
    frames = slice(block_inspection.start, block_inspection.start + len(block_inspection.frame_energy))
    total.energy[:] += block_inspection.energy
    total.frame_energy[frames] = block_inspection.frame_energy
    total.is_finite.append(block_inspection.missing is None)
    if block_inspection.missing is not None and block_inspection.frame_missing is not None:
        total.missing[:] += block_inspection.missing
        total.frame_missing[frames] = block_inspection.frame_missing
    if block_inspection.values is not None:
        target = _target_of(gathered, frames)
        target.sample[:], target.lattice[:] = block_inspection.values.sample, block_inspection.values.lattice
        target.envelopes[:] = block_inspection.values.envelopes


def _target_of(gathered: Gathered, frames: slice) -> GatheredValues:
    """Return where the values of some frames go."""
    whole, (first, stop) = gathered.target, gathered.lattice_frames
    assert whole is not None
    begin, end = (min(max(frame, first), stop) - first for frame in (frames.start, frames.stop))
    envelopes = whole.envelopes[frames].reshape(frames.stop - frames.start, -1)
    return GatheredValues(whole.sample[:, frames], envelopes, whole.lattice[:, begin:end])


@np.errstate(over="ignore", invalid="ignore")
def inspect_block(block: FrameBlock, gathered: Gathered) -> BlockInspection:
    """Look at one block."""
    x, missing, frame_missing = block.read(), None, None
    frame_energy, energy = squared_norms(x)
    # NaN and infinities show in the sums, so a finite block is read only once.
    if not np.isfinite(frame_energy).all():
        finite = np.isfinite(x)
        if not finite.all():
            missing, frame_missing = (np.count_nonzero(~finite, axis=axis) for axis in (0, 1))
            frame_energy, energy = squared_norms(np.where(finite, x, np.zeros((), x.dtype)))
    values = None
    if gathered.target is not None:
        _gather(x, block.start, gathered, _target_of(gathered, slice(block.start, block.stop)))
    else:
        first, stop = (min(max(frame - block.start, 0), len(x)) for frame in gathered.lattice_frames)
        values = GatheredValues(
            np.empty((len(gathered.sample), len(x)), x.dtype),
            np.empty((len(x), len(gathered.middle)), np.float32),
            np.empty((len(gathered.lattice), stop - first), x.dtype),
        )
        _gather(x, block.start, gathered, values)
    return BlockInspection(block.start, energy, frame_energy, missing, frame_missing, values)


def _gather(x: NDArray[Any], start: int, gathered: Gathered, values: GatheredValues) -> None:
    """Gather the values of a block that begins with frame `start`, some frames at a time, which takes less memory."""
    first, stop = (min(max(frame - start, 0), len(x)) for frame in gathered.lattice_frames)
    for frames in row_blocks(len(x), PICKED_FRAMES):
        values.sample[:, frames] = x[frames][:, gathered.sample].T
        values.envelopes[frames] = envelope(x[frames][:, gathered.middle])
    for frames in row_blocks(stop - first, PICKED_FRAMES):
        values.lattice[:, frames] = x[first:stop][frames][:, gathered.lattice].T


def fast_power(passes: Passes, is_finite: list[bool]) -> NDArray[np.float64]:
    """Return the power of the third differences over time of each pixel, as a :class:`PixelSample` has it."""
    total, before = np.zeros(passes.source.stack.n_pixels), None
    for sums, first, last in passes.map(third_differences, own=is_finite):
        total += sums
        joined = first if before is None else np.concatenate([before, first])
        # Differences over the border of two blocks.
        total += third_difference_norms(np.ascontiguousarray(joined.T))
        before = last if len(last) == 3 or before is None else np.concatenate([before, last])[-3:]
    n_differences = max(passes.source.stack.n_frames - 3, 1)
    power: NDArray[np.float64] = passes.by_pixel(total) / (THIRD_DIFFERENCE_GAIN * n_differences)
    return power


def third_differences(
    block: FrameBlock, is_finite: bool
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[Any]]:
    """Return the sum of the squared third differences of each pixel in a block, and its first and last three frames."""
    x = block.read()
    if not is_finite:
        x = np.where(np.isfinite(x), x, np.zeros((), x.dtype))
    return third_difference_norms(np.ascontiguousarray(x.T)), x[:3].copy(), x[-3:].copy()


def largest_part(block: FrameBlock) -> float:
    """Return the largest finite magnitude of a real or imaginary part in a block."""
    x = block.read()
    parts = (x.real, x.imag) if np.iscomplexobj(x) else (x,)
    return max(float(np.max(np.abs(part), where=np.isfinite(part), initial=0.0)) for part in parts)


NOTHING = Gathered(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0, np.intp), (0, 0))


def check_block(block: FrameBlock, name: str) -> bool:
    """Check a block that is a stack of its own, and return whether all of its entries are finite.

    Raises
    ------
    InputError
        As for :func:`inspect`.
    """
    block_inspection = inspect_block(block, NOTHING)
    n_missing = 0 if block_inspection.missing is None else int(block_inspection.missing.sum())
    shape = (len(block_inspection.frame_energy), len(block_inspection.energy))
    _check(block_inspection.energy, n_missing, shape, name, lambda: largest_part(block))
    return block_inspection.missing is None


def _check(
    energy: NDArray[np.float64],
    n_missing: int,
    shape: tuple[int, int],
    name: str,
    find_largest: Callable[[], float],
) -> None:
    """Check that a stack of (frames, pixels) has observed entries, and that its power has room in single precision."""
    if n_missing == shape[0] * shape[1]:
        raise InputError(f"'{name}' has no finite entry; check how the file was written")
    most = float(energy.max())
    # The largest magnitude x of a row of energy e obeys e / (2 n_frames) <= x^2 <= e.
    if SCALES[0] ** 2 <= most / (2 * shape[0]) and most <= SCALES[1] ** 2:
        return
    largest = find_largest()
    if largest == 0:
        raise InputError(f"'{name}' is zero everywhere", remedy="check {dataset} and {frames}")
    if not SCALES[0] <= largest <= SCALES[1]:
        raise InputError(
            f"the largest magnitude in '{name}' is {largest:.3g}, and its power must fit in single precision; "
            f"scale the stack to between {SCALES[0]:g} and {SCALES[1]:g}"
        )
