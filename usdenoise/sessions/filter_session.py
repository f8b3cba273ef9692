"""Filter the blocks of a session, and make their series.

The same steps as for one acquisition: an estimate from a sample, a pass over the blocks by an executor, and the
combination of their measures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import PictureQuality
from usdenoise.blood.power_doppler import POWER_IMAGES
from usdenoise.errors import InputError
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.denoise import denoise_frames, working_type
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.sessions.bad_blocks import find_bad_blocks
from usdenoise.sessions.blocks import Block, Blocks, mark_missing
from usdenoise.sessions.measured_block import (
    BlockFindings,
    BlockStore,
    MeasuredBlock,
    measure_block,
    own_options,
)
from usdenoise.sessions.session_clutter import SAMPLED_FRAMES, SessionClutter
from usdenoise.sessions.session_estimate import SessionEstimate, estimate_session
from usdenoise.sessions.session_series import BlockMap, session_series
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import Geometry
from usdenoise.system.blas_threads import available_threads
from usdenoise.system.memory import available_bytes, release_freed_memory

TSNR = "mean over standard deviation of blood_power in the good blocks"

HELD_ENTRIES = 1 << 26
"""Entries of the blocks that are filtered side by side, one on each thread, about."""

HELD_BLOCK, HELD_SAMPLE = 2.4, 2.1
"""Bytes in memory for each byte of a block that is filtered, and of the sampled frames. Sessions of 8 blocks of 128 x 128 x
300 and 256 x 256 x 400 had peaks of 488 and 1801 MiB on one thread, and of 574 and 2274 MiB on two: within 2 % of this and
90 MiB."""


class StackSink(Protocol):
    """Where filtered blocks go."""

    def write(self, number: int, stack: Acquisition) -> None:
        """Write a filtered block."""

    def has(self, number: int) -> bool:
        """Return whether a filtered block is there."""


@dataclass(frozen=True)
class FilteredSession:
    """The filtered blocks of a session.

    Attributes
    ----------
    fit : FitResult
        How the components were found.
    picture_quality : PictureQuality
        Quality of the mean blood map.
    geometry : Geometry
        Axes and scales of the blocks.
    frame_time : float
        Time from one frame to the next, as :class:`usdenoise.sessions.blocks.Blocks` has it.
    blocks : sequence of Block
        The blocks.
    findings : sequence of BlockFindings
        The findings on each block.
    why : list of str
        Why each block is bad, in words; empty if it is good.
    leftover : (n_blocks,) float64 array
        How much more power is left than usual, in robust standard deviations; NaN without data.
    images : mapping
        Name -> images, (n_blocks, spatial) float32; NaN in blocks without data.
    means : mapping
        Name -> mean image of the good blocks; for the blood, the blood map of their mean. "tsnr" is the mean over
        the standard deviation of the blood power of the good blocks.
    attributes : mapping
        Name -> unit and formula.
    """

    fit: FitResult
    picture_quality: PictureQuality
    geometry: Geometry
    frame_time: float
    blocks: Sequence[Block]
    findings: Sequence[BlockFindings]
    why: list[str]
    leftover: NDArray[np.float64]
    images: Mapping[str, NDArray[np.float32]]
    means: Mapping[str, NDArray[np.float32]]
    attributes: Mapping[str, Mapping[str, str]]

    @property
    def is_bad(self) -> NDArray[np.bool_]:
        """Which blocks are bad, (n_blocks,)."""
        return np.array([bool(reason) for reason in self.why], bool)

    def kept_share(self, number: int) -> float:
        """Return the share of the entries of a block that were observed and not in an excluded frame."""
        findings = self.findings[number]
        if findings.frames is None:
            return 0.0
        return 1 - findings.n_unobserved / (findings.frames.n_frames * self.geometry.n_pixels)


def filter_session(
    blocks: Blocks,
    options: DenoiseOptions,
    store: BlockStore,
    products: tuple[str, ...] = (),
    stacks: StackSink | None = None,
    on_iteration: Callable[..., None] | None = None,
    on_done: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> FilteredSession:
    """Filter the blocks of a session, and return their series.

    Parameters
    ----------
    blocks : Blocks
        The blocks.
    options : DenoiseOptions
        Options of the filter.
    store : BlockStore
        Store of the measurements of the blocks. Blocks in the store are not filtered again.
    products : tuple of str
        Flow images that are made of each block, besides the power.
    stacks : StackSink, optional
        Where the filtered blocks go; by default they are not kept.
    on_iteration : callable, optional
        Called with each line of the trace of the estimate.
    on_done : callable, optional
        Called with the number of blocks that are done, and of all blocks.
    executor : Executor, optional
        Maps over the blocks; by default threads.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    # Blocks on workers take no memory here.
    n_threads = options.threads or available_threads()
    if executor is None:
        n_threads = min(n_threads, _most_blocks(blocks, options))
    with ThreadExecutor(n_threads) as threads:
        run = _Pass(blocks, options, products, stacks is not None, executor or threads)
        session_estimate = estimate_session(blocks, options, run.executor, run.tried, on_iteration)
        todo = [number for number in range(len(blocks.blocks)) if not _is_measured(store, number, stacks)]
        for number, block in run.measured(todo, session_estimate):
            if stacks is not None and block.stack is not None:
                stacks.write(number, block.stack)
            store.put(number, block)
            if on_done is not None:
                on_done(number + 1, len(blocks.blocks))
        return _series(blocks, options, session_estimate, store, threads)


