"""A long acquisition in blocks of frames, each filtered with a subspace of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration
from usdenoise.errors import OptionError
from usdenoise.images.power_doppler import power_doppler
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.pipeline.denoise import STORAGE, DenoiseResult, denoise
from usdenoise.pipeline.fit_quality import FAR
from usdenoise.pipeline.options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import casorati


@dataclass(frozen=True)
class Block:
    """Consecutive frames that are filtered together.

    Attributes
    ----------
    start, stop : int
        Its frames, half open.
    complete : bool
        Whether it has as many frames as the window.
    """

    start: int
    stop: int
    complete: bool

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.stop - self.start

    @property
    def middle(self) -> float:
        """Its time, in frames from the first one: the mean of its frames' times."""
        return (self.start + self.stop - 1) / 2


def blocks(n_frames: int, window: int, stride: int | None = None) -> list[Block]:
    """The blocks of an acquisition. What whole windows leave over at its end is a short one.

    Parameters
    ----------
    n_frames : int
        Of the acquisition.
    window : int
        Frames a block.
    stride : int, optional
        Frames from one block to the next, at most `window`; by default `window`.

    Returns
    -------
    list of Block
        They cover every frame.

    Raises
    ------
    OptionError
        If the acquisition is shorter than the window.
    """
    step = window if stride is None else stride
    if n_frames < window:
        raise OptionError(
            f"window {window} is more than the {n_frames} frames that there are; lower --window"
        )
    whole = [Block(start, start + window, True) for start in range(0, n_frames - window + 1, step)]
    if whole[-1].stop < n_frames:
        whole.append(Block(whole[-1].start + step, n_frames, False))
    return whole


def filter_blocks(
    read: Callable[[int, int], Acquisition],
    parts: list[Block],
    options: DenoiseOptions,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Iterator[tuple[Block, DenoiseResult, bool]]:
    """Filter block after block. The subspace of each starts the estimate of the next one.

    A block that is too short for the rank that was asked for takes frames before it along while it is
    filtered; what comes back is the block alone.

    Parameters
    ----------
    read : callable
        Gives the frames [start, stop) as an acquisition.
    parts : list of Block
        Of :func:`blocks`.
    options : DenoiseOptions
        Of each block; what is automatic is chosen for each.
    on_iteration : callable, optional
        Called with each line of each block's trace.

    Yields
    ------
    block, result, warm
        In the order of time. `warm` tells whether the estimate started from the block before; where that led
        to a held-out error far above what is possible, this block and those behind it start anew.
    """
    before: DenoiseResult | None = None
    lost = False
    for block in parts:
        first = min(block.start, max(0, block.stop - _least_frames(options)))
        result: DenoiseResult | None = None
        warm = False
        if before is not None and not lost and block.complete and options.method != "svd":
            acquisition = read(first, block.stop)
            result = denoise(
                acquisition,
                # The start has to have the rank of the estimate, so the block before chooses it.
                options=replace(options, rank=before.options.rank),
                start=_carried(before.model, acquisition, options),
                in_place=True,
                all_components=True,
                on_iteration=on_iteration,
            )
            ratio = result.judgement.held_out_ratio
            # Tissue may have moved too far for the old subspace to lead anywhere.
            warm = ratio is not None and ratio <= FAR
            lost = not warm
        if result is None or not warm:
            result = denoise(
                read(first, block.stop),
                options=options,
                in_place=True,
                all_components=True,
                on_iteration=on_iteration,
            )
        before = result
        whole = result.acquisition.n_frames == block.n_frames
        yield block, result if whole else _last_frames(result, block.n_frames), warm


def _carried(model: LowRank, acquisition: Acquisition, options: DenoiseOptions) -> Factors:
    """The spatial subspace of the block before, with the coefficients that these frames have in it."""
    matrix = casorati(acquisition, STORAGE[options.precision, np.iscomplexobj(acquisition.iq)])
    moment: Any = 0.0
    for rows in block_rows(matrix.shape):
        moment = moment + np.nan_to_num(matrix[rows], posinf=0, neginf=0).conj().T @ model.left[rows]
    size = np.sqrt(np.maximum(model.singular_values, np.finfo(np.float32).tiny)).astype(model.left.real.dtype)
    # Balanced: both factors get the square root of the component's size.
    return model.left * size, (moment / size).astype(matrix.dtype)


def _least_frames(options: DenoiseOptions) -> int:
    """Frames without which the rank and the cutoffs that were given cannot be had."""
    given = [
        value
        for value in (options.rank, options.low_cutoff, options.high_cutoff)
        if not isinstance(value, str)
    ]
    needed = max(given, default=0) + (0 if isinstance(options.low_cutoff, str) else 1)
    # Of the sampled entries one in a hundred is held out.
    return max(2, -int(-needed // (0.98 * options.sampling)) if options.method != "svd" else needed)


def _last_frames(result: DenoiseResult, n_frames: int) -> DenoiseResult:
    stack = result.acquisition
    time = stack.axes.index("t")
    index = tuple(slice(-n_frames, None) if axis == time else slice(None) for axis in range(stack.iq.ndim))
    # A single frame is no stack, but has a power.
    power = power_doppler(stack.iq[index], time)
    kept = replace(stack, iq=stack.iq[index]) if n_frames > 1 else stack
    return replace(result, acquisition=kept, power_doppler=power)
