"""Chunks of frames of files: every layout, type and selection, each storage chunk once, also in another process."""

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.files.layouts import IQ, LAYOUTS, Layout, frames_by_loops, in_order
from tests.files.read_bytes import read_bytes
from tests.files.test_reading import ORDERS, TYPES, in_turn, ordered
from tests.stacks import write_stack
from usdenoise.errors import InputError
from usdenoise.files import layout, recordings
from usdenoise.files.matlab_writing import write_v73
from usdenoise.files.open_input import Input, open_input
from usdenoise.files.recordings import FileFrames, file_recording, lines_recording
from usdenoise.files.stored import StoredArray
from usdenoise.pipeline import recording
from usdenoise.pipeline.recording import Chunk
from usdenoise.stack.geometry import as_frames

SELECTIONS = [None, slice(1, 11, 4), slice(3, 999), slice(0, 12, 5)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CHUNK_ENTRIES", 60)
    monkeypatch.setattr(layout, "SLAB_BYTES", 300)


def file_frames(chunk: Chunk) -> FileFrames:
    """The frames of a chunk of a file."""
    assert isinstance(chunk.frames, FileFrames)
    return chunk.frames


def check(source: Input, expected: NDArray[Any], scratch: Path) -> None:
    """Chunks and single frames of an input equal those of its stack, with pixels in the order z, x, y."""
    found = file_recording(source)
    rows = frames_by_loops(expected, source.axes)
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
        for numbers in ([0], [len(own) - 1], range(0, len(own), 2)):
            np.testing.assert_array_equal(chunk.frames.pick(np.array(numbers)), own[list(numbers)])


@pytest.mark.parametrize("frames", [None, slice(1, 11, 3)], ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str, frames: slice | None, tmp_path: Path) -> None:
    how: Layout = LAYOUTS[name]
    path, expected = how.write(tmp_path), how.of_frames(frames or slice(None))
    for precision, dtype in ((None, "c8"), ("double", "c16")):
        with open_input(path, {**dict(how.options), "frames": frames}, precision) as source:
            check(source, expected.astype(dtype), tmp_path)


@pytest.mark.parametrize(("axes", "frames"), in_turn(SELECTIONS), ids=str)
def test_every_order_of_the_axes(axes: str, frames: slice | None, tmp_path: Path) -> None:
    values, expected = ordered(axes), ordered(axes, frames or slice(None))
    write_stack(tmp_path / "stack.h5", values)
    scipy.io.savemat(tmp_path / "v5.mat", {"IQ": values})
    write_v73(tmp_path / "v73.mat", {"IQ": values})
    np.save(tmp_path / "c.npy", np.ascontiguousarray(values))
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    for name in ("stack.h5", "v5.mat", "v73.mat", "c.npy", "f.npy"):
        backwards = name in ("v5.mat", "v73.mat", "f.npy")
        for precision, dtype in ((None, "c8"), ("double", "c16")):
            with open_input(tmp_path / name, {"axes": axes, "frames": frames}, precision) as source:
                check(source, expected.astype(dtype), tmp_path)
                fastest = axes[0 if backwards else -1]
                chunk = source.read_chunk(0, source.n_frames)
                assert chunk.flags.f_contiguous if fastest == "t" else chunk.flags.c_contiguous
                time_is_slowest = axes[-1 if backwards else 0] == "t"
                assert source.is_in_frame_order == (
                    time_is_slowest or source.stack.array.chunks is not None or name == "v5.mat"
                )


@settings(max_examples=60, deadline=None)
@given(
    axes=st.sampled_from(ORDERS),
    lengths=st.tuples(st.integers(2, 9), *[st.integers(1, 5)] * 3),
    chunks=st.none() | st.tuples(*[st.integers(1, 5)] * 4),
    slow=st.integers(0, 3),
    start=st.integers(0, 3),
    step=st.integers(1, 3),
    most=st.integers(1, 300),
)
def test_any_stored_array_is_read_in_the_order_of_its_pixels(
    axes: str,
    lengths: tuple[int, ...],
    chunks: tuple[int, ...] | None,
    slow: int,
    start: int,
    step: int,
    most: int,
) -> None:
    """Also with axes of length 1, with slabs of any size, and with chunks that are not in the order of the memory."""
    shape = tuple(dict(zip("tzxy", lengths, strict=True))[letter] for letter in axes)
    time, values = axes.index("t"), np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    stored = StoredArray(
        shape,
        values.dtype,
        lambda index: np.array(values[index]),
        slow % len(shape),
        None if chunks is None else tuple(map(min, chunks, shape)),
    )
    rows = frames_by_loops(values, axes)
    picked = slice(min(start, shape[time] - 2), None, step if shape[time] - start > step + 1 else 1)
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as scratch:
        patched.setattr(layout, "SLAB_BYTES", 8 * most)
        patched.setattr(recording, "CHUNK_ENTRIES", 20)
        for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
            stack = layout.read_stack(stored, axes, picked, dtype)
            assert stack.dtype == dtype
            np.testing.assert_array_equal(frames_by_loops(stack, axes), rows[picked])
            # Memory has the pixels in the order z, x, y.
            memory = as_frames(stack, axes)
            assert np.shares_memory(memory, stack)
            np.testing.assert_array_equal(memory, rows[picked])
            lines = layout.read_lines(stored, axes, picked, dtype, "iq", Path(scratch))
            read = [np.reshape(chunk, (-1, chunk.shape[-1])).T for _, chunk in layout.chunks_of_lines(lines)]
            np.testing.assert_array_equal(np.concatenate(read), rows[picked])
            numbers = np.arange(shape[time])[picked]
            few = layout.read_frames(stored, axes, numbers, dtype, "iq")
            assert few.flags.c_contiguous
            np.testing.assert_array_equal(few, rows[numbers])


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": (5, 2, 4)}], ids=["plain", "gzip"])
@pytest.mark.parametrize("key", TYPES)
def test_every_type(key: str, options: dict[str, Any], tmp_path: Path) -> None:
    values, expected, _ = TYPES[key]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, **options)
    for frames in SELECTIONS:
        with open_input(tmp_path / "x.h5", {"frames": frames}) as source:
            check(source, expected[frames or slice(None)], tmp_path)
    for precision, real in (("single", np.float32), ("double", np.float64)):
        wanted = np.result_type(real, np.complex64) if np.iscomplexobj(expected) else np.dtype(real)
        with open_input(tmp_path / "x.h5", {}, precision) as source:
            check(source, expected.astype(wanted), tmp_path)


