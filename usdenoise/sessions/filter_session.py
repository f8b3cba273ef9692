"""Filter the blocks of a session, and make their series.

The same steps as for one acquisition: an estimate from a sample, a pass over the blocks by an executor, and the
combination of their measures.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.blood.picture_quality import PictureQuality
from usdenoise.clutter.bad_pixels import MOST_NOISY
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.array_library import Numbers, to_host
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.denoise import map_scan
from usdenoise.pipeline.devices import HOST, device_memory, most_blocks, windows_on_device
from usdenoise.pipeline.estimate_clutter import checked_noise
from usdenoise.pipeline.filter_chunk import filter_chunk, in_reference
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.pipeline.inspection import inspect_block
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import ArrayFrames, Block, Chunk, Recording
from usdenoise.pipeline.series import Series, SeriesModel, signal_image
from usdenoise.progress import Progress
from usdenoise.sessions.bad_blocks import find_bad_blocks
from usdenoise.sessions.measured_block import BlockFilter, BlockStore, Empty, measure_blocks, own_options
from usdenoise.sessions.result_series import ResultSeries, block_record
from usdenoise.sessions.session_estimate import check_method, estimate_session, session_clutter
from usdenoise.sessions.session_sample import JOINED_FRAMES, draw_sample, sample_sizes
from usdenoise.system.resources import (
    available_bytes,
    available_threads,
    held_bytes,
    most_side_by_side,
    release_freed_memory,
)


class FrameSink(Protocol):
    """Where filtered blocks go."""

    def write(self, number: int, frames: Numbers) -> None:
        """Write a filtered block, (n, n_pixels)."""

    def has(self, number: int) -> bool:
        """Return whether a filtered block is there."""


def filter_session(
    recording: Recording,
    session: SessionOptions,
    options: DenoiseOptions,
    store: BlockStore,
    products: tuple[str, ...] = (),
    sink: FrameSink | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> ResultSeries:
    """Filter the blocks of a session, and return their series.

    Parameters
    ----------
    recording : Recording
        The blocks.
    session : SessionOptions
        Whether a block that cannot be read is missing, and whether blocks are registered and their gain divided out.
    options : DenoiseOptions
        Options of the filter.
    store : BlockStore
        Store of the measurements of the blocks. Blocks in it are filtered again only if the sink lacks them.
    products : tuple of str
        Flow images that are made of each block, besides the power.
    sink : FrameSink, optional
        Where the filtered blocks go; by default they are not kept.
    progress : Progress, optional
        Told of the iterations of the estimate, and of the blocks that are done; by default nothing is.
    executor : Executor, optional
        Maps over the blocks; by default threads.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    check_method(options)
    _check_bad_frames(options, recording)
    progress = progress or Progress()
    how = BlockFilter(
        options=options, geometry=recording.geometry, products=products, keeps_frames=sink is not None
    )
    n_threads = options.threads or available_threads()
    most, empty = _most_blocks(recording, options, store, executor is None)
    if executor is None:
        # Workers have memory of their own for the blocks
        n_threads = min(n_threads, most)
    with ThreadExecutor(n_threads) as threads, device_memory(options.device):
        mapper = executor or threads
        # Some frames of all blocks. From now on the blocks are read without flicker, and those that cannot be read have the
        # reason. Where workers filter the blocks, the device is theirs, and this process may have none.
        sample_options = options if executor is None else replace(options, device=HOST)
        recording, sample = draw_sample(recording, sample_options, session, mapper, empty or np.empty)
        # The clutter that the blocks have in common: the sample is registered, and unusual blocks are left out
        estimate = estimate_session(
            sample, recording.geometry, options, session, threads, on_iteration=progress.iteration
        )
        # The estimate has its own sample if unusual blocks were left out
        del sample
        # On a device overlapping blocks share their frames
        to_filter = recording
        if executor is None:
            to_filter = windows_on_device(recording, options.device, n_threads)
        fit, clutter = estimate.fit, session_clutter(estimate, options)
        n_unusual = estimate.n_unusual
        del estimate

        def is_done(number: int) -> bool:
            # A block without data has no frames for the sink
            if not store.has(number):
                return False
            return sink is None or sink.has(number) or store.findings(number).frames is None

        # All blocks are filtered, but those that an earlier run has stored
        todo = [number for number in range(len(recording.blocks)) if not is_done(number)]
        measured = measure_blocks(to_filter, todo, clutter, how, session, mapper)
        for number, block in zip(todo, measured, strict=True):
            if sink is not None and block.frames is not None:
                sink.write(number, block.frames)
            # A block that is stored is done: after its frames are written
            store.put(number, block)
            progress.blocks(number + 1, len(recording.blocks))
        series = series_of_blocks(recording, session, clutter, fit, store, options, threads)
        return replace(series, n_unusual=n_unusual)


