"""What the README and the docs show: commands run as they are printed, and links lead somewhere."""

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

import usdenoise
from tests.cli.shared import cli
from tests.jobs.batch.shared import OWN, ROOT, environment, files, results, write_scan
from usdenoise.cli import main
from usdenoise.stack.labels import ALIASES

DOCS = ROOT / "docs"
PLACES = {
    "batch": "batch.md",
    "shell": "batch.md",
    "config": "batch.md",
    "python": "reference.md",
    "packets": "packets.md",
}
PAGES = [ROOT / "README.md", ROOT / "sample_data/README.md", *sorted(DOCS.glob("*.md"))]


def blocks(name: str) -> list[str]:
    """Return the blocks of that name on their page of the docs."""
    text = (DOCS / PLACES[name]).read_text()
    return re.findall(rf"<!-- {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)


def block(name: str) -> list[str]:
    """Return the lines of the only block of that name, with continued lines joined."""
    (text,) = blocks(name)
    return text.replace("\\\n", "").splitlines()


def line(start: str) -> str:
    """Return the line of the shell block that starts like that."""
    (found,) = [text for text in block("shell") if text.startswith(start)]
    return found


def bash(text: str, folder: Path, **extra: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", "-uo", "pipefail", "-c", text]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(**extra))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scans whose names are awkward, and settings that make them quick."""
    folder = tmp_path_factory.mktemp("readme")
    write_scan(folder / "scans/two words.h5", 1)
    write_scan(folder / "scans/-dash.h5", 2)
    acquisition = usdenoise.load(write_scan(folder / "x.h5", 3))
    scipy.io.savemat(folder / "scans/good.mat", {"IQ": acquisition.iq.transpose(1, 2, 0)})
    (folder / "scans/line\nbreak.mat").write_bytes(b"no scan")
    return folder


@pytest.mark.slow
def test_the_batch_of_the_docs(folder: Path) -> None:
    first, dry = block("batch")
    done = bash(first, folder)
    assert done.returncode == 1, done.stderr
    assert "4: 3 done, 1 failed" in done.stdout
    assert set(OWN) < set(files(folder / "out"))
    assert set(results(["-dash", "two words"])) < set(files(folder / "out"))
    plan = bash(dry, folder)
    assert plan.returncode == 0
    decisions = [text.split()[:2] for text in plan.stdout.splitlines()]
    assert decisions == [["skip", "good.mat"], ["run", r"line\nbreak.mat"]]


@pytest.mark.slow
def test_a_shell_loop(folder: Path) -> None:
    assert bash(line("for "), folder).returncode == 0
    assert (folder / "failed").read_text() == "scans/line\nbreak.mat\n"
    assert [name for name in files(folder / "loop") if name.endswith(".mat")] == ["good_denoised.mat"]


@pytest.mark.slow
def test_xargs_runs_scans(folder: Path) -> None:
    done = bash(line("find "), folder)
    assert (done.returncode, done.stdout) == (0, "")
    names = sorted(name for name in files(folder / "found") if name.endswith(".h5"))
    assert names == ["-dash_denoised.h5", "two words_denoised.h5"]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("jq") is None and "CI" not in os.environ, reason="jq is not installed, and this is not CI"
)
def test_jq_reads_the_json(folder: Path) -> None:
    done = bash(line("usdenoise batch"), folder)
    assert done.returncode == 1
    assert re.match(r"line\nbreak.mat: .* has unknown content", done.stdout)


def test_paragraphs_of_list_items_are_indented_for_mkdocs() -> None:
    # With two or three spaces after an empty line, as on GitHub, the list ends there in mkdocs.
    for page in DOCS.glob("*.md"):
        assert re.findall(r"\n\n {1,3}(?! )(.*)", page.read_text()) == [], page


@pytest.mark.slow
def test_a_slurm_array(folder: Path) -> None:
    found = re.search(r"--array=(.*?) --cpus.* --wrap\s+'(.*)'$", line("sbatch "))
    (folder / "scans.txt").write_text("scans/-dash.h5\nscans/two words.h5\n")
    assert bash(f"echo {found[1]}", folder).stdout == "1-2\n"
    job = bash(found[2], folder, SLURM_ARRAY_TASK_ID="2", SLURM_CPUS_PER_TASK="1")
    assert (job.returncode, job.stdout) == (0, "")
    assert {f"2/{name.partition('/')[2]}" for name in results(["two words"])} < set(files(folder / "array"))


def test_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    write_scan(folder / "scan.h5", 4)
    texts = blocks("python")
    assert len(texts) == 2
    names: dict[str, Any] = {}
    for text in texts:
        exec(text, names)
    iq, result = names["iq"], names["result"]
    assert result.acquisition.iq.shape == iq.shape
    assert (result.options.low_cutoff, result.options.rank) == (2, 4)
    power = usdenoise.power_doppler(result.acquisition.iq, axis=0)
    np.testing.assert_allclose(power, result.power_doppler, rtol=1e-5)


def test_the_python_of_the_readme(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "scans/good.mat", "scan.mat")
    (text,) = re.findall(r"```python\n(.*?)```", PAGES[0].read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["result"].low_cutoff == names["result"].cutoff.low
    assert usdenoise.load("filtered.mat").shape == names["stack"].shape


def test_the_packets_of_the_docs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Flow of 70 mm/s in a band of a static phantom, as int16."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)

    def speckle(*shape: int) -> Any:
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)

    pulses, in_vessel = np.arange(14)[:, None, None], (np.abs(np.arange(160) - 80) < 15) * np.ones((64, 1))
    # Cycles a pulse of v = 70 mm/s: 2 f0 v / (c PRF)
    flow = np.exp(2j * np.pi * 2 * 5e6 * 0.07 / (1540 * 8000) * pulses)
    tissue = 1000 * speckle(64, 160)
    iq = np.array([
        tissue + in_vessel * 30 * flow * speckle(64, 160) + 2 * speckle(14, 64, 160) for _ in range(6)
    ])  # fmt: skip
    parts = {"I": np.round(iq.real).astype(np.int16), "Q": np.round(iq.imag).astype(np.int16)}
    scipy.io.savemat("packet.mat", {name: part[0] for name, part in parts.items()})
    scipy.io.savemat("packets.mat", {"IQ": (parts["I"] + 1j * parts["Q"]).astype(np.complex64)})
    run, session, overlay = blocks("packets")
    for command in (run, session):
        done = cli(*shlex.split(command.replace("\\\n", ""))[1:])
        assert done.exit_code == 0, done.output
    core = in_vessel.astype(bool)
    velocity = scipy.io.loadmat("packet/packet_denoised.mat")["axial_velocity"]
    # Of flow without its mean, which goes with the static tissue
    kept = flow.ravel() - flow.mean()
    wanted = np.angle(np.vdot(kept[:-1], kept[1:])) * 1540 * 8000 / (4 * np.pi * 5e6) * 1e3
    assert abs(wanted - 70) < 3
    np.testing.assert_allclose(np.median(velocity[core]), wanted, rtol=0.005)
    power = scipy.io.loadmat("packets/packets_sequence.mat")["power_doppler"]
    assert power.shape == (6, 64, 160)
    assert power[:, core].mean() > 30 * power[:, ~core].mean()
    names: dict[str, Any] = {}
    exec(overlay, names)
    np.testing.assert_allclose(np.median(names["velocity"][core]), wanted / 10, rtol=0.005)
    assert (names["blood"] == core).mean() > 0.9
    names["plt"].close()


def anchors(page: Path) -> set[str]:
    """Return the fragments of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        target, _, fragment = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        assert place.is_file(), link
        if fragment:
            assert fragment in anchors(place), link


def test_every_page_of_the_docs_is_linked_from_the_readme() -> None:
    readme = PAGES[0].read_text()
    assert [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in readme] == []


COMMANDS = ("run", "session", "model", "batch", "compare", "info", "simulate", "reproduce")


def test_the_names_of_scales_in_files_are_those_that_are_read() -> None:
    rows = re.findall(r"^\| .*? \| (.*?) \|.*\|$", Path("docs/reading.md").read_text(), re.MULTILINE)
    # Names of other entries follow a semicolon.
    listed = {name.lower() for row in rows for name in re.findall("`(.*?)`", row.split(";")[0])}
    assert listed == {name for names in ALIASES.values() for name in names}


def test_the_reference_names_every_command_and_every_public_name() -> None:
    page = (DOCS / "reference.md").read_text()
    context = main.make_context("usdenoise", ["run"], resilient_parsing=True)
    assert main.list_commands(context) == list(COMMANDS)
    assert [name for name in COMMANDS if f":prog_name: usdenoise {name}\n" not in page] == []
    assert [name for name in usdenoise.__all__ if not re.search(rf"\busdenoise\.{name}\b", page)] == []


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("mkdocs_click") is None and "CI" not in os.environ,
    reason="the packages for the site are not installed, and this is not CI",
)
def test_the_site_has_every_option_and_every_public_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference/index.html").read_text()
    context = main.make_context("usdenoise", ["run"], resilient_parsing=True)
    for name, section in zip(COMMANDS, re.split(r'id="usdenoise-\w+"', page)[1:], strict=True):
        text = html.unescape(re.sub(r"<[^>]+>", "", section))
        for parameter in main.get_command(context, name).params:
            # A hidden one is for processes that a command starts.
            is_shown = not getattr(parameter, "hidden", False)
            flags = [flag for flag in parameter.opts if flag.startswith("-") and is_shown]
            assert [flag for flag in flags if not re.search(rf"{flag}\b", text)] == []
    # These two are neither functions nor classes: a sentence describes them.
    headed = set(usdenoise.__all__) - {"METHODS", "__version__"}
    assert re.findall(r'id="(usdenoise\.\S*__\S*)"', page) == []
    assert [name for name in headed if f'id="usdenoise.{name}"' not in page] == []
