"""Whether real values can be RF: their signs must not matter, and I and Q must not alternate along an axis.

RF oscillates about zero, so its statistics are the same with the other sign. Compressed data, envelopes and power are not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.arrays import offset_of, skewness

LOOKED_AT, FEWEST_PIXELS = 64, 256
"""Most frames, and fewest pixels that change, that are looked at."""

ONE_SIDED = 2e-3
"""Share of the values with the rarer sign below which they are one-sided."""

SKEWED, RELATED, CERTAIN = 0.12, 0.15, 4.0
"""Skewness of the values, and rank correlation of the mean and the standard deviation of the pixels, above which they are
not those of RF if they are also this number of times their spread under random signs of tiles. On 30 stacks of RF (2.2 to 10
samples a wavelength) and of real parts of IQ they were at most 0.10 and 0.12 with 24 x 24 pixels, 0.06 and 0.05 with more;
one of them was 0.17 to 0.94 for envelopes, their roots, power and dB of the same data."""

FLAT = 2.2
"""Kurtosis below which values are spread evenly between two limits: 1.7 to 1.9 for phases, 2.7 and more for the others."""

TILES, DRAWS = 8, 50
"""Tiles along each axis that have one random sign, and number of draws."""

COMPONENTS, TURNED, SAME_TURN = 6, 0.7, 0.3
"""Leading components of which one must be another one turned by 90 degrees, the correlation from which it is, and the ratio
of the turns of odd and even pairs below which pairs differ. Interleaved I and Q of 20 phantoms had correlations of 0.96 to
1.00 and ratios of -0.73 to 0; RF had ratios of 0.86 to 1."""


def value_doubts(frames: NDArray[Any], axes: str, shape: Sequence[int]) -> tuple[tuple[str, str], ...]:
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
    x = np.asarray(frames[:: max(1, len(frames) // LOOKED_AT)][:LOOKED_AT], np.float64)
    observed = np.isfinite(x)
    offset = float(np.median(x[observed])) if observed.any() else 0.0
    y = np.where(observed, x - offset, 0)
    mean, spread = y.mean(axis=0), y.std(axis=0)
    changes = spread > 0
    if len(x) < 2 or np.count_nonzero(changes) < FEWEST_PIXELS:
        return ()
    doubts = []
    values = y[:, changes] / np.abs(y).max()
    one_sided = min(np.mean(x[:, changes] > 0), np.mean(x[:, changes] < 0)) < ONE_SIDED
    tiles = np.zeros(tuple(shape), np.intp)
    for numbers in np.ogrid[tuple(slice(n) for n in shape)]:
        tiles = tiles * TILES + numbers * TILES // numbers.size
    skewed, relation = _odd(values, mean[changes], spread[changes], tiles.ravel()[changes])
    is_flat = np.mean(values**4) < FLAT * np.mean(values**2) ** 2
    if skewed or relation:
        kind = "log-compressed" if (relation or skewed) < 0 else "like an envelope or power"
        doubts.append(("not-linear", f"the values look {kind}, not like RF: give the beamformed IQ or RF"))
    elif is_flat:
        doubts.append(
            ("not-linear", "the values look like phases, or are clipped: give the beamformed IQ or RF")
        )
    elif one_sided:
        level = offset_of(x) or offset
        sentence = f"the values are around {level:.6g}: subtract the offset {level:.6g} if they are RF"
        doubts.append(("not-linear", sentence))
    if sentence := _interleaved(y.reshape(-1, *shape), axes):
        doubts.append(("interleaved", sentence))
    return tuple(doubts)


def _odd(
    values: NDArray[np.float64],
    mean: NDArray[np.float64],
    spread: NDArray[np.float64],
    tiles: NDArray[np.intp],
) -> tuple[float, float]:
    """Return the skewness of the values, and the relation of mean and spread; 0 for each that signs can explain."""
    few = values[:: max(1, len(values) // 16)]
    ranks = _ranks(spread)
    statistics: list[Callable[[NDArray[np.float64]], float]] = [
        lambda sign: skewness(few * sign),
        lambda sign: float(np.corrcoef(_ranks(mean * sign), ranks)[0, 1]),
    ]
    random = np.random.default_rng(0)
    found = []
    for statistic, least in zip(statistics, (SKEWED, RELATED), strict=True):
        value = statistic(np.ones(len(tiles)))
        if abs(value) > least:
            drawn = [statistic(random.choice([-1.0, 1.0], int(tiles.max()) + 1)[tiles]) for _ in range(DRAWS)]
            value = value if abs(value) > CERTAIN * np.sqrt(np.mean(np.square(drawn))) else 0.0
        else:
            value = 0.0
        found.append(value)
    return found[0], found[1]


def _ranks(values: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(np.argsort(values))


def _interleaved(y: NDArray[np.float64], axes: str) -> str:
    """Return how to give I and Q that alternate, or follow each other, along an axis; empty if none do.

    With I = a and Q = b, the tissue turns: components (a, b) and (-b, a) are both among the leading ones. Neighbours in RF
    turn too, all of them in the same direction. If I and Q alternate, odd pairs turn backwards, or not at all.
    """
    rows = y.reshape(len(y), -1)
    _, vectors = np.linalg.eigh(rows @ rows.T)
    components = vectors[:, ::-1][:, :COMPONENTS].T @ rows
    components /= np.maximum(np.linalg.norm(components, axis=1, keepdims=True), np.finfo(float).tiny)
    stack = components.reshape(-1, *y.shape[1:])
    best, sentence = TURNED, ""
    for axis, letter in enumerate([letter for letter in "zxy" if letter in axes], 1):
        lines = np.moveaxis(stack, axis, 1)
        n = lines.shape[1]
        if n % 2:
            continue
        even = _turn(lines[:, 0::2], lines[:, 1::2])
        odd = _turn(lines[:, 1:-1:2], lines[:, 2::2])
        halves = _turn(lines[:, : n // 2], lines[:, n // 2 :])
        before = ":, " * axes.index(letter)
        ways = [
            (halves, f"the two halves along {letter}", f"iq[{before}:{n // 2}] + 1j * iq[{before}{n // 2}:]")
        ]
        if np.sum(even * odd) < SAME_TURN * np.sum(even**2):
            ways.append(
                (even, f"even and odd pixels along {letter}", f"iq[{before}::2] + 1j * iq[{before}1::2]")
            )
        for turn, what, how in ways:
            if (size := float(np.linalg.norm(turn, 2))) > best:
                best, sentence = (
                    size,
                    f"{what} look like I and Q: give {how}, or reshape them to an axis of length 2",
                )
    return sentence


def _turn(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the products of components with components turned by 90 degrees, (n, n); antisymmetric."""
    n = len(first)
    products = first.reshape(n, -1) @ second.reshape(n, -1).T
    turn: NDArray[np.float64] = products - products.T
    return turn
