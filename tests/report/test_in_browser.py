"""The pages in a real browser: no error, no request, every picture drawn, and a table that sorts and filters."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.conftest import SMALL
from tests.report.reports import hostile_page, live_page
from tests.stacks import run_in_windows
from usdenoise.jobs.batch import run_batch
from usdenoise.jobs.run_job import run
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.options import DenoiseOptions, Output
from usdenoise.phantom import PhantomSettings
from usdenoise.report.charts import Chart
from usdenoise.report.pages import Entry, Row, Status, batch_page
from usdenoise.report.scan_page import Picture

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = """<img src=x onerror=alert(1)>"'&.h5"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # As root, Chromium runs only without its sandbox.
    flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open the page of a file; no page may say or ask for anything."""
    pages: list[Page] = []
    messages: list[str] = []
    requests: list[str] = []

    def open_page(path: Path, width: int = 1280, scheme: Any = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: messages.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.absolute().as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert messages == []
    others = [url for url in requests if not url.startswith("data:")]
    assert all(url.startswith("file:") and url.endswith(".html") for url in others)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of an image with all products, a volume, windows, and a batch with failures and a hostile name."""
    folder = tmp_path_factory.mktemp("pages")
    scan, volume = folder / "scan.h5", folder / "volume.h5"
    simulate_to_file(scan, SMALL)
    simulate_to_file(volume, PhantomSettings(shape=(24, 20, 8, 60), seed=1))
    products = ("power", "blood", "directional", "velocity", "signed")
    run(scan, folder / "image", output=Output(products=products))
    run(volume, folder / "volume", output=Output(products=products[:2]))
    run_in_windows(scan, folder / "windows", 40)
    night = folder / "night"
    night.mkdir()
    shutil.copy(scan, night / HOSTILE)
    (night / "broken.h5").write_bytes(b"nothing")
    run_batch(night, folder / "out", arguments={"options": DenoiseOptions(rank=20, low_cutoff=6)})
    picture = next((folder / "image").glob("*_blood_power.png")).read_bytes()
    (folder / "hostile.html").write_text(hostile_page(picture))
    (folder / "live.html").write_text(live(picture, 12))
    pages = {
        "image": "image/scan_report.html", "volume": "volume/volume_report.html", "batch": "out/index.html",
    }  # fmt: skip
    pages |= {"windows": "windows/scan_report.html", "hostile": "hostile.html", "live": "live.html"}
    return {name: folder / page for name, page in pages.items()}


def live(picture: bytes, blocks: int) -> str:
    """The page of a live session that runs."""
    curve = ([0.0, 0.6, 1.2], [1.0, None, -2.0])
    charts = {"Blocks": [Chart(f"Blood power: {HOSTILE}", "time (s)", "%", *curve, flagged=[1.2])]}
    remarks = [f"{HOSTILE} is skipped: it was removed before it was read"]
    pictures = [Picture(HOSTILE, picture, HOSTILE, HOSTILE)] * 2
    return live_page(HOSTILE, blocks, pictures=pictures, block_charts=charts, remarks=remarks)


PICTURES = {"image": 5, "volume": 2, "windows": 3, "batch": 1, "hostile": 1, "live": 2}


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
@pytest.mark.parametrize("name", PICTURES)
def test_a_page_is_whole_without_network(name, width, scheme, open_page, places):
    page = open_page(places[name], width, scheme)
    drawn = page.evaluate("[...document.images].map((i) => i.complete && i.naturalWidth > 0 && i.alt !== '')")
    assert drawn == [True] * PICTURES[name]
    charts = page.evaluate(
        "[...document.querySelectorAll('svg')].map((s) => s.getBoundingClientRect().height)"
    )
    assert all(height > 80 for height in charts)
    assert bool(charts) == (name != "batch")
    # Nothing is wider than the window, so that nobody has to scroll sideways.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert places[name].stat().st_size < 3_000_000


def test_hostile_text_is_visible(open_page: Callable[..., Page], places: dict[str, Path]) -> None:
    page = open_page(places["hostile"])
    assert page.inner_text("h1").startswith(
        "<script>alert('x')</script> \"quoted\" & 'single' \\x1b[31mred\\x07 "
    )
    assert page.evaluate("document.scripts.length") == 0
    page = open_page(places["batch"])
    assert HOSTILE in page.inner_text("#scans")
    page.click(f"text={HOSTILE[:12]}")
    assert page.title() == f"{HOSTILE.removesuffix('.h5')}: usdenoise report"


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
    entries = []
    for k in range(500):
        failed = {"status": Status.FAILED, "error": "diverged"}
        done = {"status": Status.DONE, "low_cutoff": (k * 37) % 101, "remark": "good"}
        values = failed if k % 100 == 7 else {**done, "blood_to_noise_db": ((k * 53) % 97) - 20.5}
        row = Row(f"scan{k}.h5", "", "", doubts="cutoff-unsure" if k == 3 else "", **values)
        entries.append(Entry(row, "failed" if k % 100 == 7 else "done"))
    path = tmp_path / "index.html"
    path.write_text(batch_page("500 scans", entries, is_running=False, scale="", generator="a test"))
    return path


def test_a_table_of_500_rows_sorts_in_both_orders(open_page: Callable[..., Page], table: Path) -> None:
    page = open_page(table)
    assert column(page, "Scan") == [f"scan{k}.h5" for k in range(500)]
    for is_reverse in (False, True):
        page.click("th >> text=Cutoff")
        found = column(page, "Cutoff")
        known = [int(text) for text in found[:495]]
        assert known == sorted(known, reverse=is_reverse)
        assert found[495:] == ["–"] * 5
        assert page.get_attribute("th[data-column='3']", "aria-sort") == (
            "descending" if is_reverse else "ascending"
        )
    page.focus("th[data-column='4'] button")
    page.keyboard.press("Enter")
    levels = [float(text) for text in column(page, "Blood over noise")[:495]]
    assert levels == sorted(levels)
    assert levels[0] < 0


def test_the_table_filters_and_keeps_its_state(open_page: Callable[..., Page], table: Path) -> None:
    page = open_page(table, width=400)
    page.fill("#words", "SCAN12 good")
    assert column(page, "Scan") == [f"scan{k}.h5" for k in (12, *range(120, 130))]
    assert page.inner_text("#shown") == "11 of 500 shown"
    page.fill("#words", "")
    page.select_option("#status", "look")
    assert column(page, "Scan") == [f"scan{k}.h5" for k in (3, 7, 107, 207, 307, 407)]
    page.select_option("#status", "=failed")
    page.select_option("#order", label="Scan")
    page.check("#down")
    page.reload()
    assert column(page, "Scan") == [f"scan{k}.h5" for k in (407, 307, 207, 107, 7)]


def test_a_live_page_reloads_and_keeps_its_scroll_position(open_page, places):
    page = open_page(places["live"], 400)
    page.evaluate("window.scrollTo(0, 700)")
    before = page.evaluate("window.scrollY")
    text = places["live"].read_text()
    places["live"].write_text(text.replace('class="value">12<', 'class="value">13<'))
    with page.expect_navigation():
        pass
    assert page.inner_text(".numbers .value >> nth=0") == "13"
    assert before > 300
    assert page.evaluate("window.scrollY") == before
