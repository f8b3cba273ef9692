"""Stacks and chunks of files: every layout, type and selection, each storage chunk once, also in another process."""

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from tests.files.layouts import IQ, LAYOUTS, SPACING, Layout, frames_by_loops
from tests.files.test_reading import TYPES, USUAL_ORDERS, in_turn, ordered
from tests.stacks import write_stack
from usdenoise import load
from usdenoise.errors import InputError
from usdenoise.files import describe, layout, recordings
from usdenoise.files.matlab_writing import write_v73
from usdenoise.files.open_input import Input, open_input
from usdenoise.files.recordings import FileFrames, file_recording, lines_recording
from usdenoise.pipeline import recording
from usdenoise.pipeline.recording import Chunk

SELECTIONS = [None, slice(1, 11, 4), slice(3, 999)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "HELD_ENTRIES", 60)
    monkeypatch.setattr(layout, "SLAB_BYTES", 300)


def read_bytes() -> int:
    """Bytes that this process has read so far, as Linux counts them."""
    return int(Path("/proc/self/io").read_text().split()[1])


def file_frames(chunk: Chunk) -> FileFrames:
    """The frames of a chunk of a file."""
    assert isinstance(chunk.frames, FileFrames)
    return chunk.frames


def check(source: Input, expected: NDArray[Any], scratch: Path) -> None:
    """The stack of an input, its chunks and single frames, with pixels in the order z, x, y."""
    rows = frames_by_loops(expected, source.axes)
    whole = source.read()
    assert (whole.axes, whole.iq.dtype) == (source.axes, expected.dtype)
    np.testing.assert_array_equal(whole.iq, expected)
    np.testing.assert_array_equal(whole.frames, rows)
    # Memory has frame after frame, or pixel after pixel as the file.
    assert np.shares_memory(whole.frames, whole.iq)
    assert whole.frames.flags.forc
    found = file_recording(source)
    expected_stack = (source.axes, expected.shape, rows.dtype)
    assert (found.geometry.axes, found.geometry.shape, found.dtype) == expected_stack
    check_chunks(list(found.chunks), rows)
    for numbers in ([0], [len(rows) - 1], range(0, len(rows), 2), range(len(rows))):
        some = source.pick(np.array(numbers))
        assert some.dtype == rows.dtype
        assert some.flags.c_contiguous
        np.testing.assert_array_equal(some, rows[list(numbers)])
    lines = source.read_lines(scratch)
    stored = lines_recording(source, lines)
    assert (stored.geometry.axes, stored.geometry.shape, stored.dtype) == expected_stack
    check_chunks(list(stored.chunks), rows)
    # The filtered frames overwrite what was read.
    for chunk in stored.chunks:
        values = chunk.read()
        assert values.flags.f_contiguous
        lines.reshape(len(lines), -1)[chunk.first : chunk.stop] = 0
        np.testing.assert_array_equal(values, rows[chunk.first : chunk.stop])


