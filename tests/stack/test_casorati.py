"""Stack to Casorati matrix and back, for any axis order."""

from itertools import permutations

import numpy as np
import pytest

from usdenoise.errors import InputError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import casorati, check_entries, from_casorati, image_from_pixels

ORDERS = ["".join(p) for p in permutations("zxt")] + ["tzxy", "zxyt", "ytxz"]


@pytest.mark.parametrize("axes", ORDERS)
def test_rows_are_pixels_in_the_order_z_x_y(axes):
    sizes = {"z": 3, "x": 4, "y": 2, "t": 5}
    canonical = [letter for letter in "zxyt" if letter in axes]
    numbered = np.arange(np.prod([sizes[c] for c in canonical])).reshape([sizes[c] for c in canonical])
    stack = numbered.transpose([canonical.index(letter) for letter in axes]).copy().astype(np.float32)
    acquisition = Acquisition(stack, axes)
    matrix = casorati(acquisition)
    assert np.array_equal(matrix, np.arange(numbered.size).reshape(-1, 5))
    assert np.array_equal(from_casorati(matrix, acquisition), stack)
    image = image_from_pixels(matrix[:, 2], acquisition)
    assert np.array_equal(image, stack.take(2, axis=axes.index("t")))
    assert (acquisition.n_pixels, acquisition.n_frames) == matrix.shape


def test_pixel_major_memory_is_not_copied():
    memory = np.zeros((3, 4, 5), np.complex64)
    acquisition = Acquisition(memory.transpose(2, 0, 1), "tzx")
    assert np.shares_memory(casorati(acquisition), memory)


@pytest.mark.parametrize("threads", [1, 3])
def test_check_entries_marks_and_zeroes_what_is_not_finite(threads, monkeypatch):
    # Several blocks, some of them whole.
    monkeypatch.setattr("usdenoise.stack.casorati.BLOCK_ENTRIES", 19 * 7)
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((600, 19)) + 1j).astype(np.complex64)
    clean = matrix.copy()
    bad = rng.random(matrix.shape) < 0.01
    bad[100:200] = False
    matrix[bad] = np.resize([np.nan, np.inf, complex(0, -np.inf), complex(1, np.nan)], bad.sum())
    with ThreadExecutor(threads) as executor:
        seen = check_entries(matrix, executor)
        again = check_entries(matrix, executor)
    assert seen.n_unobserved == bad.sum()
    assert np.array_equal(seen.matrix.observed_mask(slice(None)), ~bad)
    assert np.array_equal(seen.matrix.rows(slice(3, 40)).observed_mask(slice(2, 9)), ~bad[5:12])
    assert np.array_equal(matrix, np.where(bad, 0, clean))
    expected = [sum(abs(complex(value)) ** 2 for value in row) for row in matrix]
    np.testing.assert_allclose(seen.energy, expected, rtol=1e-6)
    assert np.array_equal(again.energy, seen.energy)
    assert (again.matrix.observed, again.n_unobserved) == (None, 0)


@pytest.mark.parametrize(
    ("stack", "axes", "words"),
    [
        (np.zeros((4, 4)), "zt", "2-D"),
        (np.zeros((4, 4, 4)), "zzt", "distinct letters"),
        (np.zeros((4, 4, 4)), "zxy", "with t among them"),
        (np.zeros((4, 4, 4)), "zxyt", "names 4 axes"),
        (np.zeros((4, 4, 1)), "zxt", "one frame"),
        (np.zeros((4, 0, 4)), "zxt", "is empty"),
        (np.full((4, 4, 4), "a"), "zxt", "not numbers"),
    ],
)
def test_what_cannot_be_a_stack_is_refused(stack, axes, words):
    with pytest.raises(InputError, match=words):
        Acquisition(stack, axes)
