"""The estimate of a session: the clutter that its blocks have in common, from a sample of their frames."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from usdenoise.blood.clutter_projection import blocks_projection
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import Reference
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import interpolated
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.estimate_clutter import (
    ClutterEstimate,
    estimate_clutter,
    first_without_leak,
    raised_cutoffs,
    with_cutoff,
)
from usdenoise.pipeline.filter_chunk import filter_block
from usdenoise.pipeline.fit_result import FitResult, fit_result
from usdenoise.pipeline.measures import COMPILED_ENTRIES, Clutter
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.scan_clutter import components_only
from usdenoise.pipeline.series import Series
from usdenoise.sessions.bad_blocks import MOST_UNUSUAL
from usdenoise.sessions.measured_block import MeasuredBlock
from usdenoise.sessions.session_sample import Sample, SessionFrames, aligned_sample, nearest_good
from usdenoise.sessions.unusual_blocks import calm_blocks, usual_blocks
from usdenoise.stack.geometry import Geometry

MOST_SESSION_LEAK = 0.5
"""Largest share of leaked tissue in the power above the noise of the tried blocks with which the cutoff of a session is not
raised. On a phantom with tissue 50 dB over blood 65 components left a share of 0.68, and the map correlated with the truth
by 0.876; with 92 components by 0.993. On one of 45 dB the share was 0.23, and more components took blood. With a bound of
0.3 two of three other sessions lost hits, with shares of 0.32 and 0.45."""

MOST_COMPONENTS = 0.4
"""Largest number of components to which the cutoff is raised, over the sampled entries of an average pixel or frame: the
factors have fewer unknowns than the sample has entries. Tissue that stretched by 2 pixels during a session needed 155
components, and 600 entries of a pixel were sampled."""

MOST_FITS = 6
"""Number of fits of the sample of a finished session, each without the blocks that were unusual in the previous fit. The
estimate of a live session is repeated in any case."""

TEMPORAL = 6
"""Largest number of temporal components that are removed from a block. Six change the hits of steady sessions to 0.98 times
those without (8 sessions), and of sessions that move to 1.10 times (9 sessions; benchmarks/RECORDS.md, "Temporal components
of a block")."""

Measure = Callable[[Sequence[int], Clutter], Mapping[int, MeasuredBlock]]
"""Filters the blocks of some numbers, and returns those that could be read."""


@dataclass(frozen=True)
class SessionEstimate:
    """The estimate of a session from a sample of its frames.

    Attributes
    ----------
    clutter : Clutter
        The clutter of all blocks.
    fit : FitResult
        How it was found.
    measured : mapping
        Number -> what was measured of a block, of those that were filtered to try the cutoff.
    """

    clutter: Clutter
    fit: FitResult
    measured: Mapping[int, MeasuredBlock] = field(default_factory=dict)


def estimate_session(
    sample: Sample,
    geometry: Geometry,
    options: DenoiseOptions,
    session: SessionOptions,
    executor: Executor,
    measure: Measure | None = None,
    before: Reference | None = None,
    on_iteration: Callable[..., None] | None = None,
) -> SessionEstimate:
    """Find the clutter that the blocks of a session have in common, from a sample of their frames.

    Parameters
    ----------
    sample : Sample
        Sampled frames of the blocks. In a live session, the sample contains only blocks before the filtered one.
    geometry : Geometry
        Axes and scales of the blocks.
    options : DenoiseOptions
        Options of the estimate.
    session : SessionOptions
        Whether blocks are registered, and their gain is divided out.
    executor : Executor
        Maps over the blocks.
    measure : callable, optional
        Filters blocks, to try the cutoff; by default it is not tried, as in a live session.
    before : Reference, optional
        Reference to which earlier blocks of a live session were aligned.
    on_iteration : callable, optional
        Called with each line of the trace.

    Raises
    ------
    UsdenoiseError
        As for :func:`usdenoise.denoise`.
    """
    if not sample.blocks:
        raise InputError(
            "no block of the session has good frames", remedy="check the frames that {bad_frames} excludes"
        )
    sample, reference = aligned_sample(sample, geometry, executor, session, before)
    threads = executor.local

    # The components of the sample, without the blocks that are unlike the others
    for more in reversed(range(1 if measure is None else MOST_FITS)):
        recording = sample.recording(geometry)
        found = _fit(recording, options, sample, threads, on_iteration)
        if not more or (usual := usual_blocks(found, sample)).all() or usual.mean() < 1 - MOST_UNUSUAL:
            break
        sample = sample.only(usual)

    def clutter_of(chosen: ClutterEstimate) -> Clutter:
        if measure is not None:
            return session_clutter(chosen, SessionFrames.of(sample), options.high_cutoff, reference)
        # A block that is filtered is not in the sample
        none, length = np.zeros(0, np.intp), int(np.median([block.n_frames for block in sample.blocks]))
        frames = SessionFrames([none], [length], [none])
        return session_clutter(chosen, frames, options.high_cutoff, reference)

    def tried(numbers: list[int], filtered: Measure) -> Iterator[tuple[Any, float]]:
        """Yield ever higher cutoffs, with the clutter, the measured blocks and the share of tissue that leaks."""
        for raised in _raised(recording, found, options, sample, threads, on_iteration):
            clutter = clutter_of(raised)
            measured, series = filtered(numbers, clutter), Series()
            for block in measured.values():
                series = series if block.lags is None else series.added(block.lags, clutter)
            share = series.leak_share(clutter) if series.n_blocks > 1 else 0.0
            yield (raised, clutter, measured), share

    # The cutoff, raised while tissue leaks in some blocks
    chosen, clutter, measured = found, clutter_of(found), {}
    if measure is not None and len(sample.blocks) > 1 and options.low_cutoff == "auto" and found.is_raisable:
        numbers = calm_blocks(found, sample)
        if len(numbers) > 1:
            chosen, clutter, measured = first_without_leak(tried(numbers, measure), MOST_SESSION_LEAK)
    # How they were found. Numbers of bad frames count in a file, and the sample has none of these frames.
    measures = filter_block(recording.chunks, components_only(chosen, options), chosen.excluded, threads)
    fit = fit_result(chosen, measures, options)
    return SessionEstimate(clutter, fit, measured)


def _fit(
    recording: Recording,
    options: DenoiseOptions,
    sample: Sample,
    executor: Executor,
    on_iteration: Callable[..., None] | None,
) -> ClutterEstimate:
    """Return the estimate of the sample; bad frames that were given by their number are not in it."""
    bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
    options = replace(options, bad_frames=bad_frames)
    return estimate_clutter(recording, options, executor, None, on_iteration, consecutive=sample.consecutive)


def _raised(
    recording: Recording,
    found: ClutterEstimate,
    options: DenoiseOptions,
    sample: Sample,
    executor: Executor,
    on_iteration: Callable[..., None] | None,
) -> Iterator[ClutterEstimate]:
    """Yield the estimate, and then with ever higher cutoffs, with more components if it has too few."""
    estimate, first, highest = found.estimate, found.band.low, len(found.singular_values)
    if not isinstance(options.rank, int) and estimate.samples_per_pixel is not None:
        # Never above a given rank
        longest = max(estimate.n_sampled / estimate.samples_per_pixel, len(found.model.right))
        highest = max(highest, int(MOST_COMPONENTS * estimate.n_sampled / longest))
    for low in raised_cutoffs(first, highest):
        if low > len(found.singular_values):
            options = replace(options, rank=min(2 * len(found.singular_values), highest))
            more = _fit(recording, options, sample, executor, on_iteration)
            found = replace(more, cutoff=found.cutoff)
        if low > first:
            found = with_cutoff(recording, executor, found, low, "because tissue remained in the blocks")
        yield found


def session_clutter(
    found: ClutterEstimate,
    sampled: SessionFrames,
    high_cutoff: int | str,
    reference: Reference | None = None,
) -> Clutter:
    """Return the clutter of a session.

    Parameters
    ----------
    found : ClutterEstimate
        The estimate of a sample of its frames.
    sampled : SessionFrames
        Which frames are in the sample.
    high_cutoff : int, "rank" or "none"
        End of the components that are kept; all of the residual with "none".
    reference : Reference, optional
        What the sample was aligned to.
    """
    low, grid, keeps_residual = found.band.low, found.grid, high_cutoff == "none"
    model = interpolated(found.model, found.excluded)
    left = grid.everywhere(model.left)
    blocks = []
    for numbers, columns, length in zip(sampled.frames, sampled.columns, sampled.lengths, strict=True):
        block = np.zeros((length, low), np.complex128)
        block[numbers] = model.right[columns, :low]
        blocks.append(block)
    n_kept = low if keeps_residual else min(found.band.high, model.rank)
    return Clutter(
        left=np.ascontiguousarray(left[:, :n_kept]),
        low=low,
        high=n_kept,
        keeps_residual=keeps_residual,
        projection=blocks_projection(blocks),
        grid=grid,
        n_temporal=TEMPORAL if keeps_residual else 0,
        speckle=weak_speckle(left, low),
        tissue=removed_energy(left, model.singular_values, low),
        noise_rms=found.estimate.noise_rms,
        power=float(np.sum(found.singular_values**2)) / (grid.n_pixels * len(model.right)),
        reference=reference,
        replaced=nearest_good(found.bad_pixels.mask) if found.bad_pixels.mask.any() else None,
        is_compiled=sum(sampled.lengths) * grid.mask.size >= COMPILED_ENTRIES,
    )


def check_method(options: DenoiseOptions) -> None:
    """Check that the method is not the SVD: a session has common components, and the SVD of each block is another filter.

    Raises
    ------
    OptionError
        If it is.
    """
    if options.method == "svd":
        raise OptionError(
            "a session removes the same components from all blocks, and does not support the SVD of each block",
            option="method",
            remedy="filter each block by itself with `usdenoise batch` and {method} svd, or choose another method",
        )


def check_bad_frames(options: DenoiseOptions, recording: Recording) -> None:
    """Check that the given bad frames are frames of the blocks.

    Raises
    ------
    OptionError
        If one is not.
    """
    n_frames = max(block.window.stop for block in recording.blocks)
    if not isinstance(options.bad_frames, str) and any(frame >= n_frames for frame in options.bad_frames):
        raise OptionError(
            f"bad frame {max(options.bad_frames)} is not among the frames 0 to {n_frames - 1}",
            remedy="change {bad_frames}",
        )