def test_frames_in_the_order_of_a_file_are_not_copied(tmp_path: Path) -> None:
    # MATLAB's first axis is the fastest one in its file: y is in front of x and z.
    write_v73(tmp_path / "v73.mat", {"IQ": in_order("xzt")})
    with open_input(tmp_path / "v73.mat", {"axes": "xzt"}) as source:
        stored = source.stack.array
        own = [stored.read((slice(0, 4, 1), slice(0, 5, 1), slice(2, 7, 1)))]
        object.__setattr__(stored, "read", lambda index: own[0])
        chunk = source.read_chunk(2, 7)
        assert chunk.flags.c_contiguous
        assert np.shares_memory(chunk, own[0])
        np.testing.assert_array_equal(chunk, frames_by_loops(IQ[2:7], "tzx"))
        # Pairs of single precision are complex numbers as they are, in any layout.
        assert stored.fill is not None
        out = np.empty((4, 5, 12), np.complex64, order="F")
        stored.fill(tuple(slice(0, n, 1) for n in out.shape), out)
        np.testing.assert_array_equal(out, in_order("xzt"))


@pytest.mark.parametrize("frames", [None, slice(3, 60), slice(1, 60, 3), slice(0, 60, 11)], ids=str)
@pytest.mark.parametrize("chunks", [(7, 4, 3), (60, 2, 2), (1, 8, 6), (20, 8, 6)])
def test_a_pass_reads_each_storage_chunk_once(
    chunks: tuple[int, ...], frames: slice | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "CHUNK_ENTRIES", 400)
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


def count_frames(source: Input) -> list[int]:
    """Count the frames that are read from a stored array from now on."""
    read: list[int] = []
    stored: StoredArray = source.stack.array
    own = stored.read

    def counted(index: tuple[slice, ...]) -> NDArray[Any]:
        values = own(index)
        read.append(values.shape[0])
        return values

    object.__setattr__(stored, "read", counted)
    return read


def test_a_few_frames_are_read_alone_or_with_their_chunk(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((60, 8, 6)).astype(np.float32)
    numbers = np.array([3, 4, 20, 41, 42, 43])
    for chunks, wanted in ((None, [2, 1, 3]), ((10, 8, 3), [2, 2, 1, 1, 3, 3])):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("iq", data=values, chunks=chunks)
        with open_input(tmp_path / "x.h5", {"axes": "tzx", "dataset": "iq"}) as source:
            read = count_frames(source)
            found = source.pick(numbers)
        np.testing.assert_array_equal(found, values[numbers].reshape(6, -1))
        assert sum(read) <= sum(wanted) + 10 * (chunks is not None)


def test_a_chunk_in_another_process_opens_its_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_values_beyond_single_precision_are_refused(tmp_path: Path) -> None:
    write_stack(tmp_path / "x.h5", 1e300 * IQ.astype(complex))
    with open_input(tmp_path / "x.h5", {}, "single") as source:
        with pytest.raises(InputError, match="single precision ends"):
            file_recording(source).chunks[0].read()
        with pytest.raises(InputError, match="single precision ends"):
            source.pick(np.array([1, 5]))
