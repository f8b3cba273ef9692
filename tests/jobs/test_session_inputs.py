"""Which files are the blocks of a session, in which order, when they begin, and which of them are refused or gaps."""

import os
import pickle
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from tests.files.layouts import frames_by_loops, in_order
from tests.jobs.inputs import write_zarr
from tests.stacks import low_rank, write_stack
from usdenoise import load, session
from usdenoise.errors import InputError, OptionError
from usdenoise.files.input_files import acquisition_files
from usdenoise.jobs.session_inputs import SessionFiles, block_files, open_session
from usdenoise.options.job_options import SessionOptions

RATE = 100.0
N = 20
"""Frames of a file."""


def block(path: Path, n_frames: int = N, shape: tuple[int, ...] = (6, 5), **more: Any) -> Path:
    """A block whose values depend on its path."""
    seed = zlib.crc32(str(path).encode())
    attributes: dict[str, Any] = {"axes": "tzx", "frame_rate_hz": RATE, "spacing_mm": [0.1, 0.2], **more}
    values = low_rank((n_frames, *shape), seed=seed)
    given = {name: value for name, value in attributes.items() if value is not None}
    return write_stack(path, values, **given)


def opened(paths: list[Path], **more: Any) -> SessionFiles:
    reading, precision = more.pop("reading", {}), more.pop("precision", "single")
    with open_session(paths, reading, precision, SessionOptions(**more)) as blocks:
        return blocks


def starts(blocks: SessionFiles) -> list[float]:
    return [found.start_s for found in blocks.recording.blocks]


def note_of(blocks: SessionFiles) -> str:
    return " ".join(blocks.recording.geometry.assumptions)


# ---------------------------------------------------------------- which files


def test_files_of_a_folder_are_in_natural_order(tmp_path: Path) -> None:
    wanted = ["b1.h5", "b2.h5", "b10.h5", "day 2/b1.h5", "day 10/b3.h5"]
    for name in sorted(wanted, reverse=True):
        block(tmp_path / "blocks" / name)
    (tmp_path / "blocks/notes.txt").write_text("no block")
    block(tmp_path / "blocks/.hidden.h5")
    found = block_files(tmp_path / "blocks", tmp_path / "out")
    assert [str(path.relative_to(tmp_path / "blocks")) for path in found] == wanted
    some = block_files([tmp_path / "blocks"], tmp_path / "out", ("b1*.h5",))
    assert [path.name for path in some] == ["b1.h5", "b10.h5", "b1.h5"]
    # Files that are named stay in the order in which they are named.
    named = [tmp_path / "blocks/b10.h5", tmp_path / "blocks/b1.h5"]
    assert block_files(named, tmp_path / "out") == named
    with pytest.raises(InputError, match="no block file was found; name files or a folder, or give pattern"):
        block_files(tmp_path / "blocks", tmp_path / "out", ("c*.h5",))


def test_results_are_not_blocks(tmp_path: Path) -> None:
    for name in ("b1.h5", "out/b1_sequence.h5", "out/old.h5", "other/b_sequence.h5"):
        block(tmp_path / "blocks" / name)
    (tmp_path / "blocks/other/b_report.json").write_text("{}")
    found = block_files(tmp_path / "blocks", tmp_path / "blocks/out")
    assert [path.name for path in found] == ["b1.h5"]
    # A file whose name only ends so is one.
    block(tmp_path / "blocks/c_sequence.h5")
    assert len(list(acquisition_files(tmp_path / "blocks", tmp_path / "blocks/out", ()))) == 2
    says = r"the output folder must differ from the input folder .*choose another"
    with pytest.raises(OptionError, match=says):
        block_files(tmp_path / "blocks", tmp_path / "other/../blocks")


# ---------------------------------------------------------------- when they begin


