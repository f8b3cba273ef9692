"""A geometry: everything of an acquisition but its values."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.open_input import Input, open_input
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.data_arrays import positions
from usdenoise.stack.geometry import Coordinate, Geometry, as_frames, canonical_axes, in_axes

IQ = np.arange(6 * 4 * 5, dtype=np.complex64).reshape(6, 4, 5)
LABELS: dict[str, Any] = {
    "attributes": {"probe": "L22"},
    "coordinates": {"t": Coordinate(np.arange(6.0), None, {})},
}
STACK = Acquisition(IQ, "tzx", 500.0, {"z": 0.1, "x": 0.2}, name="dog", **LABELS)


def test_an_acquisition_gives_its_geometry_and_a_geometry_an_acquisition() -> None:
    geometry = STACK.geometry
    assert (geometry.axes, geometry.shape, geometry.dtype) == ("tzx", (6, 4, 5), np.complex64)
    names = ("n_frames", "n_pixels", "spatial_axes", "shape_text", "is_complex", "shape", "dtype")
    assert all(getattr(geometry, name) == getattr(STACK, name) for name in names)
    assert geometry.shape_in("xt") == STACK.shape_in("xt") == (5, 6)
    assert geometry.geometry == geometry
    assert Acquisition.of(geometry, IQ).geometry == geometry
    # Times of other frames than those of the input are counted from 0.
    fewer = Acquisition.of(geometry, IQ[:3])
    assert (fewer.name, fewer.n_frames, fewer.frame_rate_hz) == ("dog", 3, 500.0)
    assert positions(fewer, "t").values.tolist() == [0.0, 0.002, 0.004]
    assert pickle.loads(pickle.dumps(geometry)).shape_text == geometry.shape_text


def test_replaced_values_have_their_own_shape_and_type() -> None:
    real = replace(STACK, iq=IQ[:2].real)
    assert (real.shape, real.dtype, real.n_frames, real.is_complex) == ((2, 4, 5), np.float32, 2, False)


def test_frames_become_a_stack_by_the_geometry_alone() -> None:
    frames = STACK.frames
    np.testing.assert_array_equal(STACK.geometry.as_stack(frames), IQ)
    np.testing.assert_array_equal(STACK.geometry.image(frames[3]), IQ[3])


ORDERS = ["".join(letters) for axes in ("tzx", "tzxy") for letters in permutations(axes)]
"""All axis orders of 2-D and 3-D stacks."""


@st.composite
def geometries(draw: Callable[..., Any]) -> Geometry:
    """Geometries of any axis order; axes may have the length 1."""
    axes = draw(st.sampled_from(ORDERS))
    shape = tuple(draw(st.integers(2 if letter == "t" else 1, 4)) for letter in axes)
    return Geometry(axes, shape=shape, dtype=np.dtype(np.float64))


def numbers_of_pixels(geometry: Geometry) -> NDArray[np.intp]:
    """The number of each pixel of an image with the spatial axes of the stack, by a loop over z, x and y."""
    numbers = np.full(geometry.shape_in(geometry.spatial_axes), -1)
    letters = "zxy"[: len(geometry.spatial_axes)]
    for number, place in enumerate(product(*map(range, geometry.shape_in(letters)))):
        at = dict(zip(letters, place, strict=True))
        numbers[tuple(at[letter] for letter in geometry.spatial_axes)] = number
    return numbers


@given(geometries(), st.lists(st.integers(1, 3), max_size=2))
def test_values_of_pixels_and_images_are_the_same_values(geometry: Geometry, before: list[int]) -> None:
    """Whatever axes come before the pixels."""
    numbers = numbers_of_pixels(geometry)
    assert geometry.pixel_shape == geometry.shape_in(geometry.pixel_axes)
    assert geometry.pixel_axes == canonical_axes(geometry.axes)[:-1]
    values = np.random.default_rng(0).random((*before, geometry.n_pixels))
    images = geometry.image(values)
    assert images.shape == (*before, *geometry.shape_in(geometry.spatial_axes))
    np.testing.assert_array_equal(images, values[..., numbers])
    np.testing.assert_array_equal(geometry.pixels(images), values)
    in_order = in_axes(numbers, geometry.spatial_axes, geometry.pixel_axes)
    np.testing.assert_array_equal(in_order.ravel(), np.arange(geometry.n_pixels))
    assert np.shares_memory(images, values)
    assert np.shares_memory(geometry.pixels(images), values)
    # The other way round, from images in an order of memory of their own
    images = np.random.default_rng(1).random(images.shape)
    np.testing.assert_array_equal(geometry.image(geometry.pixels(images)), images)


@pytest.mark.parametrize("order", ["C", "F"])
@given(geometries(), st.integers(1, 5))
def test_frames_and_stacks_are_the_same_memory(order: Any, geometry: Geometry, n_frames: int) -> None:
    """Of any number of frames, frame after frame or pixel after pixel."""
    frames = np.asarray(np.random.default_rng(0).random((n_frames, geometry.n_pixels)), order=order)
    stack = geometry.as_stack(frames)
    time = geometry.axes.index("t")
    assert stack.shape == tuple(n_frames if axis == time else n for axis, n in enumerate(geometry.shape))
    for number, frame in enumerate(frames):
        np.testing.assert_array_equal(stack.take(number, time), geometry.image(frame))
    back = as_frames(stack, geometry.axes)
    np.testing.assert_array_equal(back, frames)
    assert np.shares_memory(stack, frames)
    assert np.shares_memory(back, frames)


@given(geometries(), st.data(), st.sampled_from([1, 2, -1]))
def test_frames_of_a_stack_are_a_view_where_memory_allows_it(geometry, data, step):
    """In memory the axes have any other order; some of the frames may be taken, or all of them backwards."""
    memory_axes = "".join(data.draw(st.permutations(geometry.axes)))
    memory = np.random.default_rng(0).random(geometry.shape_in(memory_axes))
    stack = in_axes(memory, memory_axes, geometry.axes)
    stack = stack[(*[slice(None)] * geometry.axes.index("t"), slice(None, None, step))]
    frames = as_frames(stack, geometry.axes)
    assert frames.shape == (len(range(0, geometry.n_frames, abs(step))), geometry.n_pixels)
    np.testing.assert_array_equal(geometry.as_stack(frames), stack)
    longer = "".join(letter for letter in memory_axes if geometry.shape_in(letter) > (1,))
    inside = longer.strip("t")
    if "t" not in inside and inside == canonical_axes(inside):
        assert np.shares_memory(frames, memory)
    else:
        assert not np.shares_memory(frames, memory)
        # A copy is by pixel if the memory is.
        if abs(step) == 1:
            assert (frames.strides[0] < frames.strides[1]) == (longer[-1] == "t")


def test_the_geometry_of_a_file_is_that_of_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "sample_data/phantom.h5"
    with open_input(path, {"frames": slice(3, 100, 4)}) as source:
        wanted = source.read().geometry
        monkeypatch.setattr(Input, "read", None)
        assert source.geometry == wanted


@pytest.mark.parametrize(("stack", "axes", "words"), [
    (np.zeros((4, 4)), "zt", "2-D"), (np.zeros((4, 4, 4)), "zzt", "distinct letters"),
    (np.zeros((4, 4, 4)), "zxy", "with t among them"), (np.zeros((4, 4, 4)), "zxyt", "names 4 axes"),
    (np.zeros((4, 4, 1)), "zxt", "one frame"), (np.zeros((4, 0, 4)), "zxt", "is empty"),
    (np.full((4, 4, 4), "a"), "zxt", "not numbers"),
])  # fmt: skip
def test_what_cannot_be_a_stack_is_refused(stack: Any, axes: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Acquisition(stack, axes)
