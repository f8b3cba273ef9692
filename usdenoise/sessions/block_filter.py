"""The filter of one block of a session, with the measures of the filtered block."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import FrameSearch, find_bad_frames
from usdenoise.frames.displacement import displacements, envelope, middle_part
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.block_filter import (
    BlockFilter,
    FrameBlock,
    coefficients,
    filter_block,
    leading_temporal,
    observed_frames,
)
from usdenoise.pipeline.combination import lag_sums_of
from usdenoise.pipeline.denoise import working_type
from usdenoise.pipeline.frame_sources import ArrayFrames, frames_as_stack
from usdenoise.pipeline.inspection import check_block
from usdenoise.pipeline.passes import Passes
from usdenoise.pipeline.stack_filter import n_unused
from usdenoise.sessions.alignment import Alignment
from usdenoise.sessions.bad_blocks import BlockLevel
from usdenoise.sessions.blocks import frames_in_order, with_frames
from usdenoise.sessions.session_clutter import SessionClutter
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.pixel_sample import PixelSample
from usdenoise.stack.sampling import spread_rows

SEARCHED_PIXELS = 1024
"""Pixels in which bad frames are looked for, spread over the image."""

TEMPORAL, FRAMES_A_TEMPORAL = 6, 48
"""Largest number of temporal components that are removed from a block, and frames of the block for each of them. Six change
the hits of steady sessions to 0.98 times those without (8 sessions), and of sessions that move to 1.10 times (9 sessions;
benchmarks/RECORDS.md, "Temporal components of a block")."""

OWN_PIXELS, OWN_RATIO = 2048, 2.0
"""Pixels on which components of a block's own are looked for, and how much stronger than usual they are. With a clutter that
was two to seven blocks old, on a phantom whose tissue drifts, 2 to 22 times the usual power was left; without the 5 to 8
components above this bound 0.94 to 1.03 times, and with a bound of 3 1.04 to 1.14 times."""


@dataclass(frozen=True)
class FilteredBlock:
    """A block without the clutter of its session.

    Attributes
    ----------
    stack : Acquisition or None
        The block, filtered, if it is kept; 0 in unobserved entries and in excluded frames.
    lags : (n_signal, L + 1) array
        Lagged products of the residual in the pixels that have a signal, from
        :meth:`usdenoise.linalg.lag_sums.LagSums.mean`.
    halves : LagSums
        Their sums; all frames are in the first half without `usual`.
    power : (n_signal,) float64 array
        Power Doppler of the filtered block; NaN in pixels that were not observed.
    observed : (n_signal,) float64 array
        Number of frames in which each pixel was observed, without the excluded frames.
    frames : FrameSearch
        Bad frames and movement.
    n_unobserved : int
        Number of entries that were unobserved, or in an excluded frame.
    temporal : (n, q) array
        The temporal components that were removed after the common spatial ones, orthonormal columns.
    alignment : Alignment or None
        Its shift and gain; None if blocks are not aligned.
    strongest : float
        Mean power of the strongest temporal component of the filtered block; 0 where it was not looked for.
    """

    stack: Acquisition | None
    lags: NDArray[np.inexact]
    halves: LagSums
    power: NDArray[np.float64]
    observed: NDArray[np.float64]
    frames: FrameSearch
    n_unobserved: int
    temporal: NDArray[Any]
    alignment: Alignment | None
    strongest: float

    @property
    def level(self) -> BlockLevel:
        """The quantities of the block that are compared with other blocks."""
        return BlockLevel.of(self.power, self.frames, self.alignment)


def filter_session_block(
    stack: Acquisition,
    clutter: SessionClutter,
    options: DenoiseOptions,
    usual: float | None = None,
    is_kept: bool = True,
) -> FilteredBlock:
    """Align a block with its session, and remove the clutter of the session from it.

    With the aligned block X (n_frames x n_pixels) the filtered block is (I - V V^H) (X - A U^T), with the common components
    U and the coefficients A = X conj(U) of this block: tissue moves differently in each. The tissue that U leaves has the
    temporal signals of the tissue in this block. V are the leading ones of these: the first left singular vectors of A.

    Parameters
    ----------
    stack : Acquisition
        The block.
    clutter : SessionClutter
        The common components.
    options : DenoiseOptions
        Precision, and which frames are bad.
    usual : float, optional
        Usual power of the strongest component of a filtered block. Components more than twice as strong are removed, too, as
        temporal components of this block: tissue at a position that the blocks of the clutter estimate do not have.
        By default nothing is, and the lags are not summed by halves of the frames.
    is_kept : bool
        Whether the filtered block is kept; by default it is.

    Raises
    ------
    InputError
        If the block is zero or unobserved everywhere.
    """
    stack, alignment = _without_dead_pixels(stack, clutter), None
    if clutter.reference is not None:
        stack, alignment = clutter.reference.align(stack)
    source = ArrayFrames(stack, working_type(stack, options.precision), in_place=False)
    block = source.block(0, stack.n_frames)
    if not is_kept:
        block = replace(block, target=None)
    is_finite = check_block(block, stack.name)
    grid, k = clutter.grid, clutter.cutoff
    with ThreadExecutor(1) as executor:
        passes = Passes(source, executor, executor, [block])
        search = _bad_frames(passes, clutter, options)
        plan = BlockFilter(
            spatial=passes.in_block(clutter.left),
            low=k,
            high=clutter.left.shape[1],
            keeps_residual=options.high_cutoff == "none",
            n_lags=clutter.projection.n_lags,
            n_frames=None if usual is None else stack.n_frames,
            n_temporal=n_temporal_components(stack.n_frames) if options.high_cutoff == "none" else 0,
            has_signal=None if grid.signal_pixels is None else passes.in_block(grid.mask.ravel()),
            excluded=search.left_out,
            has_gaps=not is_finite,
        )
        strongest = 0.0
        if usual is not None:
            block_components, strongest = _own_components(block, is_finite, plan, OWN_RATIO * usual)
            plan = replace(plan, more_temporal=block_components)
        measures, _ = filter_block(block, is_finite, plan, False)
        signal_pixels = passes.places(
            np.arange(stack.n_pixels) if grid.signal_pixels is None else grid.signal_pixels
        )
    lag_sums = lag_sums_of(measures, replace(plan, n_frames=stack.n_frames)).rows(signal_pixels)
    lags = lag_sums.mean(slice(None), stack.n_frames)
    n_used = stack.n_frames - (0 if search.left_out is None else int(np.count_nonzero(search.left_out)))
    observed = np.broadcast_to(lag_sums.counts[:, :, 0].sum(axis=0), len(signal_pixels))
    power = lags[:, 0].real if plan.keeps_residual else measures.kept_power[signal_pixels] / n_used
    return FilteredBlock(
        stack=replace(stack, iq=frames_as_stack(source.target, stack, source.pixel_axes))
        if is_kept
        else None,
        lags=lags,
        halves=lag_sums,
        power=np.where(observed > 0, power, np.nan),
        observed=observed,
        frames=search,
        n_unobserved=n_unused(measures, search.left_out),
        temporal=measures.temporal,
        alignment=alignment,
        strongest=strongest,
    )


def n_temporal_components(n_frames: int) -> int:
    """Return the number of temporal components that are removed from a block of a session."""
    return min(TEMPORAL, n_frames // FRAMES_A_TEMPORAL)


def _dead_pixels(frames: NDArray[Any], among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the pixels that are 0 in all frames, (n, pixels along each axis...), among some pixels."""
    is_dead: NDArray[np.bool_] = (frames[0] == 0) & among
    is_dead[is_dead] = ~frames[:, is_dead].any(axis=0)
    return is_dead


