"""Stack to Casorati matrix and back, for any axis order."""

from itertools import permutations

import numpy as np
import pytest

from usdenoise.errors import InputError
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import casorati, from_casorati, image_from_pixels

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
