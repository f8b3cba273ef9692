"""The clutter of one scan with a cutoff that leaves little tissue, and the rule by which scans and sessions raise it."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from usdenoise.blood.clutter_projection import clutter_projection
from usdenoise.blood.picture_quality import MOST_QUIET_CORRELATION, removed_energy, weak_speckle
from usdenoise.clutter.clutter_cutoff import Band, CutoffCertainty, CutoffReason
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank, interpolated
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate, fit_all_pixels, needed_components
from usdenoise.pipeline.filter_chunk import filter_chunks
from usdenoise.pipeline.measures import COMPILED_ENTRIES, Clutter
from usdenoise.pipeline.recording import Chunk, Recording
from usdenoise.pipeline.series import BlockLags, Leak, Series

Tried = TypeVar("Tried")

MORE, SUFFICIENT_CUTOFFS, FAR_BELOW = 1.12, 2, 0.5
"""How much the cutoff is raised at a time, and consecutive cutoffs without too much leaked tissue of which the first is
chosen. In a session whose tissue stretched, 9 components left a share of 0.39 of the tissue, 8 and 11 left 0.52 and 0.62,
and 129 were needed. A share below half of the bound is enough by itself: in eleven sessions the next cutoff left less."""

MOST_SCAN_LEAK = 0.4
"""Largest share of leaked tissue in the power above the noise with which the automatic cutoff of a scan is not raised. On 70
stacks with 24 to 64 pixels a side, 600 to 2400 frames and tissue of 50 to 65 dB, eleven are raised, and the correlation of
power Doppler changes by -0.01 to +0.28. With 0.3 it changes by -0.17 to +0.87 in 33 of 71 (benchmarks/RECORDS.md)."""

WHITE_CORRELATION = MOST_QUIET_CORRELATION / 2
"""Quiet correlation with the highest cutoff up to which noise is white. Components of noise that is not white take some of
its correlation with them: .47 became .38 with persistence, and tissue .77 became .12 in a session that rotates."""

TRIED_FRAMES = 200
"""Least number of frames on which a cutoff is tried, if the scan has as many."""


def scan_clutter(
    recording: Recording, found: ClutterEstimate, options: DenoiseOptions, executor: Executor
) -> tuple[ClutterEstimate, Clutter]:
    """Return the estimate of a scan with a cutoff that leaves little tissue, and its clutter.

    An automatic cutoff that is not sure, or that the tissue square moved beyond the fall of the similarity, is tried on the
    chunks in the middle of the scan, and raised while tissue leaks.

    Parameters
    ----------
    recording : Recording
        The chunks of the scan.
    found : ClutterEstimate
        Its estimate.
    options : DenoiseOptions
        Options of the estimate.
    executor : Executor
        Maps over the chunks.
    """
    is_automatic = options.low_cutoff == "auto" and options.refit == "all"
    rests_on_fall = found.cutoff.reason is CutoffReason.SIMILARITY_FALLS
    is_settled = found.cutoff.certainty == CutoffCertainty.SURE and rests_on_fall
    if is_automatic and found.is_raisable and not is_settled:
        found = first_without_leak(
            _try_cutoff(recording, found, options, executor),
            raised_cutoffs(found.band.low, len(found.singular_values)),
            len(found.singular_values),
            MOST_SCAN_LEAK,
        )
    return found, _with_lags(found, options)


def _try_cutoff(
    recording: Recording, found: ClutterEstimate, options: DenoiseOptions, executor: Executor
) -> Callable[[int], tuple[ClutterEstimate, Leak]]:
    """Return a function of a cutoff that returns the estimate with it, and how much tissue leaks."""
    middle, frames = [*recording.chunks], slice(0, recording.geometry.n_frames)
    # Of chunks that are still Dask values it is not known which are in the middle, and all are tried.
    if all(isinstance(chunk, Chunk) for chunk in middle):
        while len(middle) > 2 and middle[-2].first - middle[1].first >= TRIED_FRAMES:
            middle = middle[1:-1]
        frames = slice(middle[0].first, middle[-1].stop)
        middle = [replace(chunk, first=chunk.first - frames.start) for chunk in middle]

    def tried(low: int) -> tuple[ClutterEstimate, Leak]:
        raised = found
        if low > found.band.low:
            raised = with_cutoff(recording, executor, found, low, "because tissue remained")
        clutter = _with_lags(raised, options)
        assert clutter.model is not None
        of_frames = replace(clutter, model=clutter.model[frames])
        measures = filter_chunks(middle, of_frames, found.excluded[frames], executor)
        return raised, Series().added(BlockLags.of(measures, of_frames), of_frames).leak(clutter)

    return tried


def _with_lags(found: ClutterEstimate, options: DenoiseOptions) -> Clutter:
    """Return the clutter of an estimate, with which lags are measured."""
    model, low = found.model, found.band.low
    left = found.grid.everywhere(model.left)
    return replace(
        components_only(found, options),
        projection=clutter_projection(model.right[:, :low], ~found.excluded),
        speckle=weak_speckle(left, low),
        tissue=removed_energy(left, model.singular_values, low),
        power=found.power,
    )


def components_only(found: ClutterEstimate, options: DenoiseOptions) -> Clutter:
    """Return the clutter of an estimate, by which its components are measured without lags."""
    model = interpolated(found.model, found.excluded)
    return Clutter(
        left=found.grid.everywhere(model.left),
        low=found.band.low,
        high=min(found.band.high, model.rank),
        keeps_residual=found.band.keeps_residual,
        grid=found.grid,
        model=model_coefficients(model),
        is_given=options.refit == "none" and options.method != "svd",
        has_gaps=found.has_gaps,
        noise_rms=found.estimate.noise_rms,
        is_compiled=len(found.excluded) * found.grid.mask.size >= COMPILED_ENTRIES,
    )


def model_coefficients(model: LowRank) -> Numbers:
    """Return the coefficients of the components in each frame, (n_frames, r)."""
    a: Numbers = model.right.conj() * model.singular_values.astype(model.right.real.dtype)
    return a


def with_cutoff(
    recording: Recording, executor: Executor, found: ClutterEstimate, low: int, why: str
) -> ClutterEstimate:
    """Return an estimate of which the residual is kept, with a higher cutoff and the reason for it in words.

    Components that the model does not have yet are fitted to all pixels.
    """
    rank, model = len(found.singular_values), found.model
    first = found.cutoff.sentence.partition("; raised")[0]
    choice = replace(
        found.cutoff, low=low, sentence=f"{first}; raised to {low} {why}", certainty=CutoffCertainty.UNSURE
    )
    if model.rank < (count := needed_components(low, rank)):
        model = fit_all_pixels(
            recording, executor, found.inspection, found.grid, found.excluded, found.estimate, count
        )
    return replace(found, model=model, band=Band(low, rank, True), cutoff=choice)


def raised_cutoffs(low: int, highest: int) -> Iterator[int]:
    """Yield a cutoff, and ever higher ones up to the highest."""
    yield low
    while low < highest:
        low = min(math.ceil(MORE * low), highest)
        yield low


def first_without_leak(
    tried: Callable[[int], tuple[Tried, Leak]], cutoffs: Iterable[int], highest: int, most: float
) -> Tried:
    """Return the first of two consecutive cutoffs that leave little tissue, or the last cutoff if there are none.

    The one rule by which the cutoffs of scans and of sessions are raised; they are never lowered. What is left in quiet
    pixels is noise, whose neighbouring frames are uncorrelated. Where they are not, a share of more than half of `most` is
    too much, unless they are not with the highest cutoff either: then the noise itself is correlated. With a lower share
    what is left is slow blood.

    Parameters
    ----------
    tried : callable
        Takes a cutoff, and returns anything and how much tissue leaks.
    cutoffs : iterable of int
        Ever higher cutoffs.
    highest : int
        A cutoff that leaves no tissue.
    most : float
        Largest share that is little.
    """
    sufficient, is_white = list[Tried](), None
    for low in cutoffs:
        candidate, leak = tried(low)
        is_little = leak.share <= most
        if FAR_BELOW * most < leak.share <= most and leak.quiet_correlation > MOST_QUIET_CORRELATION:
            if is_white is None:
                is_white = tried(highest)[1].quiet_correlation <= WHITE_CORRELATION
            is_little = not is_white
        sufficient = [*sufficient, candidate] if is_little else []
        if len(sufficient) == SUFFICIENT_CUTOFFS or leak.share <= FAR_BELOW * most:
            break
    return sufficient[0] if sufficient else candidate
