"""TIFF files as tifffile reads them, with the pixel size and unit that ImageJ and Fiji show."""

import io

import numpy as np
import pytest
import tifffile

from usdenoise.files.images import tiff

SPACING = {"z": 0.05, "x": 0.1, "y": 0.4}


@pytest.mark.parametrize(("axes", "names", "n_slices"), [("xz", "YX", 1), ("xzy", "ZYX", 3)])
def test_the_pixel_size_is_in_mm(axes: str, names: str, n_slices: int) -> None:
    image = np.random.default_rng(0).random((4, 6, 3)[: len(axes)]).astype(np.float32)
    with tifffile.TiffFile(io.BytesIO(tiff(image, axes, SPACING))) as file:
        assert file.is_imagej
        about = file.imagej_metadata
        assert (about["unit"], about.get("slices", 1)) == ("mm", n_slices)
        assert about.get("spacing") == (0.4 if n_slices > 1 else None)
        assert file.series[0].axes == names
        order = [axes.index(letter) for letter in "yzx" if letter in axes]
        np.testing.assert_array_equal(file.asarray(), image.transpose(order))
        assert len(file.pages) == n_slices
        for page in file.pages:
            x, y = (page.tags[name].value for name in ("XResolution", "YResolution"))
            assert (x[0] / x[1], y[0] / y[1]) == pytest.approx((10, 20))
            assert int(page.tags["ResolutionUnit"].value) == 1


def test_a_plane_along_elevation_has_depth_downwards() -> None:
    image = np.random.default_rng(0).random((4, 6)).astype(np.float32)
    with tifffile.TiffFile(io.BytesIO(tiff(image, "zy", SPACING))) as file:
        np.testing.assert_array_equal(file.asarray(), image)
        y, z = (file.pages[0].tags[name].value for name in ("XResolution", "YResolution"))
        assert (y[0] / y[1], z[0] / z[1]) == pytest.approx((2.5, 20))


@pytest.mark.parametrize("spacing", [None, {}, {"x": 0.1}])
def test_an_unknown_pixel_size_is_not_written(spacing: dict[str, float] | None) -> None:
    with tifffile.TiffFile(io.BytesIO(tiff(np.ones((4, 6)), "zx", spacing))) as file:
        assert not file.is_imagej
        assert "XResolution" not in file.pages[0].tags
