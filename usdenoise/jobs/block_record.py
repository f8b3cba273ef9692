"""What is recorded of a filtered block: its options, its errors and its frames."""

from dataclasses import asdict
from typing import Any

from usdenoise.recipe.result import DenoiseResult
from usdenoise.recipe.windows import FilteredWindow


def block_record(block: FilteredWindow) -> dict[str, Any]:
    """Return the record of a filtered block, as the report of a sequence has it."""
    window, result = block.window, block.result
    solution = result.solution
    return {
        "first_frame": window.start,
        "n_frames": window.n_frames,
        "complete": window.complete,
        "rank": result.options.rank,
        "low_cutoff": result.options.low_cutoff,
        "cutoff_certainty": result.cutoff_certainty.value,
        "iterations": solution.iterations if solution else 0,
        "passes": solution.passes if solution else 0,
        "held_out_rmse": result.held_out_rmse,
        "noise_floor": result.noise_floor,
        "bad_frames": bad_frames_of(result, block.first),
        "is_bad": block.is_bad,
        "frames": frames_of(result),
        "n_unobserved": result.n_unobserved,
        "n_sampled": result.n_sampled,
        "blood": asdict(result.picture_quality),
        "fit": result.fit_quality.verdict.code,
        "verdict": result.verdict,
    }


def bad_frames_of(result: DenoiseResult, first: int = 0) -> list[dict[str, Any]]:
    """Return the record of the bad frames of a result.

    Parameters
    ----------
    result : DenoiseResult
        The result.
    first : int
        Number of its first frame, by default 0.
    """
    rate = result.acquisition.frame_rate_hz
    return [
        {
            "frame": first + bad.frame,
            "time_s": None if rate is None else (first + bad.frame) / rate,
            "reason": bad.reason.value,
            "score": bad.score,
        }
        for bad in result.frame_quality.bad
    ]


def frames_of(result: DenoiseResult) -> dict[str, Any]:
    """Return the record of the frames of a result: how many were left out, how the image moves, and a sentence."""
    quality = result.frame_quality
    movement = quality.movement
    return {
        "n_bad": len(quality.bad),
        "n_left_out": quality.n_left_out,
        "n_entries_left_out": quality.n_left_out * result.power_doppler.size,
        "moves_pixels": movement.range_pixels,
        "steps": list(movement.steps),
        "sentence": quality.sentence,
    }
