"""Filter the blocks of a session, and make their series.

The same steps as for one acquisition: an estimate from a sample, a pass over the blocks by an executor, and the
combination of their measures.
"""

from dataclasses import replace
from typing import Protocol

from usdenoise.errors import InputError
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.devices import HOST, device_memory, most_blocks, windows_on_device
from usdenoise.pipeline.recording import Recording
from usdenoise.progress import Progress
from usdenoise.sessions.measured_block import (
    BlockFilter,
    BlockStore,
    measure_blocks,
)
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_estimate import (
    check_bad_frames,
    check_method,
    estimate_session,
    raise_cutoff,
    session_clutter,
)
from usdenoise.sessions.session_result import filtered_session
from usdenoise.sessions.session_sample import SAMPLED_FRAMES, draw_sample
from usdenoise.system.resources import (
    available_bytes,
    available_threads,
    held_bytes,
    most_side_by_side,
    release_freed_memory,
)

HELD_ENTRIES = 1 << 26
"""Entries of the blocks that are filtered side by side, one on each thread, about."""


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
        Whether a block that cannot be read is missing, and whether blocks are aligned.
    options : DenoiseOptions
        Options of the filter.
    store : BlockStore
        Store of the measurements of the blocks. Blocks in it are not filtered again, but for those on which the cutoff is
        tried, and those that the sink lacks.
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
    check_bad_frames(options, recording)
    progress = progress or Progress()
    how = BlockFilter(
        options=options, geometry=recording.geometry, products=products, keeps_frames=sink is not None
    )
    n_threads = options.threads or available_threads()
    if executor is None:
        n_threads = min(n_threads, _most_blocks(recording, options))
    with ThreadExecutor(n_threads) as threads, device_memory(options.device):
        mapper = executor or threads
        # Some frames of all blocks, which are without flicker from now on, or have a reason why they cannot be read. Where
        # workers filter the blocks, this process may have no such device.
        of_sample = options if executor is None else replace(options, device=HOST)
        recording, sample = draw_sample(recording, of_sample, session, mapper)
        # The clutter that the blocks have in common: the sample is registered, and unusual blocks are left out
        estimate = estimate_session(
            sample, recording.geometry, options, session, threads, on_iteration=progress.iteration
        )
        del sample
        # Its cutoff, raised while tissue leaks in a few blocks; overlapping blocks share their frames on a device
        blocks = (
            recording if executor is not None else windows_on_device(recording, options.device, n_threads)
        )
        estimate, trial_blocks = raise_cutoff(estimate, blocks, how, session, mapper, progress.iteration)
        fit, clutter = estimate.fit(options, threads), session_clutter(estimate, options)
        del estimate
        # All blocks without it, but those that an earlier run measured, and whose frames are there or not needed; a stored
        # block without frames has no data
        todo = [
            number
            for number in range(len(recording.blocks))
            if not store.has(number)
            or not (sink is None or sink.has(number) or store.findings(number).frames is None)
        ]
        others = [number for number in todo if number not in trial_blocks]
        measured = measure_blocks(blocks, others, clutter, how, session, mapper)
        for number in todo:
            # Both are in the order of the blocks.
            block = trial_blocks.pop(number, None) or next(measured)
            if sink is not None and block.frames is not None:
                sink.write(number, block.frames)
            # A block that is stored is done.
            store.put(number, block)
            progress.blocks(number + 1, len(recording.blocks))
        # The series of the good ones
        return filtered_session(recording, session, clutter, fit, store, options, threads)


def _most_blocks(recording: Recording, options: DenoiseOptions) -> int:
    """Return the largest number of blocks that are filtered side by side, for their memory.

    Raises
    ------
    InputError
        If the sampled frames and one block do not fit into the free memory.
    """
    n_frames, n_pixels = [block.n_frames for block in recording.blocks], recording.geometry.n_pixels
    entries, entry = max(n_frames) * n_pixels, recording.dtype.itemsize
    sample = min(sum(n_frames), SAMPLED_FRAMES) * n_pixels
    # A live session may have run in this process.
    release_freed_memory()
    free, of_block = available_bytes(), held_bytes(block=entries * entry)
    needed = of_block + held_bytes(sample=sample * entry)
    most = most_side_by_side(free, needed, of_block, 1 + HELD_ENTRIES // entries)
    if not most:
        raise InputError(
            f"a block of {max(n_frames)} frames and a sample of the session need about {needed / 2**20:.0f} MiB of memory, "
            f"and {free / 2**20:.0f} MiB are free",
            remedy="cut the files into shorter blocks with {window}",
        )
    if options.device == HOST:
        return most
    on_device = most_blocks(options.device, recording.dtype, entries)
    return int(min(most_side_by_side(free, of_block, of_block), on_device))
