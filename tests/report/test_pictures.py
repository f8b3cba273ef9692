"""Pictures of filtered stacks: what is drawn where, in which colours and on which scale."""

import io
from concurrent.futures import ThreadPoolExecutor

import imageio.v3 as iio
import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from tests.sessions.scans import LENGTH, scan
from usdenoise import denoise, session
from usdenoise.options.job_options import COLOR_MAPS, Display
from usdenoise.report.panels import png, suitable_range_db
from usdenoise.report.pictures import (
    activation_layers,
    directional_layer,
    draw_picture,
    film,
    layers_picture,
    power_layer,
    result_layer,
    velocity_layer,
)
from usdenoise.sessions.result_series import series_of_stack

RNG = np.random.default_rng(0)
RAMP = np.linspace(-30, 0, 64).reshape(8, 8)
TITLE = (
    "a scan with a long name: power Doppler, 14 clutter components removed, those from number 49 on dropped"
)


def picture(layer, *given, **settings):
    """Return the encoded picture of a layer."""
    return layers_picture([layer(*given, **settings)], {}, "")


def power_picture(decibels, axes, *, spacing_mm=None, title="", kind="png", **settings):
    """Return the encoded picture of a power image."""
    usual = {"dynamic_range_db": None, "color_map": COLOR_MAPS[0], "quantity": "power Doppler"}
    layer = power_layer(decibels, axes, **{**usual, **settings})
    return layers_picture([layer], spacing_mm or {}, title, kind)


def values(panel):
    """Return the array of a panel, with NaN where nothing is drawn."""
    return np.ma.filled(panel.images[0].get_array(), np.nan)


def colors(panel):
    """Return red, green and blue of every pixel of a panel, from 0 to 1."""
    return panel.images[0].to_rgba(panel.images[0].get_array())[..., :3]


@pytest.mark.parametrize("axes", ["zx", "xz"])
def test_depth_increases_downwards_and_axes_with_a_pitch_are_in_mm(axes, figure_of):
    image = RNG.uniform(-25, 0, (12, 9))
    given = image if axes == "zx" else image.T
    scale = {"spacing_mm": {"z": 0.5}, "dynamic_range_db": 25.0}
    panel, bar = figure_of(power_picture, given, axes, **scale).axes
    np.testing.assert_array_equal(values(panel), image)
    assert (panel.get_ylim(), panel.get_xlim()) == ((6.0, 0.0), (0.0, 9.0))
    assert (panel.get_ylabel(), panel.get_xlabel()) == ("depth (mm)", "lateral (pixels)")
    assert bar.get_ylabel() == "power Doppler (dB re maximum)"


@pytest.mark.parametrize(
    ("given", "expected"), [(None, (-13.0, 0.0)), (60.0, (-60.0, 0.0)), ((-12.0, -5.0), (-12.0, -5.0))]
)
def test_the_scale_is_the_requested_one_or_suits_the_image(given, expected, figure_of):
    label = "dB, absolute" if given == (-12.0, -5.0) else "dB re maximum"
    noise = RNG.uniform(-13.1, -12.9, (30, 30))
    noise[3, 3] = 0.0
    noise[0] = -13.0
    panel, bar = figure_of(power_picture, noise, "zx", dynamic_range_db=given).axes
    assert panel.images[0].get_clim() == pytest.approx(expected, abs=0.11)
    assert bar.get_ylabel() == f"power Doppler ({label})"
    np.testing.assert_allclose(values(panel), np.clip(noise, *panel.images[0].get_clim()))


@pytest.mark.parametrize("color_map", COLOR_MAPS[:2])
def test_the_colour_map_can_be_chosen_and_gets_brighter_with_the_power(color_map, figure_of):
    panel = figure_of(power_picture, RAMP, "zx", color_map=color_map).axes[0]
    assert panel.images[0].get_cmap() == colormaps[color_map]
    assert np.all(np.diff(colors(panel).reshape(64, 3) @ (0.2126, 0.7152, 0.0722)) >= 0)


