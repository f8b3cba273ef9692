"""The estimate of a session: the clutter that its blocks have in common, from a sample of their frames."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from usdenoise.blood.clutter_projection import blocks_projection
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import Reference, nearest_good
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import interpolated
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate, estimate_clutter
from usdenoise.pipeline.filter_chunk import filter_chunks
from usdenoise.pipeline.fit_result import FitResult, fit_result
from usdenoise.pipeline.measures import COMPILED_ENTRIES, Clutter
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.scan_clutter import components_only, first_without_leak, raised_cutoffs, with_cutoff
from usdenoise.pipeline.series import Leak, Series
from usdenoise.sessions.bad_blocks import MOST_UNUSUAL
from usdenoise.sessions.measured_block import BlockFilter, MeasuredBlock, measure_blocks
from usdenoise.sessions.session_sample import Sample, aligned_sample
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


@dataclass(frozen=True)
class SessionEstimate:
    """The estimate of a session from a sample of its frames.

    Attributes
    ----------
    sample : Sample
        The sampled frames, aligned to the reference, without unusual blocks.
    scan : Recording
        The same as a scan.
    reference : Reference or None
        What the blocks are aligned to; None if they are not.
    found : ClutterEstimate
        The estimate of the scan.
    n_unusual : int
        Number of unusual blocks that were left out; by default none.
    """

    sample: Sample
    scan: Recording
    reference: Reference | None
    found: ClutterEstimate
    n_unusual: int = 0

    def fit(self, options: DenoiseOptions, executor: Executor) -> FitResult:
        """Return how the components were found, by the sampled frames without them.

        Numbers of bad frames that were given count in a file, and the sample has none of these frames.
        """
        found = self.found
        measures = filter_chunks(self.scan.chunks, components_only(found, options), found.excluded, executor)
        return fit_result(found, measures, options)


def estimate_session(
    sample: Sample,
    geometry: Geometry,
    options: DenoiseOptions,
    session: SessionOptions,
    executor: Executor,
    before: Reference | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
    n_fits: int = MOST_FITS,
) -> SessionEstimate:
    """Estimate the clutter that the blocks of a session have in common, from a sample of their frames.

    Parameters
    ----------
    sample : Sample
        Sampled frames of the blocks.
    geometry : Geometry
        Axes and scales of the blocks.
    options : DenoiseOptions
        Options of the estimate.
    session : SessionOptions
        Whether blocks are registered, and their gain is divided out.
    executor : Executor
        Maps over parts of the sample.
    before : Reference, optional
        Reference to which earlier blocks of a live session were aligned.
    on_iteration : callable, optional
        Called with each line of the trace.
    n_fits : int
        Largest number of fits, each without the blocks that were unusual in the one before; by default MOST_FITS.

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
    n_blocks = len(sample.blocks)
    for more in reversed(range(n_fits)):
        scan = sample.recording(geometry)
        found = _fit(scan, options, sample, executor, on_iteration)
        if not more or (usual := usual_blocks(found, sample)).all() or usual.mean() < 1 - MOST_UNUSUAL:
            break
        sample = sample.only(usual)
    return SessionEstimate(sample, scan, reference, found, n_blocks - len(sample.blocks))


