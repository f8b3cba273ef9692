"""The first look at the frames of a recording: energies, unobserved entries, and the pixels that the estimate looks at."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.bad_pixels import may_wrap, part_extremes, saturated_pixels, wrapped_pixels
from usdenoise.errors import InputError
from usdenoise.frames.bad_frames import FrameSearch, find_bad_frames, has_tissue
from usdenoise.frames.data_checks import magnitude_doubt, order_doubts, value_doubts, value_step
from usdenoise.frames.still_tissue import ChunkProducts, Tiles, tile_products
from usdenoise.linalg.array_library import (
    Array,
    Numbers,
    columns,
    dtype_of,
    finite_or_zero,
    is_by_pixel,
    namespace,
    to_host,
    to_library,
    zero_outside,
)
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.tall_matrices import (
    HELD_ENTRIES,
    part_slices,
    row_squared_norms,
    squared_norms,
    third_difference_norms,
)
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Chunk, ProcessLocal, Recording, map_chunks
from usdenoise.stack.arrays import largest_part
from usdenoise.stack.sampling import (
    ENOUGH_FRAMES,
    FEW_PIXELS,
    THIRD_DIFFERENCE_GAIN,
    PixelSample,
    spread_rows,
)

SAMPLE_PIXELS = (1000, 4000)
"""Least and largest number of pixels, about, whose values the estimate looks at; in a long stack they have HELD_ENTRIES. The
cutoff is chosen by the components in all pixels: by those in 1000 of 4096 pixels of 4800 frames it was 54 instead of 62, and
blood was mixed with tissue."""

MAGNITUDES = (1e-12, 1e14)
"""Range of the largest magnitude of a stack: float32 holds its power, the sum of it, and power 60 dB below."""


SEARCHED_PIXELS, SEARCHED_RUN, COMPARED_PIXELS = 512, 8, 128
"""Pixels of a block of a session in which bad frames are looked for, in runs of neighbours that memory gives together, and
how many of them the frames are predicted from."""


@dataclass(frozen=True)
class Gathering:
    """Pixels whose values are gathered, by their numbers, and the frame in whose chunk the values are checked.

    Attributes
    ----------
    sample : array of int
        Pixels of the estimate.
    axes, shape : str and tuple of int
        Axes of the stack, and pixels along z, x and y.
    middle_frame : int
        The frame.
    tiles : Tiles or None
        Tiles of which the products from frame to frame are summed; None for none.
    """

    sample: NDArray[np.intp]
    axes: str
    shape: tuple[int, ...]
    middle_frame: int
    tiles: Tiles | None


@dataclass(frozen=True)
class Inspection:
    """What the first look at a chunk, or at all chunks, finds.

    Attributes
    ----------
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each pixel.
    missing : (n_pixels,) array
        Number of entries of each pixel that are not finite.
    highest, lowest : (n_pixels,) float64 arrays
        Largest and smallest value of the real and imaginary parts of each pixel, and 0.
    frame_energy, frame_missing : (n,) arrays
        Energy and number of missing entries of each frame.
    lengths : tuple of int
        Frames of each chunk.
    doubts : tuple of (str, str)
        Code and sentence of each reason why the chunk in the middle may not be what it is read as; by default none.
    step : float
        Step of which the values of the frame in the middle are multiples; 0 (the default) without one.
    products : tuple of ChunkProducts
        Products of the tiles of each chunk, over all pixels and the frames with data; by default none.
    """

    energy: NDArray[np.float64]
    missing: NDArray[np.int64]
    highest: NDArray[np.float64]
    lowest: NDArray[np.float64]
    frame_energy: NDArray[np.float64]
    frame_missing: NDArray[np.int64]
    lengths: tuple[int, ...]
    doubts: tuple[tuple[str, str], ...] = ()
    step: float = 0.0
    products: tuple[ChunkProducts, ...] = ()

    def followed_by(self, other: "Inspection") -> "Inspection":
        """Return what is found in these frames and in the chunk that follows."""
        return Inspection(
            energy=self.energy + other.energy,
            missing=self.missing + other.missing,
            highest=np.maximum(self.highest, other.highest),
            lowest=np.minimum(self.lowest, other.lowest),
            frame_energy=np.append(self.frame_energy, other.frame_energy),
            frame_missing=np.append(self.frame_missing, other.frame_missing),
            lengths=(*self.lengths, *other.lengths),
            doubts=(*self.doubts, *other.doubts),
            step=max(self.step, other.step),
            products=(*self.products, *other.products),
        )

    def middle_chunk(self, used: NDArray[np.bool_]) -> int:
        """Return the number of the chunk that has the middle one of the frames that are used, (n,); 0 without any."""
        numbers = np.flatnonzero(used)
        middle = numbers[len(numbers) // 2] if len(numbers) else 0
        return int(np.searchsorted(np.cumsum(self.lengths), middle, side="right"))


def inspect(
    recording: Recording, executor: Executor, needs_all: bool, tiles: Tiles | None = None
) -> tuple[Inspection, PixelSample]:
    """Look at all chunks of a recording, and gather values of some pixels.

    Parameters
    ----------
    recording : Recording
        The chunks.
    executor : Executor
        Maps over them.
    needs_all : bool
        Whether the estimate looks at all pixels.
    tiles : Tiles, optional
        Tiles of which the products from frame to frame are summed; by default none are.

    Returns
    -------
    inspection : Inspection
        What it finds in all frames.
    sample : PixelSample
        Pixels that the estimate looks at.

    Raises
    ------
    InputError
        If the stack is zero or unobserved everywhere, or its magnitudes are outside MAGNITUDES.
    """
    geometry = recording.geometry
    n_frames, n_pixels, shape = geometry.n_frames, geometry.n_pixels, geometry.pixel_shape
    count = int(np.clip(HELD_ENTRIES // n_frames, *SAMPLE_PIXELS))
    gathering = Gathering(
        sample=spread_rows(n_pixels, n_pixels if needs_all else count),
        axes=geometry.axes,
        shape=tuple(shape),
        middle_frame=n_frames // 2,
        tiles=tiles,
    )
    gathered = np.empty((len(gathering.sample), n_frames), recording.dtype)
    found: Inspection | None = None
    of_chunks = map_chunks(inspect_chunk, recording.chunks, executor, gathering, ProcessLocal(gathered))
    for of_chunk, values in of_chunks:
        found = of_chunk if found is None else found.followed_by(of_chunk)
        stop = len(found.frame_energy)
        if values is not None:
            gathered[:, stop - values.shape[1] : stop] = values
    assert found is not None
    check_scale(
        float(found.energy.max()),
        n_frames,
        geometry.name,
        lambda: functools.reduce(np.fmax, map_chunks(largest_in_chunk, recording.chunks, executor)),
    )
    # The values are checked where there is tissue
    number = found.middle_chunk(has_tissue(found.frame_energy))
    if number != found.middle_chunk(np.ones(n_frames, bool)):
        elsewhere = replace(gathering, middle_frame=sum(found.lengths[:number]), tiles=None)
        some = [recording.chunks[number]]
        ((of_chunk, _),) = map_chunks(inspect_chunk, some, executor, elsewhere, ProcessLocal())
        found = replace(found, doubts=of_chunk.doubts, step=of_chunk.step)
    return found, PixelSample.of(gathered, gathering.sample, executor.local)


@np.errstate(over="ignore", invalid="ignore")
def inspect_chunk(
    chunk: Chunk, gathering: Gathering, into: ProcessLocal[Numbers]
) -> tuple[Inspection, Numbers | None]:
    """Look at one chunk; return what is found, and the values that it gathers where it cannot write them into `into`."""
    x = chunk.read()
    xp, n, middle = namespace(x), x.shape[0], gathering.middle_frame - chunk.first
    frame_energy, energy = squared_norms(x)
    missing, frame_missing = np.zeros(x.shape[1], np.int64), np.zeros(n, np.int64)
    # NaN and infinities show in the sums, so a finite chunk is read only once.
    if not np.isfinite(frame_energy).all() and not xp.all(finite := xp.isfinite(x)):
        missing, frame_missing = (to_host(xp.count_nonzero(~finite, axis=axis)) for axis in (0, 1))
        frame_energy, energy = squared_norms(zero_outside(x, finite))
    doubts, step = list[tuple[str, str]](), 0.0
    if 0 <= middle < n and frame_energy.any():
        # Frames without tissue show nothing
        here, place, shown = to_host(x), (gathering.axes, gathering.shape), has_tissue(frame_energy)
        here = here if shown.all() else here[shown]
        doubts += order_doubts(here, *place)
        if np.iscomplexobj(here):
            compressed = magnitude_doubt(here[[0, len(here) // 2, -1]], gathering.shape)
            doubts += () if compressed is None else (compressed,)
        else:
            doubts += value_doubts(here, *place)
        step = value_step(here[len(here) // 2])
    highest, lowest = part_extremes(x)
    products = tuple[ChunkProducts, ...]()
    if gathering.tiles is not None:
        products = (tile_products(x, gathering.tiles, frame_missing < x.shape[1]),)
    found = Inspection(
        energy=energy,
        missing=missing,
        highest=np.maximum(highest, 0),
        lowest=np.minimum(lowest, 0),
        frame_energy=frame_energy,
        frame_missing=frame_missing,
        lengths=(n,),
        doubts=tuple(doubts),
        step=step,
        products=products,
    )
    values, frames = into.value, slice(chunk.first, chunk.first + n)
    if values is None:
        # In another process
        frames, values = slice(0, n), np.empty((len(gathering.sample), n), dtype_of(x))
    # Some at a time take less memory, in the order of the memory
    if is_by_pixel(x):
        for rows in part_slices(len(values), n):
            values[rows, frames] = x.T[gathering.sample[rows]]
    else:
        for part in part_slices(n, x.shape[1]):
            at = slice(frames.start + part.start, frames.start + part.stop)
            values[:, at] = columns(x[part, :], gathering.sample).T
    return found, None if into.value is not None else values


def inspect_block(
    x: Array, clutter: Clutter, options: DenoiseOptions, name: str
) -> tuple[Array, FrameSearch]:
    """Look at a block of a session: return it without its dead and bad pixels, and its bad frames.

    Parameters
    ----------
    x : (n, n_pixels) array
        The block, of any library. Only the pixels in which bad frames are looked for are copied to the host.
    clutter : Clutter
        The clutter of its session.
    options : DenoiseOptions
        Which frames are bad, and the seed.
    name : str
        Name of the stack, for messages.

    Raises
    ------
    InputError
        As for :func:`inspect`.
    OptionError
        If given bad frames leave too few.
    """
    mask, xp = clutter.grid.mask, namespace(x)
    if clutter.replaced is not None:
        sources = np.arange(mask.size)
        sources[clutter.replaced[0]] = clutter.replaced[1]
        x = xp.take(x, to_library(sources, x), axis=1)
    # Pixels without data in this block, and those that are clipped in it, are unobserved: what is clipped is bright in all
    # frames
    some = x[:: max(1, x.shape[0] // ENOUGH_FRAMES), :]
    extremes, step = part_extremes(some), value_step(to_host(some[some.shape[0] // 2, :]))
    clipped = saturated_pixels(*extremes) | wrapped_pixels(x, *may_wrap(*extremes, step))
    if (dead := (dead_pixels(x) | clipped) & mask.ravel()).any() and not dead[mask.ravel()].all():
        x = xp.where(to_library(dead, x), xp.nan * xp.ones_like(x[:1, :1]), x)
    signal = np.flatnonzero(mask)
    runs = spread_rows(-(-len(signal) // SEARCHED_RUN), SEARCHED_PIXELS // SEARCHED_RUN) * SEARCHED_RUN
    numbers = (runs[:, None] + np.arange(SEARCHED_RUN)).ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        by_frame = isinstance(x, np.ndarray) and not x.flags.c_contiguous
        energy = squared_norms(x)[0] if by_frame else row_squared_norms(x)
        # NaN and infinities show in the sums.
        if not np.isfinite(energy).all():
            energy = squared_norms(finite_or_zero(x))[0]
    check_scale(float(energy.max()), x.shape[1], name, lambda: largest_part(to_host(x)))
    values = np.ascontiguousarray(columns(x, signal[numbers[numbers < len(signal)]]).T)
    with ThreadExecutor(1) as executor:
        sample = PixelSample.of(values, np.arange(len(values)), executor)
        # If the blocks are copies of each other, the noise of the session is 0, and the noise of the block counts.
        search, _ = find_bad_frames(
            sample, options.bad_frames, options.seed, clutter.noise_rms or None, COMPARED_PIXELS
        )
    return x, search


def dead_pixels(x: Array) -> NDArray[np.bool_]:
    """Return the pixels of a block, (n_pixels,), that are 0 in more than half of the frames with tissue.

    Interference in a few frames does not count as a signal.
    """
    xp, n = namespace(x), x.shape[0]
    is_dead = to_host(xp.any(x[:: max(1, n // ENOUGH_FRAMES), :] == 0, axis=0))
    if is_dead.any():
        few = finite_or_zero(columns(x, spread_rows(x.shape[1], FEW_PIXELS)))
        n = np.count_nonzero(has_tissue(row_squared_norms(few))) or n
        is_dead[is_dead] = np.count_nonzero(columns(x, np.flatnonzero(is_dead)), axis=0) < n / 2
    return is_dead


def fast_power(recording: Recording, executor: Executor) -> NDArray[np.float64]:
    """Return the power of the third differences over time of each pixel, as a :class:`PixelSample` has it."""
    total, before = np.zeros(recording.geometry.n_pixels), None
    for sums, first, last in map_chunks(third_differences, recording.chunks, executor):
        total += sums
        joined = first if before is None else np.concatenate([before, first])
        # Differences over the border of two chunks.
        total += third_difference_norms(np.ascontiguousarray(joined.T))
        before = last if len(last) == 3 or before is None else np.concatenate([before, last])[-3:]
    return total / (THIRD_DIFFERENCE_GAIN * max(recording.geometry.n_frames - 3, 1))


def third_differences(chunk: Chunk) -> tuple[NDArray[np.float64], Numbers, Numbers]:
    """Return the sum of the squared third differences of each pixel in a chunk, and its first and last three frames."""
    x = to_host(chunk.read())
    if not np.isfinite(x).all():
        x = finite_or_zero(x)
    return third_difference_norms(np.ascontiguousarray(x.T)), x[:3].copy(), x[-3:].copy()


def largest_in_chunk(chunk: Chunk) -> float:
    """Return the largest finite magnitude of a real or imaginary part in a chunk; NaN without any finite entry."""
    return largest_part(to_host(chunk.read()))


def check_scale(energy: float, n_terms: int, name: str, find_largest: Callable[[], float]) -> None:
    """Check that frames have observed entries, and that their power has room in single precision.

    Parameters
    ----------
    energy : float
        Largest energy of a pixel or of a frame.
    n_terms : int
        Number of entries that it sums.
    name : str
        Name of the stack, for messages.
    find_largest : callable
        Returns the largest finite magnitude of a real or imaginary part; NaN without any finite entry.
    """
    # The largest magnitude x of entries of energy e obeys e / (2 n_terms) <= x^2 <= e.
    if MAGNITUDES[0] ** 2 <= energy / (2 * n_terms) and energy <= MAGNITUDES[1] ** 2:
        return
    largest = find_largest()
    if np.isnan(largest):
        raise InputError(f"'{name}' has no finite entry; check how the file was written")
    if largest == 0:
        raise InputError(f"'{name}' is zero everywhere", remedy="check {dataset} and {frames}")
    if not MAGNITUDES[0] <= largest <= MAGNITUDES[1]:
        raise InputError(
            f"the largest magnitude in '{name}' is {largest:.3g}, and its power must fit in single precision; "
            f"scale the stack to between {MAGNITUDES[0]:g} and {MAGNITUDES[1]:g}"
        )


GAP = 1e4
"""Ratio of the noise of signal pixels to the noise of masked pixels, 40 dB. The noise within a scan differs by half as much
in dB, with a gain of 20 dB over depth."""

MOST_BETWEEN, LEAST_SIGNAL = 0.02, 0.05
"""Largest share of pixels in the gap between masked and signal pixels, as at the soft edge of a mask, and least share of
pixels above it: a few very bright pixels do not mask all other pixels."""


def find_signal_pixels(
    sample: PixelSample,
    energy: NDArray[np.float64],
    n_least: int,
    fast_power: Callable[[], NDArray[np.float64]],
) -> NDArray[np.bool_]:
    """Return the signal pixels, (n_pixels,); all pixels if fewer than `n_least` have a signal.

    A pixel without any energy is masked. So are pixels below a gap of 40 dB in the noise of the image (see
    :meth:`usdenoise.stack.sampling.PixelSample.fast_power`): all pixels of a scan have noise, whatever
    tissue and blood they have, but those that were multiplied by next to nothing have next to none.

    Parameters
    ----------
    sample : PixelSample
        Some pixels of the data.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row.
    n_least : int
        Pixels that the given rank and cutoffs need.
    fast_power : callable
        Returns the noise of all pixels, which takes a pass over the data.

    """
    mask: NDArray[np.bool_] = energy > 0
    pixels = np.flatnonzero(energy[sample.numbers] > 0)
    # Without a sampled pixel with a signal, for example if each is 0 in most frames, the energies show no gap.
    if len(pixels):
        tried = sample.take(pixels[spread_rows(len(pixels), FEW_PIXELS)])
        mask_threshold = _middle_of_gap(tried.fast_power(), energy[tried.numbers])
        if mask_threshold is not None:
            mask &= fast_power() > mask_threshold
    return mask if np.count_nonzero(mask) >= max(n_least, 1) else np.ones(len(energy), bool)


def _middle_of_gap(noise: NDArray[np.float64], energy: NDArray[np.float64]) -> float | None:
    """Return the middle, in dB, of the highest gap in the noise of some pixels; None if there is none."""
    levels = np.sort(noise[noise > 0])
    above = np.searchsorted(levels, levels * GAP)
    between, with_signal = above - np.arange(len(levels)) - 1, len(levels) - above
    gaps = np.flatnonzero(
        (between <= MOST_BETWEEN * len(levels)) & (with_signal >= LEAST_SIGNAL * len(levels))
    )
    if not len(gaps):
        return None
    middle = float(levels[gaps[-1]] * np.sqrt(GAP))
    # In a simulation without noise pixels of tissue have no noise either, but as much energy as any.
    is_masked = noise < middle
    return middle if GAP * np.median(energy[is_masked]) < np.median(energy[~is_masked]) else None