@pytest.mark.parametrize("axes", ["zxy", "yxz"])
def test_a_volume_is_shown_by_its_three_projections(axes, figure_of):
    volume = RNG.uniform(-20, 0, (12, 10, 5))
    given = volume.transpose(["zxy".index(letter) for letter in axes])
    spacing = {"z": 0.1, "x": 0.1, "y": 0.2}
    figure = figure_of(power_picture, given, axes, spacing_mm=spacing, dynamic_range_db=20.0)
    for panel, expected, caption in (
        (figure.axes[0], volume.max(axis=2), "front: maximum over elevation"),
        (figure.axes[1], volume.max(axis=1), "side: maximum over lateral"),
        (figure.axes[2], volume.max(axis=0).T, "top: maximum over depth"),
    ):
        np.testing.assert_array_equal(values(panel), expected)
        assert panel.get_title("left").replace("\n", " ") == caption
    # The side has the depths of the front, and the top has its lateral positions; one mm is as long in all of them.
    front, side, top = (
        panel.get_position().bounds * np.tile(figure.get_size_inches(), 2) for panel in figure.axes[:3]
    )
    assert front[[1, 3]] == pytest.approx(side[[1, 3]])
    assert front[[0, 2]] == pytest.approx(top[[0, 2]])
    assert [front[2] / 1.0, side[2] / 1.0, top[3] / 1.0] == pytest.approx([front[3] / 1.2] * 3)


@pytest.mark.parametrize("axes", ["zx", "xz"])
def test_directions_are_red_and_blue_and_low_power_is_black(axes, figure_of):
    left = np.arange(40) < 20
    strong, weak = np.full((40, 40), 0.3), np.full((40, 40), 1e-6)
    towards, away = np.where(left, strong, weak), np.where(left, weak, strong)
    towards[:5], away[:5] = 1e-6, 1e-7
    towards[0, 0] = 1.0
    given = (towards, away) if axes == "zx" else (towards.T, away.T)
    shown = colors(figure_of(picture, directional_layer, *given, axes, Display(dynamic_range=30.0)).axes[0])
    red, blue = shown[10, 5], shown[10, 30]
    assert red[0] > red[2] + 0.2
    assert blue[2] > blue[0] + 0.2
    assert shown[1:5].max() < 0.01


def test_velocity_is_red_towards_blue_away_and_grey_without_blood(figure_of):
    velocity = np.where(np.arange(40) < 20, 10.0, -10.0) * np.ones((40, 1))
    power = np.repeat([9.0, 1.0], [20, 20])[:, np.newaxis] * np.ones(40)
    blood = power > 1
    panel, bar = figure_of(
        picture, velocity_layer, velocity, power, "zx", unit="mm/s", shows_blood=blood
    ).axes
    shown = colors(panel)
    assert shown[0, 0, 0] > shown[0, 0, 2] + 0.2
    assert shown[0, -1, 2] > shown[0, -1, 0] + 0.2
    np.testing.assert_allclose(shown[20:], 0.6)
    assert bar.get_ylabel() == "axial velocity (mm/s), grey: no blood"
    assert panel.images[0].get_clim() == (-10.0, 10.0)
    blood = np.eye(40, dtype=bool)
    panel, bar = figure_of(picture, velocity_layer, velocity, power, "zx", unit="Hz", shows_blood=blood).axes
    assert np.array_equal(np.isfinite(values(panel)), blood)
    assert bar.get_ylabel() == "Doppler frequency (Hz), grey: no blood"


def test_the_bar_of_velocities_names_the_aliasing_limit_in_the_unit_of_the_picture() -> None:
    """c PRF / (4 f0) is 1540 m/s * 8000 Hz / (4 * 5 MHz) = 616 mm/s."""
    rng = np.random.default_rng(0)
    iq = rng.standard_normal((40, 12, 10)) + 1j * rng.standard_normal((40, 12, 10))
    scales = {"axes": "tzx", "frame_rate": 8000, "center_frequency": 5e6}
    series = series_of_stack(denoise(iq, low_cutoff=1, **scales), ("velocity",))
    layers = [result_layer("velocity", series, Display(velocity_unit=unit)) for unit in ("mm/s", "cm/s")]
    for (_, scale), limit in zip(layers, ("616 mm/s", "61.6 cm/s"), strict=True):
        assert limit in scale.label
    (((slow,), _), ((fast,), _)) = layers
    np.testing.assert_allclose(slow.image, 10 * fast.image, rtol=1e-6)


