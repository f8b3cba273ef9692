"""Pictures of filtered stacks: the colours of their pixels, orientation and scale."""

import imageio.v3 as iio
import numpy as np
import pytest

from usdenoise.formats.tiff import tiff
from usdenoise.pictures.cutoff_figure import cutoff_png
from usdenoise.pictures.doppler_pictures import (
    directional_figure,
    directional_png,
    power_doppler_figure,
    power_doppler_png,
    velocity_figure,
    velocity_png,
)
from usdenoise.pictures.figure_choices import COLOR_MAPS
from usdenoise.pictures.figures import encoded


def brightness(png):
    return iio.imread(png)[..., :3].astype(float).sum(axis=2)


def test_depth_runs_downwards_and_the_maximum_is_bright():
    decibels = np.full((40, 40), -30.0)
    decibels[30:, :] = 0.0
    for image, axes in ((decibels, "zx"), (decibels.T, "xz")):
        shown = brightness(power_doppler_png(image, axes, dynamic_range_db=30.0))
        height, width = shown.shape
        column = shown[:, int(0.35 * width)]
        upper, lower = (
            column[int(0.3 * height) : int(0.5 * height)],
            column[int(0.78 * height) : int(0.82 * height)],
        )
        assert upper.max() < 0.2 * lower.min()