def check_chunks(chunks: list[Chunk], rows: NDArray[Any]) -> None:
    """Chunks and some of their frames are all frames, in memory frame after frame or pixel after pixel."""
    assert [0, *(chunk.stop for chunk in chunks)] == [*(chunk.first for chunk in chunks), len(rows)]
    for chunk in chunks:
        own, values = rows[chunk.first : chunk.stop], chunk.read()
        assert chunk.frames.n_frames == len(own)
        assert values.dtype == rows.dtype
        assert values.flags.forc
        np.testing.assert_array_equal(values, own)
        for numbers in (
            ([0], [len(own) - 1], range(0, len(own), 2)) if chunk in (chunks[0], chunks[-1]) else ()
        ):
            np.testing.assert_array_equal(chunk.frames.pick(np.array(numbers)), own[list(numbers)])


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str, tmp_path: Path) -> None:
    how: Layout = LAYOUTS[name]
    path = how.write(tmp_path)
    for frames, precision, dtype in ((None, None, "c8"), (slice(1, 11, 3), "double", "c16")):
        expected = how.of_frames(frames or slice(None))
        with open_input(path, {**dict(how.options), "frames": frames}, precision) as source:
            check(source, expected.astype(dtype), tmp_path)
    stack = load(path, **dict(how.options))
    assert np.array_equal(stack.iq, how.expected)
    scales = (stack.frame_rate_hz, stack.center_frequency_hz, stack.sound_speed_m_s)
    assert (stack.axes, stack.name, *scales) == (how.axes, how.name, how.frame_rate, how.frequency, how.speed)
    assert stack.spacing_mm == pytest.approx({letter: SPACING[letter] for letter in how.spacing}, rel=1e-5)
    # What would be read, and from where each value comes
    description = describe(path, **dict(how.options))
    assert (description.problem, description.container) == (None, how.container)
    chosen, (values, sources) = (
        description.chosen,
        (description.metadata.values, description.metadata.sources),
    )
    assert (chosen.name, chosen.dtype, chosen.shape) == (how.name, "complex64", how.expected.shape)
    assert (values["axes"], set(sources)) == (how.axes, set(values))
    for value, source in sources.items():
        assert source in ("option", "assumed") or source.startswith("file: "), value


@pytest.mark.parametrize(("axes", "frames"), [
    pytest.param(axes, frames, marks=[pytest.mark.slow] * (axes not in USUAL_ORDERS))
    for axes, frames in in_turn(SELECTIONS)
], ids=str)  # fmt: skip
def test_every_order_of_the_axes(axes: str, frames: slice | None, tmp_path: Path) -> None:
    values, expected = ordered(axes), ordered(axes, frames or slice(None))
    write_stack(tmp_path / "stack.h5", values)
    scipy.io.savemat(tmp_path / "v5.mat", {"IQ": values})
    write_v73(tmp_path / "v73.mat", {"IQ": values})
    np.save(tmp_path / "c.npy", np.ascontiguousarray(values))
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    for name in ("stack.h5", "v5.mat", "v73.mat", "c.npy", "f.npy"):
        precision, dtype = ("double", "c16") if name in ("v5.mat", "c.npy") else (None, "c8")
        backwards = name in ("v5.mat", "v73.mat", "f.npy")
        with open_input(tmp_path / name, {"axes": axes, "frames": frames}, precision) as source:
            check(source, expected.astype(dtype), tmp_path)
            fastest = axes[0 if backwards else -1]
            chunk = source.read_chunk(0, source.n_frames)
            assert chunk.flags.f_contiguous if fastest == "t" else chunk.flags.c_contiguous
            time_is_slowest = axes[-1 if backwards else 0] == "t"
            assert source.is_in_frame_order == (
                time_is_slowest or source.stack.array.chunks is not None or name == "v5.mat"
            )


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": (5, 2, 4)}], ids=["plain", "gzip"])
@pytest.mark.parametrize("key", TYPES)
def test_every_type(key: str, options: dict[str, Any], tmp_path: Path) -> None:
    values, expected, stored = TYPES[key]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, **options)
    for frames in SELECTIONS[:2]:
        with open_input(tmp_path / "x.h5", {"frames": frames}) as source:
            check(source, expected[frames or slice(None)], tmp_path)
    assert load(tmp_path / "x.h5").stored_dtype == np.dtype(stored)
    for precision, real in (("single", np.float32), ("double", np.float64)):
        wanted = np.result_type(real, np.complex64) if np.iscomplexobj(expected) else np.dtype(real)
        with open_input(tmp_path / "x.h5", {}, precision) as source:
            check(source, expected.astype(wanted), tmp_path)


