"""The pixels whose entries are sampled."""

import numpy as np
import pytest

from tests.reference.matrices import casorati_matrix
from usdenoise.estimate.sample_fit import draw_sampled_pixels


def test_every_frame_has_the_same_number_of_samples_whatever_the_sampling():
    rng = np.random.default_rng(0)
    assert draw_sampled_pixels(casorati_matrix(np.zeros((500, 9))), 30, 0.5, rng) == slice(None)
    matrix = casorati_matrix(np.zeros((9000, 9)))
    for sampling, rank, wanted in ((1.0, 10, 256), (0.5, 42, 512), (0.5, 100, 1200), (0.2, 100, 3000)):
        sampled = draw_sampled_pixels(matrix, rank, sampling, rng)
        assert len(sampled) == wanted
        assert len(set(sampled)) == len(sampled)
        # Spread over the image: every tenth of it has about its share.
        share = np.histogram(sampled, 10, (0, 9000))[0] / len(sampled)
        assert share == pytest.approx(np.full(10, 0.1), abs=0.05)


def test_pixels_without_an_observed_entry_are_not_sampled():
    missing = np.zeros((5000, 30), bool)
    missing[::2] = True
    matrix = casorati_matrix(np.ones((5000, 30)), missing)
    sampled = draw_sampled_pixels(matrix, 30, 0.5, np.random.default_rng(0))
    assert (sampled % 2 == 1).all()
    assert draw_sampled_pixels(matrix, 30, 0.1, np.random.default_rng(0)) == slice(None)
