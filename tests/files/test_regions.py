"""Regions from their description on the command line."""

import os
import re
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest

from usdenoise.errors import InputError, OptionError
from usdenoise.files.images import tiff
from usdenoise.files.regions import region

SPACING = {"z": 0.1, "x": 0.2}


def test_rectangles_are_half_open():
    mask = region("rect:1,2,3,5", (6, 8), "zx", {})
    assert np.argwhere(mask).tolist() == [[1, 2], [1, 3], [1, 4], [2, 2], [2, 3], [2, 4]]


def test_millimetres_count_pixels_by_their_centres():
    # Centres at 0.05, 0.15, ... in z and 0.1, 0.3, ... in x.
    mask = region("rect:0.1,0.2,0.3,0.6mm", (6, 8), "zx", SPACING)
    assert np.argwhere(mask).tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    circle = region("circle:0.15,0.3,0.1mm", (6, 8), "zx", SPACING)
    assert np.argwhere(circle).tolist() == [[0, 1], [1, 1], [2, 1]]


@pytest.mark.parametrize(
    "text", ["rect:1,2,3,5", "circle:2,5,1.5", "rect:0.1,0.2,0.3,0.6mm", "circle:0.15,0.3,0.1mm"]
)
def test_numbers_go_by_the_names_of_the_axes(text: str) -> None:
    wanted = region(text, (6, 8), "zx", SPACING)
    assert np.array_equal(region(text, (8, 6), "xz", SPACING), wanted.T)


def test_numbers_of_a_volume_are_depth_lateral_elevation() -> None:
    found = region("rect:0,1,2,3,5,6", (6, 7, 8), "yxz", {})
    assert np.argwhere(found).min(axis=0).tolist() == [2, 1, 0]
    assert np.argwhere(found).max(axis=0).tolist() == [5, 4, 2]
    assert region("circle:1,1,1,1", (4, 5, 6), "zxy", {}).sum() == 7


BEYOND = {
    "rect:0,0,6,8": "rect:0,0,6,9", "rect:2,3,6,8": "rect:2,-1,6,8", "rect:0,0,0.6,1.6mm": "rect:0,0,0.6,2mm",
    "circle:2,3,2": "circle:2,3,3", "circle:3,5,2.9": "circle:3,5,3", "circle:0.25,0.7,0.25mm": "circle:0.25,0.7,0.35mm",
}  # fmt: skip


@pytest.mark.parametrize(("fits", "beyond"), BEYOND.items())
def test_a_region_beyond_the_image_is_an_error(fits: str, beyond: str) -> None:
    assert region(fits, (6, 8), "zx", SPACING).any()
    with pytest.raises(OptionError, match="beyond the image"):
        region(beyond, (6, 8), "zx", SPACING)


@pytest.mark.parametrize("name", ["mask.png", "mask.tif", "mask.npy"])
def test_masks_come_from_files(tmp_path, name):
    mask = np.random.default_rng(0).random((9, 7)) < 0.3
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, mask)
    else:
        iio.imwrite(path, mask.astype(np.uint8) * 255, plugin="pillow")
    assert np.array_equal(region(str(path), (9, 7), "zx", {}), mask)
    # An image has depth downwards, an array the axes of the stack.
    if path.suffix == ".npy":
        assert np.array_equal(region(str(path), (9, 7), "xz", {}), mask)
    else:
        assert np.array_equal(region(str(path), (7, 9), "xz", {}), mask.T)


@pytest.mark.parametrize("axes", ["xz", "zy", "xy", "xyz"])
def test_a_mask_made_of_a_tiff_of_the_result_is_where_its_image_is(tmp_path: Path, axes: str) -> None:
    image = (np.random.default_rng(0).random((5, 5, 5)[: len(axes)]) < 0.3).astype(np.float32)
    (tmp_path / "mask.tif").write_bytes(tiff(image, axes, {}))
    assert np.array_equal(region(str(tmp_path / "mask.tif"), image.shape, axes, {}), image != 0)


def test_what_is_not_a_region_is_refused():
    numbers = ("rect:1,2,3", "rect:1,2,3,a", "circle:1,nan,3", "rect:1,1,2,2mm", "rect:100,100,200,200")
    for text in ("box:1,2,3,4", "nothing.png", *numbers):
        with pytest.raises(OptionError, match=re.escape(f"'{text}'")):
            region(text, (6, 8), "zx", {})


def test_masks_that_do_not_fit_are_refused(tmp_path):
    iio.imwrite(tmp_path / "small.png", np.ones((5, 5), np.uint8))
    np.save(tmp_path / "text.npy", np.full((6, 8), "x"))
    (tmp_path / "damaged.npy").write_bytes(b"\x93NUMPY\x01\0")
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\n" + 40 * b"\0")
    os.mkfifo(tmp_path / "pipe.png")
    for path in tmp_path.iterdir():
        with pytest.raises(InputError):
            region(str(path), (6, 8), "zx", {})
