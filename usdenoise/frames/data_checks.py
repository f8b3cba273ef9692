"""What the values of a stack tell: which axis is time, whether frames are in order, whether real values can be RF.

RF oscillates about zero, so its statistics are the same with the other sign. Compressed data, envelopes and power are not.

Neighbours along time are most alike, and the slices along it have the lowest rank.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.gains import TISSUE_COMPONENTS
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import TINY
from usdenoise.stack.arrays import offset_of, skewness
from usdenoise.stack.geometry import canonical_axes
from usdenoise.stack.sampling import FEW_PIXELS, SOME_FRAMES, spread_rows

ONE_SIDED = 2e-3
"""Share of the values with the rarer sign below which they are one-sided."""

SKEWED, CERTAIN = 0.15, 4.0
"""Skewness of the values, or rank correlation of the mean and the standard deviation of the pixels, above which they are not
those of RF if they are also this number of times their spread under random signs of tiles. On 30 stacks of RF (2.2 to 10
samples a wavelength) and of real parts of IQ they were at most 0.10 and 0.12 with 24 x 24 pixels, 0.06 and 0.05 with more;
one of them was 0.17 to 0.94 for envelopes, their roots, power and dB of the same data."""

FLAT = 2.2
"""Kurtosis below which values are spread evenly between two limits: 1.7 to 1.9 for phases, 2.7 and more for the others."""

TILES, DRAWS = 8, 50
"""Tiles along each axis that have one random sign, and number of draws."""

TURNED, SAME_TURN = 0.7, 0.3
"""Correlation from which a leading component is another one turned by 90 degrees, and the ratio of the turns of odd and even
pairs below which pairs differ. Interleaved I and Q of 20 phantoms had correlations of 0.96 to 1.00 and ratios of -0.73 to 0;
RF had ratios of 0.86 to 1."""


DEPTHS, AT_ZERO, UNEVEN = 48, 0.5, 4.0
"""Fewest pixels over depth; least power at the lowest frequencies over depth, over the largest power at any; and least
ratio of the largest to the smallest. Real parts of the IQ of six phantoms, 13 stacks of another simulator and a carotid
had 0.61 to 1.11, and 6.7 and more. RF of the phantoms, whose spectrum is wider than half of the sampled one, had 0.54 to
0.77 and 1.6 to 2.4; RF of the other simulator with 2.5 to 10 samples a cycle, and a rotating disk, whose IQ has a
carrier, 0."""


def value_doubts(frames: Numbers, axes: str, shape: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Return why real values may not be RF: a code and a sentence for each reason; none if they may be.

    Parameters
    ----------
    frames : (n_frames, n_pixels) real array
        Frames, pixels in the order z, x, y; NaN in unobserved entries.
    axes : str
        Axis letters of the stack, in its own order.
    shape : sequence of int
        Number of pixels along z, x and y.
    """
    x = np.asarray(frames[:: max(1, len(frames) // SOME_FRAMES)][:SOME_FRAMES], np.float64)
    observed = np.isfinite(x)
    offset = float(np.median(x[observed])) if observed.any() else 0.0
    y = np.where(observed, x - offset, 0)
    mean, spread = y.mean(axis=0), y.std(axis=0)
    changes = spread > 0
    if len(x) < 2 or np.count_nonzero(changes) < FEW_PIXELS:
        return ()
    values, sentences = y[:, changes] / np.abs(y).max(), list[str]()
    tiles = np.zeros(tuple(shape), np.intp)
    for numbers in np.ogrid[tuple(slice(n) for n in shape)]:
        tiles = tiles * TILES + numbers * TILES // numbers.size
    skewed, relation = _odd(values, mean[changes], spread[changes], tiles.ravel()[changes])
    if skewed or relation:
        kind = "log-compressed" if (relation or skewed) < 0 else "like an envelope or power"
        sentences.append(f"the values look {kind}, not like RF: give the beamformed IQ or RF")
    elif np.mean(values**4) < FLAT * np.mean(values**2) ** 2:
        sentences.append("the values look like phases, or are clipped: give the beamformed IQ or RF")
    elif min(np.mean(x[:, changes] > 0), np.mean(x[:, changes] < 0)) < ONE_SIDED:
        level = offset_of(x) or offset
        sentences.append(f"the values are around {level:.6g}: subtract the offset {level:.6g} if they are RF")
    if sentence := _interleaved(y.reshape(-1, *shape), axes):
        sentences.append(sentence)
    elif (
        not sentences and "z" in axes and shape[0] >= DEPTHS and _is_at_zero(y.reshape(len(y), shape[0], -1))
    ):
        sentences.append(
            "the values have no carrier over depth, like the real or the imaginary part of IQ: half of the power is "
            "missing; give I + 1j * Q"
        )
    return tuple(("values", sentence) for sentence in sentences)


LEAST_CONTRAST = 1.0
"""Median difference of the logarithms of the power of pixels some pixels apart, from which magnitudes are linear. Of
independent speckle it is log 3 = 1.10. Of 37 stacks of two simulators it was 1.22 and more, with the root of the magnitudes
0.61 to 0.97 (1.7 and more with wide vessels, 4), with their logarithm over 60 dB 0.23 to 0.44."""


def magnitude_doubt(frames: Numbers, shape: Sequence[int]) -> tuple[str, str] | None:
    """Return the doubt that the magnitudes of complex values are compressed, by the contrast of the speckle.

    Parameters
    ----------
    frames : (n, n_pixels) complex array
        A few frames, pixels in the order z, x, y; entries without data are not finite.
    shape : sequence of int
        Number of pixels along z, x and y.
    """
    # What all pixels have in common, such as interference, is no speckle
    values = np.where(np.isfinite(frames), frames, np.nan).astype(np.complex128)
    counts = np.maximum(np.count_nonzero(np.isfinite(values), axis=1, keepdims=True), 1)
    magnitudes = np.abs(values - np.nansum(values, axis=1, keepdims=True) / counts).reshape(-1, *shape)
    logs = 2 * np.log(np.where(magnitudes > 0, magnitudes, np.nan))
    largest = 0.0
    for axis, n in enumerate(shape, 1):
        lines, apart = np.moveaxis(logs, axis, 0), 1
        while 2 * apart < n:
            differences = np.abs(lines[apart:] - lines[:-apart])
            known = differences[np.isfinite(differences)]
            if len(known) >= FEW_PIXELS:
                largest = max(largest, float(np.median(known)))
            if largest >= LEAST_CONTRAST:
                # Most often at the first distances
                return None
            apart *= 2
    if not largest > 0:
        return None
    return "values", (
        f"the magnitudes look compressed, as by a root or a logarithm: neighbours differ by {largest:.2f} in the "
        "logarithm of their power, speckle by 1.1; give linear IQ"
    )


def _is_at_zero(lines: NDArray[np.float64]) -> bool:
    """Return whether the spectrum over depth of lines, (n_frames, n_depths, n_lines), is around zero.

    RF has a carrier. If it is sampled so coarsely that its spectrum reaches zero, positive and negative frequencies
    cannot be told apart, as in the real part of IQ.
    """
    windowed = (lines - lines.mean(axis=1, keepdims=True)) * np.hanning(lines.shape[1])[:, None]
    power = np.sum(np.abs(np.fft.rfft(windowed, axis=1)) ** 2, axis=(0, 2))
    smooth = np.convolve(power[1:], np.full(3, 1 / 3), "valid")
    largest = float(smooth.max())
    return bool(power[1:3].mean() > AT_ZERO * largest > 0 and largest > UNEVEN * smooth.min())


def _odd(
    values: NDArray[np.float64],
    mean: NDArray[np.float64],
    spread: NDArray[np.float64],
    tiles: NDArray[np.intp],
) -> tuple[float, float]:
    """Return the skewness of the values, and the relation of mean and spread; 0 for each that signs can explain."""
    few = values[:: max(1, len(values) // 16)]
    ranks = _ranks(spread)
    random = np.random.default_rng(0)

    def certain(statistic: Callable[[NDArray[np.float64]], float]) -> float:
        value = statistic(np.ones(len(tiles)))
        if abs(value) <= SKEWED:
            return 0.0
        drawn = [statistic(random.choice([-1.0, 1.0], int(tiles.max()) + 1)[tiles]) for _ in range(DRAWS)]
        return value if abs(value) > CERTAIN * np.sqrt(np.mean(np.square(drawn))) else 0.0

    return (
        certain(lambda sign: skewness(few * sign)),
        certain(lambda sign: float(np.corrcoef(_ranks(mean * sign), ranks)[0, 1])),
    )


def _ranks(values: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(np.argsort(values))


def _interleaved(y: NDArray[np.float64], axes: str) -> str:
    """Return how to give I and Q that alternate, or follow each other, along an axis; empty if none do.

    With I = a and Q = b, the tissue turns: components (a, b) and (-b, a) are both among the leading ones. Neighbours in RF
    turn too, all of them in the same direction. If I and Q alternate, odd pairs turn backwards, or not at all.
    """
    rows = y.reshape(len(y), -1)
    _, vectors = np.linalg.eigh(rows @ rows.T)
    components = vectors[:, ::-1][:, :TISSUE_COMPONENTS].T @ rows
    components /= np.maximum(np.linalg.norm(components, axis=1, keepdims=True), np.finfo(float).tiny)
    stack = components.reshape(-1, *y.shape[1:])
    best, sentence = TURNED, ""
    for axis, letter in enumerate(canonical_axes(axes)[:-1], 1):
        lines = np.moveaxis(stack, axis, 1)
        n = lines.shape[1]
        if n % 2:
            continue
        even = _turn(lines[:, 0::2], lines[:, 1::2])
        odd = _turn(lines[:, 1:-1:2], lines[:, 2::2])
        halves = _turn(lines[:, : n // 2], lines[:, n // 2 :])
        before = ":, " * axes.index(letter)
        ways = [(halves, "the two halves", f"iq[{before}:{n // 2}] + 1j * iq[{before}{n // 2}:]")]
        if np.sum(even * odd) < SAME_TURN * np.sum(even**2):
            ways.append((even, "even and odd pixels", f"iq[{before}::2] + 1j * iq[{before}1::2]"))
        for turn, what, how in ways:
            if (size := float(np.linalg.norm(turn, 2))) > best:
                best = size
                sentence = f"{what} along {letter} look like I and Q: give {how}, or reshape them to an axis of length 2"
    return sentence


def _turn(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the products of components with components turned by 90 degrees, (n, n); antisymmetric."""
    n = len(first)
    products = first.reshape(n, -1) @ second.reshape(n, -1).T
    return np.asarray(products - products.T)


SAMPLED, MIDDLE_PIXELS = (64, 24), 2304
"""Entries along each axis, in the middle, by which the axis of time is recognised: of a stack of images and of volumes whose
axes are not known; and pixels of an image if they are."""

CLEARLY = 2.0
"""Ratio of the unlikeness of neighbours along two axes from which they differ. On phantoms of eleven kinds the envelope of
tissue had 0.000 to 0.040 along time and 0.116 to 0.235 along the other axes; blood alone 0.017 and 0.154, noise alone 0.21
along all, and noise smoothed over 3 pixels 0.013 along both spatial axes."""

MOST_UNLIKE, MOST_RANK = 0.05, 1.25
"""Largest unlikeness and rank of the envelopes along time. On these phantoms tissue had ranks of 1.0 to 1.2 along time and
1.7 to 2.1 along the other axes, blood 1.5, and noise 1.6."""


AS_ONE, AS_UNLIKE = 1.05, 0.03
"""Largest rank along a spatial axis that is like time, and largest unlikeness of it over the other spatial axis. Blocks of
sessions, read as y or x, had ranks of 1.00 to 1.01 and at most 0.03; the depth of a carotid that was sampled finely 1.20 and
0.16."""

PERIODIC, LEAST_UNLIKE = 8.0, 0.01
"""Unlikeness of neighbouring frames over the unlikeness of frames n apart from which they repeat, and least unlikeness. In
44 phantoms and recordings the ratio was at most 1.0, and 4.5 in those with few frames a beat of the heart; with three and
eleven angles that were not compounded it was 17 to 400."""

REPEATED, MOST_REPEATED = 0.4, 0.9
"""Share of frames that equal the one before from which frames are there several times, and from which nothing changes."""

MOST_UNLIKE_ENDS = 0.1
"""Largest unlikeness of the values along time if only the first and the last axis are compared. It was at most 0.044 on
twelve phantoms with tissue or blood, a carotid and a rotating disk, and 0.1 along depth for noise smoothed over 1.5
pixels."""


def guess_axes(shape: tuple[int, ...], time_last: bool | None) -> str:
    """Return axis letters for a stack of which only the shape is known.

    Time is the first or the last axis. The spatial axes are called z, x and y in their order.

    Parameters
    ----------
    shape : tuple of int
        Lengths of 3 or 4 axes.
    time_last : bool or None
        Whether time is the last axis, as MATLAB users usually have it. With None it is the longer one of the first
        and the last axis if that one is longer than all others. Otherwise time is the first axis if all other axes
        have one length, and the last axis if not, or if the first and the last axis have the same length.
    """
    spatial = "zxy"[: len(shape) - 1]
    if time_last is None:
        first, last = shape[0], shape[-1]
        if first == last or shape.count(max(shape)) > 1 or max(shape) > max(first, last):
            time_last = first == last or len(set(shape[1:])) != 1
        else:
            time_last = last > first
    return spatial + "t" if time_last else "t" + spatial


def time_is_last(shape: tuple[int, ...], read: Callable[[tuple[slice, ...]], Numbers]) -> bool | None:
    """Return whether the last axis of a stack is time, and not the first one; None if the data are not clear.

    Parameters
    ----------
    shape : tuple of int
        Lengths of 3 or 4 axes.
    read : callable
        Takes a slice for each axis, and returns these values. They may be non-finite.
    """
    scores = unlikeness_and_rank(read(_middle(shape, [SAMPLED[len(shape) - 3]] * len(shape))))
    return time_by({False: scores[0], True: scores[-1]}, MOST_UNLIKE_ENDS)


def _middle(shape: Sequence[int], most: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of the middle of a stack: along each axis at most `most` entries."""
    middle = []
    for n, side in zip(shape, most, strict=True):
        first = max(n - side, 0) // 2
        middle.append(slice(first, min(first + side, n), 1))
    return tuple(middle)


def unlikeness_and_rank(values: Numbers) -> list[tuple[float, float]]:
    """Return the unlikeness of neighbours along each axis of an array, and the rank along it.

    The unlikeness is 1 - sum |sum_i x[i+1] conj(x[i])| / sum |x|^2, the first sum over the lines along the axis. The rank is
    (sum l)^2 / sum l^2, with the eigenvalues l of the Gram matrix of the slices.

    Parameters
    ----------
    values : array
        The values; those that are not finite count as 0.
    """
    x = np.where(np.isfinite(values), values, 0).astype(np.result_type(values.dtype, np.float64))
    x /= np.abs(x).max(initial=0) or 1.0
    scores = []
    for axis, n in enumerate(x.shape):
        lines = np.moveaxis(x, axis, 0).reshape(n, -1)
        gram = lines @ lines.conj().T
        rank = np.trace(gram).real ** 2 / max(np.sum(np.abs(gram) ** 2), TINY)
        scores.append((_unlikeness_at(lines, 1), float(rank)))
    return scores


Axis = TypeVar("Axis")


def time_by(
    scores: Mapping[Axis, tuple[float, float]], most_unlike: float, most_rank: float = np.inf
) -> Axis | None:
    """Return the axis that is time: with clearly the most alike neighbours and the lowest rank; None if there is none.

    Parameters
    ----------
    scores : mapping
        Each axis that can be time -> its unlikeness and rank, from :func:`unlikeness_and_rank`.
    most_unlike, most_rank : float
        Largest unlikeness and rank along time.
    """
    time, *rest = sorted(scores, key=lambda axis: scores[axis][0])
    unlike, rank = scores[time]
    is_clear = all(CLEARLY * unlike < scores[axis][0] and rank < scores[axis][1] for axis in rest)
    return time if is_clear and unlike < most_unlike and rank < most_rank else None


UNORDERED, ORDER_LAGS = 4.8, 12
"""Chance makes n frames without order alike down to an unlikeness of 1 - UNORDERED / sqrt(n), and largest number of frames
between those that are compared."""


def unordered_doubt(right: Numbers, energy: NDArray[np.float64], noise: float) -> tuple[str, str] | None:
    """Return the doubt that frames are in no order: the tissue moves, and neighbours are no more alike than any two frames.

    In frames that are in order, some component of the tissue is alike in frames that are a few apart, be it by a period.

    Parameters
    ----------
    right : (n_frames, k) array
        Temporal vectors of the clutter components, without excluded frames.
    energy : (k,) array
        Their energies.
    noise : float
        Energy of the noise in all entries.
    """
    n = len(right)
    moving = right - right.mean(axis=0)
    # Fewer frames are half alike by chance
    if n < (2 * UNORDERED) ** 2 or float(np.sum(np.abs(moving) ** 2 * energy)) < noise:
        return None
    lags = range(1, min(ORDER_LAGS, n // 8) + 1)
    unlike = min(_unlikeness_at(component[:, None], lag) for component in moving.T for lag in lags)
    if unlike < 1 - UNORDERED / np.sqrt(n):
        return None
    return "frame-order", (
        "neighbouring frames are no more alike than any two: the frames are in no order, or the tissue moves faster than "
        "the frames show"
    )


JOINED_FRAMES, JOINED = 4, 0.5
"""Frames on each side of a border that are compared, and the difference of the least unlikeness across the border and the
largest one on a side from which the tissue is another one. It was 0.96 and more in recordings of another simulator that were
joined, and at most 0 in twelve kinds of its stacks."""


def joined_doubt(
    right: Numbers, energy: NDArray[np.float64], numbers: NDArray[np.intp]
) -> tuple[str, str] | None:
    """Return the doubt that the tissue is another one from some frame on, as in two recordings in one file.

    The unlikeness of frames k and l is 1 - |<x_k, x_l>| / (|x_k| |x_l|), in the clutter components.

    Parameters
    ----------
    right : (n_frames, k) array
        Temporal vectors of the clutter components, without excluded frames.
    energy : (k,) array
        Their energies.
    numbers : (n_frames,) array of int
        Numbers of the frames.
    """
    n, m = len(right), JOINED_FRAMES
    if n < 4 * m:
        return None
    x = right * np.sqrt(energy)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), TINY)
    next_likeness = np.abs(np.sum(x[1:] * x[:-1].conj(), axis=1))
    found = []
    for border in np.flatnonzero(next_likeness[m - 1 : n - m] < 1 - JOINED) + m:
        near = x[border - m : border + m]
        likeness = np.abs(near @ near.conj().T)
        within = min(likeness[:m, :m].min(), likeness[m:, m:].min())
        if within - likeness[:m, m:].max() > JOINED:
            found.append(int(numbers[border]))
    if not found:
        return None
    named = ", ".join(map(str, found[:m])) + (" and others" if len(found) > m else "")
    return "frame-order", (
        f"the tissue is another one from frame {named} on: recordings were joined, frames are missing, or the probe jumped; "
        "filter each part alone"
    )


MOST_ROUNDING = 0.5
"""Share of rounding errors in the noise from which the doubt is made: half of the noise comes from storing the values."""

MULTIPLE = 0.02
"""Largest distance from a multiple of the step, over the step, of values that have steps."""


def value_step(values: Numbers) -> float:
    """Return the step of which all real and imaginary parts are multiples; 0 if there is none.

    Parameters
    ----------
    values : array
        Some values of a stack; NaN in unobserved entries.
    """
    parts = np.stack([values.real, values.imag]) if np.iscomplexobj(values) else values
    levels = np.unique(np.abs(parts[np.isfinite(parts)]).astype(np.float64))
    if len(levels) < 2:
        return 0.0
    step = float(np.diff(levels).min())
    # In single precision the step is only roughly the least difference; each larger level tells it more exactly.
    for count in 2 ** np.arange(1, len(levels).bit_length() + 1):
        multiples = np.round(levels[:count] / step)
        if multiples.any():
            step = float(multiples @ levels[:count] / (multiples @ multiples))
    multiples = levels / step
    return step if np.abs(multiples - np.round(multiples)).max() < MULTIPLE else 0.0


def rounding_doubt(step: float, n_parts: int, noise_power: float) -> tuple[str, str] | None:
    """Return the doubt that the noise is rounding errors, which hide what is weaker than them; None without reason.

    Errors of rounding to a step have the power step^2 / 12 in each real or imaginary part.

    Parameters
    ----------
    step : float
        Step of the values, from :func:`value_step`.
    n_parts : int
        2 for complex values, 1 for real ones.
    noise_power : float
        Mean power of the noise in an entry.
    """
    power = n_parts * step**2 / 12
    if power <= MOST_ROUNDING * noise_power:
        return None
    return "values", (
        f"the values are multiples of {step:.6g}, and at least {100 * MOST_ROUNDING:.0f} % of the noise are their rounding "
        "errors: blood may be lost in them; store the IQ in smaller steps"
    )


def axes_with_time(position: int, n_axes: int) -> list[str]:
    """Return the axis letters of a stack with time at a position, in each order of space, which data do not tell."""
    orders = map("".join, permutations("zxy"[: n_axes - 1]))
    return [f"{letters[:position]}t{letters[position:]}" for letters in orders]


def order_doubts(frames: Numbers, axes: str, shape: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield why consecutive frames may not be what they are read as: a code and a sentence for each reason.

    `axes`: another axis is time by the tissue, or like time, such as blocks or ensembles. `frame-order`: each frame is there
    several times.

    Parameters
    ----------
    frames : (n, n_pixels) array
        The frames, pixels in the order z, x, y; NaN in unobserved entries.
    axes : str
        Axis letters of the stack.
    shape : sequence of int
        Number of pixels along z, x and y.
    """
    x = frames[:SOME_FRAMES, spread_rows(frames.shape[1], FEW_PIXELS)]
    x = np.where(np.isfinite(x), x, 0)
    if len(x) < 4 or not x.any():
        return
    letters = canonical_axes(axes)[:-1]
    if min(shape) > 1:
        lengths, side = (len(frames), *shape), round(MIDDLE_PIXELS ** (1 / len(shape)))
        middle = _middle(lengths, [SOME_FRAMES] + [side] * len(shape))
        scores = unlikeness_and_rank(np.abs(frames.reshape(lengths)[middle]))
        time = time_by(dict(zip("t" + letters, scores, strict=True)), MOST_UNLIKE, MOST_RANK)
        if time not in (None, "t"):
            named = [f"'{order}'" for order in axes_with_time(axes.index(str(time)), len(axes))]
            blocks = "; an axis of blocks, such as packets, is b" * (len(letters) > 2)
            sentence = (
                f"the axes look wrong: the stack was read as '{axes}'; the data suggest {', '.join(named[:-1])} or "
                f"{named[-1]}, and do not tell which axis is depth{blocks}"
            )
            yield "axes", sentence
        # Another axis is alike, too
        (unlike, rank), *others = scores
        most = max(CLEARLY * unlike, AS_UNLIKE * max(other for other, _ in others))
        alike = [
            letter
            for letter, (other, along) in zip(letters, others, strict=True)
            if other < most and along < AS_ONE
        ]
        # An image without detail is alike along all axes.
        if unlike < MOST_UNLIKE and rank < MOST_RANK and len(alike) < len(letters):
            sentence = "{} looks like frames or blocks, not like space: join it with t, or give other axes"
            yield from (("axes", sentence.format(letter)) for letter in alike)
    n_copies = int(np.count_nonzero((x[1:] == x[:-1]).all(axis=1)))
    if REPEATED * len(x) < n_copies < MOST_REPEATED * len(x):
        n = round(len(x) / (len(x) - n_copies))
        yield "frame-order", f"each frame is there {n} times: read each once (frames 0::{n})"


def periodic_doubt(frames: Numbers) -> tuple[str, str] | None:
    """Return the doubt that frames repeat with a period; None if they do not.

    Parameters
    ----------
    frames : (n, n_pixels) array
        Finite values of some pixels in consecutive frames. Their tissue is held still, so that a vibration does not repeat.
    """
    x = frames[:SOME_FRAMES].astype(np.complex128)
    scale = float(np.abs(x).max(initial=0))
    if len(x) < 4 or not scale:
        return None
    unlike_at = [_unlikeness_at(x / scale, lag) for lag in range(1, len(x) // 3 + 1)]
    period = next(n for n, value in enumerate(unlike_at, 1) if value <= CLEARLY * min(unlike_at) + TINY)
    if unlike_at[0] <= max(PERIODIC * unlike_at[period - 1], LEAST_UNLIKE):
        return None
    return "frame-order", (
        f"frames repeat with period {period}, as angles that were not compounded do: average every {period} frames, "
        f"or read one of them (frames 0::{period})"
    )


def _unlikeness_at(x: Numbers, lag: int) -> float:
    """Return the unlikeness of frames, (n, n_pixels), that are some frames apart, as in :func:`unlikeness_and_rank`."""
    before, after = x[:-lag], x[lag:]
    together = np.abs(np.vecdot(before.T, after.T)).sum()
    energy = (np.vdot(after, after) + np.vdot(before, before)).real / 2
    # Of copies it would be a rounding error on either side of 0
    return max(1 - float(together / max(float(energy), TINY)), 0.0)
