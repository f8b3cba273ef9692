"""A geometry: everything of an acquisition but its values."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from usdenoise.errors import InputError
from usdenoise.files.open_input import Input, open_input
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import casorati, from_casorati, image_from_pixels
from usdenoise.stack.coordinates import Coordinate
from usdenoise.stack.geometry import Geometry
from usdenoise.stack.voxel_grid import positions

IQ = np.arange(6 * 4 * 5, dtype=np.complex64).reshape(6, 4, 5)
STACK = Acquisition(
    IQ,
    "tzx",
    500.0,
    {"z": 0.1, "x": 0.2},
    name="dog",
    attributes={"probe": "L22"},
    coordinates={"t": Coordinate(np.arange(6.0), None, {})},
)


def test_an_acquisition_gives_its_geometry_and_a_geometry_an_acquisition() -> None:
    geometry = STACK.geometry
    assert (geometry.axes, geometry.shape, geometry.dtype) == ("tzx", (6, 4, 5), np.complex64)
    names = ("n_frames", "n_pixels", "spatial_axes", "shape_text", "is_complex", "shape", "dtype")
    assert all(getattr(geometry, name) == getattr(STACK, name) for name in names)
    assert geometry.shape_in("xt") == STACK.shape_in("xt") == (5, 6)
    assert geometry.geometry == geometry
    again = Acquisition.of(geometry, IQ)
    assert again.geometry == geometry
    # Times of other frames than those of the input are counted from 0.
    fewer = Acquisition.of(geometry, IQ[:3])
    assert (fewer.name, fewer.n_frames, fewer.frame_rate_hz) == ("dog", 3, 500.0)
    assert positions(fewer, "t").values.tolist() == [0.0, 0.002, 0.004]
    assert pickle.loads(pickle.dumps(geometry)).shape_text == geometry.shape_text


def test_replaced_values_have_their_own_shape_and_type() -> None:
    real = replace(STACK, iq=IQ[:2].real)
    assert (real.shape, real.dtype, real.n_frames, real.is_complex) == ((2, 4, 5), np.float32, 2, False)


def test_a_matrix_becomes_a_stack_by_the_geometry_alone() -> None:
    matrix = casorati(STACK)
    np.testing.assert_array_equal(from_casorati(matrix, STACK.geometry), IQ)
    np.testing.assert_array_equal(image_from_pixels(matrix[:, 3], STACK.geometry), IQ[3])


@pytest.mark.parametrize(
    ("axes", "shape", "problem"),
    [
        ("tzx", (6, 4), "2-D"),
        ("tzz", (6, 4, 5), "distinct letters"),
        ("tzx", (1, 4, 5), "holds one frame"),
        ("tzx", (6, 0, 5), "is empty"),
    ],
)
def test_impossible_geometries_are_refused(axes: str, shape: tuple[int, ...], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Geometry(axes, shape, np.dtype(np.float32))


def test_the_geometry_of_a_file_is_that_of_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "sample_data/phantom.h5"
    with open_input(path, {"frames": slice(3, 100, 4)}) as source:
        wanted = source.read().geometry
        monkeypatch.setattr(Input, "read", None)
        assert source.geometry == wanted
