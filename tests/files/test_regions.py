"""Regions from their description on the command line."""

import os
import re
from pathlib import Path

import imageio.v3 as iio
import nibabel
import numpy as np
import pytest
import tifffile
from PIL import Image
from scipy.ndimage import gaussian_filter

from usdenoise.errors import InputError, OptionError
from usdenoise.files.images import tiff
from usdenoise.files.regions import region
from usdenoise.sessions.regions import parts_of

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
    assert np.array_equal(region(str(path), (9, 7), "zx", {}) != 0, mask)
    # An image has depth downwards, an array the axes of the stack.
    if path.suffix == ".npy":
        assert np.array_equal(region(str(path), (9, 7), "xz", {}), mask)
    else:
        assert np.array_equal(region(str(path), (7, 9), "xz", {}) != 0, mask.T)


@pytest.mark.parametrize("axes", ["xz", "zy", "xy", "xyz"])
def test_a_mask_made_of_a_tiff_of_the_result_is_where_its_image_is(tmp_path: Path, axes: str) -> None:
    image = (np.random.default_rng(0).random((5, 5, 5)[: len(axes)]) < 0.3).astype(np.float32)
    (tmp_path / "mask.tif").write_bytes(tiff(image, axes, {}))
    assert np.array_equal(region(str(tmp_path / "mask.tif"), image.shape, axes, {}) != 0, image != 0)


SHAPE = (40, 40)
BOX = np.zeros(SHAPE, bool)
BOX[8:20, 6:18] = True
LABELS = np.zeros(SHAPE, np.uint8)
LABELS[8:20, 6:18], LABELS[8:20, 18:30], LABELS[25:30, 5:35] = 1, 2, 3
WHITE = np.where(BOX, 255, 0).astype(np.uint8)
GREY = np.repeat(np.random.default_rng(1).integers(40, 160, (*SHAPE, 1), np.uint8), 3, axis=2)
RED = np.where(BOX[..., None], np.uint8([255, 0, 0]), GREY)


def paletted(numbers: np.ndarray, *colors: tuple[int, int, int]) -> Image.Image:
    picture = Image.fromarray(numbers.astype(np.uint8), "L").convert("P")
    picture.putdata(numbers.ravel().tolist())
    picture.putpalette([level for color in colors for level in color])
    return picture


def with_alpha(color: np.ndarray, alpha: np.ndarray) -> Image.Image:
    return Image.fromarray(np.dstack([color, alpha]))


def parts(path: Path) -> dict[str, np.ndarray]:
    return parts_of(region(str(path), SHAPE, "zx", {}))


BOXES = {
    "white.png": Image.fromarray(WHITE), "one.png": Image.fromarray(WHITE // 255), "bits.tif": Image.fromarray(BOX),
    "good.jpg": Image.fromarray(WHITE), "red.png": Image.fromarray(RED), "red.jpg": Image.fromarray(RED),
    "few.png": paletted(BOX, (255, 255, 255), (255, 0, 0)), "first.png": paletted(~BOX, (255, 0, 0), (255, 255, 255)),
    "quantized.png": Image.fromarray(RED).quantize(64), "opaque.png": with_alpha(RED, np.full(SHAPE, 255, np.uint8)),
    "alpha.png": with_alpha(np.zeros((*SHAPE, 3), np.uint8), WHITE),
    "black.png": with_alpha(np.where(BOX, 0, 255).astype(np.uint8)[..., None].repeat(3, 2), WHITE),
}  # fmt: skip


@pytest.mark.parametrize("name", BOXES)
def test_a_drawn_region_has_its_pixels_whatever_the_kind_of_picture(tmp_path: Path, name: str) -> None:
    options = {"quality": 75} if name == "good.jpg" else {"quality": 90, "subsampling": 0}
    BOXES[name].save(tmp_path / name, **(options if name.endswith("jpg") else {}))
    ((ending, mask),) = parts(tmp_path / name).items()
    assert ending == ""
    assert np.array_equal(mask, BOX)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("is_shown_white", [False, True])
def test_an_inverted_look_up_table_does_not_invert_the_region(
    tmp_path: Path, dtype: type, is_shown_white: bool
) -> None:
    stored = BOX.astype(dtype) * (np.iinfo(dtype).max if dtype in (np.uint8, np.uint16) else 1)
    stored = (stored.max() ^ stored if dtype is bool else stored.max() - stored) if is_shown_white else stored
    tifffile.imwrite(tmp_path / "mask.tif", stored.astype(dtype), photometric="miniswhite")
    assert np.array_equal(parts(tmp_path / "mask.tif")[""], BOX)


@pytest.mark.parametrize("name", ["a.png", "wide.png", "wide.tif", "palette.png", "a.npy", "a.nii.gz"])
def test_each_label_is_a_region(tmp_path: Path, name: str) -> None:
    path, values = tmp_path / name, LABELS.astype(np.uint16) if "wide" in name else LABELS
    if name.endswith(".npy"):
        np.save(path, np.where(values > 0, values, np.nan))
    elif name.endswith(".nii.gz"):
        nibabel.save(nibabel.Nifti1Image(values.T[:, :, None], np.diag([0.1, 0.1, 1, 1])), path)
    elif name == "palette.png":
        paletted(LABELS, (0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0)).save(path)
    else:
        Image.fromarray(values).save(path)
    found = parts(path)
    assert list(found) == [":1", ":2", ":3"]
    for label, mask in enumerate(found.values(), 1):
        assert np.array_equal(mask, label == LABELS)


@pytest.mark.parametrize("width", [0.5, 1, 3])
def test_a_soft_mask_ends_at_half_of_its_maximum(tmp_path: Path, width: float) -> None:
    soft = gaussian_filter(255.0 * BOX, width)
    np.save(tmp_path / "soft.npy", soft)
    Image.fromarray(soft.astype(np.uint8)).save(tmp_path / "soft.png")
    for name in ("soft.npy", "soft.png"):
        levels = soft if name == "soft.npy" else soft.astype(np.uint8)
        assert np.array_equal(parts(tmp_path / name)[""], levels >= levels.max() / 2)


def test_colours_are_regions_of_their_own_and_need_a_grey_background(tmp_path: Path) -> None:
    two = np.where((LABELS == 3)[..., None], np.uint8([0, 0, 255]), RED)
    Image.fromarray(two).save(tmp_path / "two.png")
    blue, red = parts(tmp_path / "two.png").values()
    assert np.array_equal(red, BOX)
    assert np.array_equal(blue, LABELS == 3)
    Image.fromarray(np.where(BOX[..., None], two, np.uint8([0, 9, 0]))).save(tmp_path / "green.png")
    with pytest.raises(InputError, match="grey"):
        parts(tmp_path / "green.png")


def test_nifti_with_other_axes_is_refused(tmp_path: Path) -> None:
    nibabel.save(nibabel.Nifti1Image(LABELS.T[:, ::-1, None], np.diag([1, -1, 1, 1])), tmp_path / "a.nii")
    with pytest.raises(InputError, match="rising positions"):
        parts(tmp_path / "a.nii")


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