@pytest.mark.parametrize(("letter", "active", "ends", "ticks"), [
    ("t", [2.5, 4.0, -3.0], (-4.0, 4.0), ["-4", "-3.25", "-2.5", "2.5", "3.25", "4"]),
    ("t", [2.5, 4.0], (2.5, 4.0), ["2.5", "3.25", "4"]),
    ("t", [-2.5, -4.0], (-4.0, -2.5), ["-4", "-3.25", "-2.5"]),
    ("F", [6.0, 9.0], (6.0, 9.0), ["6", "7.5", "9"]),
    ("t", [3.0], (3.0, 3.3), ["3", "3.15", "3.3"]),
])  # fmt: skip
def test_the_colour_bar_of_an_activation_begins_at_the_threshold(letter, active, ends, ticks):
    """A value at the threshold has a colour, and those that no active pixel has are grey."""
    t = np.ones((4, 5))
    t[0, : len(active)] = active
    scale = activation_layers(t, np.abs(t) > 1, np.ones((4, 5)), "zx", letter)[1][1]
    assert (scale.lowest, scale.highest) == pytest.approx(ends)
    assert [text.replace("\N{MINUS SIGN}", "-") for text in scale.ticks.values()] == ticks

    def color_of(value):
        return scale.color_map((value - ends[0]) / (ends[1] - ends[0]))[:3]

    for value in active:
        red, _, blue = color_of(value)
        assert abs(red - blue) > 0.2
        assert (red > blue) == (value > 0)
    if ends[0] < 0 < ends[1]:
        assert all(np.ptp(color_of(value)) == 0 for value in (-2.4, 0.0, 2.4))


def test_a_projection_shows_the_velocity_at_the_strongest_voxel_with_blood(figure_of):
    velocity = RNG.uniform(-90, 90, (6, 5, 4))
    power = RNG.uniform(0, 1, velocity.shape)
    power[2, 3, 1], velocity[2, 3, 1] = 50.0, 3.0
    # The fastest voxel of its ray, and a strong one without blood.
    velocity[2, 3, 2] = 80.0
    power[2, 3, 0], velocity[2, 3, 0] = 99.0, -70.0
    blood = np.zeros(velocity.shape, bool)
    blood[2, 3, 1:3] = True
    figure = figure_of(picture, velocity_layer, velocity, power, "zxy", unit="mm/s", shows_blood=blood)
    front, side, top = map(values, figure.axes[:3])
    assert (front[2, 3], side[2, 1], top[1, 3]) == (3.0, 3.0, 3.0)
    assert [np.isfinite(view).sum() for view in (front, side, top)] == [1, 2, 2]
    assert figure.axes[0].get_title("left") == "front: strongest voxel over elevation"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(400, 10), (12, 10, 5)])
def test_a_picture_has_its_title_and_is_always_the_same(shape, figure_of):
    decibels, axes = RNG.uniform(-30, -1, shape), "zxy"[: len(shape)]
    figure = figure_of(power_picture, decibels, axes, title=f"{TITLE} 雪\x1b")
    assert " ".join(figure.texts[0].get_text().split()) == f"{TITLE} 雪\\x1b"
    png = power_picture(decibels, axes, title=f"{TITLE} 雪\x1b")
    assert png == power_picture(decibels, axes, title=f"{TITLE} 雪\x1b")
    assert max(iio.imread(png).shape) < 1600


def test_a_picture_does_not_depend_on_the_ones_before_it_nor_on_threads():
    image = RNG.uniform(-30, 0, (12, 9))
    layouts = [{"title": "a"}, {"title": "b", "quantity": "blood power"}, {"title": ""}]
    layouts.append({"title": "a", "color_map": "gray"})

    def drawn(settings):
        return power_picture(image, "zx", dynamic_range_db=20.0, **settings)

    pictures = [drawn(settings) for settings in layouts]
    assert len(set(pictures)) == len(layouts)
    assert [drawn(settings) for settings in reversed(layouts)] == pictures[::-1]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(drawn, layouts)) == pictures


def test_a_png_has_the_given_pixels_and_their_size():
    pixels = RNG.integers(0, 256, (7, 5, 4), dtype=np.uint8)
    decoded = Image.open(io.BytesIO(png(pixels, 150)))
    np.testing.assert_array_equal(np.asarray(decoded), pixels)
    assert decoded.info["dpi"] == pytest.approx((150, 150), abs=0.02)


