"""Finish a session: add up the measurements of its blocks, and return their series."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.clutter.bad_pixels import MOST_NOISY
from usdenoise.errors import InputError
from usdenoise.linalg.array_library import to_host
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.denoise import map_scan
from usdenoise.pipeline.estimate_clutter import checked_noise
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import ArrayFrames, Block, Chunk, Recording
from usdenoise.pipeline.series import Series, signal_image
from usdenoise.sessions.bad_blocks import find_bad_blocks
from usdenoise.sessions.measured_block import BlockFindings, BlockStore, own_options
from usdenoise.sessions.result_series import BlockRecord, ResultSeries, frame_records

TSNR = "mean over standard deviation of blood_power in the good blocks"


def filtered_session(
    recording: Recording,
    session: SessionOptions,
    clutter: Clutter,
    fit: FitResult,
    store: BlockStore,
    options: DenoiseOptions,
    threads: ThreadExecutor,
) -> ResultSeries:
    """Add up the stored measurements of the blocks, and return their series.

    If a single block counts, its map is the map of a scan.
    """
    n_blocks = len(recording.blocks)
    findings = [store.findings(number) for number in range(n_blocks)]
    has_data = [found.frames is not None for found in findings]
    known = np.flatnonzero(has_data).tolist()
    powers = [store.array(number, "power") if has_data[number] else None for number in range(n_blocks)]
    why, leftover = find_bad_blocks(
        [found.level(power) for found, power in zip(findings, powers, strict=True)]
    )
    is_bad = np.array([bool(reason) for reason in why], bool)
    if is_bad.all():
        doubts = "".join(f"; {sentence}" for _, sentence in fit.stack_doubts)
        raise InputError(f"no block of the session is good; the first one: {why[0]}{doubts}")
    # Sums over the good blocks, the maps of their mean, and the weights of the lags
    counting, series = np.flatnonzero(_apart(recording.blocks, ~is_bad)).tolist(), Series()
    for number in counting:
        series = series.added(store.lags(number), clutter)
    middle, alone = counting[len(counting) // 2], None
    if len(counting) == 1:
        # The only block has the maps of a scan.
        frames = _in_reference(recording, middle, findings, clutter)
        own = own_options(options, recording.blocks[middle])
        of_block = recording.geometry.of_frames(frames.n_frames)
        scan = Recording.of_chunks(of_block, recording.dtype, frames.chunks())
        alone = map_scan(scan, own, threads, clutter.grid)
    model = series.model(clutter, threads, alone)
    quality = model.maps.quality
    if quality.noisy_share > MOST_NOISY:
        chunk = Chunk(0, _in_reference(recording, middle, findings, clutter))
        quality = checked_noise(quality, chunk, clutter, np.zeros(chunk.stop, bool), threads)
    # The blood power of each block
    blood = dict(
        zip(known, threads.map(lambda number: model.blood_power(store.lags(number)), known), strict=True)
    )
    grid, geometry = clutter.grid, recording.geometry
    missing = np.full(grid.n_pixels, np.nan, np.float32)

    image = partial(signal_image, geometry, grid)
    images = {
        "power_doppler": [image(missing if power is None else power) for power in powers],
        "blood_power": [
            image(blood[number][0] if number in blood else missing) for number in range(n_blocks)
        ],
        "noise_power": [
            image((blood[number][1] if number in blood else 1.0) * model.maps.noise_power)
            for number in range(n_blocks)
        ],
    }
    flow = findings[known[0]].flow
    for name in flow:
        images[name] = [
            store.array(number, name) if has_data[number] else image(missing) for number in range(n_blocks)
        ]
    stacked = {name: np.stack(values) for name, values in images.items()}
    good = np.flatnonzero(~is_bad).tolist()
    observed = np.stack([image(store.array(number, "observed")) for number in good])
    means = {name: _mean(values[good], observed).astype(np.float32) for name, values in stacked.items()}
    means["blood_power"] = image(model.maps.blood_power)
    means["tsnr"] = _tsnr_map(stacked["blood_power"][good], observed)
    low = int(fit.options.low_cutoff)
    return ResultSeries(
        fit=fit,
        picture_quality=quality,
        geometry=geometry,
        images=stacked,
        means=means,
        attributes={**POWER_IMAGES, **flow, "tsnr": {"unit": "1", "formula": TSNR}},
        block_records=tuple(
            _block_record(recording, number, findings[number], why[number], float(leftover[number]), low)
            for number in range(n_blocks)
        ),
        options=session,
    )


def _block_record(
    recording: Recording, number: int, findings: BlockFindings, why: str, leftover: float, low_cutoff: int
) -> BlockRecord:
    """Return the record of a block; `why` it is bad, in words, is empty for a good one, and `leftover` NaN without data."""
    block, geometry = recording.blocks[number], recording.geometry
    window, search, aligned = block.window, findings.frames, findings.alignment
    record = BlockRecord(
        time=block.start_s + (window.n_frames - 1) / 2 * recording.frame_time,
        n_frames=window.n_frames,
        complete=window.complete,
        low_cutoff=low_cutoff,
        is_bad=bool(why),
        why=why,
        file=block.name,
        first_frame=window.start,
        leftover=None if np.isnan(leftover) else leftover,
        n_unobserved=findings.n_unobserved,
        kept_share=0.0,
    )
    if search is not None:
        n_entries = search.n_frames * geometry.n_pixels
        frames, bad_frames = frame_records(search, geometry.n_pixels, window.start, geometry.frame_rate_hz)
        record = replace(
            record, frames=frames, bad_frames=bad_frames, kept_share=1 - findings.n_unobserved / n_entries
        )
    if aligned is not None:
        record = replace(
            record,
            shift_pixels=aligned.shift,
            gain_db=aligned.gain_db,
            is_shifted=aligned.is_shifted,
            is_scaled=aligned.is_scaled,
            is_gain_uneven=aligned.is_uneven,
        )
    return record


def _in_reference(
    recording: Recording, number: int, findings: Sequence[BlockFindings], clutter: Clutter
) -> ArrayFrames:
    """Return the frames of a block as they are in the reference of its session."""
    x, alignment = to_host(recording.blocks[number].read()), findings[number].alignment
    if alignment is not None and clutter.reference is not None:
        x = np.where(clutter.reference.mask.ravel(), clutter.reference.apply(x, alignment), 0)
    return ArrayFrames(x, "tz", recording.dtype, recording.geometry.name)


def _mean(images: NDArray[np.floating], observed: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the mean of a series over time, weighted by the frames in which a pixel was observed; 0 without any."""
    total = observed.sum(axis=0, dtype=np.float64)
    weighted = np.where(observed > 0, images, 0) * observed
    mean: NDArray[np.float64] = weighted.sum(axis=0, dtype=np.float64) / np.maximum(total, 1)
    return mean


def _tsnr_map(images: NDArray[np.float32], observed: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over the standard deviation of a series over time, 0 where it does not change."""
    mean = _mean(images, observed)
    spread = np.sqrt(_mean((images - mean) ** 2, observed))
    # Rounding errors of single precision do not count as a change.
    changes = spread > np.finfo(np.float32).eps * np.abs(mean)
    ratio = np.divide(mean, spread, out=np.zeros_like(mean), where=changes)
    tsnr: NDArray[np.float32] = ratio.astype(np.float32)
    return tsnr


def _apart(blocks: Sequence[Block], good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return good blocks without a frame in common: means and variances take the noise of blocks to be independent."""
    apart, file, stop = np.zeros(len(good), bool), -1, 0
    for number in np.flatnonzero(good).tolist():
        block = blocks[number]
        if block.file != file or block.window.start >= stop:
            apart[number], file, stop = True, block.file, block.window.stop
    return apart if apart.sum() > 1 else good