class _Pass:
    """The pass over the blocks of a session."""

    def __init__(
        self,
        blocks: Blocks,
        options: DenoiseOptions,
        products: tuple[str, ...],
        keeps_stacks: bool,
        executor: Executor,
    ) -> None:
        self._blocks, self._options = blocks, options
        self._how = products, keeps_stacks
        self.executor = executor

    def tried(self, numbers: Sequence[int], clutter: SessionClutter) -> dict[int, MeasuredBlock]:
        """Return the measurements of the given blocks that can be read."""
        by_block = dict(self._mapped(numbers, clutter))
        return {
            number: block for number, block in by_block.items() if not self._blocks.blocks[number].problem
        }

    def measured(self, numbers: Sequence[int], session_estimate: SessionEstimate) -> Any:
        """Yield the number and the measurements of each block, in order."""
        remaining = self._mapped(
            [n for n in numbers if n not in session_estimate.measured], session_estimate.clutter
        )
        for number in numbers:
            yield (
                (number, session_estimate.measured[number])
                if number in session_estimate.measured
                else next(remaining)
            )

    def _mapped(self, numbers: Sequence[int], clutter: SessionClutter) -> Any:
        """Yield the number and the measurements of each block; a missing block has no data."""
        blocks = self._blocks
        readers = (blocks.reader(n) for n in numbers if not blocks.blocks[n].problem)
        results = self.executor.map(measure_block, readers, clutter, self._options, *self._how)
        for number in numbers:
            block = None if blocks.blocks[number].problem else next(results)
            if isinstance(block, InputError):
                mark_missing(blocks, number, block)
                block = None
            yield number, block or MeasuredBlock(BlockFindings(blocks.blocks[number].problem))


