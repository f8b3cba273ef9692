"""Filter the blocks of a session, and make their series."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.flow import flow_images
from usdenoise.blood.power_doppler import POWER_IMAGES
from usdenoise.clutter.cutoff_reason import CutoffCertainty
from usdenoise.errors import InputError, OptionError
from usdenoise.files.spectra_store import SpectraStore
from usdenoise.frames.bad_frames import Treatment
from usdenoise.frames.frame_quality import FrameQuality
from usdenoise.frames.movement import Movement
from usdenoise.jobs.session_inputs import OR_SKIP, Blocks, time_unit
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.denoise import denoise
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.result_record import bad_frames_record, frames_record
from usdenoise.report.series import Series
from usdenoise.sessions.block_filter import FilteredBlock, filter_session_block
from usdenoise.sessions.session_clutter import (
    SessionClutter,
    sampled_frames,
    session_clutter,
)
from usdenoise.sessions.session_series import BlockSums, find_bad_blocks, leak_share, session_series
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import casorati, from_casorati
from usdenoise.stack.geometry import Geometry
from usdenoise.system.blas_threads import available_threads

MOTION = "more power is left than usual: the image moved as in no other block, or the gain was higher"
LOST = "less than half of the usual power is left: its gain was lower, or nothing was recorded"
MOSTLY_BAD = "more than a fifth of its frames are bad"
"""Why a block is bad, in words."""

TSNR = "mean over standard deviation of blood_power in the good blocks"

NO_FRAMES = {
    "n_bad": 0,
    "n_left_out": 0,
    "n_entries_left_out": 0,
    "moves_pixels": 0.0,
    "steps": [],
    "sentence": "",
}

TRIED_BLOCKS, MOST_LEAK, MORE = 4, 0.5, 1.12
"""Blocks on which a cutoff is tried, the largest share of leaked tissue in their power above the noise, and how much the
cutoff is raised at a time. On a phantom with tissue 50 dB over blood 65 components left a share of 0.68, and the map
correlated with the truth by 0.876; with 92 components by 0.993. On one of 45 dB the share was 0.23, and more components took
blood. With a bound of 0.3 two of three other sessions lost hits, with shares of 0.32 and 0.45."""

ON_ONE_THREAD = 1 << 24
"""Entries of a block up to which blocks are filtered side by side, one on each thread; larger ones would take too much
memory together."""


def fit_session(
    blocks: Blocks, options: DenoiseOptions, on_iteration: Callable[..., None] | None = None
) -> tuple[DenoiseResult, SessionClutter]:
    """Find the clutter that the blocks of a session have in common, from a sample of their frames.

    Parameters
    ----------
    blocks : Blocks
        The blocks.
    options : DenoiseOptions
        Options of the estimate.
    on_iteration : callable, optional
        Called with each line of the trace.

    Returns
    -------
    fit : DenoiseResult
        The filtered sample. Its frames are not neighbours, so what is said of frames is not among it.
    clutter : SessionClutter
        The clutter.

    Raises
    ------
    UsdenoiseError
        As for :func:`usdenoise.denoise`.
    """
    _check_bad_frames(options, blocks)
    numbers = [number for number, block in enumerate(blocks.blocks) if not block.problem]
    # Of blocks that overlap each frame is sampled in one of them alone.
    frames = sampled_frames([_own_length(blocks, number) for number in numbers], options.seed)
    parts, sampled, filtered = [], [], []
    for number, some in zip(numbers, frames, strict=True):
        block, known_bad = blocks.blocks[number], _own_options(options, blocks, number).bad_frames
        good = some if isinstance(known_bad, str) else np.setdiff1d(some, known_bad)
        if len(good) == 0:
            continue
        try:
            parts.append(_some_frames(blocks, number, good, block.window.n_frames))
        except InputError as error:
            _make_gap(blocks, number, error)
            continue
        sampled.append(good)
        filtered.append(number)
    if not parts:
        raise InputError("no block of the session has good frames")
    fit = fit_sample(parts, blocks.geometry, options, on_iteration)
    own = _frames_in_sample(blocks, filtered, sampled)
    clutter = session_clutter(fit, *own)
    is_tried = len(parts) > 1 and options.low_cutoff == "auto" and options.high_cutoff == "none"
    tried = _calm_blocks(fit, filtered, sampled) if is_tried else []
    while len(tried) > 1 and _leaks(_sums_of(blocks, tried, clutter, options), clutter):
        rank = len(fit.singular_values)
        if clutter.cutoff >= rank:
            break
        low = min(math.ceil(MORE * clutter.cutoff), rank)
        given = replace(options, low_cutoff=low, rank=rank)
        fit = _with_cutoff(fit_sample(parts, blocks.geometry, given, on_iteration), fit, low)
        clutter = session_clutter(fit, *own)
    return fit, clutter


def _frames_in_sample(
    blocks: Blocks, numbers: list[int], sampled: list[NDArray[np.intp]]
) -> tuple[list[NDArray[np.intp]], list[int], list[NDArray[np.intp]]]:
    """Return the frames of each block that are in the sample, those of a block that overlaps it among them.

    They are the arguments `frames`, `lengths` and `columns` of :func:`session_clutter`.
    """
    parts = [blocks.blocks[number] for number in numbers]
    files = np.repeat([part.file for part in parts], [len(some) for some in sampled])
    places = np.concatenate([part.window.start + some for part, some in zip(parts, sampled, strict=True)])
    columns = [
        np.flatnonzero((files == part.file) & (part.window.start <= places) & (places < part.window.stop))
        for part in parts
    ]
    frames = [places[inside] - part.window.start for inside, part in zip(columns, parts, strict=True)]
    return frames, [part.window.n_frames for part in parts], columns


def _calm_blocks(fit: DenoiseResult, numbers: list[int], sampled: list[NDArray[np.intp]]) -> list[int]:
    """Return the numbers of a few blocks, spread over the session, of the half of which least power is left."""
    edges = np.cumsum([0, *map(len, sampled)])
    left = fit.frame_quality.curves.outside
    # Frames without data have 0 or NaN.
    parts = [left[first:stop][left[first:stop] > 0] for first, stop in pairwise(edges)]
    levels = np.array([np.median(part) if len(part) else np.nan for part in parts])
    if np.isnan(levels).all():
        return []
    # The image moved in some of the others, perhaps.
    calm = np.flatnonzero(levels <= np.nanmedian(levels))
    places = np.linspace(0, len(calm) - 1, TRIED_BLOCKS).round().astype(int)
    return [numbers[calm[place]] for place in dict.fromkeys(places.tolist())]


def _leaks(tried: BlockSums, clutter: SessionClutter) -> bool:
    """Return whether too much tissue is left; one block, or none, does not say."""
    return tried.n_blocks > 1 and leak_share(tried, clutter) > MOST_LEAK


def _sums_of(
    blocks: Blocks, numbers: list[int], clutter: SessionClutter, options: DenoiseOptions
) -> BlockSums:
    """Filter some blocks, and return the sums over those that can be read."""
    longest = max(blocks.blocks[number].window.n_frames for number in numbers)
    is_small = 2 * longest * len(clutter.left) <= ON_ONE_THREAD
    sums = BlockSums()

    def filtered(number: int, stack: Acquisition) -> FilteredBlock:
        return filter_session_block(stack, clutter, _own_options(options, blocks, number))

    with ThreadExecutor(options.threads if is_small else 1) as executor:
        stacks = ((number, stack) for number in numbers if (stack := _read(blocks, number)) is not None)
        for block in executor.map(lambda one: filtered(*one), stacks):
            sums.add(block.lags, clutter)
    return sums


def _with_cutoff(fit: DenoiseResult, before: DenoiseResult, low: int) -> DenoiseResult:
    """Return a fit with a higher cutoff than the one before, and with the reason of the one before."""
    assert before.cutoff is not None
    first = before.cutoff.sentence.partition("; raised")[0]
    said = f"{first}; raised to {low} because tissue was left in the blocks"
    choice = replace(before.cutoff, low=low, sentence=said, certainty=CutoffCertainty.UNSURE)
    return replace(fit, cutoff=choice)


def fit_sample(
    parts: Sequence[NDArray[Any]],
    geometry: Geometry,
    options: DenoiseOptions,
    on_iteration: Callable[..., None] | None = None,
) -> DenoiseResult:
    """Filter frames of several blocks.

    Parameters
    ----------
    parts : sequence of (n_pixels, n) arrays
        Frames of each block, as in the Casorati matrix.
    geometry : Geometry
        Axes and scales of the blocks.
    options, on_iteration
        As for :func:`fit_session`.

    Returns
    -------
    DenoiseResult
        As for :func:`fit_session`.
    """
    iq = from_casorati(np.concatenate(parts, axis=1), geometry)
    sample = Acquisition.of(replace(geometry, frame_rate_hz=None, coordinates={}), iq)
    bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
    fit = denoise(
        sample,
        options=replace(options, bad_frames=bad_frames),
        in_place=True,
        on_iteration=on_iteration,
    )
    quality = fit.frame_quality
    still = FrameQuality((), quality.n_frames, Treatment.KEPT, Movement(0.0, (), 0.0), quality.curves)
    chosen = replace(fit.options, bad_frames=options.bad_frames)
    # The filtered frames of the sample are read by nobody, and may take much memory.
    unfilled = Acquisition.of(geometry, np.broadcast_to(np.zeros((), geometry.dtype), geometry.shape))
    return replace(fit, acquisition=unfilled, frame_quality=still, options=chosen, observed=None)


def filter_session(
    blocks: Blocks,
    options: DenoiseOptions,
    store: SpectraStore,
    products: tuple[str, ...] = (),
    on_block: Callable[[int, Acquisition], None] | None = None,
    is_done: Callable[[int], bool] | None = None,
    on_iteration: Callable[..., None] | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> Series:
    """Filter the blocks of a session, and return their series.

    Parameters
    ----------
    blocks : Blocks
        The blocks.
    options : DenoiseOptions
        Options of the filter.
    store : SpectraStore
        Where what is measured of the blocks goes. Blocks that are in it already are not filtered again.
    products : tuple of str
        Flow images that are made of each block, besides the power.
    on_block : callable, optional
        Called with the number of each block that is filtered, and the filtered block.
    is_done : callable, optional
        Returns whether what `on_block` made of the block of a number is there; otherwise the block is filtered again.
    on_iteration : callable, optional
        Called with each line of the trace of the estimate.
    on_done : callable, optional
        Called with the number of blocks that are done, and of all blocks.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    fit, clutter = fit_session(blocks, options, on_iteration)
    for number in _measured(blocks, clutter, options, store, products, on_block, is_done):
        if on_done is not None:
            on_done(number + 1, len(blocks.blocks))
    return _series(blocks, fit, clutter, store, products)


