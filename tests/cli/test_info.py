"""``usdenoise info``: what is in a file, and where each piece of metadata comes from."""

import re
from pathlib import Path

import h5py
import numpy as np
import scipy.io

from tests.cli.shared import IQ, cli, parse, refused, write, write_two
from tests.files.layouts import LAYOUTS


def test_the_table_has_stacks_and_sources(stack: Path, tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    result = cli("info", stack)
    assert (result.exit_code, result.stderr) == (0, "")
    given = cli("info", write(tmp_path / "bare.h5"), "--spacing", "0.1,0.2").stdout
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": IQ.transpose(1, 2, 0), "UF": {"TwFreq": 15.0}})
    matlab = cli("info", tmp_path / "x.mat").stdout
    in_cells = cli("info", LAYOUTS["IQData v7.3, cell"].write(tmp_path / "cells")).stdout
    for text, pattern in (
        (result.stdout, f"file +{re.escape(str(stack))}"),
        (result.stdout, "container +HDF5"),
        (result.stdout, "candidate +iq  40 x 12 x 10  complex64  <- read"),
        (result.stdout, r"axes +tzx  \(file: attribute axes of iq\)"),
        (result.stdout, r"frame_rate_hz +500  \(file: .*\)"),
        (given, r"axes +tzx  \(assumed\)"),
        (given, r"spacing_mm +z 0\.1, x 0\.2  \(option\)"),
        (given, "frame_rate_hz +unknown; give --frame-rate"),
        (matlab, "spacing_mm +unknown; give --spacing"),
        (in_cells, r"candidate +IQData .*\(.*cell.*\)  <- read"),
        (matlab, "container +MATLAB before 7.3"),
        (matlab, "candidate +IQ  12 x 10 x 40 .*<- read"),
        (matlab, r"center_frequency_hz +1\.5e\+07  \(file: UF.TwFreq in MHz\)"),
    ):
        assert re.search(f"^{pattern}$", text, re.MULTILINE), pattern


def test_json_is_one_object_whatever_the_attributes(stack: Path) -> None:
    with h5py.File(stack, "r+") as file:
        file["iq"].attrs["self"] = file["iq"].ref
        file["iq"].attrs["probe"] = "L22-14v"
    result = cli("info", stack, "--json")
    assert result.stdout.count("\n") == 1
    value = parse(result.stdout)
    chosen = {"name": "iq", "shape": [40, 12, 10], "dtype": "complex64", "layout": ""}
    assert (value["container"], value["problem"], value["chosen"]) == ("HDF5", None, chosen)
    assert value["candidates"] == [chosen]
    assert value["metadata"]["values"]["axes"] == "tzx"
    assert value["metadata"]["sources"]["frame_rate_hz"].startswith("file: ")
    assert "probe" in value["metadata"]["attributes"]


def possible(path: Path) -> set[tuple[str, str, str]]:
    """Name, flag and value of the possible scales of a file."""
    found = re.findall(r"^possible scale +(\S+) = .*: (--\S+) (\S+)$", cli("info", path).stdout, re.MULTILINE)
    return set(found)


def test_scalars_that_could_be_a_scale_are_shown_with_the_option(tmp_path: Path) -> None:
    bare = {"PRF": 500.0, "Acq": {"dx": 1e-4, "fc": 15.0, "n_tx": 12.0, "IQ0": np.ones((9, 9))}, "gain": 30.0}
    scipy.io.savemat(
        tmp_path / "x.mat", {"IQ": IQ.transpose(1, 2, 0), "c": np.array([[1.0], [2]], object), **bare}
    )
    with h5py.File(write(tmp_path / "x.h5"), "r+") as file:
        file["iq"].attrs["PRF"] = 500
        file["Acq/dx"], file["Acq/fc"], file["Acq/n_tx"], file.attrs["gain"] = 1e-4, 15, 12, 30
    wanted = {
        ("PRF", "--frame-rate", "500"),
        ("Acq/dx", "--spacing", "0.1"),
        ("Acq/fc", "--center-frequency", "15000000"),
    }
    for path in (tmp_path / "x.mat", tmp_path / "x.h5"):
        assert possible(path) == wanted
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["iq"].attrs.update(
            {"frame_rate": 400.0, "pixel_size": [0.1, 0.05], "pitch": 0.0, "sampling": 20e6}
        )
    # A known scale is not shown again, and neither is a value that is not plausible in any unit.
    assert possible(tmp_path / "x.h5") == {*wanted, ("pixel_size", "--spacing", "0.1,0.05")} - {
        ("PRF", "--frame-rate", "500")
    }
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        for number in range(100):
            file[f"many/{number}/dz"] = 0.1
    assert len(cli("info", tmp_path / "x.h5").stdout.splitlines()) < 50


def test_an_ambiguous_file_lists_the_candidates_and_fails(tmp_path: Path) -> None:
    path = write_two(tmp_path / "x.h5")
    table, result = cli("info", path), cli("info", path, "--json")
    value = parse(result.stdout)
    assert [candidate["name"] for candidate in value["candidates"]] == ["a", "b"]
    assert value["chosen"] is None
    assert "--dataset" in value["problem"]
    assert re.findall("^candidate +([ab]) ", table.stdout, re.MULTILINE) == ["a", "b"]
    assert "<- read" not in table.stdout
    for failed in (table, result):
        assert failed.exit_code == 1
        assert re.fullmatch("usdenoise: .*several stacks.*--dataset\n", failed.stderr)
    assert "b  40 x 12 x 10  complex64  <- read" in cli("info", path, "--dataset", "b").stdout


def test_a_folder_is_listed(tmp_path: Path) -> None:
    for number in (2, 10):
        write(tmp_path / f"scans/{number}.h5", axes="tzx")
    (tmp_path / "scans/3.h5").write_text("nothing")
    lines = cli("info", tmp_path / "scans").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["2.h5", "3.h5", "10.h5"]
    assert "iq  40 x 12 x 10  complex64" in lines[0]
    listed = parse(cli("info", tmp_path / "scans", "--json").stdout)["files"]
    assert listed["10.h5"]["stack"]["shape"] == [40, 12, 10]
    assert listed["3.h5"]["stack"] is None
    assert listed["3.h5"]["problem"]
    refused(cli("info", tmp_path / "scans/nothing"), "nothing")
