"""``usdenoise session``: its summary, its table, and what is refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.shared import cli, refused
from tests.sessions.scans import scan, write_blocks
from tests.stacks import write_stack
from usdenoise import Session, session
from usdenoise.errors import OptionError

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three blocks without times. Read only."""
    return write_blocks(tmp_path_factory.mktemp("words") / "mouse", scan(3, shape=(20, 16)).blocks)


def test_a_session_of_one_pixel_is_an_error(tmp_path: Path) -> None:
    write_blocks(tmp_path / "in", [block[:, :1, :1] for block in scan(3).blocks])
    done = cli("session", tmp_path / "in", "-o", tmp_path / "out", "-q")
    refused(done, "give a stack of several pixels$")


def test_the_svd_is_refused_for_sessions(folder: Path) -> None:
    for made in (lambda: session(folder, method="svd"), lambda: Session(method="svd")):
        with pytest.raises(OptionError, match="`usdenoise batch` and method svd"):
            made()


@pytest.mark.parametrize(("flag", "package"), [("--zarr", "zarr"), ("--nifti", "nibabel")])
def test_a_format_without_its_package_is_refused_before_the_work(flag, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    # Reading would fail.
    write_stack(tmp_path / "in/0.h5", np.zeros(3))
    refused(cli("session", tmp_path / "in", "-o", tmp_path / "out", flag), f"requires the package {package}")


def test_a_session_of_a_folder_lists_its_files(folder: Path, tmp_path: Path) -> None:
    flags = ("--low-cutoff=3", "--stacks", "--nifti", "--block-interval=2")
    done = cli("session", folder, "-o", tmp_path, *flags)
    assert "single block" not in done.stderr
    header, *lines = (tmp_path / "mouse_blocks.tsv").read_text().splitlines()
    table = session(folder, low_cutoff=3, block_interval_s=2).blocks
    assert header.split("\t") == list(table)
    where = header.split("\t").index("file")
    assert [text.split("\t")[where] for text in lines] == table["file"] == ["0.h5", "1.h5", "2.h5"]
    assert f"wrote     {tmp_path / '*_denoised.h5'}" in done.stdout
    sidecar = json.loads((tmp_path / "mouse_blood.json").read_text())
    assert sidecar["ClutterFilterWindowStride"] == 2000
    assert np.diff(sidecar["VolumeTiming"]).tolist() == [2, 2]
    page = (tmp_path / "mouse_report.html").read_text()
    assert "tSNR" in page
    assert "several files; the JSON report has their sizes and times" in page
