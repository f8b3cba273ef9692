"""The similarity of components to the leading ones, its profile and its two squares, against loops."""

import numpy as np
import pytest

from usdenoise.clutter.similarity import (
    TYPICAL_SIMILARITY,
    SimilarityProfile,
    dominance,
    noise_energy,
    spatial_similarity,
    two_squares,
)
from usdenoise.completion.problem import gaussian


def test_similarity_is_the_correlation_of_envelopes():
    left = gaussian(np.random.default_rng(0), (500, 6), np.complex64)
    assert spatial_similarity(left) == pytest.approx(np.corrcoef(np.abs(left).T), abs=1e-5)


def squares(n, a, b, noise, seed=0):
    matrix = np.zeros((n, n))
    matrix[:a, :a] = matrix[a:b, a:b] = 0.5
    rough = np.random.default_rng(seed).standard_normal((n, n)) * noise
    matrix += (rough + rough.T) / 2
    np.fill_diagonal(matrix, 1)
    return matrix


@pytest.mark.parametrize(("a", "b"), [(3, 9), (10, 30), (1, 12), (20, 40)])
def test_two_squares_are_found(a, b):
    assert two_squares(squares(40, a, b, 0.1))[:2] == (a, b)


def test_table_of_sums_equals_the_search_over_templates():
    matrix = squares(12, 4, 9, 0.4)
    best = (-2.0, 0, 0)
    for a in range(1, 12):
        for b in range(a + 1, 13):
            template = np.zeros((12, 12))
            template[:a, :a] = template[a:b, a:b] = 1
            if template.std() > 0:
                best = max(best, (np.corrcoef(template.reshape(-1), matrix.reshape(-1))[0, 1], a, b))
    a, b, score = two_squares(matrix)
    assert (a, b) == best[1:]
    assert score == pytest.approx(best[0])


@pytest.mark.parametrize("n_components", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("n_close", [1, 2, 5, 9])
def test_the_profile_is_a_running_median_of_mean_similarities(n_components, n_close):
    similarity = np.random.default_rng(n_components).uniform(0, 1, (n_components, n_components))
    singular_values = np.where(np.arange(n_components) < n_close, 1.0, 0.029)
    n_references = min(n_close, 5, n_components)
    raw = [1.0]
    for component in range(1, n_components):
        before = similarity[component, : min(component, n_references)]
        raw.append(sum(before) / len(before))
    expected = [np.median(raw[max(0, k - 1) : k + 2]) for k in range(n_components)]
    profile = SimilarityProfile.from_similarity(similarity, singular_values)
    np.testing.assert_allclose(profile.values, expected, rtol=1e-12)
    plateau = TYPICAL_SIMILARITY if n_references == 1 else np.median(expected[1:n_references])
    assert profile.plateau == pytest.approx(plateau)


def test_a_fall_has_to_last():
    high, low = 0.5, 0.01
    values = np.array([high] * 6 + [low, low] + [high] * 3 + [low, low, high, low, low, high])
    profile = SimilarityProfile(values, 0.5)
    # One of five components may be above the level, and beyond the end all are below it.
    assert profile.first_below(0.1) == 11
    assert profile.first_below(0.001) is None
    assert SimilarityProfile(np.full(4, low), 0.5).first_below(0.1) == 1


def test_the_dominance_is_the_share_of_the_first_component_above_the_noise():
    values = np.array([19.0, 4, 3, 2, 2, 1])
    noise = noise_energy(1.0, (4, 40))
    expected = (361 - 40) / sum(max(value**2 - 40, 0) for value in values)
    assert dominance(values, noise) == pytest.approx(expected)
    assert dominance(values, 0.0) == pytest.approx(361 / 395)
    # Few components and few frames say nothing.
    assert dominance(values[:3], 0.0) == dominance(values, noise_energy(1.0, (400, 31))) == 0


@pytest.mark.parametrize(("n_tissue", "first"), [(1, 0), (2, 0), (4, 1)])
def test_components_that_dominate_are_clutter_and_many_of_them_are_references(n_tissue, first):
    """A constant, tissue components that are alike, and blood that is not."""
    similarity = np.full((20, 20), 0.02)
    similarity[1 : 1 + n_tissue, 1 : 1 + n_tissue] = 0.5
    np.fill_diagonal(similarity, 1)
    values = np.array([1e5, *np.geomspace(1e3, 1e2, n_tissue), *np.linspace(4, 2, 19 - n_tissue)])
    assert SimilarityProfile.from_similarity(similarity, values).first_below(0.2) == 1
    profile = SimilarityProfile.from_similarity(similarity, values, noise=0.1)
    assert (profile.first, profile.first_below(0.2)) == (first, 1 + n_tissue)
