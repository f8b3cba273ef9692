"""The options of figures and pages, as they are typed and as parameters of the library."""

import json
import re
from pathlib import Path

import imageio.v3 as iio
import pytest

from tests.cli.test_cli import IQ, QUICK, cli, write
from usdenoise.options.job_options import Display


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    return write(tmp_path / "x.h5", IQ, axes="tzx", frame_rate_hz=500.0)


def files(folder: Path, kinds: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if re.fullmatch(kinds, path.suffix[1:]))


def test_figures_come_in_the_formats_that_were_asked_for(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", *QUICK, "--products", "power,velocity")
    done = cli(*arguments, "--figure-format", "pdf,svg", "--cmap", "gray", "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    figures = ["x_power_doppler.pdf", "x_power_doppler.svg", "x_velocity.pdf", "x_velocity.svg"]
    assert files(tmp_path / "out", "png|pdf|svg") == figures
    assert {"power_doppler_pdf", "velocity_svg", "power_doppler_tif"} <= set(report["output"])
    assert (tmp_path / "out/x_velocity.pdf").read_bytes().startswith(b"%PDF")
    assert "x: power Doppler, no component removed" in (tmp_path / "out/x_power_doppler.svg").read_text()
    # The page has its pictures and its carpet in any case.
    assert (tmp_path / "out/x_report.html").read_text().count("data:image/png;base64,") == 4


def test_the_page_can_be_left_out(stack: Path, tmp_path: Path) -> None:
    assert cli("run", stack, "-o", tmp_path / "out", *QUICK, "--no-html").exit_code == 0
    assert files(tmp_path / "out", "html") == []
    assert files(tmp_path / "out", "png") == ["x_blood_power.png", "x_power_doppler.png"]
    assert (
        cli("run", stack, "-o", tmp_path / "few", *QUICK, "--no-html", "--products", "power").exit_code == 0
    )
    assert files(tmp_path / "few", "png") == ["x_power_doppler.png"]


def test_two_levels_fix_the_scale(stack: Path, tmp_path: Path) -> None:
    for name, levels in (("low", "-90,-60"), ("high", "60,90"), ("none", "30")):
        done = cli(
            "run",
            stack,
            "-o",
            tmp_path / name,
            *QUICK,
            "--no-html",
            f"--dynamic-range={levels}",
            "--cmap",
            "gray",
        )
        assert done.exit_code == 0, done.stderr
    shown = {
        name: iio.imread(tmp_path / name / "x_power_doppler.png")[..., :3]
        .astype(float)[60:500, 100:400]
        .mean()
        for name in ("low", "high", "none")
    }
    assert shown["low"] > 250
    assert shown["high"] < 5
    assert 20 < shown["none"] < 245


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--dynamic-range", "0"), "'0' is not a positive number, or MIN,MAX with MIN below MAX"),
        (("--dynamic-range", "40,10"), "'40,10' is not a positive number, or MIN,MAX"),
        (("--dynamic-range", "1,2,3"), "'1,2,3' is not a positive number"),
        (("--dynamic-range", "nan"), "'nan' is not a positive number"),
        (("--dynamic-range", "1,inf"), "'1,inf' is not a positive number"),
        (("--dynamic-range", "wide"), "'wide' is not a positive number"),
        (("--figure-format", "png,jpg"), "'png,jpg' is not one or more of png, pdf, svg"),
        (("--cmap", "jet"), "'jet' is not one of inferno, magma"),
        (("--movie-speed", "0"), "'0' is not a positive number"),
    ],
)
def test_wrong_values_are_wrong_usage(options: tuple[str, ...], says: str, stack: Path) -> None:
    result = cli("run", stack, *options)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())


def test_levels_are_of_the_power() -> None:
    # Levels of 20 log10 of the power are twice as far apart.
    assert Display(dynamic_range=(1.0, 2.0), db_factor=20.0).levels == (0.5, 1.0)
    assert Display(dynamic_range=30.0).levels is None
