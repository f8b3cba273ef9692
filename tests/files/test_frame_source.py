"""Blocks of frames of files: every layout, type and selection, each chunk once, in this process and in another one."""

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from tests.files.layouts import IQ, LAYOUTS, VOLUMES, Layout, in_order
from tests.files.read_bytes import read_bytes
from tests.files.test_reading import TYPES
from tests.stacks import write_stack
from usdenoise.errors import InputError
from usdenoise.files import frame_reading, frame_source
from usdenoise.files.frame_source import FileFrames
from usdenoise.files.matlab.matlab_writing import write_v73
from usdenoise.files.open_input import Input, open_input
from usdenoise.files.stored import StoredArray
from usdenoise.stack import frame_blocks

SELECTIONS = [None, slice(1, 11, 4), slice(3, 999), slice(0, 12, 5)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_blocks, "BLOCK_ENTRIES", 60)


def as_rows(stack: NDArray[Any], axes: str, pixel_axes: str) -> NDArray[Any]:
    """A stack with axes `axes` as a matrix, frames first, pixels in the order of `pixel_axes`."""
    return in_order("t" + pixel_axes, stack, axes).reshape(stack.shape[axes.index("t")], -1)


def check(source: Input, expected: NDArray[Any]) -> None:
    """The blocks and a few frames of an input are those of the stack that it holds."""
    frames = FileFrames(source)
    rows = as_rows(expected, source.axes, frames.pixel_axes)
    assert (frames.stack.shape, frames.dtype) == (expected.shape, rows.dtype)
    blocks = frames.items()
    assert [0, *(block.stop for block in blocks)] == frames.edges.tolist()
    for block in blocks:
        values = block.read()
        assert values.dtype == rows.dtype
        assert values.flags.c_contiguous or values.flags.f_contiguous
        np.testing.assert_array_equal(values, rows[block.start : block.stop])
    for numbers in ([0], [len(rows) - 1], range(0, len(rows), 2), range(len(rows))):
        some = source.read_frames(np.array(numbers))
        assert some.dtype == rows.dtype
        assert some.flags.c_contiguous
        np.testing.assert_array_equal(some, rows[list(numbers)])


@pytest.mark.parametrize("frames", [None, slice(1, 11, 3)], ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str, frames: slice | None, tmp_path: Path) -> None:
    how: Layout = LAYOUTS[name]
    with open_input(how.write(tmp_path), {**dict(how.options), "frames": frames}) as source:
        check(source, how.of_frames(frames or slice(None)))


@pytest.mark.parametrize("frames", SELECTIONS, ids=str)
@pytest.mark.parametrize("axes", ["tzx", "ztx", "zxt", "xzt", "tzxy", "ytxz"])
def test_every_order_of_the_axes(axes: str, frames: slice | None, tmp_path: Path) -> None:
    stack, own = (IQ, "tzx") if len(axes) == 3 else (VOLUMES, "tzxy")
    values, expected = in_order(axes, stack, own), in_order(axes, stack[frames or slice(None)], own)
    write_stack(tmp_path / "stack.h5", values)
    scipy.io.savemat(tmp_path / "v5.mat", {"IQ": values})
    write_v73(tmp_path / "v73.mat", {"IQ": values})
    np.save(tmp_path / "c.npy", np.ascontiguousarray(values))
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    for name in ("stack.h5", "v5.mat", "v73.mat", "c.npy", "f.npy"):
        with open_input(tmp_path / name, {"axes": axes, "frames": frames}) as source:
            check(source, expected)
            backwards = name in ("v5.mat", "v73.mat", "f.npy")
            assert source.pixel_axes == (axes[::-1] if backwards else axes).replace("t", "")
            time_is_slowest = axes[-1 if backwards else 0] == "t"
            assert source.is_in_frame_order == (
                time_is_slowest or source.stack.array.chunks is not None or name == "v5.mat"
            )


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": (5, 2, 4)}], ids=["plain", "gzip"])
@pytest.mark.parametrize("key", TYPES)
def test_every_type(key: str, options: dict[str, Any], tmp_path: Path) -> None:
    values, expected, _ = TYPES[key]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, **options)
    for frames in SELECTIONS:
        with open_input(tmp_path / "x.h5", {"frames": frames}) as source:
            check(source, expected[frames or slice(None)])
    with open_input(tmp_path / "x.h5", {}, "double") as source:
        check(source, expected.astype(np.result_type(expected, np.float64)))


