"""Live sessions: blocks that come one after the other, as arrays and as files that may be damaged, late or gone."""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import numpy as np
import pytest

import usdenoise
from tests.cli.shared import cli
from tests.sessions.scans import ABOUT, FOUR, IMAGE, LENGTH, RATE_HZ, Scan, scan, write_events
from tests.stacks import write_stack
from usdenoise import Session, SessionUpdate, load, session
from usdenoise.errors import InputError, OptionError, OutputError
from usdenoise.jobs import live_job, session_job
from usdenoise.jobs.job import Job
from usdenoise.jobs.session_inputs import block_files
from usdenoise.jobs.session_job import run_session
from usdenoise.options import DenoiseOptions, Output, SessionOptions
from usdenoise.progress import Progress
from usdenoise.sessions import live_state
from usdenoise.sessions.regions import WHOLE_IMAGE

pytestmark = pytest.mark.usefixtures("no_pictures")

RIGHT = f"rect:0,{IMAGE[1] // 2},{IMAGE[0]},{IMAGE[1]}"
QUICK: dict[str, Any] = {"options": FOUR, "output": Output()}


@pytest.fixture(scope="module")
def made() -> Scan:
    """16 blocks in which the blood of the right half rises by 60 %."""
    return scan(16, rise=0.6, seed=3)