def test_dynamic_range_suits_the_image_unless_given():
    noise = np.random.default_rng(0).uniform(-14, -12, (30, 30))
    noise[3, 3] = 0.0
    automatic = brightness(power_doppler_png(noise, "zx"))
    wide = brightness(power_doppler_png(noise, "zx", dynamic_range_db=60.0))
    center = slice(len(automatic) // 3, len(automatic) // 2)
    assert automatic[center, center].mean() < 0.5 * wide[center, center].mean()


@pytest.mark.parametrize("axes", ["zxy", "yxz"])
def test_a_volume_shows_three_projections_and_a_page_for_each_elevation(axes):
    rng = np.random.default_rng(0)
    volume = rng.uniform(0.1, 1.0, [{"z": 12, "x": 10, "y": 5}[letter] for letter in axes]).astype(np.float32)
    figure = power_doppler_figure(10 * np.log10(volume), axes, spacing_mm={"z": 0.1, "x": 0.1, "y": 0.2})
    decibels = 10 * np.log10(volume.transpose([axes.index(letter) for letter in "zxy"]))
    front, side, top, bar = figure.axes
    for panel, expected, caption in (
        (front, decibels.max(axis=2), "front: maximum over elevation"),
        (side, decibels.max(axis=1), "side: maximum over lateral"),
        (top, decibels.max(axis=0).T, "top: maximum over depth"),
    ):
        np.testing.assert_allclose(panel.images[0].get_array(), expected, rtol=1e-6)
        assert panel.get_title("left").replace("\n", " ") == caption
    # The side has the depths of the front, and the top has its lateral positions; one mm is as long in all of them.
    inches = [
        subplot.get_position().bounds * np.tile(figure.get_size_inches(), 2) for subplot in (front, side, top)
    ]
    assert (inches[0][1], inches[0][3]) == pytest.approx((inches[1][1], inches[1][3]))
    assert (inches[0][0], inches[0][2]) == pytest.approx((inches[2][0], inches[2][2]))
    assert [inches[0][2] / 1.0, inches[1][2] / 1.0, inches[2][3] / 1.0] == pytest.approx(
        [inches[0][3] / 1.2] * 3
    )
    assert bar.get_ylabel() == "power Doppler (dB below maximum)"
    pages = np.stack(list(iio.imiter(tiff(volume, axes), plugin="pillow")))
    ordered = volume.transpose([axes.index(letter) for letter in "yzx"])
    assert np.array_equal(pages, ordered)


def halves(png):
    """Return the mean colour in the left and in the right part of the image."""
    picture = iio.imread(png)[..., :3].astype(float)
    height, width, _ = picture.shape
    rows = slice(int(0.35 * height), int(0.6 * height))
    return [
        picture[rows, int(a * width) : int(b * width)].mean(axis=(0, 1))
        for a, b in ((0.2, 0.35), (0.5, 0.62))
    ]


@pytest.mark.parametrize("axes", ["zx", "xz"])
def test_directions_are_red_and_blue_and_low_power_is_black(axes):
    strong, weak = np.full((40, 40), 0.3), np.full((40, 40), 1e-6)
    strong[0, 0] = 1.0
    left = np.where(np.arange(40) < 20, strong, weak)
    right = np.where(np.arange(40) < 20, weak, strong)
    towards, away = (image if axes == "zx" else image.T for image in (left, right))
    first, second = halves(directional_png(towards, away, axes))
    assert first[0] > first[2] + 50
    assert second[2] > second[0] + 50
    dark, _ = halves(
        directional_png(np.where(towards > 0.1, 1e-5, towards), np.full((40, 40), 1e-9) + np.eye(40), axes)
    )
    assert dark.max() < 60


def test_velocity_is_red_towards_blue_away_and_grey_in_noise():
    velocity = np.where(np.arange(40) < 20, 10.0, -10.0) * np.ones((40, 1))
    power = np.ones((40, 40))
    power[:30] = 9.0
    first, second = halves(velocity_png(velocity, power, "zx", unit="mm/s"))
    assert first[0] > first[2] + 50
    assert second[2] > second[0] + 50
    power[:] = 9.0
    power[9:28] = 1.0
    grey, _ = halves(velocity_png(velocity, power, "zx", unit="Hz"))
    assert np.ptp(grey) < 5


def test_a_projection_shows_the_velocity_at_the_strongest_voxel_with_blood():
    rng = np.random.default_rng(0)
    velocity = rng.uniform(-90, 90, (6, 5, 4))
    power = rng.uniform(0, 1, velocity.shape)
    power[2, 3, 1], velocity[2, 3, 1] = 50.0, 3.0
    # The fastest voxel of its ray, and a strong one without blood.
    velocity[2, 3, 2] = 80.0
    power[2, 3, 0], velocity[2, 3, 0] = 99.0, -70.0
    blood = np.zeros(velocity.shape, bool)
    blood[2, 3, 1:3] = True
    figure = velocity_figure(velocity, power, "zxy", unit="mm/s", shows_blood=blood)
    front, side, top = (np.ma.filled(panel.images[0].get_array(), np.nan) for panel in figure.axes[:3])
    assert (front[2, 3], side[2, 1], top[1, 3]) == (3.0, 3.0, 3.0)
    for view in (front, side, top):
        assert np.isfinite(view).sum() <= 2
    assert np.isnan(front[0, 0])
    assert figure.axes[0].get_title("left") == "front: strongest voxel over elevation"


def test_directional_power_takes_the_range_that_power_takes():
    rng = np.random.default_rng(0)
    towards, away = rng.uniform(0.05, 0.06, (2, 40, 40))
    towards[3, 3] = 1.0
    automatic = directional_figure(towards, away, "zx").axes[0].images[0]
    # 2 % of the pixels are below -13 dB; the range is an even number.
    assert automatic.get_clim() == (-12.0, 12.0)
    given = directional_figure(towards, away, "zx", dynamic_range_db=30.0).axes[0].images[0]
    assert given.get_clim() == (-30.0, 30.0)


def test_two_levels_make_one_scale_for_all_scans():
    power = np.full((8, 8), 100.0)
    power[0, 0], power[1, 1], power[2, 2] = 1e4, 1e-3, 10.0
    figure = power_doppler_figure(10 * np.log10(power), "zx", dynamic_range_db=(0.0, 30.0))
    drawn = figure.axes[0].images[0]
    assert drawn.get_clim() == (0.0, 30.0)
    assert [drawn.get_array()[k, k] for k in range(4)] == pytest.approx([30.0, 0.0, 10.0, 20.0])
    assert figure.axes[1].get_ylabel() == "power Doppler (dB, absolute)"
    signed = (
        directional_figure(power, np.full_like(power, 5.0), "zx", dynamic_range_db=(0.0, 30.0))
        .axes[0]
        .images[0]
    )
    assert [signed.get_array()[k, k] for k in range(4)] == pytest.approx(
        [30.0, -10 * np.log10(5), 10.0, 20.0]
    )


@pytest.mark.parametrize("color_map", COLOR_MAPS)
def test_the_colour_map_can_be_chosen(color_map):
    drawn = (
        power_doppler_figure(np.linspace(-30, 0, 64).reshape(8, 8), "zx", color_map=color_map)
        .axes[0]
        .images[0]
    )
    assert drawn.get_cmap().name == color_map
    shades = drawn.get_cmap()(np.linspace(0, 1, 64))[:, :3] @ (0.2126, 0.7152, 0.0722)
    assert np.all(np.diff(shades) > 0)


@pytest.mark.parametrize("shape", [(40, 30), (400, 10), (10, 400), (1, 1), (12, 10, 5)])
def test_a_figure_has_its_title_and_no_wide_margins(shape):
    rng = np.random.default_rng(0)
    title = "a scan with a long name: power Doppler, 14 clutter components removed, those from number 49 on dropped"
    axes = "zxy"[: len(shape)]
    figure = power_doppler_figure(rng.uniform(-30, -1, shape), axes, title=title)
    assert " ".join(figure.texts[0].get_text().split()) == title
    page = iio.imread(encoded(figure, "png"))[..., :3]
    inked = (page < 250).any(axis=2)
    rows, columns = np.flatnonzero(inked.any(axis=1)), np.flatnonzero(inked.any(axis=0))
    margins = (rows[0], len(inked) - 1 - rows[-1], columns[0], inked.shape[1] - 1 - columns[-1])
    assert max(margins) < 20
    assert min(margins) > 2
    assert page.shape[0] < 1600
    assert page.shape[1] < 1600


def test_a_figure_can_be_pdf_or_svg_with_text_that_can_be_edited():
    image = np.linspace(-30, 0, 64).reshape(8, 8)
    figure = power_doppler_figure(image, "zx", title="my scan & more")
    svg = encoded(figure, "svg").decode()
    assert "my scan &amp; more" in svg
    assert ">depth (pixels)<" in svg
    assert encoded(figure, "svg").decode() == svg
    pdf = encoded(figure, "pdf")
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
    assert encoded(power_doppler_figure(image, "zx", title="my scan & more"), "pdf") == pdf


def test_tiff_is_linear_float_with_depth_downwards():
    image = np.random.default_rng(0).uniform(0, 1e6, (7, 9)).astype(np.float32)
    assert np.array_equal(iio.imread(tiff(image, "zx"), plugin="pillow"), image)
    assert np.array_equal(iio.imread(tiff(image, "xz"), plugin="pillow"), image.T)


def test_the_low_cutoff_is_drawn_at_its_component():
    singular, similarity, profile = np.geomspace(100, 1, 20), np.eye(20), np.linspace(1, 0, 20)
    early, late = (iio.imread(cutoff_png(singular, similarity, profile, low)).astype(int) for low in (3, 15))
    red = [
        np.flatnonzero(((i[..., 0] > 180) & (i[..., 1] < 80) & (i[..., 2] < 80)).sum(axis=0) > 300)
        for i in (early, late)
    ]
    assert red[0].min() < red[1].min()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(40, 30), (12, 90), (20, 16, 12)])
def test_a_picture_is_as_large_as_matplotlib_crops_it(shape):
    image = np.random.default_rng(0).uniform(-40, 0, shape)
    settings = {"title": "a scan with a long title, 雪", "spacing_mm": {"z": 0.1, "x": 0.2}}
    png = power_doppler_png(image, "zxy"[: image.ndim], **settings)
    cropped = encoded(power_doppler_figure(image, "zxy"[: image.ndim], **settings), "png")
    ours, theirs = (iio.imread(data)[..., :3] for data in (png, cropped))
    assert np.abs(np.subtract(ours.shape, theirs.shape)).max() <= 1
    # The outermost pixels are white, and the drawing begins 5 to 12 pixels from each edge.
    assert (ours[[0, -1]] == 255).all()
    assert (ours[:, [0, -1]] == 255).all()
    seen = (ours < 255).any(axis=-1)
    margins = [np.flatnonzero(seen.any(axis=axis)) for axis in (0, 1)]
    for found, size in zip(margins, (ours.shape[1], ours.shape[0]), strict=True):
        assert 5 <= found[0] <= 12
        assert 5 <= size - 1 - found[-1] <= 12
    assert power_doppler_png(image, "zxy"[: image.ndim], **settings) == png
