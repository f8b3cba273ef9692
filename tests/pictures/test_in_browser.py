"""The pages in a real browser: no error, no request, every picture drawn, and a table that sorts and filters."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.conftest import SMALL
from tests.pictures.reports import EVIL, report
from usdenoise.batch.run_batch import run_batch
from usdenoise.jobs.run_job import run
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Output
from usdenoise.phantom import PhantomSettings
from usdenoise.pictures.batch_page import Entry, batch_page
from usdenoise.pictures.charts import Chart
from usdenoise.pictures.scan_page import Picture, scan_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = """<img src=x onerror=alert(1)>"'&.h5"""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="Chromium is not installed"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # As root, Chromium runs only without its sandbox.
    flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@dataclass
class Shown:
    """An open page, with what it said and asked for."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def console(self, message: ConsoleMessage) -> None:
        self.messages.append(message.text)

    def error(self, error: Any) -> None:
        self.messages.append(str(error))

    def request(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.requests.append(request.url)


def opened(browser: Browser, path: Path, width: int = 1280, scheme: Any = "light") -> Shown:
    shown = Shown(browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
    shown.page.on("console", shown.console)
    shown.page.on("pageerror", shown.error)
    shown.page.on("dialog", lambda dialog: shown.messages.append(dialog.message))
    shown.page.on("request", shown.request)
    shown.page.goto(path.absolute().as_uri())
    return shown


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of an image with all products, a volume, windows, and a batch with failures and a hostile name."""
    folder = tmp_path_factory.mktemp("pages")
    scan, volume = folder / "scan.h5", folder / "volume.h5"
    simulate_to_file(scan, SMALL)
    simulate_to_file(volume, PhantomSettings(shape=(24, 20, 8, 60), seed=1))
    products = ("power", "blood", "directional", "velocity", "signed")
    run(scan, folder / "image", output=Output(products=products))
    run(volume, folder / "volume", output=Output(products=products))
    run(scan, folder / "windows", output=Output(window=40))
    night = folder / "night"
    night.mkdir()
    for name in ("a.h5", "b.h5", HOSTILE):
        shutil.copy(scan, night / name)
    (night / "broken.h5").write_bytes(b"nothing")
    run_batch(night, folder / "out", arguments={"options": DenoiseOptions(rank=20, low_cutoff=6)})
    (folder / "hostile.html").write_text(
        scan_page(
            EVIL,
            report(
                command=["usdenoise", EVIL],
                estimate=EVIL,
                input={**report()["input"], "path": EVIL},
            ),
            [Picture(EVIL, next((folder / "image").glob("*_blood_power.png")).read_bytes(), EVIL, EVIL)],
            [Chart(EVIL, EVIL, EVIL, [0, 1], [0, 1], 0.5, EVIL)],
        )
    )
    return {
        "image": folder / "image/scan_report.html",
        "volume": folder / "volume/volume_report.html",
        "windows": folder / "windows/scan_report.html",
        "batch": folder / "out/index.html",
        "hostile": folder / "hostile.html",
    }


PICTURES = {"image": 5, "volume": 5, "windows": 2, "batch": 3, "hostile": 1}


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", PICTURES)
def test_a_page_is_whole_without_network(
    name: str, width: int, browser: Browser, places: dict[str, Path]
) -> None:
    shown = opened(browser, places[name], width, "dark" if width == 400 else "light")
    assert shown.messages == []
    assert shown.requests == [places[name].absolute().as_uri()]
    drawn = shown.page.evaluate(
        "[...document.images].map((i) => i.complete && i.naturalWidth > 0 && i.alt !== '')"
    )
    assert drawn == [True] * PICTURES[name]
    charts = shown.page.evaluate(
        "[...document.querySelectorAll('svg')].map((s) => s.getBoundingClientRect().height)"
    )
    assert all(height > 80 for height in charts)
    assert bool(charts) == (name != "batch")
    # Nothing is wider than the window, so that nobody has to scroll sideways.
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert places[name].stat().st_size < 3_000_000
    shown.page.close()