@pytest.mark.parametrize("frames", [None, slice(1, 60, 3), slice(0, 60, 11)], ids=str)
@pytest.mark.parametrize("chunks", [(7, 4, 3), (60, 2, 2), (1, 8, 6)])
def test_a_pass_reads_each_storage_chunk_once(chunks, frames, tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "HELD_ENTRIES", 400)
    values = np.random.default_rng(0).standard_normal((60, 8, 6)).astype(np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, chunks=chunks, compression="gzip")
    wanted = np.arange(60)[frames or slice(None)]
    with open_input(tmp_path / "x.h5", {"axes": "tzx", "dataset": "iq", "frames": frames}) as source:
        parts: list[Chunk] = list(file_recording(source).chunks)
        read = [{int(frame) // chunks[0] for frame in wanted[part.first : part.stop]} for part in parts]
        assert sum(map(len, read)) == len(set().union(*read))
        assert len(parts) > 1 or len(read[0]) < 3
        before = read_bytes()
        found = np.concatenate([part.read() for part in parts])
        assert read_bytes() - before < 1.1 * (tmp_path / "x.h5").stat().st_size
    np.testing.assert_array_equal(found, frames_by_loops(values[wanted], "tzx"))


@pytest.mark.parametrize("frames", [None, slice(5, 50, 3)], ids=str)
def test_a_stack_is_loaded_with_one_read_of_its_file(frames, tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "SLAB_BYTES", 3000)
    values = np.random.default_rng(0).standard_normal((60, 20, 24)).astype(np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, chunks=(7, 20, 24), compression="gzip")
    told: list[tuple[int, int]] = []
    # The first load imports modules, which are files too.
    load(tmp_path / "x.h5", axes="tzx", dataset="iq", frames=slice(0, 2))
    before = read_bytes()
    reading = {"axes": "tzx", "dataset": "iq", "frames": frames}
    loaded = load(tmp_path / "x.h5", on_part=lambda *done: told.append(done), **reading)
    assert 0.8 < (read_bytes() - before) / (tmp_path / "x.h5").stat().st_size < 1.3
    np.testing.assert_array_equal(loaded.iq, values[frames or slice(None)])
    assert told == sorted(told)
    assert told[-1] == (loaded.iq.nbytes, loaded.iq.nbytes)
    assert len(told) > 4


def test_a_file_in_pixel_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((8, 6, 60)).astype(np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, chunks=(2, 3, 60))
    for axes in ("zxt", "xzt"):
        reading = {"axes": axes, "dataset": "iq"}
        with open_input(tmp_path / "x.h5", reading) as source, monkeypatch.context() as patched:
            assert source.is_in_frame_order
            patched.setattr(layout, "CHUNK_ROW_BYTES", values.nbytes // 2)
            assert not source.is_in_frame_order
            check(source, values, tmp_path)


def test_a_chunk_in_another_process_opens_its_file_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [write_stack(Path(f"{n}.h5"), IQ + n) for n in range(2)]
    copies: list[Chunk] = []
    for path in paths:
        with open_input(path, {"frames": slice(2, None, 2)}) as source:
            chunks = file_recording(source).chunks
            assert all(file_frames(chunk).source.value is source for chunk in chunks)
            copies += pickle.loads(pickle.dumps(chunks))
    assert all(file_frames(copy).source.value is None for copy in copies)
    opened: list[Path] = []

    def note(path: Path, *others: Any) -> Any:
        opened.append(path)
        return open_input(path, *others)

    monkeypatch.setattr(recordings, "open_input", note)
    monkeypatch.chdir("/")
    found = np.concatenate([copy.read() for copy in copies])
    np.testing.assert_array_equal(found, np.concatenate([IQ[2::2], IQ[2::2] + 1]).reshape(10, -1))
    assert opened == [tmp_path / "0.h5", tmp_path / "1.h5"]
    # A few frames of a copy are those that the whole copy has.
    np.testing.assert_array_equal(copies[-1].frames.pick(np.array([1])), found[[copies[-1].first + 6]])
    assert len(opened) == 2
    # A file that was written again is not taken for the one of the chunk.
    write_stack(tmp_path / "0.h5", IQ[:6])
    with pytest.raises(InputError, match=r"0\.h5 changed while it was read"):
        copies[0].read()