def test_files_without_times_follow_each_other(tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", length) for n, length in enumerate((20, 30, 20))]
    assert starts(opened(paths)) == pytest.approx([0, 0.2, 0.5])
    assert starts(opened(paths, block_interval_s=0.7)) == pytest.approx([0, 0.7, 1.4])
    with pytest.raises(OptionError, match=r"0\.1 s is shorter than blocks of 0\.2 s; raise block_interval_s"):
        opened(paths, block_interval_s=0.1)
    unknown = [block(tmp_path / f"{n}.h5", frame_rate_hz=None) for n in range(3)]
    assert starts(opened(unknown)) == [0, 20, 40]
    says = "block_interval_s is in s, and the frame rate is not known; give frame_rate"
    with pytest.raises(OptionError, match=says):
        opened(unknown, block_interval_s=0.7)


def test_times_in_the_files_give_the_starts(tmp_path: Path) -> None:
    times = [1.75e9, 1.75e9 + 0.5, 1.75e9 + 1.25]
    paths = [block(tmp_path / f"{n}.h5", start_s=time) for n, time in enumerate(times)]
    assert starts(opened(paths)) == [0, 0.5, 1.25]
    # What is asked for wins.
    assert starts(opened(paths, block_interval_s=0.7)) == pytest.approx([0, 0.7, 1.4])
    # Windows of the files, and frames from the third on.
    found = opened(paths, window=9, reading={"frames": slice(2, 20)})
    assert starts(found) == pytest.approx([0.02, 0.11, 0.52, 0.61, 1.27, 1.36])
    assert [(part.window.start, part.window.stop) for part in found.recording.blocks] == [(0, 9), (9, 18)] * 3
    says = r"0\.h5 begins before the previous file; name the files in the order"
    with pytest.raises(InputError, match=says):
        opened([paths[1], paths[0]])


def test_a_time_that_is_the_same_in_all_files_is_ignored(tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", start_s=0.0) for n in range(3)]
    assert starts(opened(paths)) == pytest.approx([0, 0.2, 0.4])
    assert "without pauses" in note_of(opened(paths))


@pytest.mark.parametrize("missing", [None, "12:30"])
@pytest.mark.parametrize("number", [0, 3])
def test_a_missing_start_is_interpolated_and_reported(number: int, missing: Any, tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", start_s=missing if n == number else 3 + 0.5 * n) for n in range(4)]
    found = opened(paths)
    assert starts(found) == pytest.approx([0, 0.5, 1, 1.5])
    assert "1 of 4 files" in note_of(found)


def test_starts_in_s_are_not_added_to_frames(tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", start_s=0.5 * n, frame_rate_hz=None) for n in range(3)]
    found = opened(paths)
    assert starts(found) == [0, 20, 40]
    assert "frame rate" in note_of(found)
    assert starts(opened(paths, reading={"frame_rate_hz": RATE})) == pytest.approx([0, 0.5, 1])


@pytest.mark.parametrize("frames", [slice(4, 12), slice(5, None, 2)])
def test_selected_frames_keep_the_interval_of_their_files(frames: slice, tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", 19 + n) for n in range(3)]
    paths[1].write_text("nothing")
    found = opened(paths, reading={"frames": frames}, skip_bad_files=True)
    first = frames.start / RATE
    assert [found.recording.blocks[n].start_s for n in (0, 2)] == pytest.approx([first, 0.39 + first])
    assert "no start times" in note_of(found)
    every = opened(paths, reading={"frames": frames}, skip_bad_files=True, block_interval_s=0.5)
    assert [every.recording.blocks[n].start_s for n in (0, 2)] == pytest.approx([first, 1 + first])


@pytest.mark.parametrize("times", [[0, 0.1, 0.4], [0, 0.5, 0.5]])
def test_files_that_overlap_are_refused(times: list[float], tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", start_s=time) for n, time in enumerate(times)]
    with pytest.raises(InputError, match=r"begins .* s after .*which lasts 0\.2 s.*block_interval_s"):
        opened(paths)
    assert starts(opened(paths, block_interval_s=0.2)) == pytest.approx([0, 0.2, 0.4])


def test_starts_may_be_rounded_by_a_frame(tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", start_s=time) for n, time in enumerate((0, 0.195, 0.39))]
    assert starts(opened(paths)) == pytest.approx([0, 0.195, 0.39])


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_file_without_a_stack_has_no_time_slot(place: int, tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5") for n in range(4)]
    paths.insert(place, write_stack(tmp_path / "stimuli.h5", np.zeros((5, 2)), "events"))
    with pytest.raises(InputError, match=r"stimuli\.h5 holds no stack.*or ignore it with skip_bad_files"):
        opened(paths)
    found = opened(paths, skip_bad_files=True)
    assert starts(found) == pytest.approx([0, 0.2, 0.4, 0.6])
    assert [found.path_of(number).name for number in range(4)] == [f"{n}.h5" for n in range(4)]
    assert not any(part.problem for part in found.recording.blocks)
    assert "stimuli.h5 holds no stack" in note_of(found)


@pytest.mark.parametrize("broken", [0, 2, 5])
@pytest.mark.parametrize("how", ["times", "interval", "contiguous"])
def test_a_missing_block_keeps_its_time_slot(broken: int, how: str, tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5", start_s=3 + 0.5 * n if how == "times" else None) for n in range(6)]
    paths[broken].write_text("nothing")
    found = opened(paths, skip_bad_files=True, block_interval_s=0.5 if how == "interval" else None)
    step = 0.2 if how == "contiguous" else 0.5
    # The middle of a block of 20 frames.
    middles = [part.start_s + (part.window.n_frames - 1) / 2 / RATE for part in found.recording.blocks]
    assert middles == pytest.approx([step * n + 0.095 for n in range(6)])
    assert [bool(part.problem) for part in found.recording.blocks] == [n == broken for n in range(6)]


def test_blocks_of_one_file(tmp_path: Path) -> None:
    path = block(tmp_path / "long.h5", 100, start_s=17.0)
    found = opened([path], window=30, stride=20)
    assert starts(found) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert [part.window.n_frames for part in found.recording.blocks] == [30, 30, 30, 30, 20]
    assert starts(opened([path], window=25, block_interval_s=1.5)) == pytest.approx([0, 1.5, 3, 4.5])


# ---------------------------------------------------------------- which are refused

MEND = "exclude it, or mark it as missing with skip_bad_files"
UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "pixels": ({"shape": (6, 7)}, "differs from the session in its pixels: 6 x 7, not 6 x 5"),
    "axes": ({"axes": "txz"}, "differs from the session in its axes: txz, not tzx"),
    "rate": ({"frame_rate_hz": 101.0}, r"differs from the session in its frame rate: 101\.0, not 100\.0"),
    "no rate": ({"frame_rate_hz": None}, r"differs from the session in its frame rate: unknown, not 100\.0"),
    "pitch": ({"spacing_mm": [0.1, 0.3]}, r"differs from the session in its pixel pitch along x: 0\.3, not 0\.2"),
    "frames": ({"n_frames": 1}, r"1\.h5: the stack holds 1 frame, and a clutter filter needs at least two"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_a_file_unlike_the_first_is_refused_or_missing(name: str, tmp_path: Path) -> None:
    more, sentence = UNLIKE[name]
    paths = [block(tmp_path / "0.h5"), block(tmp_path / "1.h5", **more), block(tmp_path / "2.h5")]
    mend = "" if name == "frames" else f"; {MEND}"
    with pytest.raises(InputError, match=sentence + mend):
        opened(paths)
    found = opened(paths, skip_bad_files=True)
    assert [bool(part.problem) for part in found.recording.blocks] == [False, True, False]
    assert re.search(f"{sentence}(; check.*)?$", found.recording.blocks[1].problem)
    assert found.n_frames == 2 * N


def test_real_files_are_not_mixed_with_complex_ones(tmp_path: Path) -> None:
    paths = [block(tmp_path / "0.h5"), tmp_path / "1.h5"]
    write_stack(paths[1], low_rank((N, 6, 5)).real, axes="tzx", frame_rate_hz=RATE, spacing_mm=[0.1, 0.2])
    with pytest.raises(InputError, match=r"1\.h5 differs from the session in its type: real, not complex"):
        opened(paths)
    with pytest.raises(InputError, match=r"0\.h5 differs from the session in its type: complex, not real"):
        opened(paths[::-1])


def test_a_file_that_is_named_twice_is_refused_or_ignored(tmp_path: Path) -> None:
    paths = [block(tmp_path / f"{n}.h5") for n in range(3)]
    (tmp_path / "latest.h5").symlink_to(paths[2])
    (tmp_path / "copy.h5").hardlink_to(paths[0])
    for again, first in (("1.h5", "1.h5"), ("latest.h5", "2.h5"), ("copy.h5", "0.h5")):
        with pytest.raises(InputError, match=rf"{again} is the same file as .*{first}"):
            opened([*paths, tmp_path / again])
        found = opened([*paths, tmp_path / again], skip_bad_files=True)
        assert [part.name for part in found.recording.blocks] == ["0.h5", "1.h5", "2.h5"]
        assert "is the same file as" in note_of(found)


@pytest.mark.parametrize("kind", ["HDF5", "Zarr"])
def test_a_copy_of_a_block_is_refused_or_ignored(kind: str, tmp_path: Path) -> None:
    if kind == "HDF5":
        paths = [block(tmp_path / f"{n}.h5") for n in range(3)]
        copy = Path(shutil.copy(paths[1], tmp_path / "1 (1).h5"))
    else:
        paths = [(tmp_path / f"{n}").mkdir() or write_zarr(tmp_path / f"{n}", n) for n in range(3)]
        paths = [path.rename(tmp_path / f"{n}.zarr") for n, path in enumerate(paths)]
        copy = Path(shutil.copytree(paths[1], tmp_path / "1 - Copy.zarr"))
    for order in ([*paths, copy], [copy, *paths]):
        with pytest.raises(InputError) as error:
            opened(order)
        assert {str(copy), str(paths[1])} == {*re.split(" is a copy of |; remove one", str(error.value))[:2]}
        found = opened(order, skip_bad_files=True)
        assert len(found.recording.blocks) == 3
        assert "is a copy of" in note_of(found)
    # The same size, and other values; recordings that failed are no copies.
    assert len(opened(paths).recording.blocks) == 3
    if kind == "HDF5":
        about = {"axes": "tzx", "frame_rate_hz": RATE, "spacing_mm": [0.1, 0.2]}
        for number in range(2):
            write_stack(tmp_path / f"zero{number}.h5", np.zeros((N, 6, 5), "c8"), **about)
            (tmp_path / f"text{number}.h5").write_text("nothing")
        failed = [tmp_path / f"{name}{number}.h5" for name in ("zero", "text") for number in range(2)]
        found = opened([*paths, *failed], skip_bad_files=True)
        assert [bool(part.problem) for part in found.recording.blocks] == [*[False] * 5, True, True]


@pytest.mark.parametrize("has_starts", [False, True])
def test_the_doubt_about_the_order_names_the_first_and_the_last_block(has_starts, tmp_path):
    names = [f"{day}-2024.h5" for day in ("28-1", "29-1", "30-1", "31-1", "1-2", "2-2", "3-2")]
    for number, name in enumerate(names):
        path = block(tmp_path / "blocks" / name, **({"start_s": 1.0 * number} if has_starts else {}))
        os.utime(path, (1e9 + 86400 * number, 1e9 + 86400 * number))
    found = block_files(tmp_path / "blocks", tmp_path / "out")
    if has_starts:
        # The order of times in the files is checked.
        with pytest.raises(InputError, match="begins before the previous file"):
            opened(found)
        return
    (doubt,) = opened(found).doubts
    assert doubt.code == "block-times"
    assert "1-2-2024.h5 first, 31-1-2024.h5 last" in doubt.sentence
    assert opened([tmp_path / "blocks" / name for name in names]).doubts == ()
    result = session(tmp_path / "blocks", low_cutoff=1)
    assert "block-times" in [each.code for each in result.doubts]


def test_a_session_without_any_file_that_can_be_read_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "0.h5", tmp_path / "1.h5"]
    with pytest.raises(InputError, match=r"none of 2 files can be read; .*0\.h5"):
        opened(paths, skip_bad_files=True)


@pytest.mark.parametrize("axes", ["tzx", "xtz", "ytzx", "xyzt"])
def test_a_block_is_the_frames_of_its_file(axes: str, tmp_path: Path) -> None:
    own, stacks = "tzxy"[: len(axes)], [low_rank((N, 6, 5, 4)[: len(axes)], seed=n) for n in range(3)]
    paths = [tmp_path / f"{n}.h5" for n in range(3)]
    for path, stack in zip(paths, stacks, strict=True):
        write_stack(path, in_order(axes, stack, own), axes=axes)
    with open_session(paths, {}, "double", SessionOptions(window=8)) as blocks:
        recording, dtype = blocks.recording, np.complex128
        assert [part.name for part in recording.blocks] == ["0.h5"] * 3 + ["1.h5"] * 3 + ["2.h5"] * 3
        assert (recording.geometry.axes, recording.dtype) == (axes, dtype)
        for number in (7, 0, 4):
            part, begin = pickle.loads(pickle.dumps(recording.blocks[number])), 8 * (number % 3)
            # Pixels in the order z, x, y.
            wanted = frames_by_loops(stacks[number // 3], own)[begin : begin + 8]
            assert part.read().dtype == dtype
            assert np.array_equal(part.read(), wanted)
            assert np.array_equal(part.pick(np.array([1, 5])), wanted[[1, 5]])
            assert blocks.path_of(number) == paths[number // 3]
            expected = in_order(axes, stacks[number // 3][begin : begin + 8], own)
            assert blocks.geometry_of(number).shape == expected.shape


# ---------------------------------------------------------------- packets


@pytest.mark.parametrize("axes", ["btxz", "tbzx", "zxtb"])
def test_an_axis_of_packets_is_their_files_one_after_the_other(axes: str, tmp_path: Path) -> None:
    """A .mat file with the parts I and Q as int16, as scanners store packets of colour Doppler."""
    n_packets, n_pulses = 4, 14
    packets = low_rank((n_packets * n_pulses, 9, 7)).reshape(n_packets, n_pulses, 9, 7)
    parts = np.round(1000 * np.stack([packets.real, packets.imag])).astype(np.int16)
    about: dict[str, Any] = {"frame_rate_hz": 8000.0, "spacing_mm": [0.2, 0.4]}
    files = [
        write_stack(tmp_path / f"{n}.h5", (i + 1j * q).astype(np.complex64), axes="tzx", **about)
        for n, (i, q) in enumerate(zip(*parts, strict=True))
    ]
    i, q = (np.einsum(f"btzx->{axes}", part) for part in parts)
    scipy.io.savemat(tmp_path / "packets.mat", {"I": i, "Q": q})
    write_stack(tmp_path / "packets.h5", i + 1j * q, axes=axes)
    how: dict[str, Any] = {"low_cutoff": 1, "block_interval_s": 0.05}
    wanted = session(files, **how)
    spacing = [0.2, 0.4] if axes.index("z") < axes.index("x") else [0.4, 0.2]
    # The axes are from the option, or from the file
    for name, given in (("packets.mat", axes), ("packets.h5", None)):
        reading: dict[str, Any] = {"axes": given, "spacing": spacing, "frame_rate": 8000.0}
        found = session(tmp_path / name, reading=reading, **how)
        power = found.power_doppler
        if axes.index("z") > axes.index("x"):
            power = power.swapaxes(1, 2)
        np.testing.assert_allclose(power, wanted.power_doppler, rtol=1e-5)
        np.testing.assert_allclose(found.time, wanted.time)
        # `run` reads the first packet, and names the session
        one = load(tmp_path / name, **reading)
        first = np.einsum(f"{one.axes}->tzx", one.iq)
        assert np.array_equal(first, (parts[0, 0] + 1j * parts[1, 0]).astype(np.complex64))
        assert "session" in " ".join(one.assumptions)
        # A range of pulses cuts the packets where they end
        blocks = session(tmp_path / name, reading={**reading, "frames": slice(7, None)}, **how).blocks
        assert blocks["n_frames"] == [7, 14, 14, 14]
    array = (i + 1j * q).astype(np.complex64)
    in_memory = session(array, axes=axes, frame_rate=8000.0, spacing=spacing, **how)
    np.testing.assert_array_equal(in_memory.power_doppler, found.power_doppler)
    with pytest.raises(InputError, match="4 axes, but the data have 3"):
        load(files[0], axes="btzx")
