"""The estimate of a session: the clutter that its blocks have in common, from a sample of their frames."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from usdenoise.blood.clutter_projection import blocks_projection
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.clutter.clutter_cutoff import CutoffCertainty, CutoffReason
from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import Reference, nearest_good
from usdenoise.frames.still_tissue import StillReference, tiles_of
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import interpolated
from usdenoise.linalg.tall_matrices import COMPILED_ENTRIES
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate, estimate_clutter
from usdenoise.pipeline.filter_chunk import OWN_RATIO, filter_chunks
from usdenoise.pipeline.fit_result import FitResult, fit_result
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.scan_clutter import components_only
from usdenoise.sessions.bad_blocks import MOST_UNUSUAL
from usdenoise.sessions.session_sample import Sample, aligned_sample, still_sample
from usdenoise.sessions.unusual_blocks import tissue_changes, usual_blocks
from usdenoise.stack.geometry import Geometry

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
        Sampled frames of the blocks, aligned to the reference, without unusual blocks.
    scan : Recording
        The same as a scan.
    found : ClutterEstimate
        The estimate of the scan, with the cutoff that is reported.
    reference : Reference or None
        What the blocks are aligned to; None if they are not.
    still : StillReference or None
        What their tissue is held still by; None (the default) if it is not.
    n_unusual : int
        Number of unusual blocks that were left out; by default none.
    is_own : bool
        Whether each block has components of its own, as their tissue is not the same; by default not.
    """

    sample: Sample
    scan: Recording
    found: ClutterEstimate
    reference: Reference | None
    still: StillReference | None = None
    n_unusual: int = 0
    is_own: bool = False

    def fit(self, options: DenoiseOptions, executor: Executor) -> FitResult:
        """Return how the components were found, by the sampled frames without them.

        Numbers of bad frames that were given count in a file, and the sample has none of these frames.
        """
        clutter = components_only(self.found, options)
        measures = filter_chunks(self.scan.chunks, clutter, self.found.excluded, executor)
        return fit_result(self.found, measures, options)


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

    Where the tissue changes during the session, each block has components of its own.

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
        Largest number of fits, each without the blocks that were unusual in the one before; by default MOST_FITS. With one,
        as in a live session, which is to keep its components, neither changes over time nor an unsure cutoff count.

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
    tiles = None if sample.consecutive.is_still is False else tiles_of(geometry, options)
    still = None if tiles is None else still_sample(sample, tiles, executor)
    fit = partial(_fit, options=options, executor=executor, on_iteration=on_iteration)
    scan = sample.recording(geometry)
    found, alone, n_blocks = fit(scan, sample), sample.consecutive, len(sample.blocks)
    # Where the tissue changes, blocks are unusual for that, and each has components of its own
    may_be_own = isinstance(options.low_cutoff, str) and found.band.keeps_residual
    may_be_own = may_be_own and alone.cutoff is not None and alone.cutoff.low > 0
    is_own = may_be_own and n_fits > 1 and tissue_changes(found, sample)
    for n_more in reversed(range(n_fits)):
        # An unsure cutoff most often is one of tissue that blocks do not share, unless it leaves far less than their own
        is_unsure = n_fits > 1 and found.cutoff.certainty is CutoffCertainty.UNSURE
        ratio = 1 / OWN_RATIO if is_unsure else OWN_RATIO
        is_own = is_own or (may_be_own and found.left > ratio * alone.left)
        if is_own or not n_more:
            break
        usual = usual_blocks(found, sample)
        if usual.all() or usual.mean() < 1 - MOST_UNUSUAL:
            break
        sample = sample.only(usual)
        scan = sample.recording(geometry)
        found = fit(scan, sample)
    if is_own and alone.cutoff is not None:
        sentence = CutoffReason.BLOCK_ALONE.value.format(alone=alone.cutoff.sentence)
        choice = replace(alone.cutoff, reason=CutoffReason.BLOCK_ALONE, sentence=sentence)
        found = replace(found, band=replace(found.band, low=choice.low), cutoff=choice)
    return SessionEstimate(sample, scan, found, reference, still, n_blocks - len(sample.blocks), is_own)


def _fit(
    scan: Recording,
    sample: Sample,
    options: DenoiseOptions,
    executor: Executor,
    on_iteration: Callable[[Iteration], None] | None,
) -> ClutterEstimate:
    """Return the estimate of the sample; bad frames that were given by their number are not in it.

    If the tissue reaches its last component, it has twice as many components, if the sample determines these.
    """
    bad_frames = options.bad_frames if isinstance(options.bad_frames, str) else "auto"
    options = replace(options, bad_frames=bad_frames)
    estimated = partial(
        estimate_clutter, scan, executor=executor, on_iteration=on_iteration, consecutive=sample.consecutive
    )
    found = estimated(options)
    if found.cutoff.reason is CutoffReason.BEYOND_RANK and options.rank == "auto":
        with suppress(OptionError):
            found = estimated(replace(options, rank=2 * len(found.singular_values)))
    return found


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
    low, keeps_residual = found.band.low, options.high_cutoff == "none"
    model = interpolated(found.model, found.excluded)
    left = found.grid.everywhere(model.left)
    n_kept = low if keeps_residual else min(found.band.high, model.rank)
    # The components take more from a block to whose frames they were fitted
    lengths = [block.n_frames for block in sample.blocks]
    if is_new:
        lengths = [int(np.median(lengths))]
    courses = [np.zeros((length, low), np.complex128) for length in lengths]
    if not is_new and not estimate.is_own:
        for course, (frames, at) in zip(courses, sample.places(), strict=True):
            course[frames] = model.right[at, :low]
    n_own = low if estimate.is_own else 0
    return Clutter(
        left=np.ascontiguousarray(left[:, :n_kept]),
        low=low - n_own,
        high=n_kept,
        keeps_residual=keeps_residual,
        projection=blocks_projection(courses),
        grid=found.grid,
        n_temporal=TEMPORAL if keeps_residual else 0,
        n_own=n_own,
        speckle=weak_speckle(left, low),
        tissue=removed_energy(left, model.singular_values, low),
        noise_rms=found.estimate.noise_rms,
        power=float(np.sum(found.singular_values**2)) / (found.grid.n_pixels * len(model.right)),
        reference=estimate.reference,
        still=estimate.still,
        replaced=nearest_good(found.bad_pixels.mask) if found.bad_pixels.mask.any() else None,
        is_compiled=sum(lengths) * found.grid.mask.size >= COMPILED_ENTRIES,
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
