"""Make the report of a result: the fit, the frames, the blocks of a session, the input and the resources."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.clutter.clutter_cutoff import CutoffReason
from usdenoise.options.job_options import NO_PRODUCTS, SessionOptions
from usdenoise.pipeline.doubts import ABOUT_BLOOD
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.report.record import (
    ActivationRecord,
    BlockRecord,
    BloodRecord,
    CutoffRecord,
    FramesRecord,
    InputRecord,
    Report,
    SequenceRecord,
)
from usdenoise.report.series import ResultSeries
from usdenoise.stack.geometry import GriddedStack
from usdenoise.system.provenance import software
from usdenoise.system.resources import peak_memory_bytes

MOST_NAMED = 3
"""Bad blocks that are named in words."""


def input_record(
    path: Path, stack: GriddedStack, shape: Sequence[int], digest: str | None, **more: Any
) -> InputRecord:
    """Return the record of a stack that was read.

    Parameters
    ----------
    path : Path
        File, or folder of files.
    stack : Geometry or Acquisition
        Its metadata.
    shape : sequence of int
        Its shape, with all frames.
    digest : str or None
        The SHA-256 digest of its files; None for several files.
    **more
        The other fields of the record.
    """
    return InputRecord(
        path=str(path),
        sha256=digest,
        dataset=stack.name,
        shape=tuple(shape),
        axes=stack.axes,
        dtype=str(stack.stored_dtype or stack.dtype),
        frame_rate_hz=stack.frame_rate_hz,
        spacing_mm=dict(stack.spacing_mm),
        assumptions=tuple(stack.assumptions),
        **more,
    )


def report_of(
    series: ResultSeries,
    source: InputRecord,
    output: Mapping[str, str],
    notes: Sequence[str],
    timings_s: Mapping[str, float],
    command: Sequence[str] | None,
    requested: Mapping[str, Any],
    session: SessionOptions | None,
) -> Report:
    """Return the report of a job.

    Parameters
    ----------
    series : ResultSeries
        The filtered blocks.
    source : InputRecord
        The input.
    output, notes, timings_s, command, requested
        As in :class:`usdenoise.report.record.Report`.
    session : SessionOptions or None
        Options of a session; None for a run.
    """
    result, picture = series.fit, series.picture_quality
    judges_blood = tuple(requested.get("output", {}).get("products", ())) != NO_PRODUCTS
    solution, options, fit = result.solution, result.options, result.fit_quality
    first = series.blocks[0]
    doubts = tuple(doubt for doubt in series.doubts if judges_blood or doubt.code not in ABOUT_BLOOD)
    # A doubt is not an assumption besides.
    doubted = {doubt.sentence for doubt in doubts}
    assumptions = tuple(note for note in source.assumptions if note not in doubted)
    report = Report(
        method=options.method,
        rank=int(options.rank),
        sampling=options.sampling,
        seed=options.seed,
        low_cutoff=int(options.low_cutoff),
        high_cutoff=series.high_cutoff,
        iterations=solution.iterations if solution else 0,
        passes=solution.passes if solution else 0,
        stop_reason=solution.stop_reason.value if solution else "the SVD is not iterative",
        held_out_rmse=result.held_out_rmse,
        held_out_allowed=fit.allowed_rmse,
        held_out_ratio=fit.held_out_ratio,
        residual_rms=fit.residual_rms,
        blood=BloodRecord(**asdict(picture), sentence=picture.sentence if judges_blood else ""),
        reproducibility=picture.reproducibility,
        bad_frames=first.bad_frames,
        frames=first.frames,
        fit=fit.verdict.code,
        estimate=fit.sentence,
        start_caution=fit.start_caution,
        verdict="",
        doubts=doubts,
        cutoff=_cutoff(result),
        noise_floor=result.noise_floor,
        n_sampled=result.n_sampled,
        n_subset_pixels=result.n_subset_pixels,
        n_sample_pixels=result.n_sample_pixels,
        n_unobserved=first.n_unobserved,
        n_silent=result.n_silent,
        n_bad_pixels=result.bad_pixels.n_pixels,
        bad_pixels=tuple(result.bad_pixels.places(series.geometry.pixel_axes)),
        n_saturated=int(np.count_nonzero(result.bad_pixels.saturated)),
        # The first round of an axis measures its flicker, and later ones what was left of it
        flicker={series.geometry.pixel_axes[each.axis]: each.spread for each in reversed(result.flickers)},
        trace=tuple(solution.trace) if solution else (),
        singular_values=_floats(result.singular_values),
        parameters=asdict(options),
        timings_s=dict(timings_s),
        peak_memory_bytes=peak_memory_bytes(),
        input=replace(source, assumptions=assumptions),
        output=dict(output),
        notes=tuple(notes),
        software=dict(software()),
        command=None if command is None else tuple(command),
        requested=dict(requested),
        sequence=None,
        output_bytes={},
    )
    if session is not None:
        report = _of_session(report, series, session)
    return replace(report, verdict="; ".join(report.sentences))


def _cutoff(result: FitResult) -> CutoffRecord:
    choice = result.cutoff
    return CutoffRecord(
        low=int(result.options.low_cutoff),
        rule=(CutoffReason.GIVEN if result.is_cutoff_given else choice.reason).code,
        reason=result.cutoff_sentence,
        certainty=result.cutoff_certainty.value,
        suggested=choice.low,
        two_squares=choice.two_squares,
        similarity_profile=_floats(choice.profile),
        similarity_threshold=choice.threshold,
        doppler_cycles_a_frame=_floats(choice.doppler_cycles),
    )


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _of_session(report: Report, series: ResultSeries, session: SessionOptions) -> Report:
    """Return a report with the totals over the blocks of a session, and the record of each."""
    blocks, several = series.blocks, report.input.files is not None
    bad = {(block.file, frame.frame): (block, frame) for block in blocks for frame in block.bad_frames}
    return replace(
        report,
        n_unobserved=sum(block.n_unobserved for block in blocks),
        bad_frames=tuple(
            replace(frame, file=block.file if several else None) for block, frame in bad.values()
        ),
        frames=_frames_of_blocks(blocks),
        sequence=SequenceRecord(
            window=series.frames_a_block(session.window),
            size=_block_sizes([block.n_frames for block in blocks if block.n_frames]),
            stride=session.stride or session.window,
            time=_floats(series.times),
            time_unit=series.time_unit,
            sampled_frames=series.fit.n_frames,
            n_bad=int(series.is_bad.sum()),
            alignment=_alignment(series),
            design=next((found.columns for found in series.activation.values()), ()),
            model=next((found.model for found in series.activation.values()), None),
            activation=tuple(ActivationRecord.of(name, found) for name, found in series.activations.items()),
            blocks=blocks,
        ),
    )


def _alignment(series: ResultSeries) -> str:
    """Return what was compensated for in which blocks, in words."""
    blocks, shifts = series.blocks, series.shifts
    is_shifted = np.array([block.is_shifted for block in blocks])
    gains = [block.gain_db for block in blocks if block.is_scaled and block.gain_db is not None]
    sentences = []
    if shifts is not None and is_shifted.any():
        largest = np.abs(shifts[is_shifted]).max(axis=0)
        along = " and ".join(
            f"{pixels:.2f} pixels in {letter}"
            for letter, pixels in zip(series.geometry.pixel_axes, largest, strict=True)
        )
        sentences.append(f"{is_shifted.sum()} blocks were shifted, by up to {along}")
    if gains:
        sentences.append(
            f"{len(gains)} blocks were divided by a gain, of {min(gains):+.2f} to {max(gains):+.2f} dB"
        )
    return "; ".join(sentences)


def _block_sizes(lengths: list[int]) -> str:
    """Return the number of frames of the blocks, in words; the last one may be shorter."""
    is_even = len(set(lengths[:-1])) <= 1
    return f"{lengths[0]} frames" if is_even else f"{min(lengths)} to {max(lengths)} frames"


def _frames_of_blocks(blocks: Sequence[BlockRecord]) -> FramesRecord:
    """Return the record of the frames of all blocks; those in two blocks count twice. Bad blocks are named in words."""
    frames = [block.frames for block in blocks]
    sentences = [
        f"block {number}{f' ({block.file})' if block.file else ''} is bad: {block.why}"
        for number, block in enumerate(blocks)
        if block.is_bad
    ]
    if (more := len(sentences) - MOST_NAMED) > 0:
        sentences[MOST_NAMED:] = [f"and {more} more block{'' if more == 1 else 's'}"]
    if sentences:
        sentences.append("blocks are counted from 0")
    n_left_out = sum(quality.n_left_out for quality in frames)
    if n_left_out:
        sentences.insert(0, f"{n_left_out} bad frames are excluded")
    return FramesRecord(
        n_bad=sum(quality.n_bad for quality in frames),
        n_left_out=n_left_out,
        n_entries_left_out=sum(quality.n_entries_left_out for quality in frames),
        moves_pixels=max(quality.moves_pixels for quality in frames),
        steps=tuple(block.first_frame + step for block in blocks for step in block.frames.steps),
        sentence="; ".join(sentences),
    )
