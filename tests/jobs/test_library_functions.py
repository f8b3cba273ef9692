"""The library does what the command line does: series, saving and drawing."""

import gzip
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from matplotlib import rc_context
from matplotlib.figure import Figure

import usdenoise
from tests.cli.shared import cli
from tests.files.test_neighbours import voxel_data
from tests.stacks import run_in_windows
from usdenoise import denoise, load
from usdenoise.errors import OptionError, OutputError

pytestmark = pytest.mark.usefixtures("no_pictures")

OPTIONS: dict[str, Any] = {"rank": 3, "iterations": 3, "low_cutoff": 1, "seed": 2, "bad_frames": "keep"}
SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"


def small(n_frames: int = 60) -> Any:
    return load(SAMPLE, frames=slice(0, n_frames))


def test_wrong_arguments_of_load_and_denoise_are_refused() -> None:
    says = r"unknown option frame_rte; did you mean frame_rate\? The options are dataset"
    with pytest.raises(OptionError, match=says):
        load(SAMPLE, frame_rte=3.0)
    says = r"scan\.h5 is a path, not a stack; give usdenoise\.load\('scan\.h5'\)"
    with pytest.raises(OptionError, match=says):
        denoise("scan.h5", axes="tzx")  # type: ignore[arg-type]
    stack = load(SAMPLE, frame_rate=80.0, spacing=(0.3, 0.4), frames=slice(4))
    assert repr(stack) == "<Acquisition iq, t 4, z 72, x 56, complex64, 80 Hz, z 0.3 mm, x 0.4 mm>"
    both = load(SAMPLE, frame_rate_hz=80.0, spacing_mm=0.3, frames=slice(4))
    assert both.spacing_mm == {"z": 0.3, "x": 0.3}


