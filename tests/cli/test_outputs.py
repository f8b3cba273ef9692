"""The options of outputs on the command line."""

import re
from pathlib import Path

import pytest
from matplotlib import rc_context, rcParams

from tests.cli.shared import REPORT_KEYS, cli, report_of
from usdenoise import denoise, load, save
from usdenoise.errors import InputError
from usdenoise.files.input_files import size_on_disk

FEW = ("--rank=3", "--estimator=iterations=2", "--low-cutoff=1", "--high-cutoff=rank", "--threads=1")
KINDS = (".png", ".gif")


@pytest.mark.usefixtures("no_pictures")
def test_a_sequence_has_the_keys_of_the_contract(stack: Path, tmp_path: Path) -> None:
    flags = ("--low-cutoff=1", "--window=16", "--stride=8", "--movie=gif")
    report = report_of("session", stack, "-o", tmp_path / "out", *flags)
    assert set(report) >= REPORT_KEYS
    assert len(report["sequence"]["blocks"]) == 4
    pictures = {f"{name}_{kind}" for name in ("power_doppler", "blood_power") for kind in ("png", "tif")}
    tables, page = {"tsnr_png", "blocks_tsv", "blocks_json"}, {"report_html", "report"}
    assert set(report["output"]) == {"sequence", *pictures, *tables, "movie", "blood_movie", *page}


@pytest.mark.usefixtures("no_pictures")
def test_bad_frames_are_given_as_a_list_with_ranges(stack: Path, tmp_path: Path) -> None:
    report = report_of("run", stack, "-o", tmp_path / "out", *FEW, "--bad-frames", "1,3:5")
    assert [bad["frame"] for bad in report["bad_frames"]] == [1, 3, 4]
    assert report["parameters"]["bad_frames"] == [1, 3, 4]


def files(folder: Path, kinds: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if re.fullmatch(kinds, path.suffix[1:]))


@pytest.mark.slow
def test_pictures_have_the_requested_formats(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", *FEW, "--products", "power,velocity")
    report = report_of(*arguments, "--figure-format", "pdf,svg")
    figures = ["x_power_doppler.pdf", "x_power_doppler.svg", "x_velocity.pdf", "x_velocity.svg"]
    assert files(tmp_path / "out", "png|pdf|svg") == figures
    assert {"power_doppler_pdf", "velocity_svg", "power_doppler_tif"} <= set(report["output"])
    assert (tmp_path / "out/x_velocity.pdf").read_bytes().startswith(b"%PDF")
    svg = (tmp_path / "out/x_power_doppler.svg").read_text()
    assert "x: power Doppler, 1 clutter component removed" in svg
    # The page has its three pictures and its carpet in any case.
    assert (tmp_path / "out/x_report.html").read_text().count("data:image/png;base64,") == 4


@pytest.mark.usefixtures("no_pictures")
def test_products_can_be_chosen(stack: Path, tmp_path: Path) -> None:
    report = report_of("run", stack, "-o", tmp_path / "out", *FEW, "--products", "directional,velocity")
    assert files(tmp_path / "out", "html|png") == ["x_directional.png", "x_report.html", "x_velocity.png"]
    assert files(tmp_path / "out", ".*") == sorted(Path(name).name for name in report["output"].values())
    assert all(path.stat().st_size > 0 for path in (tmp_path / "out").iterdir())


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("suffix", ["h5", "mat", "zarr"])
def test_the_stack_can_be_left_out(suffix: str, stack: Path, tmp_path: Path) -> None:
    source = tmp_path / f"y.{suffix}"
    save(denoise(load(stack), rank=3, low_cutoff=1), source)
    arguments = ("run", source, "--axes", "tzx", "--dataset", "iq", "-o")
    whole = report_of(*arguments, tmp_path / "a", *FEW)["output"]["denoised"]
    images = report_of(*arguments, tmp_path / "b", *FEW, "--no-stack")["output"]["denoised"]
    assert load(whole, axes="tzx", dataset="iq").iq.shape == (40, 12, 10)
    with pytest.raises(InputError):
        load(images, axes="tzx", dataset="iq")
    assert size_on_disk(Path(images)) < size_on_disk(Path(whole))


SETTINGS = {"image.origin": "lower", "image.aspect": "auto", "figure.facecolor": "black"}
SETTINGS |= {"text.usetex": True, "font.size": 30.0}
"""What a matplotlibrc or a style may hold."""


@pytest.mark.slow
def test_pictures_do_not_depend_on_the_settings_of_matplotlib(stack: Path, tmp_path: Path) -> None:
    flags = ("--low-cutoff=1", "--window=16", "--movie=gif", "--region=a=rect:0,0,2,2", "--overwrite")

    def pictures() -> dict[str, bytes]:
        done = cli("session", stack, "-o", tmp_path / "out", *flags)
        assert done.exit_code == 0, done.stderr
        return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.suffix in KINDS}

    wanted = pictures()
    assert len(wanted) == 6
    with rc_context(SETTINGS):
        found = pictures()
        # The settings of the caller are kept.
        assert {name: rcParams[name] for name in SETTINGS} == SETTINGS
    assert [name for name in wanted if found[name] != wanted[name]] == []