def _check_bad_frames(options: DenoiseOptions, recording: Recording) -> None:
    """Check that the given bad frames are frames of the blocks.

    Raises
    ------
    OptionError
        If one is not.
    """
    n_frames = max(block.window.stop for block in recording.blocks)
    if not isinstance(options.bad_frames, str) and any(frame >= n_frames for frame in options.bad_frames):
        problem = f"bad frame {max(options.bad_frames)} is not among the frames 0 to {n_frames - 1}"
        raise OptionError(problem, remedy="change {bad_frames}")


def _most_blocks(
    recording: Recording, options: DenoiseOptions, store: BlockStore, holds_blocks: bool
) -> tuple[int, Empty | None]:
    """Return the largest number of blocks that are filtered side by side, and what makes the array of the sampled frames.

    The sampled frames go into a temporary file of the store if memory does not hold them; the second result is None if it
    does. `holds_blocks` is False if workers filter the blocks.

    Raises
    ------
    InputError
        If a block and the sampled frames, or a part of them, do not fit into the free memory.
    """
    n_frames, n_pixels = [block.n_frames for block in recording.blocks], recording.geometry.n_pixels
    entries, entry = max(n_frames) * n_pixels, recording.dtype.itemsize
    sample = sum(sample_sizes(n_frames)) * n_pixels
    # A live session may have run in this process.
    release_freed_memory()
    free, of_block = available_bytes(), held_bytes(block=entries * entry * holds_blocks)
    needed, empty = of_block + held_bytes(sample=sample * entry), None
    if needed > free and store.on_disk is not None:
        # Chunks of it are in memory
        needed, empty = of_block + held_bytes(sample=2 * JOINED_FRAMES * n_pixels * entry), store.on_disk
    most = most_side_by_side(free, needed, max(of_block, 1))
    if not most and holds_blocks:
        raise InputError(
            f"a block of {max(n_frames)} frames and a sample of the session need about {needed / 2**20:.0f} MiB of memory, "
            f"and {free / 2**20:.0f} MiB are free",
            remedy="cut the files into shorter blocks with {window}",
        )
    if options.device != HOST and holds_blocks:
        # The sample is not on the device
        most = most_side_by_side(free, of_block, of_block)
        most = int(min(most, most_blocks(options.device, recording.dtype, entries)))
    return most, empty


TSNR = "mean over standard deviation of blood_power in the good blocks"


def series_of_blocks(
    recording: Recording,
    session: SessionOptions,
    clutter: Clutter,
    fit: FitResult,
    store: BlockStore,
    options: DenoiseOptions,
    threads: ThreadExecutor,
) -> ResultSeries:
    """Compare the stored measurements of the blocks with each other, add up the good ones, and return their series."""
    n_blocks, grid, geometry = len(recording.blocks), clutter.grid, recording.geometry
    findings = [store.findings(number) for number in range(n_blocks)]
    known = [number for number, found in enumerate(findings) if found.frames is not None]
    powers = {number: store.array(number, "power") for number in known}
    why, leftover = find_bad_blocks([found.level(powers.get(n)) for n, found in enumerate(findings)])
    is_bad = np.array([bool(reason) for reason in why], bool)
    if is_bad.all():
        doubts = "".join(f"; {sentence}" for _, sentence in fit.stack_doubts)
        raise InputError(f"no block of the session is good; the first one: {why[0]}{doubts}")
    model, quality = _model_of(recording, ~is_bad, clutter, store, options, threads)
    # The images of each block
    missing, image = np.full(grid.n_pixels, np.nan, np.float32), partial(signal_image, geometry, grid)
    found_blood = threads.map(lambda number: model.blood_power(store.lags(number)), known)
    blood = dict.fromkeys(range(n_blocks), (missing, 1.0)) | dict(zip(known, found_blood, strict=True))
    lists = {
        "power_doppler": [image(powers.get(number, missing)) for number in range(n_blocks)],
        "blood_power": [image(power) for power, _ in blood.values()],
        "noise_power": [image(share * model.maps.noise_power) for _, share in blood.values()],
    }
    flow = findings[known[0]].flow
    for name in flow:
        of_blocks = dict.fromkeys(range(n_blocks), image(missing))
        lists[name] = [*(of_blocks | {number: store.array(number, name) for number in known}).values()]
    images = {name: np.stack(values) for name, values in lists.items()}
    good = np.flatnonzero(~is_bad).tolist()
    observed = np.stack([image(store.array(number, "observed")) for number in good])
    means = {name: _mean(values[good], observed).astype(np.float32) for name, values in images.items()}
    means["blood_power"] = image(model.maps.blood_power)
    means["tsnr"] = _tsnr_map(images["blood_power"][good], observed)
    low = int(fit.options.low_cutoff)
    judged = zip(recording.blocks, findings, why, leftover.tolist(), strict=True)
    return ResultSeries(
        fit=fit,
        picture_quality=quality,
        geometry=geometry,
        images=images,
        means=means,
        attributes={**POWER_IMAGES, **flow, "tsnr": {"unit": "1", "formula": TSNR}},
        block_records=tuple(block_record(recording, *each, low) for each in judged),
        options=session,
    )