def test_the_log_has_the_cutoff_the_blocks_and_the_doubts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "usdenoise"):
        result = denoise(small(), **OPTIONS)
        usdenoise.session(small(), 20, **OPTIONS)
    assert "cutoff 1" in caplog.records[0].getMessage()
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    sentences = [doubt.sentence for doubt in result.doubts]
    assert sentences
    assert [text.partition(": ")[2] for text in warned[: len(sentences)]] == sentences
    caplog.clear()
    assert not denoise(load(SAMPLE)).doubts
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_notebook_shows_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without widgets, and nowhere else: the shell of a terminal has no kernel."""
    IPython = pytest.importorskip("IPython")
    shown: list[str] = []
    display = "IPython.core.display_functions.display"
    monkeypatch.setattr(display, lambda bar, **_: shown.append(bar._repr_html_()))
    monkeypatch.setattr(IPython, "get_ipython", SimpleNamespace)
    usdenoise.session(small(), 20, **OPTIONS)
    assert shown == []
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=None))
    usdenoise.session(small(), 20, **OPTIONS)
    values = [text.split("max=")[1].split(">")[0] for text in shown]
    assert values == [f"'3' value='{done}'" for done in range(4)]


@pytest.mark.parametrize("source", ["file", "array"])
def test_a_series_equals_the_series_of_the_command(source: str, tmp_path: Path) -> None:
    options = usdenoise.DenoiseOptions(**OPTIONS)
    reading = {"frames": slice(10, 130, 2)}
    output = usdenoise.Output()
    report = run_in_windows(SAMPLE, tmp_path, 20, stride=15, options=options, output=output, reading=reading)
    seen: list[tuple[int, int]] = []
    stack = load(SAMPLE, **reading)
    before = stack.iq.copy()
    given: dict[str, Any] = {"source": SAMPLE, "reading": reading}
    if source == "array":
        given = {"source": stack.iq, "axes": "tzx", "spacing": tuple(map(stack.spacing_mm.get, "zx"))}
    how: dict[str, Any] = {"on_block": lambda done, total: seen.append((done, total)), **OPTIONS}
    images = usdenoise.session(**given, window=20, stride=15, **how)
    with h5py.File(report["output"]["sequence"]) as file:
        for name in ("power_doppler", "blood_power", "noise_power"):
            np.testing.assert_allclose(getattr(images, name), file[name][()], rtol=1e-5)
        offset = 0 if source == "file" else 5 / 250
        if source == "array":
            np.testing.assert_allclose(images.time, (file["time"][()] - offset) * 250)
            assert images.time_unit == "frames"
        else:
            np.testing.assert_allclose(images.time, file["time"][()] - offset, atol=1e-12)
            assert images.time_unit == "s"
    assert seen == [(done, len(images.time)) for done in range(1, len(images.time) + 1)]
    assert images.low_cutoff == 1
    np.testing.assert_array_equal(stack.iq, before)


@pytest.mark.parametrize(("given", "says"), [
    ({"window": 61}, "window 61 is longer than the 60 frames of the stack; lower window"),
    ({"window": 20, "stride": 21}, "stride 21"),
    ({"window": 20, "reading": {"frames": None}}, "reading requires files; omit it"),
    ({"window": 20, "options": usdenoise.DenoiseOptions(), "rank": 3}, "options contains all options"),
])  # fmt: skip
def test_wrong_windows_and_options_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        usdenoise.session(small(), **given)


@pytest.mark.parametrize("suffix", [".h5", ".mat", ".zarr"])
def test_a_saved_result_comes_back(suffix: str, tmp_path: Path) -> None:
    stack = small()
    stack.iq[3, 4, 5] = np.nan
    result = denoise(stack, **OPTIONS)
    path = usdenoise.save(result, tmp_path / f"x{suffix}")
    back = load(path)
    np.testing.assert_array_equal(back.iq, result.acquisition.iq)
    assert (back.axes, back.frame_rate_hz) == (stack.axes, 500.0)
    assert back.spacing_mm == pytest.approx(stack.spacing_mm)
    with pytest.raises(OutputError, match="exists; give overwrite"):
        usdenoise.save(result, path)
    with pytest.raises(OutputError, match=r"cannot write '.tif' files; use \.h5"):
        usdenoise.save(result, tmp_path / "x.tif")
    # A misspelt folder is not created.
    for name in (f"results/x{suffix}", "results/x.nii.gz"):
        with pytest.raises(OutputError, match="results does not exist; create it, or check the path"):
            usdenoise.save(result, tmp_path / name)
    usdenoise.save(result, path, overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("n_slices", [1, 5])
def test_positions_come_back_from_a_saved_result(n_slices: int, suffix: str, tmp_path: Path) -> None:
    data = voxel_data(n_slices)
    path = usdenoise.save(denoise(data, **OPTIONS), tmp_path / f"x{suffix}")
    back = load(path, frames=slice(2, 40, 3)).to_xarray()
    np.testing.assert_allclose(back["time"], data["time"][2:40:3], atol=1e-9, rtol=0)
    for name, place in (("y", (0, slice(None), 0)), ("x", (0, 0))):
        np.testing.assert_allclose(back[name], data[name].values[place], atol=1e-9, rtol=0)
    if n_slices > 1:
        np.testing.assert_allclose(back["z"], data["z"].values[:, 0, 0], atol=1e-9, rtol=0)


def test_a_result_for_a_data_array_is_saved_and_drawn(tmp_path: Path) -> None:
    data = voxel_data(1)
    result = denoise(data, **OPTIONS)
    usdenoise.save(result, tmp_path / "x.zarr")
    with xarray.open_zarr(tmp_path / "x.zarr") as group:
        np.testing.assert_array_equal(group["power_doppler"], result.power_doppler)
        np.testing.assert_allclose(group["time"], data["time"], atol=1e-12)
    assert usdenoise.plot(result, ax=Figure().subplots()).images[0].get_array().shape == (9, 7)


def test_a_plot_shows_decibels_with_depth_downwards() -> None:
    result = denoise(small(), **OPTIONS)
    figure = Figure()
    given = figure.subplots()
    # The settings are the user's, but for the direction of the depth.
    with rc_context({"image.origin": "lower", "image.aspect": "auto"}):
        axes = usdenoise.plot(result, ax=given, dynamic_range_db=20)
    assert axes is given
    assert (axes.images[0].origin, axes.get_aspect()) == ("upper", 1.0)
    assert len(figure.axes) == 2
    shown = np.asarray(axes.images[0].get_array())
    power = result.power_doppler
    np.testing.assert_allclose(shown, np.maximum(10 * np.log10(power / power.max()), -20), atol=1e-4)
    left, right, bottom, top = axes.images[0].get_extent()
    pitch = load(SAMPLE, frames=slice(0, 4)).spacing_mm
    assert (left, top) == (0, 0)
    assert (right, bottom) == pytest.approx((56 * pitch["x"], 72 * pitch["z"]))
    assert axes.images[0].get_clim() == (-20, 0)
    plain = Figure()
    usdenoise.plot(result, "noise_power", ax=plain.subplots(), colorbar=False)
    assert len(plain.axes) == 1
    says = "image 'speed' is not known; choose one of power_doppler, blood_power"
    with pytest.raises(OptionError, match=says):
        usdenoise.plot(result, "speed")


def test_flow_is_plotted_as_the_command_draws_it() -> None:
    result = denoise(small(), **OPTIONS)
    velocity = usdenoise.axial_velocity(result.acquisition).values
    axes = usdenoise.plot(result, "velocity", ax=Figure().subplots())
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    blood = np.isfinite(shown)
    assert 0 < blood.sum() < blood.size
    np.testing.assert_allclose(shown[blood], velocity[blood])
    positive, negative = usdenoise.directional_power(result.acquisition)
    signed = usdenoise.signed_power(result.acquisition).values
    for name, sign in {"directional": np.sign(positive - negative), "signed": np.sign(signed)}.items():
        figure = Figure()
        axes = usdenoise.plot(result, name, ax=figure.subplots(), dynamic_range_db=20)
        shown = np.asarray(axes.images[0].get_array())
        bright = shown != 0
        assert bright.mean() > 0.3
        np.testing.assert_array_equal(np.sign(shown[bright]), sign[bright])
        assert [text.get_text() for text in figure.axes[1].get_yticklabels()][-1] == "0, towards"


@pytest.mark.parametrize("image", ["blood_power", "power_doppler"])
def test_an_image_is_saved_as_nifti(image: str, tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    result = denoise(small(), **OPTIONS)
    path = usdenoise.save(result, tmp_path / "x.nii.gz", image=image)
    read = nibabel.load(path)
    # Lateral, depth, elevation, time.
    assert read.shape == (56, 72, 1, 1)
    np.testing.assert_allclose(read.get_fdata()[:, :, 0, 0], getattr(result, image).T, rtol=1e-6)
    assert read.header.get_zooms()[:2] == pytest.approx((0.1027, 0.1027), abs=1e-4)
    assert json.loads((tmp_path / "x.json").read_text())["FramesPerBlock"] == 60
    plain = usdenoise.save(result, tmp_path / "plain.nii", image=image)
    assert plain.read_bytes() == gzip.decompress(path.read_bytes())
    with pytest.raises(OutputError, match="exists"):
        usdenoise.save(result, path)
    with pytest.raises(OptionError, match="image 'tsnr' cannot be written"):
        usdenoise.save(result, tmp_path / "y.nii.gz", image="tsnr")
    assert not (tmp_path / "y.json").exists()


def test_axes_that_contradict_the_stack_warn(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the axes are 'xzt', as given; the stack has 'tzx'"):
        load(SAMPLE, axes="xzt")
    array = small().to_xarray()
    with pytest.warns(UserWarning, match="the axes are 'zxt', as given; the stack has 'tzx'"):
        denoise(array.squeeze("k").rename(None), axes="zxt", **OPTIONS)
    done = cli("run", SAMPLE, "-o", tmp_path, "--axes", "xzt", "--low-cutoff", 1)
    assert "note: the axes are 'xzt', as given; the stack has 'tzx'" in done.stderr
    assert "the data suggest 'tzx'" in done.stderr + done.stdout
