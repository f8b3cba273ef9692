"""The noise floor is the error of least-squares fits, and grows with the noise."""

from functools import partial

import numpy as np
import pytest

from usdenoise.experiments.planted import SIZE, draw_one_bit, draw_phase, draw_sensing, least_squares_error


@pytest.mark.parametrize("seed", [0, 1])
def test_at_the_true_rank_the_least_squares_error_is_that_of_the_linearised_problem(seed):
    clean, noisy = (
        draw_sensing(np.random.default_rng(seed), scales=(1.0, 0.3), rank=2, measurements=80, sigma=sigma)
        for sigma in (0.0, 1e-5)
    )
    noise = noisy.loss.measurements - clean.loss.measurements
    factor = clean.factor
    changes = []
    for i in range(SIZE):
        for j in range(2):
            direction = np.zeros((SIZE, 2))
            direction[i, j] = 1
            changes.append(direction @ factor.T + factor @ direction.T)
    seen = np.array([np.einsum("kij,ij->k", clean.loss.matrices, change) for change in changes]).T
    weights = np.linalg.lstsq(seen, noise, rcond=1e-10)[0]
    expected = np.linalg.norm(sum(w * change for w, change in zip(weights, changes, strict=True)))
    assert least_squares_error(noisy) == pytest.approx(expected / np.linalg.norm(clean.truth), rel=1e-3)


@pytest.mark.parametrize(
    "draw",
    [
        partial(draw_sensing, scales=(1.0, 1e-2), rank=8, measurements=160),
        partial(draw_one_bit, scales=(1.0, 1.0), rank=4),
        partial(draw_phase, rank=2, measurements=80),
    ],
)
def test_the_floor_grows_with_the_noise(draw):
    low, high = (least_squares_error(draw(np.random.default_rng(0), sigma=sigma)) for sigma in (1e-5, 1e-4))
    assert high / low == pytest.approx(10, rel=0.1)
