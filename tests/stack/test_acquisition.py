"""What can be a stack, and its frames: pixels in the order z, x, y, for any axis order."""

from itertools import permutations

import numpy as np
import pytest

from usdenoise.errors import InputError
from usdenoise.stack.acquisition import Acquisition

ORDERS = ["".join(p) for p in permutations("zxt")] + ["tzxy", "zxyt", "ytxz"]


@pytest.mark.parametrize("axes", ORDERS)
def test_pixels_of_the_frames_are_in_the_order_z_x_y(axes):
    sizes = {"z": 3, "x": 4, "y": 2, "t": 5}
    canonical = [letter for letter in "zxyt" if letter in axes]
    numbered = np.arange(np.prod([sizes[c] for c in canonical])).reshape([sizes[c] for c in canonical])
    stack = numbered.transpose([canonical.index(letter) for letter in axes]).copy().astype(np.float32)
    acquisition = Acquisition(stack, axes)
    matrix = acquisition.frames.T
    assert np.array_equal(matrix, np.arange(numbered.size).reshape(-1, 5))
    assert np.array_equal(acquisition.as_stack(matrix.T), stack)
    image = acquisition.image(matrix[:, 2])
    assert np.array_equal(image, stack.take(2, axis=axes.index("t")))
    assert (acquisition.n_pixels, acquisition.n_frames) == matrix.shape


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=["by frame", "by pixel"])
def test_memory_in_the_order_of_the_frames_or_the_pixels_is_not_copied(order):
    memory = np.zeros((3, 4, 5), np.complex64)
    acquisition = Acquisition(memory.transpose(order), "tzx")
    assert np.shares_memory(acquisition.frames, memory)


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
