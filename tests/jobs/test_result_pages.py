"""Which page belongs to a result."""

from pathlib import Path

import pytest

from usdenoise.errors import InputError
from usdenoise.jobs.result_pages import result_pages

FILES = (
    "scan/one_report.html", "scan/my_report_denoised.h5", "scan/my_report_report.html", "scan/one_denoised.h5",
    "scan/one_pwd.nii.gz", "night/index.html", "night/batch.csv", "night/batch.json", "night/x_report.html",
    "bare/one_denoised.h5",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "pages"),
    [
        ("scan", ["scan/my_report_report.html", "scan/one_report.html"]),
        ("scan/one_report.html", ["scan/one_report.html"]),
        ("scan/one_denoised.h5", ["scan/one_report.html"]),
        ("scan/one_pwd.nii.gz", ["scan/one_report.html"]),
        ("scan/my_report_denoised.h5", ["scan/my_report_report.html"]),
        ("night", ["night/index.html"]),
        ("night/batch.csv", ["night/index.html"]),
        ("night/x_report.html", ["night/x_report.html"]),
    ],
)
def test_a_result_leads_to_its_page(given: str, pages: list[str], folder: Path) -> None:
    assert result_pages(folder / given) == [folder / page for page in pages]


def test_what_has_no_page_is_refused(folder: Path) -> None:
    says = r"nowhere does not exist; give a folder of results, or one of the files"
    with pytest.raises(InputError, match=says):
        result_pages(folder / "nowhere")
    for name in ("bare", "bare/one_denoised.h5"):
        says = r"has no page; make one with usdenoise run --overwrite, without"
        with pytest.raises(InputError, match=says):
            result_pages(folder / name)
    for k in range(11):
        (folder / "bare" / f"{k}_report.html").touch()
    with pytest.raises(InputError, match="has 11 pages; name those to open"):
        result_pages(folder / "bare")
    with pytest.raises(InputError, match="NUL"):
        result_pages("a\0b")
