"""Fits of rows with unobserved entries, and their normal matrices, against least squares over the observed ones."""

import numpy as np
import pytest

from usdenoise.completion.starts import gaussian
from usdenoise.linalg.low_rank import fit_gapped_rows, unobserved_normal
from usdenoise.linalg.tall_matrices import orthonormal


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_rows_with_unobserved_entries_are_fitted_to_the_observed_ones(dtype):
    rng = np.random.default_rng(0)
    right = orthonormal(gaussian(rng, (60, 4), dtype))
    rows = gaussian(rng, (9, 60), dtype)
    observed = rng.random(rows.shape) < 0.7
    observed[3] = True
    expected = [
        np.linalg.lstsq(right[seen].conj(), row[seen], rcond=None)[0]
        for row, seen in zip(rows, observed, strict=True)
    ]
    projected = np.where(observed, rows, 0) @ right
    normal = np.eye(4) - unobserved_normal(~observed, right)
    by_normal = np.linalg.solve(normal, projected[..., None])[..., 0]
    np.testing.assert_allclose(by_normal, expected, atol=1e-10)
    np.testing.assert_allclose(fit_gapped_rows(projected, observed, right, None), expected, atol=1e-10)