@pytest.fixture(scope="module")
def updates(made: Scan) -> list[SessionUpdate]:
    live = Session(axes="tzx", frame_rate=RATE_HZ, regions={"right": RIGHT, "left": left_half()})
    return [live.add(block) for block in made.blocks]


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are whole, or given up, after a few hundredths of a second."""
    times = {"POLL_S": 0.01, "STEADY_S": 0.06, "SMALL_STEADY_S": 0.12, "AGAIN_S": 0.05, "GIVE_UP_S": 0.3}
    for name, seconds in times.items():
        monkeypatch.setattr(live_job, name, seconds)


def left_half() -> Any:
    mask = np.zeros(IMAGE, bool)
    mask[:, : IMAGE[1] // 2] = True
    return mask


def drop(folder: Path, number: int, block: Any, **more: Any) -> Path:
    """Write a block under another name, and rename it."""
    waiting = write_stack(folder / f"waiting {number}.tmp", block, **{**ABOUT, **more})
    return waiting.rename(folder / f"block {number}.h5")


def test_blood_of_blocks_as_they_come(made: Scan, updates: list[SessionUpdate]) -> None:
    truth = made.blood_power
    last = updates[-1]
    assert [update.number for update in updates] == list(range(16))
    assert not last.bad.any()
    np.testing.assert_allclose(last.times, (np.arange(16) * LENGTH + (LENGTH - 1) / 2) / RATE_HZ)
    assert last.time_unit == "s"
    assert last.motion.max() < 0.5
    mean = last.mean_blood_power
    assert np.corrcoef(mean.ravel(), truth.mean(axis=0).ravel())[0, 1] > 0.95
    vessels = truth[0] > 0
    assert mean[vessels].mean() == pytest.approx(truth.mean(axis=0)[vessels].mean(), rel=0.2)
    assert mean[~vessels].mean() < 0.1
    assert last.noise_power.mean() == pytest.approx(1, rel=0.1)
    # The right half rises by 60 % of its blood in every other three blocks, and the left one does not.
    is_active = np.arange(16) // 3 % 2 == 1
    for name, rise in (("right", 0.6), ("left", 0.0)):
        values = last.series[name][4:]
        ratio = values[is_active[4:]].mean() / values[~is_active[4:]].mean() - 1
        assert ratio == pytest.approx(rise, abs=0.2), name
    blood = updates[-1].blood_power
    # Masked pixels, which are 0, do not count.
    assert last.series[WHOLE_IMAGE][-1] == pytest.approx(float(blood[blood != 0].mean()), rel=1e-5)
    assert last.blood_to_noise_db is not None
    assert last.unsteadiness is not None
    assert repr(last) == "<SessionUpdate: block 15, 0 bad so far>"


def test_blocks_of_noise_have_no_blood() -> None:
    live = Session(axes="tzx", frame_rate=RATE_HZ)
    found = [live.add(block) for block in scan(8, tissue=0, blood=0).blocks]
    assert found[-1].mean_blood_power.mean() < 0.03
    assert found[-1].noise_power.mean() == pytest.approx(1, rel=0.05)
    assert abs(np.mean(found[-1].series[WHOLE_IMAGE])) < 0.1


@pytest.mark.parametrize("what", ["whole", "entries"])
def test_new_tissue_is_removed(what: str) -> None:
    """Tissue of another place comes after four blocks, which no clutter from the blocks before it knows."""
    here, there = scan(5, seed=5), scan(2, seed=6)
    if what == "entries":
        there.iq[7] = np.nan
        there.iq[np.random.default_rng(0).random(there.iq.shape) < 0.002] = np.nan
    live = Session(axes="tzx", frame_rate=RATE_HZ)
    before = [live.add(block) for block in here.blocks][-1]
    after = live.add(there.blocks[0])
    # Without its own components more than a hundred times the power is left.
    assert after.power_doppler.mean() == pytest.approx(before.power_doppler.mean(), rel=0.5)


def test_a_block_without_data_is_bad_and_the_next_one_is_not(made: Scan) -> None:
    live = Session(axes="tzx")
    empty = live.add(np.zeros((LENGTH, *IMAGE), np.complex64), "first")
    assert empty.bad.tolist() == [True]
    assert "zero" in empty.why
    assert np.isnan(empty.blood_power).all()
    assert np.isnan(empty.mean_blood_power).all()
    assert empty.unsteadiness is None
    good = live.add(made.blocks[0])
    assert good.bad.tolist() == [True, False]
    assert np.isfinite(good.blood_power).all()
    assert good.time_unit == "frames"
    assert good.times[1] == LENGTH + (LENGTH - 1) / 2
    assert repr(empty) == "<SessionUpdate: block 0 (first), 1 bad so far>"


def test_wrong_blocks_and_regions_are_refused(made: Scan) -> None:
    live = Session(axes="tzx")
    live.add(made.blocks[0])
    with pytest.raises(InputError, match=r"the block differs from the session in its pixels"):
        live.add(made.blocks[0][:, :5])
    with pytest.raises(OptionError, match=r"region 'a' has 3 x 3 pixels"):
        Session(axes="tzx", regions={"a": np.ones((3, 3), bool)}).add(made.blocks[0])
    for name in (WHOLE_IMAGE, "whole_image", "power", "left/right"):
        with pytest.raises(OptionError, match=f"a region cannot have the name '{name}'"):
            Session(axes="tzx", regions={name: RIGHT})


@pytest.mark.parametrize("what", [pytest.param("silent pixel", marks=pytest.mark.slow), "length"])
def test_blocks_of_other_pixels_and_lags_go_on(what, made, updates, monkeypatch):
    """The first blocks have a pixel that is silent, or fewer frames, so that their lagged products have another shape."""

    def at_once(find: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(find())
        return done

    # The clutter and the weights are found again from every third block.
    monkeypatch.setattr(live_state, "run_in_background", at_once)
    blocks = [block.copy() for block in made.blocks]
    for number in range(3):
        if what == "length":
            blocks[number] = blocks[number][:40]
        else:
            blocks[number][:, 2, 2] = 0
    live = Session(axes="tzx", frame_rate=RATE_HZ)
    last = [live.add(block) for block in blocks][-1]
    assert last.bad.tolist() == [False] * 16
    assert np.isfinite(last.series[WHOLE_IMAGE]).all()
    wanted = updates[-1]
    np.testing.assert_allclose(last.series[WHOLE_IMAGE][-3:], wanted.series[WHOLE_IMAGE][-3:], rtol=0.2)
    # With other lags the series starts again, and is still settling.
    assert last.mean_blood_power.mean() == pytest.approx(wanted.mean_blood_power.mean(), rel=0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("fast")
def test_the_findings_on_a_block_depend_on_the_blocks_before_it_and_not_on_the_load(tmp_path, monkeypatch):
    blocks = [block.copy() for block in scan(14, bursts=(7,), seed=4).blocks]
    noise = np.random.default_rng(0).standard_normal((2, *blocks[11].shape), np.float32)
    blocks[11] += 2 * (noise[0] + 1j * noise[1])
    drop_all(tmp_path, blocks)
    one_by_one = Session(axes="tzx")
    calm = [one_by_one.add(block) for block in blocks]
    background = live_state.run_in_background

    def slow(find: Callable[[], Any]) -> Future[Any]:
        def find_late() -> Any:
            time.sleep(0.1)
            return find()

        return background(find_late)

    # The files are all there: several are filtered at once, and estimates are late.
    monkeypatch.setattr(live_state, "run_in_background", slow)
    monkeypatch.setattr(live_job, "available_threads", lambda: 4)
    loaded, _ = follow(tmp_path)
    # The image of one block moves by 3 pixels, and another one has noise.
    assert calm[-1].bad.nonzero()[0].tolist() == [7, 11]
    for one, other in zip(calm, loaded, strict=True):
        assert one.why == other.why
        np.testing.assert_allclose(one.power_doppler, other.power_doppler, rtol=1e-5)
        np.testing.assert_allclose(one.blood_power, other.blood_power, rtol=1e-4, atol=1e-4)


def test_known_bad_frames_are_not_in_the_sample(made: Scan) -> None:
    wild = made.blocks[0].copy()
    wild[7] *= 1e4
    found = Session(axes="tzx", bad_frames=(7,)).add(wild)
    right = Session(axes="tzx", bad_frames=(7,)).add(made.blocks[0])
    np.testing.assert_allclose(found.power_doppler, right.power_doppler, rtol=1e-4)


class Writer:
    """A thread that does things to a folder, one after the other."""

    def __init__(self, *steps: Callable[[], Any], pause: float = 0.02) -> None:
        def work() -> None:
            for step in steps:
                step()
                time.sleep(pause)

        self._thread = threading.Thread(target=work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def drop_all(folder: Path, blocks: Any) -> Path:
    for number, block in enumerate(blocks):
        drop(folder, number, block)
    return folder


def plain_series(folder: Path, out: Path) -> bytes:
    """The series of the finished session of a folder."""
    run_session([folder], out, session_options=SessionOptions(skip_bad_files=True), **QUICK)
    return (out / "mouse_sequence.h5").read_bytes()


def live_blocks(folder: Path, idle: float, output: Path | None = None, **more: Any) -> live_job.LiveBlocks:
    how = SessionOptions(live=True, until_idle_s=idle)
    job = Job(root=output or folder, options=DenoiseOptions(), reading={}, session=how)
    return live_job.LiveBlocks(job, folder, Session(), **more)


def follow(folder: Path, idle: float = 0.4, **more: Any) -> tuple[list[SessionUpdate], live_job.LiveBlocks]:
    blocks = live_blocks(folder, idle, **more)
    return list(blocks), blocks


def slowly(path: Path, content: bytes, pieces: int = 6, pause: float = 0.03) -> None:
    """Write a file in place, piece by piece."""
    with path.open("wb") as file:
        for part in np.array_split(np.frombuffer(content, np.uint8), pieces):
            file.write(part.tobytes())
            file.flush()
            time.sleep(pause)


@pytest.mark.usefixtures("fast")
def test_files_are_filtered_when_they_are_complete(made: Scan, tmp_path: Path) -> None:
    folder, aside = tmp_path / "mouse", tmp_path / "aside"
    folder.mkdir()
    whole = [drop(aside, number, made.blocks[number]).read_bytes() for number in range(6)]
    other = write_stack(aside / "other.h5", made.blocks[0][:, :5], **ABOUT).read_bytes()

    with Writer(
        lambda: drop(folder, 0, made.blocks[0]),
        lambda: slowly(folder / "block 1.h5", whole[1]),
        lambda: (folder / "block 2.h5").write_bytes(whole[2][:-5000]),
        lambda: (folder / "block 4.h5").write_bytes(other),
        lambda: (folder / "notes.txt").write_text("hello"),
        lambda: slowly(folder / "block 5.h5", whole[5]),
        # The truncated one is written again, when it was given up perhaps.
        lambda: time.sleep(0.5),
        lambda: (folder / "block 2.h5").write_bytes(whole[2]),
    ):
        found, blocks = follow(folder, idle=1.0)
    assert [update.name for update in found] == ["block 0.h5", "block 1.h5", "block 5.h5", "block 2.h5"]
    powers = session(made.iq[: LENGTH * 6], LENGTH, axes="tzx").power_doppler.mean(axis=(1, 2))
    for update in found:
        number = int(update.name[6])
        assert update.power_doppler.mean() == pytest.approx(powers[number], rel=0.3)
    (remark,) = blocks.remarks
    assert remark.startswith("block 4.h5 is skipped: block 4.h5 differs from the session in its pixels")
    assert blocks.n_waiting == 0


@pytest.mark.usefixtures("fast")
def test_the_speed_is_that_of_the_filter_whatever_the_pause_between_blocks(made, tmp_path, monkeypatch):
    finish, least = Session.finish, 0.25

    def slow(self: Session, begun: Any) -> SessionUpdate:
        time.sleep(least)
        return finish(self, begun)

    monkeypatch.setattr(Session, "finish", slow)
    steps = [partial(drop, tmp_path, number, made.blocks[number]) for number in range(3)]
    began = time.monotonic()
    with Writer(*steps, pause=1.0):
        found, blocks = follow(tmp_path, idle=2.0)
    whole = time.monotonic() - began
    assert len(found) == 3
    assert 3 * LENGTH / whole < 0.7 * blocks.frames_a_second
    assert blocks.frames_a_second <= LENGTH / least


@pytest.mark.usefixtures("fast")
def test_a_file_that_is_removed_before_it_is_read(made: Scan, tmp_path: Path) -> None:
    path = drop(tmp_path, 3, made.blocks[3])
    path.write_bytes(path.read_bytes()[:-5000])
    blocks = live_blocks(tmp_path, 0.4)

    def remove() -> None:
        while not blocks.n_waiting:
            time.sleep(0.01)
        path.unlink()

    with Writer(remove):
        assert list(blocks) == []
    assert blocks.remarks == ["block 3.h5 is skipped: it was removed before it was read"]


@pytest.mark.usefixtures("fast")
def test_a_file_that_changes_while_it_is_filtered_is_read_again(made, tmp_path, monkeypatch):
    # The clutter of what was there at first is not taken for that of the session.
    drop(tmp_path, 0, made.blocks[9])
    begin, changed = Session.begin, []

    def begin_and_change(self: Session, *arguments: Any) -> Any:
        begun = begin(self, *arguments)
        if not changed:
            changed.append(drop(tmp_path, 0, 2 * made.blocks[0]))
        return begun

    monkeypatch.setattr(Session, "begin", begin_and_change)
    found, _ = follow(tmp_path)
    once = Session(axes="tzx").add(made.blocks[0])
    assert len(found) == 1
    np.testing.assert_allclose(found[0].power_doppler, 4 * once.power_doppler, rtol=1e-3)


@pytest.mark.usefixtures("fast")
def test_a_file_that_changes_after_it_was_filtered_is_reported(made: Scan, tmp_path: Path) -> None:
    folder, out = drop_all(tmp_path / "mouse", made.blocks[:3]), tmp_path / "out"
    changed: list[Path] = []

    class Watch(Progress):
        def live(self, number: int, name: str, words: str, why: str, remarks: Sequence[str]) -> None:
            if number == 1:
                changed.append(drop(folder, 1, made.blocks[9]))

    live = SessionOptions(live=True, until_idle_s=0.4)
    report = run_session([folder], out, session_options=live, watcher=Watch(), **QUICK)
    assert len(changed) == 1
    (note,) = [note for note in report["notes"] if "changed after it was filtered" in note]
    assert note.startswith("block 1.h5 ")
    assert note in (out / "live.html").read_text()
    assert (out / "mouse_sequence.h5").read_bytes() == plain_series(folder, tmp_path / "plain")


@pytest.mark.usefixtures("fast")
def test_selected_frames_have_the_times_of_a_finished_session(made: Scan, tmp_path: Path) -> None:
    drop_all(tmp_path, made.blocks[:3])
    selected = {"frames": slice(10, 60)}
    *_, last = session(tmp_path, live=True, until_idle_s=0.4, reading=selected)
    np.testing.assert_allclose(last.times, session(tmp_path, reading=selected, low_cutoff=3).time)
    np.testing.assert_allclose(last.times, (np.arange(3) * LENGTH + 10 + 24.5) / RATE_HZ)


@pytest.mark.slow
@pytest.mark.usefixtures("fast")
def test_live_and_finished_sessions_read_the_same_files(made, tmp_path, monkeypatch):
    folder, out = tmp_path / "mouse", tmp_path / "mouse/out"
    names = ["run 10/b1.h5", "run 2/b1.h5", "b2.h5", "b10.h5", ".hidden/b3.h5", "out/b4.h5", "notes.npy.txt"]
    for number, name in enumerate(names):
        write_stack(folder / name, made.blocks[number], **ABOUT)
    wanted = block_files(folder, out)
    assert len(wanted) == 4
    with Writer(
        lambda: time.sleep(0.5), lambda: write_stack(folder / "run 11/b1.h5", made.blocks[7], **ABOUT)
    ):
        found, blocks = follow(folder, idle=1.0, output=out)
    assert [update.name for update in found] == [*[path.name for path in wanted], "b1.h5"]
    assert not blocks.remarks
    # A copy of a block is skipped.
    shutil.copy(folder / "b2.h5", folder / "b2 (1).h5")
    found, blocks = follow(folder, output=out)
    assert len(found) == 5
    assert "copy of b2" in " ".join(blocks.remarks).replace("b2 (1)", "b2")
    (folder / "b2 (1).h5").unlink()
    monkeypatch.chdir(folder)
    only, _ = follow(Path(), output=out, patterns=["run 1*/*.h5"])
    assert len(only) == 2


@pytest.mark.usefixtures("fast")
def test_many_copies_neither_keep_blocks_waiting_nor_the_session_from_its_end(made, tmp_path):
    drop_all(tmp_path, made.blocks[:2])
    for number in range(16):
        shutil.copy(tmp_path / "block 0.h5", tmp_path / f"a copy {number}.h5")
    ended: list[Any] = []
    # It would wait for ever.
    thread = threading.Thread(target=lambda: ended.extend(follow(tmp_path, idle=1.0)), daemon=True)
    thread.start()
    thread.join(20)
    found, blocks = ended
    assert len(found) == 2
    assert sum("is a copy of" in remark for remark in blocks.remarks) == 16


@pytest.mark.usefixtures("fast")
def test_the_end_of_a_live_session(made: Scan, tmp_path: Path) -> None:
    drop_all(tmp_path, made.blocks[:5])
    waiting = iter(usdenoise.session(tmp_path, live=True, until_idle_s=0.5, regions={"right": RIGHT}))
    assert [next(waiting).name for _ in range(5)] == [f"block {number}.h5" for number in range(5)]
    assert list(waiting) == []


def test_wrong_inputs_and_options_of_a_live_session_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        session(tmp_path / "none", live=True)
    with pytest.raises(OptionError, match="requires one folder"):
        session(np.zeros((4, 2, 2)), live=True)
    asked = SessionOptions(live=True)
    with pytest.raises(OptionError, match="requires one folder"):
        run_session([tmp_path, tmp_path], tmp_path / "out", session_options=asked)
    with pytest.raises(OptionError, match="the output folder must differ from the input"):
        run_session([tmp_path], tmp_path, session_options=asked)
    for text in ("cortex", "rect:1,2,3", "rect:1,2,3,a", "circle:1,nan,3"):
        live = cli("session", tmp_path, "-o", tmp_path / "out", "--live", "--region", f"a={text}")
        assert live.exit_code == 1
        assert f"region '{text}'" in live.stderr.splitlines()[-1]
        with pytest.raises(OptionError, match=f"region '{text}'"):
            Session(axes="tzx", regions={"a": text})
    assert not (tmp_path / "out").exists()
    named = cli("session", tmp_path, "-o", tmp_path / "out", "--region", "cortex")
    assert named.exit_code == 2
    assert "'cortex' is not NAME=REGION" in named.stderr


@pytest.mark.usefixtures("fast")
def test_a_live_job_shows_its_blocks_and_ends_as_a_session_does(made: Scan, tmp_path: Path) -> None:
    folder, out = tmp_path / "mouse", tmp_path / "out"
    for number in range(5):
        drop(folder, number, made.blocks[number], start_s=0.5 * number)
    (folder / "block 5.h5").write_bytes((folder / "block 4.h5").read_bytes()[:-5000])
    seen: list[Any] = []

    class Watch(Progress):
        def live(self, number: int, name: str, words: str, why: str, remarks: Sequence[str]) -> None:
            seen.append((number, words, iio.imread(out / "latest.png").shape[2:]))
            if number == 4:
                # As Ctrl-C does.
                raise KeyboardInterrupt

    how: dict[str, Any] = {"session_options": SessionOptions(live=True), **QUICK}
    report = run_session([folder], out, regions={"right": RIGHT}, watcher=Watch(), **how)
    assert [number for number, *_ in seen] == [0, 1, 2, 3, 4]
    words = r"\d waiting  \d+\.\d s  \S+ frames/s  (no blood|blood \S+ dB)  moved \S+ \S+(  varies by \S+ %)?"
    assert all(re.fullmatch(words, each) for _, each, _ in seen)
    plain = tmp_path / "plain"
    assert (out / "mouse_sequence.h5").read_bytes() == plain_series(folder, plain)
    assert (out / "mouse_blocks.tsv").read_bytes() == (plain / "mouse_blocks.tsv").read_bytes()
    assert "block 5.h5" in report["frames"]["sentence"]
    with h5py.File(out / "mouse_live.h5") as file:
        assert file["time"][:].tolist() == pytest.approx([0.5 * n + 0.099 for n in range(5)])
        assert file["blood_right"].shape == (5,)
        assert file["mean_blood_power"].shape == IMAGE
    page = (out / "live.html").read_text()
    assert "Blood power: right" in page
    assert "mouse_report.html" in page
    assert 'http-equiv="refresh"' not in page
    with pytest.raises(usdenoise.UsdenoiseError, match="exists"):
        run_session([folder], out, **how)


@pytest.mark.usefixtures("fast")
def test_a_live_session_on_the_command_line(made, tmp_path, monkeypatch):
    folder, out = drop_all(tmp_path / "mouse", made.blocks[:4]), tmp_path / "out"
    done = cli(
        "session", folder, "-o", out, "--live", "--until-idle", 0.3, "--region", f"right={RIGHT}", "-v"
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("block ")]
    assert [line.split("  ")[0] for line in lines] == [f"block {n} block {n}.h5" for n in range(4)]
    assert all(" waiting" in line and " s  " in line and "moved 0." in line for line in lines)
    link = 'href="./mouse_report.html"'
    assert link in (out / "live.html").read_text()
    monkeypatch.setattr(session_job, "carry_out", refuse)
    failed = cli("session", folder, "-o", out, "--live", "--until-idle", 0.3, "--overwrite")
    page = (out / "live.html").read_text()
    assert failed.exit_code == 1
    assert link not in page
    assert 'http-equiv="refresh"' not in page
    assert str(out / "live.html") in done.stderr


@pytest.mark.usefixtures("fast")
def test_wrong_events_are_reported_at_once_and_change_no_series(made: Scan, tmp_path: Path) -> None:
    folder, out = drop_all(tmp_path / "mouse", made.blocks[:3]), tmp_path / "out"
    events = write_events(tmp_path / "events.tsv", [(0.2, 0.4, "a"), (0.4, 0.4, "b")])
    told: list[Sequence[str]] = []

    class Watch(Progress):
        def live(self, number: int, name: str, words: str, why: str, remarks: Sequence[str]) -> None:
            told.append(remarks)

    live = SessionOptions(live=True, until_idle_s=0.3, events=str(events))
    report = run_session([folder], out, session_options=live, watcher=Watch(), **QUICK)
    assert ["overlap" in remark for each in told for remark in each] == [True] * 3
    (note,) = report["notes"]
    assert "overlap" in note
    assert (out / "mouse_sequence.h5").read_bytes() == plain_series(folder, tmp_path / "plain")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("when", ["live", "final"])
def test_live_results_are_the_results_if_blocks_are_removed(when, made, tmp_path, monkeypatch):
    folder, out = tmp_path / "mouse", tmp_path / "out"
    paths = [drop(folder, number, made.blocks[number]) for number in range(4)]
    show = live_job.LivePages.show

    def show_and_remove(self: Any, update: SessionUpdate, blocks: Any) -> None:
        show(self, update, blocks)
        if update.number == 2:
            paths[0].unlink()

    def remove_and_fail(*_: Any) -> Any:
        paths[0].unlink()
        raise InputError("a file changed")

    if when == "live":
        monkeypatch.setattr(live_job.LivePages, "show", show_and_remove)
    else:
        monkeypatch.setattr(session_job, "carry_out", remove_and_fail)
    done = cli("session", folder, "-o", out, "--live", "--until-idle", 0.3, "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    (note,) = result["notes"]
    assert note.startswith("1 of 4 block files")
    assert "The result is mouse_live.h5" in done.stderr.splitlines()[-1]
    assert "The result is mouse_live.h5" in (out / "live.html").read_text()
    with h5py.File(result["output"]["live"]) as file:
        assert file["blood_whole_image"].shape == (4,)
    assert sorted(path.name for path in out.iterdir()) == ["latest.png", "live.html", "mouse_live.h5"]


def refuse(*_: Any) -> Any:
    raise OutputError("cannot be written")


def snippets(language: str) -> list[str]:
    text = (Path(__file__).parents[2] / "docs/live.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.usefixtures("fast")
def test_examples_of_the_live_page_run(made: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that the scripts of the docs write, in Python and in Octave, are read as they were."""
    writer, follower, arrays = snippets("python")
    names: dict[str, Any] = {"blocks": made.blocks[:3]}
    exec(writer, names)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocks").mkdir()
    for number in range(2):
        names["write_block"]("blocks", number, made.blocks[number], RATE_HZ, [0.1, 0.2])
    read = load("blocks/block_00001.h5")
    np.testing.assert_array_equal(read.iq, made.blocks[1])
    assert (read.axes, read.frame_rate_hz, read.spacing_mm) == ("tzx", RATE_HZ, {"z": 0.1, "x": 0.2})
    exec(follower.replace("until_idle_s=30", "until_idle_s=0.2"), names)
    assert names["update"].name == "block_00001.h5"
    exec(arrays.replace("10,20,40,60", "2,2,20,20"), names)
    assert len(names["update"].series["cortex"]) == 3