def _most_blocks(blocks: Blocks, options: DenoiseOptions) -> int:
    """Return the largest number of blocks that are filtered side by side, for their memory.

    Raises
    ------
    InputError
        If the sampled frames and one block do not fit into the free memory.
    """
    n_frames = [block.window.n_frames for block in blocks.blocks]
    entries = max(n_frames) * blocks.geometry.n_pixels
    entry = working_type(blocks.geometry, options.precision).itemsize
    sample = min(sum(n_frames), SAMPLED_FRAMES) * blocks.geometry.n_pixels
    # A live session may have run in this process.
    release_freed_memory()
    most, of_block = available_bytes(), HELD_BLOCK * entries * entry
    needed = HELD_SAMPLE * sample * entry + of_block
    if needed > most:
        raise InputError(
            f"a block of {max(n_frames)} frames and a sample of the session need about {needed / 2**20:.0f} MiB of memory, "
            f"and {most / 2**20:.0f} MiB are free",
            remedy="cut the files into shorter blocks with {window}",
        )
    return 1 + int(min((most - needed) // of_block, HELD_ENTRIES // entries))


def _is_measured(store: BlockStore, number: int, stacks: StackSink | None) -> bool:
    """Return whether a block is in the store, and the filtered block where it belongs."""
    if not store.has(number):
        return False
    return stacks is None or stacks.has(number) or store.findings(number).frames is None


def _series(
    blocks: Blocks,
    options: DenoiseOptions,
    estimate: SessionEstimate,
    store: BlockStore,
    threads: Executor,
) -> FilteredSession:
    """Compute the series from the stored measurements of the blocks."""
    clutter, numbers = estimate.clutter, range(len(blocks.blocks))
    findings = [store.findings(number) for number in numbers]
    has_data = np.array([block_findings.frames is not None for block_findings in findings], bool)
    powers = [store.array(number, "power") if has_data[number] else None for number in numbers]
    why, excess_power = find_bad_blocks(
        [block_findings.level(power) for block_findings, power in zip(findings, powers, strict=True)]
    )
    is_bad = np.array([bool(reason) for reason in why], bool)
    if is_bad.all():
        raise InputError(f"no block of the session is good; the first one: {why[0]}")
    does_count = _apart(blocks, ~is_bad)
    one = np.flatnonzero(does_count)
    alone = _alone(blocks, options, clutter, int(one[0])) if len(one) == 1 else None
    is_scaled = np.array(
        [finding.alignment is not None and finding.alignment.is_scaled for finding in findings]
    )
    block_findings = session_series(store.array, ~does_count, has_data, clutter, threads, alone, is_scaled)
    missing = np.full(clutter.grid.n_pixels, np.nan, np.float32)
    images = {
        "power_doppler": [clutter.image_of(missing if power is None else power) for power in powers],
        "blood_power": [clutter.image_of(values) for values in block_findings.blood_power],
        "noise_power": [
            clutter.image_of(level * block_findings.model.noise_power)
            for level in block_findings.noise_levels
        ],
    }
    flow = next(block_findings.flow for block_findings in findings if block_findings.frames is not None)
    for name in flow:
        images[name] = [
            store.array(number, name) if has_data[number] else clutter.image_of(missing) for number in numbers
        ]
    image_series = {name: np.stack(values) for name, values in images.items()}
    good = np.flatnonzero(~is_bad).tolist()
    observed = np.stack([clutter.image_of(store.array(number, "observed")) for number in good])
    means = {name: _mean(values[good], observed).astype(np.float32) for name, values in image_series.items()}
    means["blood_power"] = clutter.image_of(block_findings.model.mean_blood_power)
    means["tsnr"] = _tsnr(image_series["blood_power"][good], observed)
    return FilteredSession(
        fit=estimate.fit,
        picture_quality=block_findings.model.quality,
        geometry=blocks.geometry,
        frame_time=blocks.frame_time,
        blocks=blocks.blocks,
        findings=findings,
        why=why,
        leftover=excess_power,
        images=image_series,
        means=means,
        attributes={**POWER_IMAGES, **flow, "tsnr": {"unit": "1", "formula": TSNR}},
    )


def _alone(blocks: Blocks, options: DenoiseOptions, clutter: SessionClutter, number: int) -> BlockMap:
    """Return the map of the only block that counts, computed as for a single stack."""
    reader = blocks.reader(number)
    block_options = replace(own_options(options, reader), threads=options.threads)
    stack = reader.read()
    if clutter.reference is not None:
        stack, _ = clutter.reference.align(stack)
    result = denoise_frames(stack, block_options)
    return BlockMap(
        clutter.pixels_of(result.blood_power), clutter.pixels_of(result.noise_power), result.picture_quality
    )


def _mean(images: NDArray[np.floating], observed: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the mean of a series over time, weighted by the frames in which a pixel was observed; 0 without any."""
    total = observed.sum(axis=0, dtype=np.float64)
    weighted = np.where(observed > 0, images, 0) * observed
    mean: NDArray[np.float64] = weighted.sum(axis=0, dtype=np.float64) / np.maximum(total, 1)
    return mean


def _tsnr(images: NDArray[np.float32], observed: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over the standard deviation of a series over time, 0 where it does not change."""
    mean = _mean(images, observed)
    spread = np.sqrt(_mean((images - mean) ** 2, observed))
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
