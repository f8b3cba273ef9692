"""Views of stored arrays give what the same view of the whole array gives, for any slices."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from usdenoise.files.stored import (
    StoredArray,
    concatenated,
    everything,
    from_array,
    joined,
    paired,
    reversed_axes,
    split_axis,
    with_last_axis,
    without_axes,
)

_RNG = np.random.default_rng(6)


def numbers(*shape: int) -> Any:
    return _RNG.integers(-99, 99, shape).astype(np.float32)


REAL, IMAGINARY, PAIRS, SINGLE = numbers(6, 5, 4), numbers(6, 5, 4), numbers(6, 2, 5), numbers(6, 1, 5, 1, 4)
BLOCKS = [numbers(3, n, 4) for n in (2, 5, 1)]

VIEWS: list[tuple[StoredArray, Any]] = [
    (reversed_axes(from_array(REAL)), REAL.transpose()),
    (joined(from_array(REAL), from_array(IMAGINARY), 0.5), (REAL + 1j * IMAGINARY) * 0.5),
    (paired(from_array(PAIRS), 1), PAIRS[:, 0] + 1j * PAIRS[:, 1]),
    (without_axes(from_array(SINGLE), [1, 3]), SINGLE[:, 0, :, 0]),
    (with_last_axis(from_array(REAL)), REAL[..., None]),
    (concatenated([from_array(block) for block in BLOCKS], 1), np.concatenate(BLOCKS, 1)),
    (split_axis(from_array(REAL.reshape(6, 20)), 1, (5, 4)), REAL),
    (split_axis(reversed_axes(from_array(REAL.reshape(6, 20))), 0, (5, 4)), REAL.transpose(1, 2, 0)),
    (reversed_axes(without_axes(reversed_axes(from_array(SINGLE)), [1, 3])), SINGLE[:, 0, :, 0]),
]


@given(st.sampled_from(VIEWS), st.data())
def test_a_slab_of_a_view_is_the_view_of_the_whole(view: tuple[StoredArray, Any], data: Any) -> None:
    stored, whole = view
    assert stored.shape == whole.shape
    assert 0 <= stored.slow < len(stored.shape)
    assert np.array_equal(everything(stored), whole)
    index = []
    for n in stored.shape:
        start = data.draw(st.integers(0, n - 1))
        index.append(slice(start, data.draw(st.integers(start + 1, n)), data.draw(st.integers(1, 3))))
    assert np.array_equal(stored.read(tuple(index)), whole[tuple(index)])
    assert everything(stored).dtype == stored.dtype