def test_frames_in_the_order_of_a_file_are_not_copied(tmp_path: Path) -> None:
    write_v73(tmp_path / "v73.mat", {"IQ": in_order("zxt")})
    with open_input(tmp_path / "v73.mat", {"axes": "zxt"}) as source:
        block = source.read_block(2, 7)
        assert block.flags.c_contiguous
        # Pairs of single precision are complex numbers as they are, in any layout.
        assert source.stack.array.fill is not None
        out = np.empty((5, 4, 12), np.complex64, order="F")
        source.stack.array.fill(tuple(slice(0, n, 1) for n in out.shape), out)
        np.testing.assert_array_equal(out, in_order("zxt"))


@pytest.mark.parametrize("frames", [None, slice(3, 60), slice(1, 60, 3), slice(0, 60, 11)], ids=str)
@pytest.mark.parametrize("chunks", [(7, 4, 3), (60, 2, 2), (1, 8, 6), (20, 8, 6)])
def test_a_pass_reads_each_chunk_once(
    chunks: tuple[int, ...], frames: slice | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_blocks, "BLOCK_ENTRIES", 400)
    values = np.random.default_rng(0).standard_normal((60, 8, 6)).astype(np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, chunks=chunks, compression="gzip")
    wanted = np.arange(60)[frames or slice(None)]
    with open_input(tmp_path / "x.h5", {"axes": "tzx", "dataset": "iq", "frames": frames}) as source:
        blocks = FileFrames(source).items()
        read = [{int(frame) // chunks[0] for frame in wanted[block.start : block.stop]} for block in blocks]
        assert sum(map(len, read)) == len(set().union(*read))
        assert len(blocks) > 1 or len(read[0]) < 3
        before = read_bytes()
        found = np.concatenate([block.read() for block in blocks])
        assert read_bytes() - before < 1.1 * (tmp_path / "x.h5").stat().st_size
    np.testing.assert_array_equal(found, values[wanted].reshape(len(wanted), -1))


def test_a_file_in_pixel_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((8, 6, 60)).astype(np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("iq", data=values, chunks=(2, 3, 60))
    with open_input(tmp_path / "x.h5", {"axes": "zxt", "dataset": "iq"}) as source:
        assert source.is_in_frame_order
        monkeypatch.setattr(frame_reading, "CHUNK_ROW_BYTES", values.nbytes // 2)
        assert not source.is_in_frame_order
        check(source, values)


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
            found = source.read_frames(numbers)
        np.testing.assert_array_equal(found, values[numbers].reshape(6, -1))
        assert sum(read) <= sum(wanted) + 10 * (chunks is not None)


def test_a_block_in_another_process_opens_its_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [write_stack(Path(f"{n}.h5"), IQ + n) for n in range(2)]
    copies = []
    for path in paths:
        with open_input(path, {"frames": slice(2, None, 2)}) as source:
            target = np.empty((5, 20), np.complex64)
            blocks = FileFrames(source, target=target).items()
            assert np.shares_memory(blocks[0].target, target)
            copies += pickle.loads(pickle.dumps(blocks))
    assert all(copy.source is None and copy.target is None for copy in copies)
    opened: list[Path] = []

    def note(path: Path, *others: Any) -> Any:
        opened.append(path)
        return open_input(path, *others)

    monkeypatch.setattr(frame_source, "open_input", note)
    monkeypatch.chdir("/")
    found = np.concatenate([copy.read() for copy in copies])
    np.testing.assert_array_equal(found, np.concatenate([IQ[2::2], IQ[2::2] + 1]).reshape(10, -1))
    assert opened == [tmp_path / "0.h5", tmp_path / "1.h5"]
    # A file that was written again is not taken for the one of the block.
    write_stack(tmp_path / "0.h5", IQ[:6])
    with pytest.raises(InputError, match=r"0\.h5 changed while it was read"):
        copies[0].read()


def test_values_beyond_single_precision_are_refused(tmp_path: Path) -> None:
    write_stack(tmp_path / "x.h5", 1e300 * IQ.astype(complex))
    with open_input(tmp_path / "x.h5", {}, "single") as source:
        with pytest.raises(InputError, match="single precision ends"):
            FileFrames(source).items()[0].read()
        with pytest.raises(InputError, match="single precision ends"):
            source.read_frames(np.array([1, 5]))
