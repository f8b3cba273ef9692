"""Spatial similarity of singular vectors, its fall from tissue to blood, and the two squares in it."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import SURROUNDINGS_SIGMA
from usdenoise.linalg.array_library import Numbers
from usdenoise.stack.sampling import ENOUGH_FRAMES

CLUTTER_REACH = 0.03
"""Components whose singular value is this close to the largest (-30 dB) are references for tissue speckle."""

REFERENCES = 5
"""Largest number of reference components. Later ones are weaker, and contain more blood and noise."""

TYPICAL_SIMILARITY = 0.25
"""Similarity of tissue components to each other, used where a single reference cannot show it. In stacks of 20 and 30 frames
whose tissue is held still, the second and third component had 0.13 to 0.19, and the fourth 0.01."""

BLOOD_BELOW = 0.1
"""Similarity to the references below which a component counts as blood or noise."""

DOMINANT = 0.3
"""Share of the strongest component in the power above the noise from which it is clutter. Beyond the best cutoff it was 0.05
to 0.29 on 40 phantoms and recordings of 32 to 1200 frames, and 0.5 to 1 where a constant, a phase step from frame to frame
or tissue that moved as a whole was left. On three other stacks it was 0.31 to 0.34 one component below the best cutoff."""

DOMINANT_REFERENCES = 3
"""Components that dominate, one after the other, from which they are the references. One or two may be mixed with blood: on
four of 26 random stacks blood was like them, and 10 to 30 components were removed for 5 to 14."""

UNLIKE = 0.3
"""Similarity of a component to the other references, over the similarity among these, below which it is none."""

TIMES_MEAN = 4.0
"""Least ratio of the share of a component to the mean share with which it may dominate: the few components of few frames
have large shares."""

USUAL_LEVEL = 0.5
"""Level of similarity, relative to the similarity among the references, at which tissue usually ends. Set with
benchmarks/quality.py, on other seeds than docs/evidence.md quotes."""

FALL_LENGTH = 5
"""Components over which a fall of the similarity has to last, all but one of them."""


def spatial_similarity(left: Numbers, grid: Neighbourhood | None = None) -> NDArray[np.float64]:
    """Return the correlation over the pixels of |u_n| with |u_m| (Baranger et al., IEEE Trans. Med. Imaging 37(7), 2018).

    Parameters
    ----------
    left : (n_pixels, k) array
        Spatial singular vectors.
    grid : Neighbourhood, optional
        Shape of the image, whose pixels these are: the envelopes are divided by their averages over wide surroundings. A
        gain that tissue, blood and noise have in common, such as over depth, then makes none of them alike. By default they
        are not.

    Returns
    -------
    (k, k) float64 array
        1 on the diagonal.
    """
    envelopes = np.abs(left).astype(np.float64)
    if grid is not None:
        envelopes /= np.maximum(grid.average(envelopes, SURROUNDINGS_SIGMA), np.finfo(np.float64).tiny)
    envelopes -= envelopes.mean(axis=0)
    envelopes /= np.maximum(np.linalg.norm(envelopes, axis=0), np.finfo(np.float64).tiny)
    return np.asarray(envelopes.T @ envelopes)


def noise_energy(noise_rms: float, shape: tuple[int, int]) -> float:
    """Return the energy of noise in a component of m x n entries, above which :func:`dominance` counts.

    It is infinite for fewer than ENOUGH_FRAMES frames, n.
    """
    return noise_rms**2 * max(shape) if shape[1] >= ENOUGH_FRAMES else np.inf


def dominance(singular_values: NDArray[np.float64], noise: float) -> float:
    """Return the share of the first of some components in their power above the noise.

    Parameters
    ----------
    singular_values : (k,) array
        Singular values, decreasing.
    noise : float
        Energy of noise in a component, from :func:`noise_energy`.

    Returns
    -------
    float
        0 if it is less than TIMES_MEAN times the mean, and where none is above the noise.
    """
    above = np.maximum(singular_values**2 - noise, 0)
    if not len(above) or not above[0] or above[0] < TIMES_MEAN * above.mean():
        return 0.0
    return float(above[0] / above.sum())


def dominant_components(singular_values: NDArray[np.float64], noise: float, least: float) -> int:
    """Return how many leading components have at least such a share each in what they and the later ones have."""
    n = 0
    while dominance(singular_values[n:], noise) > least:
        n += 1
    return n


@dataclass(frozen=True)
class SimilarityProfile:
    """Similarity of the components to the leading ones, which are tissue.

    Attributes
    ----------
    values : (k,) float64 array
        Mean similarity of each component to the references before it, by a running median of three.
    plateau : float
        Similarity of the references to each other.
    first : int
        First of the references; the values before it are 1. By default 0.
    """

    values: NDArray[np.float64]
    plateau: float
    first: int = 0

    @classmethod
    def from_similarity(
        cls, similarity: NDArray[np.float64], singular_values: NDArray[np.float64], noise: float = np.inf
    ) -> Self:
        """Return the profile of components.

        A component that dominates the rest is clutter even if it is not like the leading ones. If DOMINANT_REFERENCES do,
        such as tissue beside a strong constant, the components from there on are compared with them.

        Parameters
        ----------
        similarity : (k, k) array
            Similarity of the components.
        singular_values : (k,) array
            Their singular values, which determine the references.
        noise : float
            Energy of noise in a component, from :func:`noise_energy`. By default infinite: none dominates.
        """
        first, most, least = 0, REFERENCES, 0
        # The first component, for example a constant, is not the reference if the next dominant ones are unlike it.
        n_after = min(dominant_components(singular_values[1:], noise, DOMINANT), REFERENCES)
        if dominance(singular_values, noise) > DOMINANT and _is_unlike(similarity, n_after):
            first, most = 1, n_after
        while True:
            profile = cls._from(similarity, singular_values, first, most)
            profile.values[:least] = 1
            end = profile.first_below(USUAL_LEVEL * profile.plateau)
            n_dominant = 0 if end is None else dominant_components(singular_values[end:], noise, DOMINANT)
            if end is None or not n_dominant:
                return profile
            least = end + n_dominant
            if n_dominant >= DOMINANT_REFERENCES:
                first, most = end, min(n_dominant, REFERENCES)

    @classmethod
    def _from(
        cls, similarity: NDArray[np.float64], singular_values: NDArray[np.float64], first: int, most: int
    ) -> Self:
        """Return the profile whose references are the components from `first` on, `most` at most."""
        similarity, singular_values = similarity[first:, first:], singular_values[first:]
        close = np.count_nonzero(singular_values > CLUTTER_REACH * singular_values[0])
        n_references = int(np.clip(close, 1, most))
        raw = np.ones(len(similarity))
        for k in range(1, min(n_references, len(raw))):
            raw[k] = similarity[k, :k].mean()
        raw[n_references:] = similarity[n_references:, :n_references].mean(axis=1)
        # At the ends it is the mean of two.
        values = raw.copy()
        values[[0, -1]] = raw[:2].mean(), raw[-2:].mean()
        values[1:-1] = np.median([raw[:-2], raw[1:-1], raw[2:]], axis=0)
        plateau = float(np.median(values[1:n_references])) if n_references > 1 else TYPICAL_SIMILARITY
        return cls(np.append(np.ones(first), values), plateau, first)

    def first_below(self, level: float) -> int | None:
        """Return the first component below a level from which on all but one of FALL_LENGTH are below it; None if none."""
        below = np.append(self.values < level, np.ones(FALL_LENGTH - 1, bool))
        counts = np.convolve(below, np.ones(FALL_LENGTH), "valid")
        crossings = np.flatnonzero(below[: len(self.values)] & (counts >= FALL_LENGTH - 1))
        crossings = crossings[crossings > self.first]
        return int(crossings[0]) if len(crossings) else None


def _is_unlike(similarity: NDArray[np.float64], n_after: int) -> bool:
    """Return whether the first component is unlike some components after it, which are like each other."""
    if n_after < DOMINANT_REFERENCES:
        return False
    others = similarity[1 : 1 + n_after, 1 : 1 + n_after]
    among = (others.sum() - n_after) / (n_after * (n_after - 1))
    return bool(similarity[0, 1 : 1 + n_after].mean() < UNLIKE * among)


def two_squares(similarity: NDArray[np.float64]) -> tuple[int, int, float]:
    """Return the edges of two squares of ones on the diagonal, tissue [0, a) and blood [a, b), that fit a matrix best.

    With a table of sums every pair (a, b) costs the same few operations, n^2 in all (IEEE Trans. Ultrason.
    Ferroelectr. Freq. Control 70(8):821, 2023).

    Parameters
    ----------
    similarity : (n, n) array
        Spatial similarity matrix, n at least 2.

    Returns
    -------
    a, b : int
        Edges of the squares, 0 < a < b <= n.
    correlation : float
        Of the matrix with the two squares.
    """
    n = len(similarity)
    table = np.zeros((n + 1, n + 1))
    table[1:, 1:] = similarity.cumsum(axis=0).cumsum(axis=1)
    corner = np.diag(table)
    a, b = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    ones = (a**2 + (b - a) ** 2).astype(np.float64)
    inside = corner[a] + corner[b] - table[a, b] - table[b, a] + corner[a]
    mean = table[n, n] / n**2
    spread = np.sqrt(np.maximum(np.sum(similarity**2) - n**2 * mean**2, np.finfo(np.float64).tiny))
    template = np.sqrt(np.maximum(ones - ones**2 / n**2, 0))
    valid = (a > 0) & (a < b) & (template > 0)
    score = np.full(a.shape, -np.inf)
    score[valid] = (inside - mean * ones)[valid] / (template[valid] * spread)
    best = np.unravel_index(int(np.argmax(score)), score.shape)
    return int(best[0]), int(best[1]), float(score[best])