def raise_cutoff(
    estimate: SessionEstimate,
    recording: Recording,
    how: BlockFilter,
    session: SessionOptions,
    executor: Executor,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> tuple[SessionEstimate, dict[int, MeasuredBlock]]:
    """Raise an automatic cutoff while tissue leaks in a few blocks of the session.

    Parameters
    ----------
    estimate : SessionEstimate
        The estimate.
    recording : Recording
        The blocks of the session.
    how, session, executor
        As for :func:`usdenoise.sessions.measured_block.measure_blocks`.
    on_iteration : callable, optional
        Called with each line of the trace of a further estimate, of more components.

    Returns
    -------
    estimate : SessionEstimate
        The estimate with the cutoff that was chosen.
    measured : dict
        Number -> the measurements of each block that was tried, with this cutoff.
    """
    options = how.options
    if options.low_cutoff != "auto" or not estimate.found.is_raisable or len(estimate.sample.blocks) < 2:
        return estimate, {}
    numbers = calm_blocks(estimate.found, estimate.sample)
    if len(numbers) < 2:
        return estimate, {}

    found, scan = estimate.found, estimate.scan
    known = highest = len(found.singular_values)
    if not isinstance(options.rank, int) and (samples := found.estimate.samples_per_pixel) is not None:
        # Never above a given rank
        longest = max(found.estimate.n_sampled / samples, len(found.model.right))
        highest = max(highest, int(MOST_COMPONENTS * found.estimate.n_sampled / longest))

    def tried(low: int) -> tuple[tuple[SessionEstimate, dict[int, MeasuredBlock]], Leak]:
        """Return the estimate with a cutoff, with more components if it has too few, the measured blocks, and the leak."""
        nonlocal found
        if low > (rank := len(found.singular_values)):
            longer = replace(options, rank=min(2 * rank, highest))
            more = _fit(scan, longer, estimate.sample, executor.local, on_iteration)
            found = replace(more, cutoff=found.cutoff)
        raised = found
        if low > estimate.found.band.low:
            why = "because tissue remained in the blocks"
            raised = with_cutoff(scan, executor.local, found, low, why)
        of_cutoff = replace(estimate, found=raised)
        clutter, series = session_clutter(of_cutoff, options), Series()
        blocks = measure_blocks(recording, numbers, clutter, how, session, executor)
        measured = dict(zip(numbers, blocks, strict=True))
        for block in measured.values():
            series = series if block.lags is None else series.added(block.lags, clutter)
        return (of_cutoff, measured), series.leak(clutter) if series.n_blocks > 1 else Leak(0.0, 0.0)

    cutoffs = raised_cutoffs(found.band.low, highest)
    return first_without_leak(tried, cutoffs, known, MOST_SESSION_LEAK)


def _fit(
    scan: Recording,
    options: DenoiseOptions,
    sample: Sample,
    executor: Executor,
    on_iteration: Callable[[Iteration], None] | None,
) -> ClutterEstimate:
    """Return the estimate of the sample; bad frames that were given by their number are not in it."""
    bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
    options = replace(options, bad_frames=bad_frames)
    return estimate_clutter(scan, options, executor, None, on_iteration, consecutive=sample.consecutive)


def session_clutter(estimate: SessionEstimate, options: DenoiseOptions, is_new: bool = False) -> Clutter:
    """Return the clutter of a session.

    Parameters
    ----------
    estimate : SessionEstimate
        The estimate of a sample of its frames.
    options : DenoiseOptions
        Which components are kept.
    is_new : bool
        Whether the blocks that are filtered are not in the sample, as in a live session; by default they are.
    """
    found, sample = estimate.found, estimate.sample
    low, grid, keeps_residual = found.band.low, found.grid, options.high_cutoff == "none"
    model = interpolated(found.model, found.excluded)
    left = grid.everywhere(model.left)
    # The components take more from a block to whose frames they were fitted
    lengths = [block.n_frames for block in sample.blocks]
    lengths = [int(np.median(lengths))] if is_new else lengths
    courses = [np.zeros((length, low), np.complex128) for length in lengths]
    if not is_new:
        for course, (frames, at) in zip(courses, sample.places(), strict=True):
            course[frames] = model.right[at, :low]
    n_kept = low if keeps_residual else min(found.band.high, model.rank)
    return Clutter(
        left=np.ascontiguousarray(left[:, :n_kept]),
        low=low,
        high=n_kept,
        keeps_residual=keeps_residual,
        projection=blocks_projection(courses),
        grid=grid,
        n_temporal=TEMPORAL if keeps_residual else 0,
        speckle=weak_speckle(left, low),
        tissue=removed_energy(left, model.singular_values, low),
        noise_rms=found.estimate.noise_rms,
        power=float(np.sum(found.singular_values**2)) / (grid.n_pixels * len(model.right)),
        reference=estimate.reference,
        replaced=nearest_good(found.bad_pixels.mask) if found.bad_pixels.mask.any() else None,
        is_compiled=sum(map(len, courses)) * grid.mask.size >= COMPILED_ENTRIES,
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