def test_light_and_dark_differ_and_paper_is_white(browser: Browser, places: dict[str, Path]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (opened(browser, places["image"], scheme=scheme) for scheme in ("light", "dark"))
    assert light.page.evaluate(ground) == "rgb(251, 251, 250)"
    assert dark.page.evaluate(ground) == "rgb(21, 25, 28)"
    dark.page.emulate_media(media="print")
    assert dark.page.evaluate(ground) == "rgb(255, 255, 255)"
    assert light.page.pdf().startswith(b"%PDF")
    for shown in (light, dark):
        shown.page.close()


def test_hostile_text_is_visible(browser: Browser, places: dict[str, Path]) -> None:
    shown = opened(browser, places["hostile"])
    assert shown.page.inner_text("h1").startswith(
        "<script>alert('x')</script> \"quoted\" & 'single' \\x1b[31mred\\x07 "
    )
    assert shown.page.evaluate("document.scripts.length") == 0
    shown.page.close()
    shown = opened(browser, places["batch"])
    assert HOSTILE in shown.page.inner_text("#scans")
    shown.page.click(f"text={HOSTILE[:12]}")
    assert shown.page.title() == f"{HOSTILE.removesuffix('.h5')}: usdenoise report"
    assert shown.messages == []
    shown.page.close()


def column(page: Page, name: str) -> list[str]:
    """The texts of the rows that are shown, in their order."""
    cells: list[str] = page.evaluate(
        "(n) => [...document.querySelectorAll('#scans tbody tr')].filter((r) => !r.hidden)"
        ".map((r) => r.querySelector(`td[data-name='${n}']`).textContent.trim().split(' ')[0])",
        name,
    )
    return cells


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A batch of 500 rows, some without values."""
    entries = [
        Entry(
            f"scan{k}.h5",
            "failed" if k % 100 == 7 else "done",
            words="diverged" if k % 100 == 7 else "good",
            low_cutoff=None if k % 100 == 7 else (k * 37) % 101,
            certainty="unsure" if k == 3 else "sure",
            blood_to_noise_db=None if k % 100 == 7 else ((k * 53) % 97) - 20.5,
        )
        for k in range(500)
    ]
    path = tmp_path / "index.html"
    path.write_text(batch_page("500 scans", entries, is_running=False, scale="", made="a test"))
    return path


def test_a_table_of_500_rows_sorts_in_both_orders(browser: Browser, table: Path) -> None:
    shown = opened(browser, table)
    assert column(shown.page, "Scan") == [f"scan{k}.h5" for k in range(500)]
    shown.page.click("th >> text=Cutoff")
    found = column(shown.page, "Cutoff")
    known = [int(text) for text in found[:495]]
    assert known == sorted(known)
    assert found[495:] == ["–"] * 5
    assert shown.page.get_attribute("th[data-column='3']", "aria-sort") == "ascending"
    shown.page.click("th >> text=Cutoff")
    found = column(shown.page, "Cutoff")
    assert [int(text) for text in found[:495]] == sorted(known, reverse=True)
    assert found[495:] == ["–"] * 5
    shown.page.focus("th[data-column='4'] button")
    shown.page.keyboard.press("Enter")
    levels = [float(text) for text in column(shown.page, "Blood over noise")[:495]]
    assert levels == sorted(levels)
    assert levels[0] < 0
    assert shown.messages == []
    shown.page.close()


def test_the_table_filters_and_keeps_its_state(browser: Browser, table: Path) -> None:
    shown = opened(browser, table, width=400)
    shown.page.fill("#words", "SCAN12 good")
    names = column(shown.page, "Scan")
    assert names == [f"scan{k}.h5" for k in (12, *range(120, 130))]
    assert shown.page.inner_text("#shown") == "11 of 500 shown"
    shown.page.fill("#words", "")
    shown.page.select_option("#status", "look")
    assert column(shown.page, "Scan") == [f"scan{k}.h5" for k in (3, 7, 107, 207, 307, 407)]
    shown.page.select_option("#status", "=failed")
    shown.page.select_option("#order", label="Scan")
    shown.page.check("#down")
    shown.page.reload()
    assert column(shown.page, "Scan") == [f"scan{k}.h5" for k in (407, 307, 207, 107, 7)]
    assert shown.messages == []
    shown.page.close()


def test_a_batch_that_runs_loads_its_page_again(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    shown = Shown(browser.new_page())
    shown.page.clock.install()
    path.write_text(batch_page("x", [Entry("a.h5", "running")], is_running=True, scale="", made=""))
    shown.page.goto(path.as_uri())
    path.write_text(batch_page("x", [Entry("a.h5", "done")], is_running=False, scale="", made=""))
    with shown.page.expect_navigation():
        shown.page.clock.run_for(15_100)
    assert column(shown.page, "Status") == ["done"]
    shown.page.close()