def _without_dead_pixels(stack: Acquisition, clutter: SessionClutter) -> Acquisition:
    """Return a block whose pixels that are 0 in all frames, and have a signal in the session, are NaN: unobserved."""
    frames = frames_in_order(stack)
    is_dead = _dead_pixels(frames, clutter.grid.mask)
    # A block without any data is found to be empty later.
    if not is_dead.any() or is_dead.all():
        return stack
    return with_frames(stack, np.where(is_dead, np.array(np.nan, frames.dtype), frames))


def _bad_frames(passes: Passes, clutter: SessionClutter, options: DenoiseOptions) -> FrameSearch:
    """Return the bad frames of a block, and how the image moves in it."""
    (block,), grid, threads = passes.items, clutter.grid, passes.threads
    x = block.read()
    part = middle_part(grid.shape, None if grid.signal_pixels is None else grid.mask)
    numbers = np.arange(x.shape[1]).reshape(grid.shape)[part]
    envelopes = envelope(x[:, passes.places(numbers.ravel())]).reshape(-1, *numbers.shape)
    moved = displacements(envelopes, grid.mask[part], threads)
    signal_pixels = np.arange(x.shape[1]) if grid.signal_pixels is None else grid.signal_pixels
    pixels = signal_pixels[spread_rows(len(signal_pixels), SEARCHED_PIXELS)]
    values = np.ascontiguousarray(x[:, passes.places(pixels)].T)
    sample = PixelSample.of(values, np.arange(len(pixels)), threads)
    # Where the blocks are copies of each other, the noise of the session is 0, and the noise of the block counts.
    return find_bad_frames(sample, options.bad_frames, options.seed, moved, clutter.noise_rms or None)[0]


def _own_components(
    block: FrameBlock, is_finite: bool, plan: BlockFilter, bound: float
) -> tuple[NDArray[Any] | None, float]:
    """Return temporal components of a filtered block that are above a bound, and the power of the next one."""
    x, observed = observed_frames(block.read(), is_finite, plan.has_signal)
    a = coefficients(x, observed, None, plan, slice(block.start, block.stop))
    signal_pixels = np.arange(x.shape[1]) if plan.has_signal is None else np.flatnonzero(plan.has_signal)
    pixels = signal_pixels[:: max(1, len(signal_pixels) // OWN_PIXELS)]
    residual = x[:, pixels] - a[:, : plan.low] @ plan.spatial[pixels, : plan.low].T
    if observed is not None:
        residual *= observed[:, pixels]
    if plan.excluded is not None:
        residual[plan.excluded] = 0
    temporal = leading_temporal(a[:, : plan.low], plan.n_temporal, plan.excluded)
    residual -= temporal @ (temporal.conj().T @ residual)
    energies, vectors = np.linalg.eigh(residual @ residual.conj().T)
    powers = energies / residual.size
    n_own = min(int(np.count_nonzero(powers > bound)), len(powers) - 1)
    return (np.ascontiguousarray(vectors[:, -n_own:]) if n_own else None), float(powers[-1 - n_own])
