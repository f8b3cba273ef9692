"""How the image moves as a whole: its range, frames that are displaced, and steps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOVES = 0.75
"""Range of the displacement, in pixels, above which the image counts as moving. The sample data, with heartbeat and
breathing, do not."""

STEP, STEP_FRAMES = 0.5, 8
"""Displacement in pixels between the medians of eight frames before and after a step, by which a probe has slipped."""

SUDDEN = 0.6
"""Share of a step that happens from one frame to the next or the one after it, and that is left over LASTING_FRAMES: a
drift is slower, and a jerk goes back."""

LASTING_FRAMES = 32
"""Frames before and after a step whose medians differ by it. A jerk of 20 frames is less than half of them."""

ERRATIC = 0.25
"""Median displacement between neighbouring frames, in pixels, above which displacements are unreliable, as in noise."""


@dataclass(frozen=True)
class Movement:
    """Movement of the image as a whole.

    Attributes
    ----------
    range_pixels : float
        Largest distance from the median position, without the 2 % of the frames that are farthest.
    steps : tuple of int
        First frames after a sudden lasting displacement.
    step_pixels : float
        Size of the largest step; 0 without steps.
    """

    range_pixels: float
    steps: tuple[int, ...]
    step_pixels: float

    @property
    def sentence(self) -> str:
        """The movement in words; empty if there is little."""
        if self.steps:
            frame_list = ", ".join(map(str, self.steps))
            return (
                f"the image steps by {self.step_pixels:.1f} pixels (frames {frame_list}): filter the frames before "
                "and after a step separately"
            )
        if self.range_pixels > MOVES:
            return (
                f"the image moves by up to {self.range_pixels:.1f} pixels from its median position: if the picture is "
                "blurred, filter fewer frames at a time"
            )
        return ""

    @property
    def advice(self) -> str | None:
        """What helps against the movement; None if there is little."""
        return "try shorter windows" if self.sentence else None


def describe_movement(displacement: NDArray[np.float64], used: NDArray[np.bool_], every: int = 1) -> Movement:
    """Return the movement of an image; none if displacements are erratic, as in noise.

    Parameters
    ----------
    displacement : (n_frames, n_axes) array
        Displacement of each frame in pixels.
    used : (n_frames,) boolean array
        Frames that count; bad frames have no valid displacement.
    every : int
        Frames from one whose displacement was measured to the next; those between have the same one. By default 1.
    """
    measured = displacement[::every][used[::every]]
    if len(measured) < 2 or np.median(np.linalg.norm(np.diff(measured, axis=0), axis=1)) > ERRATIC:
        return Movement(0.0, (), 0.0)
    numbers, displacement = np.flatnonzero(used), displacement[used]
    distance = np.linalg.norm(displacement - np.median(displacement, axis=0), axis=1)
    steps, largest = _steps(displacement)
    return Movement(float(np.quantile(distance, 0.98)), tuple(int(numbers[k]) for k in steps), largest)


def _steps(displacement: NDArray[np.float64]) -> tuple[tuple[int, ...], float]:
    n, width = len(displacement), STEP_FRAMES
    if n < 2 * width + 1:
        return (), 0.0
    windows = np.lib.stride_tricks.sliding_window_view(displacement, width, axis=0)
    medians = np.median(windows, axis=-1)
    # Row k: the median position from frame k + width on, minus the median position before this frame.
    jumps = medians[width:] - medians[:-width]
    sizes = np.linalg.norm(jumps, axis=1)
    steps: list[int] = []
    largest = 0.0
    for k in np.argsort(-sizes):
        if sizes[k] <= STEP:
            break
        frame = int(k) + width
        if any(abs(frame - other) < 2 * width for other in steps):
            continue
        # Medians of eight frames are the same for a few frames around the step.
        near = np.arange(max(frame - width // 2, 1), min(frame + width // 2, n))
        frame = int(near[np.argmax(np.linalg.norm(displacement[near] - displacement[near - 1], axis=1))])
        sudden = displacement[min(frame + 1, n - 1)] - displacement[frame - 1]
        before, after = (
            displacement[max(frame - LASTING_FRAMES, 0) : frame],
            displacement[frame:][:LASTING_FRAMES],
        )
        lasting = np.median(after, axis=0) - np.median(before, axis=0)
        if min(sudden @ jumps[k], lasting @ jumps[k]) >= SUDDEN * sizes[k] ** 2:
            steps.append(frame)
            largest = max(largest, float(sizes[k]))
    return tuple(sorted(steps)), largest
