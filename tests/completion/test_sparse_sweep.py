"""The compiled sweep over sampled entries is the plain loop."""

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.completion import block_sums
from usdenoise.completion.sparse_sweep import sweep
from usdenoise.completion.starts import gaussian


# Ranks of one lane, of several unrolled ones, and of more than are unrolled; rows without an entry, odd numbers of entries.
@pytest.mark.parametrize("rank", [1, 5, 16, 33, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_the_sweep_equals_the_plain_loop(dtype, rank, monkeypatch):
    monkeypatch.setattr(block_sums, "TILE_COLUMNS", 13)
    rng = np.random.default_rng(rank)
    values, u, v = (gaussian(rng, shape, dtype) for shape in ((11, 40), (11, rank), (40, rank)))
    mask = rng.random(values.shape) < 0.2
    mask[3] = False
    nothing = (np.empty(0, np.int32), np.empty(0, np.int32))
    entries = block_sums.gather(values, mask, nothing)[:3]
    loss, residual_v, residual_u = sweep(*entries, u, v)
    plain = loops.sweep(*entries, u, v)
    tolerance = 2e-5 if np.dtype(dtype).itemsize in (4, 8) and dtype != np.float64 else 1e-12
    assert loss == pytest.approx(plain[0], rel=tolerance)
    for ours, theirs in ((residual_v, plain[1]), (residual_u, plain[2])):
        assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()
    residual = np.where(mask, u @ v.conj().T - values, 0)
    assert np.abs(plain[1] - residual @ v).max() <= tolerance * np.abs(plain[1]).max()
    assert np.abs(plain[2] - residual.conj().T @ u).max() <= tolerance * np.abs(plain[2]).max()