def _measured(
    blocks: Blocks,
    clutter: SessionClutter,
    options: DenoiseOptions,
    store: SpectraStore,
    products: tuple[str, ...],
    on_block: Callable[[int, Acquisition], None] | None,
    is_done: Callable[[int], bool] | None,
) -> Iterator[int]:
    """Filter and store all blocks, several small ones at a time, and yield the number of each in order."""
    threads = options.threads or available_threads()
    waiting: deque[tuple[int, Future[tuple[FilteredBlock | None, str]] | None]] = deque()

    def next_one() -> int:
        number, future = waiting.popleft()
        if future is not None:
            block, problem = future.result()
            if block is None:
                store.put(number, {}, {"problem": problem})
            else:
                if on_block is not None:
                    on_block(number, block.stack)
                store.put(number, *_stored(block, blocks, number, products))
        return number

    pool = ThreadPoolExecutor(threads)
    try:
        n_held = 1
        for number in range(len(blocks.blocks)):
            while len(waiting) >= n_held:
                yield next_one()
            if _is_measured(store, number, is_done):
                waiting.append((number, None))
                continue
            stack = _read(blocks, number)
            if stack is None:
                store.put(number, {}, {"problem": blocks.blocks[number].problem})
                waiting.append((number, None))
                continue
            # One for each thread, and one that is read meanwhile.
            n_held = min(max(1, ON_ONE_THREAD // stack.iq.size), threads + 1)
            waiting.append(
                (number, pool.submit(_filtered, stack, clutter, _own_options(options, blocks, number)))
            )
            del stack
        while waiting:
            yield next_one()
    finally:
        # Whoever interrupts does not wait for the blocks that are being filtered.
        pool.shutdown(wait=False, cancel_futures=True)


def _is_measured(store: SpectraStore, number: int, is_done: Callable[[int], bool] | None) -> bool:
    """Return whether a block is in the store, and what else is made of it is there."""
    if not store.has(number):
        return False
    return is_done is None or is_done(number) or "frames" not in store.record(number)


def _filtered(
    stack: Acquisition, clutter: SessionClutter, options: DenoiseOptions
) -> tuple[FilteredBlock | None, str]:
    """Return a filtered block; or None, and why: too few of its frames are good, or it is zero everywhere."""
    try:
        return filter_session_block(stack, clutter, options), ""
    except (InputError, OptionError) as error:
        return None, error.cause


def _stored(
    block: FilteredBlock, blocks: Blocks, number: int, products: tuple[str, ...]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return what is stored of a filtered block: arrays, and a record."""
    flow = flow_images(block.stack, products, block.frames.left_out)
    single = np.complex64 if np.iscomplexobj(block.lags) else np.float32
    arrays = {"lags": block.lags.astype(single), "power": block.power.astype(np.float32)}
    arrays |= {name: made.values for name, made in flow.items()}
    first = blocks.blocks[number].window.start
    return arrays, {
        "problem": MOSTLY_BAD if block.frames.treatment is Treatment.TOO_MANY else "",
        "flow": {name: {"unit": made.unit, "formula": made.formula} for name, made in flow.items()},
        "bad_frames": bad_frames_record(block.frames, first, block.stack.frame_rate_hz),
        "frames": frames_record(block.frames, block.stack.n_pixels),
        "n_unobserved": block.n_unobserved,
    }


def _series(
    blocks: Blocks,
    fit: DenoiseResult,
    clutter: SessionClutter,
    store: SpectraStore,
    products: tuple[str, ...],
) -> Series:
    """Make the series from what is stored of the blocks."""
    numbers = range(len(blocks.blocks))
    stored = [store.record(number) for number in numbers]
    has_data = np.array(["frames" in record for record in stored], bool)
    powers = [store.array(number, "power") if has_data[number] else None for number in numbers]
    motion = np.array([record.get("frames", NO_FRAMES)["moves_pixels"] for record in stored])
    is_known_bad = np.array([bool(record["problem"]) for record in stored])
    is_bad, spread = find_bad_blocks(powers, is_known_bad, motion)
    if is_bad.all():
        raise InputError(f"no block of the session is good: {stored[0]['problem'] or 'too much motion'}")
    does_count = _apart(blocks, ~is_bad)
    found = session_series(lambda number: store.array(number, "lags"), ~does_count, has_data, clutter, fit)
    missing = np.full(clutter.grid.n_pixels, np.nan, np.float32)
    images = {
        "power_doppler": [clutter.image_of(missing if power is None else power) for power in powers],
        "blood_power": [clutter.image_of(values) for values in found.blood_power],
        "noise_power": [clutter.image_of(found.model.noise_power)] * len(numbers),
    }
    flow = next(record["flow"] for record in stored if "frames" in record)
    for name in flow:
        images[name] = [
            store.array(number, name) if has_data[number] else clutter.image_of(missing) for number in numbers
        ]
    series = {name: np.stack(values) for name, values in images.items()}
    good = ~is_bad
    means = {
        name: values[good].mean(axis=0, dtype=np.float64).astype(np.float32)
        for name, values in series.items()
    }
    means["blood_power"] = clutter.image_of(found.model.mean_blood_power)
    means["tsnr"] = _tsnr(series["blood_power"][good])
    unit = time_unit(blocks.geometry)
    records = []
    for number, (block, record) in enumerate(zip(blocks.blocks, stored, strict=True)):
        unusual = has_data[number] and is_bad[number] and not record["problem"]
        records.append(
            {
                "file": block.name,
                "first_frame": block.window.start,
                "n_frames": block.window.n_frames,
                "complete": block.window.complete,
                "time": block.start + (block.window.n_frames - 1) / 2 * blocks.frame_time,
                "is_bad": bool(is_bad[number]),
                "why": (MOTION if spread[number] > 0 else LOST) if unusual else record["problem"],
                "low_cutoff": clutter.cutoff,
                "leftover": None if np.isnan(spread[number]) else float(spread[number]),
                "bad_frames": record.get("bad_frames", []),
                "frames": record.get("frames", NO_FRAMES),
                "n_unobserved": record.get("n_unobserved", 0),
                "kept_share": _kept_share(record, block.window.n_frames * math.prod(clutter.grid.shape)),
            }
        )
    return Series(
        result=replace(fit, picture_quality=found.model.quality),
        geometry=blocks.geometry,
        images=series,
        means=means,
        attributes={**POWER_IMAGES, **flow, "tsnr": {"unit": "1", "formula": TSNR}},
        time_unit=unit,
        records=records,
    )


def _kept_share(record: dict[str, Any], n_entries: int) -> float:
    return 1 - record["n_unobserved"] / n_entries if "n_unobserved" in record else 0.0


def _tsnr(series: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over the standard deviation of a series over time, 0 where it does not change."""
    mean, spread = series.mean(axis=0, dtype=np.float64), series.std(axis=0, dtype=np.float64)
    ratio = np.divide(mean, spread, out=np.zeros_like(mean), where=spread > 0)
    tsnr: NDArray[np.float32] = ratio.astype(np.float32)
    return tsnr


def _apart(blocks: Blocks, good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return good blocks without a frame in common: means and variances take the noise of blocks to be independent."""
    apart, file, stop = np.zeros(len(good), bool), -1, 0
    for number in np.flatnonzero(good):
        block = blocks.blocks[number]
        if block.file != file or block.window.start >= stop:
            apart[number], file, stop = True, block.file, block.window.stop
    return apart if apart.sum() > 1 else good


def _own_options(options: DenoiseOptions, blocks: Blocks, number: int) -> DenoiseOptions:
    """Return options for a block, on one thread, whose bad frames are counted from its first frame."""
    if isinstance(options.bad_frames, str):
        return replace(options, threads=1)
    window = blocks.blocks[number].window
    own = tuple(frame - window.start for frame in options.bad_frames if window.start <= frame < window.stop)
    return replace(options, bad_frames=own or "keep", threads=1)


def _read(blocks: Blocks, number: int) -> Acquisition | None:
    """Return a block; None for a gap, also where one is made of it because it cannot be read."""
    block = blocks.blocks[number]
    try:
        return None if block.problem else blocks.read(number, 0, block.window.n_frames)
    except InputError as error:
        _make_gap(blocks, number, error)
        return None


def _make_gap(blocks: Blocks, number: int, error: InputError) -> None:
    """Make a gap of a block whose frames cannot be read, or raise the error."""
    if blocks.skips:
        blocks.blocks[number] = replace(blocks.blocks[number], problem=error.cause)
    elif blocks.blocks[0].file == blocks.blocks[-1].file:
        # A stack in memory has no file to skip.
        raise error
    else:
        raise error.at(blocks.blocks[number].name, OR_SKIP) from error


def _check_bad_frames(options: DenoiseOptions, blocks: Blocks) -> None:
    n_frames = max(block.window.stop for block in blocks.blocks)
    if not isinstance(options.bad_frames, str) and any(frame >= n_frames for frame in options.bad_frames):
        raise OptionError(
            f"bad frame {max(options.bad_frames)} is not among the frames 0 to {n_frames - 1}",
            remedy="change {bad_frames}",
        )


def _own_length(blocks: Blocks, number: int) -> int:
    """Return the number of frames of a block before the next one of its file begins."""
    block, *after = blocks.blocks[number : number + 2]
    n_frames = block.window.n_frames
    if after and after[0].file == block.file:
        return min(n_frames, after[0].window.start - block.window.start)
    return n_frames


def _some_frames(blocks: Blocks, number: int, frames: NDArray[np.intp], length: int) -> NDArray[Any]:
    """Return some frames of a block as columns: read two at a time where they are few, of which the first counts."""
    if 4 * len(frames) >= length:
        return np.take(casorati(blocks.read(number, 0, length)), frames, axis=1)
    pairs = [min(int(frame), length - 2) for frame in frames]
    read = (casorati(blocks.read(number, pair, pair + 2)) for pair in pairs)
    return np.stack(
        [two[:, frame - pair] for two, pair, frame in zip(read, pairs, frames, strict=True)], axis=1
    )
