"""Bad frames: those that are damaged, unlike all others, or displaced; they are left out of the estimate."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.linalg.row_blocks import row_squared_norms
from usdenoise.pipeline.pixel_subset import PixelSubset, draw_pixel_subset
from usdenoise.stack.casorati import CasoratiMatrix, EntryCheck
from usdenoise.stack.random_streams import RandomStream

LARGEST_SHARE = 0.2
"""Largest share of the frames that is left out. Beyond it the scan is bad as a whole, and nothing is left out."""

LEAST_FRAMES = 16
"""Frames from which bad ones are looked for: with fewer, the others do not say what a frame should be."""

SAMPLE_PIXELS = 1024
"""Pixels, evenly spread over the image, in which frames are compared."""

OUTLIER, OUTLIER_SPREADS = 2.0, 8.0
"""Logarithm of the ratio of a frame's misfit to the median one from which the frame is an outlier, and the same in units
of the upper quartile's distance. On 40 phantoms without disturbances, with heartbeats and tissue up to 60 dB over
blood, the largest ratio was 1.2; interference of 0.3 of the rms of the stack had at least 5."""

SATURATED_SHARE = 0.05
"""Share of values at the extreme of the stack, above that of the median frame, from which a frame is saturated."""

MOVED_PIXELS, MOVED_SPREADS = 0.5, 6.0
"""Displacement from the median place, in pixels and in robust standard deviations, from which a frame is left out."""

MOST_ROUNDS = 6


class FrameReason(StrEnum):
    """Why a frame is bad; the value is its name in reports."""

    GIVEN = "given"
    ZERO = "zero"
    CONSTANT = "constant"
    DUPLICATE = "duplicate"
    SATURATED = "saturated"
    OUTLIER = "outlier"
    MOVED = "moved"


WORDS = {
    FrameReason.GIVEN: "as given",
    FrameReason.ZERO: "zero everywhere",
    FrameReason.CONSTANT: "the same everywhere",
    FrameReason.DUPLICATE: "copies of the frame before",
    FrameReason.SATURATED: "saturated",
    FrameReason.OUTLIER: "unlike the other frames",
    FrameReason.MOVED: "displaced",
}
"""The reasons in words."""


@dataclass(frozen=True)
class BadFrame:
    """A bad frame.

    Attributes
    ----------
    frame : int
        Its number, counted from 0 in the frames that were read.
    reason : FrameReason
        Why it is bad.
    score : float
        For an outlier, the misfit to the other frames over the median misfit, in dB. For a displaced frame, its
        distance from the median place in pixels. For a saturated one, the share of values at the extreme. Otherwise 1.
    """

    frame: int
    reason: FrameReason
    score: float


@dataclass(frozen=True)
class FrameSearch:
    """Bad frames, and what was measured on the way.

    Attributes
    ----------
    bad : tuple of BadFrame
        In the order of their numbers.
    n_frames : int
        Frames of the stack.
    is_left_out : bool
        Whether they are left out: not where they are more than LARGEST_SHARE of all frames, unless they were given.
    subset : PixelSubset
        The pixel subset without the frames that are left out.
    """

    bad: tuple[BadFrame, ...]
    n_frames: int
    is_left_out: bool
    subset: PixelSubset

    @property
    def left_out(self) -> NDArray[np.bool_] | None:
        """The frames that are left out, (n_frames,); None where there are none."""
        if not self.bad or not self.is_left_out:
            return None
        mask = np.zeros(self.n_frames, bool)
        mask[[frame.frame for frame in self.bad]] = True
        return mask

    @property
    def sentence(self) -> str:
        """What was found, in words; empty without bad frames."""
        if not self.bad:
            return ""
        reasons = [frame.reason for frame in self.bad]
        counts = ", ".join(f"{reasons.count(r)} {WORDS[r]}" for r in WORDS if r in reasons)
        share = f"{len(self.bad)} of {self.n_frames} frames"
        if self.is_left_out:
            return f"{share} are left out ({counts})"
        return (
            f"the scan is bad as a whole: {share} are bad ({counts}), more than {100 * LARGEST_SHARE:.0f} %, so none is "
            "left out; read a better part with --frames, or list frames with --bad-frames"
        )


def find_bad_frames(
    matrix: CasoratiMatrix,
    wanted: str | tuple[int, ...],
    seed: int,
    displacement: NDArray[np.float64],
) -> FrameSearch:
    """Look for bad frames; the matrix stays as it is.

    Outliers are the frames that fit least to all others. The misfit of frame t is the energy of x_t minus its ridge
    regression on the other frames, over a few hundred pixels: with the singular values s and vectors v of these
    pixels, lambda their noise energy and h = sum_k v_tk^2 s_k^2 / (s_k^2 + lambda) (leave-one-out residuals; Cook and
    Weisberg, Residuals and Influence in Regression, 1982),

        e_t = lambda^2 sum_k v_tk^2 s_k^2 / (s_k^2 + lambda)^2 / (1 - h)^2.

    The worst frames are taken out and the misfits are measured again, until none is an outlier: a strong outlier
    makes its neighbours look bad.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The stack.
    wanted : "auto", "keep", or tuple of int
        Whether to look for bad frames, or which they are.
    seed : int
        Seed of the pixel subset.
    displacement : (n_frames, n_axes) array
        Displacement of each frame in pixels.

    Raises
    ------
    OptionError
        If a given frame is not in the stack, or fewer than two are left.
    """
    found: dict[int, BadFrame] = {}
    n_frames = matrix.n_frames
    if isinstance(wanted, tuple):
        found = {frame: BadFrame(frame, FrameReason.GIVEN, 1.0) for frame in _checked(wanted, n_frames)}
    looks = wanted == "auto" and n_frames >= LEAST_FRAMES
    if looks:
        step = max(1, matrix.n_pixels // SAMPLE_PIXELS)
        sample = matrix.rows(slice(None, None, step))
        for bad in [*_damaged(sample), *_moved(displacement)]:
            found.setdefault(bad.frame, bad)
    most = LARGEST_SHARE * n_frames if looks else n_frames
    subset = _subset(matrix, found if len(found) <= most else (), seed)
    rounds = MOST_ROUNDS if looks else 0
    while rounds > 0 and (worse := _outliers(subset)):
        found |= {bad.frame: bad for bad in worse}
        subset = _subset(matrix, found if len(found) <= most else (), seed)
        rounds = rounds - 1 if len(found) <= most else 0
    ordered = tuple(found[frame] for frame in sorted(found))
    return FrameSearch(ordered, n_frames, len(ordered) <= most, subset)


def leave_out(entries: EntryCheck, left_out: NDArray[np.bool_] | None) -> EntryCheck:
    """Return the entries without some frames, whose values are set to 0 in place.

    Parameters
    ----------
    entries : EntryCheck
        The entries.
    left_out : (n_frames,) boolean array or None
        Frames to leave out; None for none.
    """
    if left_out is None:
        return entries
    matrix = replace(entries.matrix, left_out=left_out)
    energy = entries.energy.copy()
    columns = np.flatnonzero(left_out)

    def clear(rows: slice) -> None:
        energy[rows] -= row_squared_norms(np.ascontiguousarray(matrix.values[rows][:, columns]))
        matrix.values[rows.start : rows.stop, columns] = 0

    for _ in matrix.map_row_blocks(clear):
        pass
    return replace(entries, matrix=matrix, energy=np.maximum(energy, 0))


def _subset(matrix: CasoratiMatrix, frames: Collection[int], seed: int) -> PixelSubset:
    return draw_pixel_subset(_without(matrix, frames), RandomStream.PIXEL_SUBSET.generator(seed))


def _without(matrix: CasoratiMatrix, frames: Collection[int]) -> CasoratiMatrix:
    if not len(frames):
        return matrix
    mask = np.zeros(matrix.n_frames, bool)
    mask[list(frames)] = True
    return replace(matrix, left_out=mask)


def _checked(given: tuple[int, ...], n_frames: int) -> tuple[int, ...]:
    for frame in given:
        if not 0 <= frame < n_frames:
            raise OptionError(
                f"bad frame {frame} is not among the frames 0 to {n_frames - 1}; change --bad-frames"
            )
    if n_frames - len(set(given)) < 2:
        raise OptionError(
            f"{len(set(given))} bad frames of {n_frames} leave fewer than two; change --bad-frames"
        )
    return given


def _damaged(sample: CasoratiMatrix) -> list[BadFrame]:
    """Return the frames that are zero, constant, copies or saturated in a sample of the pixels."""
    values = sample.values
    parts = values.view(values.real.dtype).reshape(len(values), -1, 2 if np.iscomplexobj(values) else 1)
    largest = np.abs(parts).max(axis=2)
    extreme = (parts == parts.max()) | (parts == parts.min())
    saturated = extreme.any(axis=2).mean(axis=0)
    usual = float(np.median(saturated))
    zero = largest.max(axis=0) == 0
    constant = (values == values[:1]).all(axis=0) & ~zero
    same = np.append(False, (values[:, 1:] == values[:, :-1]).all(axis=0)) & ~zero & ~constant
    if len(values) == 1:
        constant, same = np.zeros_like(zero), np.zeros_like(zero)
    full = (saturated > usual + SATURATED_SHARE) & ~zero & ~constant
    return [
        *(BadFrame(int(t), FrameReason.ZERO, 1.0) for t in np.flatnonzero(zero)),
        *(BadFrame(int(t), FrameReason.CONSTANT, 1.0) for t in np.flatnonzero(constant)),
        *(BadFrame(int(t), FrameReason.DUPLICATE, 1.0) for t in np.flatnonzero(same)),
        *(BadFrame(int(t), FrameReason.SATURATED, float(saturated[t])) for t in np.flatnonzero(full)),
    ]


def _moved(displacement: NDArray[np.float64]) -> list[BadFrame]:
    """Return the frames that are far from where most frames are."""
    distance = np.linalg.norm(displacement - np.median(displacement, axis=0), axis=1)
    spread = 1.4826 * float(np.median(np.abs(distance - np.median(distance))))
    limit = max(MOVED_PIXELS, MOVED_SPREADS * spread)
    return [BadFrame(int(t), FrameReason.MOVED, float(distance[t])) for t in np.flatnonzero(distance > limit)]


def _outliers(subset: PixelSubset) -> list[BadFrame]:
    """Return the worst of the frames that do not fit the others."""
    share = np.abs(subset.right.astype(np.complex128)) ** 2
    used = np.flatnonzero(share.sum(axis=1) > 0)
    # Relative to the largest, no square leaves the range of the numbers.
    largest = max(float(subset.singular_values[0]), float(np.finfo(np.float32).tiny))
    energy, share = (subset.singular_values / largest) ** 2, share[used]
    ridge = max(subset.n_pixels * (subset.noise_rms / largest) ** 2, float(np.finfo(np.float32).eps) ** 2)
    leverage = share @ (energy / (energy + ridge))
    misfit = (share @ (energy / (energy + ridge) ** 2)) / np.maximum(1 - leverage, 1e-12) ** 2
    score = np.log(np.maximum(misfit, np.finfo(float).tiny))
    median, quartile = np.quantile(score, [0.5, 0.75])
    score -= median
    limit = max(OUTLIER, OUTLIER_SPREADS * float(quartile - median) / 0.674, float(score.max()) / 2)
    return [
        BadFrame(int(used[t]), FrameReason.OUTLIER, float(score[t] * 10 / np.log(10)))
        for t in np.flatnonzero(score > limit)
    ]