def _model_of(
    recording: Recording,
    good: NDArray[np.bool_],
    clutter: Clutter,
    store: BlockStore,
    options: DenoiseOptions,
    threads: ThreadExecutor,
) -> tuple[SeriesModel, PictureQuality]:
    """Return the weights and the maps of the sum of the good blocks, and the quality of these maps.

    If a single block counts, its map is the map of a scan.
    """
    counting, series = np.flatnonzero(_apart(recording.blocks, good)).tolist(), Series()
    for number in counting:
        series = series.added(store.lags(number), clutter)
    middle, alone = counting[len(counting) // 2], None
    deformation = store.findings(middle).deformation
    if len(counting) == 1 and not (deformation and deformation.pixels):
        # A scan has no reference against which a deformation is compensated: a block without one has the maps of a scan
        frames, _ = _frames_in_reference(recording, middle, clutter, options)
        of_block = own_options(options, recording.blocks[middle])
        own_geometry = recording.geometry.of_frames(frames.n_frames)
        scan = Recording.of_chunks(own_geometry, recording.dtype, frames.chunks(), frames)
        alone = map_scan(scan, of_block, threads, clutter.grid)
    model = series.model(clutter, threads, alone)
    quality = model.maps.quality
    if quality.noisy_share > MOST_NOISY:
        frames, excluded = _frames_in_reference(recording, middle, clutter, options)
        if clutter.n_own:
            # Components of its own are no longer known
            held = replace(clutter, reference=None, still=None)
            filtered = filter_chunk(frames.read(), held, excluded, is_kept=True).filtered
            frames = replace(frames, values=filtered)
        quality = checked_noise(quality, Chunk(0, frames), clutter, excluded, threads)
    return model, quality


def _frames_in_reference(
    recording: Recording, number: int, clutter: Clutter, options: DenoiseOptions
) -> tuple[ArrayFrames, NDArray[np.bool_]]:
    """Return the frames of a block as they are filtered, in the reference of its session, and which are excluded."""
    block, name = recording.blocks[number], recording.geometry.name
    x, search = inspect_block(to_host(block.read()), clutter, own_options(options, block), name)
    x, mask, *_ = in_reference(x, clutter, search.excluded)
    return ArrayFrames(np.where(mask, x, 0), "tz", recording.dtype, name), search.excluded


def _mean(images: NDArray[np.floating], observed: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the mean of a series over time, weighted by the frames in which a pixel was observed; 0 without any."""
    total = observed.sum(axis=0, dtype=np.float64)
    weighted = np.where(observed > 0, images, 0) * observed
    return np.asarray(weighted.sum(axis=0, dtype=np.float64) / np.maximum(total, 1))


def _tsnr_map(images: NDArray[np.float32], observed: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over the standard deviation of a series over time, 0 where it does not change."""
    mean = _mean(images, observed)
    spread = np.sqrt(_mean((images - mean) ** 2, observed))
    # Rounding errors of single precision do not count as a change.
    changes = spread > np.finfo(np.float32).eps * np.abs(mean)
    return np.asarray(np.divide(mean, spread, out=np.zeros_like(mean), where=changes), np.float32)


def _apart(blocks: Sequence[Block], good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return good blocks without a frame in common, or all good ones if only one such block is left.

    Means and variances take the noise of blocks to be independent.
    """
    apart, file, stop = np.zeros(len(good), bool), -1, 0
    for number in np.flatnonzero(good).tolist():
        block = blocks[number]
        if block.file != file or block.window.start >= stop:
            apart[number], file, stop = True, block.file, block.window.stop
    return apart if apart.sum() > 1 else good
