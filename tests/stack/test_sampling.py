"""Uniform draws without replacement, the same for any blocking."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdenoise.errors import OptionError
from usdenoise.stack.sampling import TILE_ROWS, draw_entries, spread_rows


def masks(sample):
    held_out = np.zeros(sample.shape, bool)
    held_out[sample.held_out_rows, sample.held_out_columns] = True
    return sample.mask(slice(0, sample.shape[0])), held_out


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 700), st.integers(1, 40), st.floats(0.01, 1.0), st.integers(0, 2**32), st.booleans())
def test_counts_are_exact_and_only_observed_entries_are_drawn(n_rows, n_frames, fraction, seed, with_holes):
    observed = None
    seen = np.ones((n_rows, n_frames), bool)
    if with_holes:
        seen = np.random.default_rng(seed).random((n_rows, n_frames)) < 0.7
        observed = np.packbits(seen, axis=1, bitorder="little")
    sample = draw_entries((n_rows, n_frames), fraction, seed, observed)
    fitted, held_out = masks(sample)
    assert not (fitted & held_out).any()
    assert not ((fitted | held_out) & ~seen).any()
    total = max(1, round(fraction * seen.sum())) if seen.any() else 0
    assert fitted.sum() == sample.n_fitted
    assert held_out.sum() == sample.n_held_out
    assert sample.n_fitted + sample.n_held_out == total
    assert sample.n_held_out == max(round(0.01 * total), 1 if total >= 20 else 0)
    assert sample.n_observed == seen.sum()


def test_blocks_of_any_size_show_the_same_entries():
    sample = draw_entries((1000, 37), 0.3, 7)
    fitted, held_out = masks(sample)
    for size in (1, 100, 256, 999):
        for start in range(0, 1000, size):
            rows = slice(start, min(start + size, 1000))
            assert np.array_equal(sample.mask(rows), fitted[rows])
            block = np.zeros_like(fitted[rows])
            block[sample.held_out(rows)] = True
            assert np.array_equal(block, held_out[rows])


def test_same_seed_same_entries_other_seed_others():
    first, again, other = (draw_entries((600, 50), 0.5, seed) for seed in (4, 4, 5))
    assert np.array_equal(first.bits, again.bits)
    assert np.array_equal(first.held_out_columns, again.held_out_columns)
    assert np.mean(first.mask(slice(0, 600)) != other.mask(slice(0, 600))) == pytest.approx(0.5, abs=0.02)


def test_every_entry_is_as_likely_as_any_other():
    draws = 400
    counts = sum(draw_entries((300, 12), 0.25, seed).mask(slice(0, 300)).astype(int) for seed in range(draws))
    expected = draws * 0.25 * 0.99
    # 3600 binomial counts: their variance says whether the draws are independent of place and of each other.
    assert counts.mean() == pytest.approx(expected, rel=0.01)
    assert counts.var() == pytest.approx(expected * 0.7525, rel=0.1)
    assert counts.sum(axis=1).var() == pytest.approx(12 * expected * 0.7525, rel=0.25)
    # Rows of the second tile are not copies of the first's.
    assert not np.array_equal(counts[:44], counts[TILE_ROWS : TILE_ROWS + 44])


def test_half_of_a_large_stack_costs_a_bit_an_entry():
    sample = draw_entries((4096, 1000), 0.5, 0)
    index_bytes = sum(array.nbytes for array in (sample.bits, sample.held_out_rows, sample.held_out_columns))
    assert index_bytes < 0.2 * 4096 * 1000


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01, float("nan")])
def test_fraction_outside_is_refused(fraction):
    with pytest.raises(OptionError, match=r"outside \(0, 1\]; give sampling"):
        draw_entries((10, 10), fraction, 0)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 600), st.sampled_from([256, 1024, 2000, 6000]))
def test_spread_rows_meet_all_columns_of_any_image(height, width, n_wanted):
    n_rows = height * width
    rows = spread_rows(n_rows, n_wanted)
    assert len(rows) == n_rows if n_rows < 2 * n_wanted else n_wanted <= len(rows) <= 2 * n_wanted
    assert (np.diff(rows, prepend=-1, append=n_rows) > 0).all()
    # Kolmogorov and Smirnov's distance from an even distribution over the columns, and over the depth.
    for place, n in ((rows % width, width), (rows // width, height)):
        below = np.cumsum(np.bincount(place, minlength=n)) / len(rows)
        assert abs(below - np.arange(1, n + 1) / n).max() < 3 / np.sqrt(len(rows))