def test_a_picture_can_be_pdf_or_svg_with_text_that_can_be_edited():
    pdf, svg = (
        [power_picture(RAMP, "zx", title="my scan & more", kind=kind) for _ in range(2)]
        for kind in ("pdf", "svg")
    )
    assert pdf[0] == pdf[1]
    assert pdf[0].startswith(b"%PDF")
    assert b"CreationDate" not in pdf[0]
    assert svg[0] == svg[1]
    assert "my scan &amp; more" in svg[0].decode()
    assert ">depth (pixels)<" in svg[0].decode()


def test_pixels_without_power_do_not_set_the_range():
    """Noise 17 to 18 dB below vessels: the range ends in it, with 2 % of the pixels black."""
    levels = np.where(np.indices((20, 25))[0] < 4, 0, np.linspace(-18, -17, 500).reshape(20, 25))
    masked = np.where(np.indices((20, 25))[1] < 8, -np.inf, levels)
    assert suitable_range_db(levels) == pytest.approx(17.55, abs=0.05)
    assert suitable_range_db(masked) == pytest.approx(17.55, abs=0.05)
    assert suitable_range_db(np.full((3, 3), -np.inf)) == 40


@pytest.mark.parametrize("bad_blocks", [pytest.param("keep", marks=pytest.mark.slow), "interpolate"])
def test_a_burst_does_not_darken_the_film_of_a_session(bad_blocks):
    made = scan(10, shape=(20, 16), bursts=(7,))
    found = session(made.stack, LENGTH, rank=12, low_cutoff=4, bad_blocks=bad_blocks)
    assert np.flatnonzero(found.bad).tolist() == [7]
    images = iio.imread(film("power_doppler", found, "scan", Display()), extension=".gif", index=None)
    brightness = np.sort(images[..., :3].max(axis=-1)[:, 60:-60, 60:-160].reshape(len(images), -1), axis=1)
    assert (np.delete(brightness, 7, axis=0)[:, -brightness.shape[1] // 50] > 128).all()
    is_red = np.all(images[..., :3] == (255, 32, 32), axis=-1).any(axis=(1, 2))
    assert np.flatnonzero(is_red).tolist() == [7]


@pytest.mark.parametrize("in_planes", [False, True])
def test_the_blood_map_has_the_outlines_of_the_regions(in_planes, figure_of):
    """Around the pixels of each region, in each panel that shows them."""
    shape, text = (20, 16), "rect:2,12,18,16"
    volume = np.zeros((2, *shape), bool)
    volume[1, 2:18, 12:16] = True
    how = {"regions": {"a": volume}, "poses": 2} if in_planes else {"regions": {"a": text}}
    found = session(scan(4, shape=shape).iq, LENGTH, axes="tzx", rank=12, low_cutoff=4, **how)
    shown = {
        name: [
            axes for axes in figure_of(draw_picture, name, found, "", Display(), "png").axes if axes.images
        ]
        for name in ("blood_power", "power_doppler")
    }
    outlines = [
        [path for each in axes.collections for path in each.get_paths()] for axes in shown["blood_power"]
    ]
    assert [bool(paths) for paths in outlines] == ([False, True] if in_planes else [True])
    assert {tuple(path.get_extents().extents) for path in outlines[-1]} == {(12, 2, 16, 18)}
    assert not any(axes.collections for axes in shown["power_doppler"])


def test_pictures_have_the_resolution_and_the_scale_bar_that_are_asked_for(figure_of):
    layer = power_layer(RAMP, "zx", 30.0, COLOR_MAPS[0], "power Doppler")
    display, pitch = Display(dpi=300, scale_bar_mm=0.25), {"z": 0.1, "x": 0.1}
    wanted = Image.open(io.BytesIO(layers_picture([layer], pitch, "", display=display)))
    assert wanted.info["dpi"][0] == pytest.approx(300, abs=0.01)
    panel, _ = figure_of(layers_picture, [layer], pitch, "", display=display).axes
    (bar,) = panel.lines
    assert np.ptp(bar.get_xdata()) == pytest.approx(0.25)
    assert not panel.axison
    without, _ = figure_of(layers_picture, [layer], {}, "", display=display).axes
    assert without.axison
