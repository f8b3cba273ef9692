"""Slabs in which stacks are read: they cover a selection once, and read whole chunks."""

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import usdenoise
from tests.files.layouts import frames_by_loops
from tests.files.read_bytes import read_bytes
from usdenoise.files import layout
from usdenoise.files.layout import slab_shape, slabs
from usdenoise.files.open_input import open_input
from usdenoise.files.recordings import lines_recording
from usdenoise.files.stored import StoredArray
from usdenoise.stack.geometry import as_frames

lengths = st.tuples(st.integers(2, 30), st.integers(1, 9), st.integers(1, 9))


@settings(max_examples=80, deadline=None)
@given(
    shape=lengths,
    chunks=st.none() | lengths,
    most=st.integers(1, 400),
    start=st.integers(0, 10),
    step=st.integers(1, 7),
    slow=st.integers(0, 2),
)
def test_slabs_cover_what_is_selected_once(shape, chunks, most, start, step, slow):
    values = np.arange(np.prod(shape)).reshape(shape)
    stored = StoredArray(shape, values.dtype, lambda index: values[index], slow, chunks)
    slab = slab_shape(shape, chunks or slow, "tzx", most)
    picked = [slice(min(start, shape[0] - 1), shape[0], step), *(slice(0, n, 1) for n in shape[1:])]
    expected = values[tuple(picked)]
    found, seen = np.full(expected.shape, -1), np.zeros(expected.shape, int)
    for index, target in slabs(picked, slab):
        found[target] = stored.read(index)
        seen[target] += 1
    assert np.array_equal(found, expected)
    assert (seen == 1).all()
    if chunks is None:
        least = np.prod(shape) // shape[slow]
    else:
        least = np.prod(np.minimum(chunks, shape))
        assert all(
            n % min(c, length) == 0 or n == length for n, c, length in zip(slab, chunks, shape, strict=True)
        )
    assert np.prod(slab) <= max(most, least)


@pytest.mark.parametrize("chunks", [(60, 8, 3), (7, 20, 24), (25, 9, 5)])
@pytest.mark.parametrize("frames", [None, slice(5, 50, 3)])
def test_a_chunk_of_a_file_is_read_once(tmp_path, monkeypatch, chunks, frames):
    rng = np.random.default_rng(0)
    stack = rng.standard_normal((60, 20, 24)).astype(np.float32)
    with h5py.File(tmp_path / "stack.h5", "w") as file:
        file.create_dataset("iq", data=stack, chunks=chunks, compression="gzip")
    told = []

    def note(done, total):
        told.append((done, total))

    monkeypatch.setattr(layout, "SLAB_BYTES", 3000)
    # The first load imports modules, which are files too.
    usdenoise.load(tmp_path / "stack.h5", dataset="iq", axes="tzx", frames=slice(0, 2))
    before = read_bytes()
    # A named dataset is not looked at before it is read.
    loaded = usdenoise.load(tmp_path / "stack.h5", dataset="iq", axes="tzx", frames=frames, on_part=note)
    size = (tmp_path / "stack.h5").stat().st_size
    assert 0.8 * size < read_bytes() - before < 1.3 * size
    assert np.array_equal(loaded.iq, stack[frames or slice(None)])
    assert told == sorted(told)
    assert told[-1] == (loaded.iq.nbytes, loaded.iq.nbytes)
    assert len(told) > 4


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("dtype", [None, "double"])
@pytest.mark.parametrize("frames", [None, slice(5, 50, 3)], ids=str)
@pytest.mark.parametrize("chunks", [None, (7, 20, 24), (60, 8, 3)])
@pytest.mark.parametrize("axes", ["tzx", "zxt", "xzt"])
def test_a_stack_is_in_memory_frame_after_frame_as_in_its_file(
    axes, chunks, frames, dtype, is_on_disk, tmp_path, monkeypatch
):
    rng = np.random.default_rng(0)
    stack = rng.standard_normal((60, 20, 24)).astype(np.float32)
    with h5py.File(tmp_path / "stack.h5", "w") as file:
        file.create_dataset("iq", data=stack, chunks=chunks)
        # MATLAB shows the axes in reverse, and its files have frame after frame.
        file["iq"].attrs.update({"MATLAB_class": np.bytes_("single")} if axes != "tzx" else {})
    expected = stack[frames or slice(None)]
    expected = expected if axes == "tzx" else expected.transpose()
    # The first axis of MATLAB is the fastest one in the file, and z is the slowest one of the pixels in memory.
    same_order = axes != "zxt"
    monkeypatch.setattr(layout, "SLAB_BYTES", 3000)
    reading = {"dataset": "iq", "axes": axes, "frames": frames}
    with open_input(tmp_path / "stack.h5", reading, dtype) as source:
        if is_on_disk:
            lines = source.read_lines(tmp_path)
            target = lines.reshape(len(lines), -1)
            # Filtered frames take the memory of their chunk, which is read before.
            for chunk in lines_recording(source, lines).chunks:
                target[chunk.first : chunk.stop] = chunk.read()
            found = source.geometry.as_stack(target)
        else:
            found = source.read().iq
    assert np.array_equal(found, expected)
    assert found.flags.writeable
    assert (found if axes == "tzx" else found.transpose()).flags.c_contiguous == same_order
    in_memory = as_frames(found, axes)
    assert np.shares_memory(in_memory, found)
    assert in_memory.flags.c_contiguous
    assert np.array_equal(in_memory, frames_by_loops(expected, axes))
    assert [path.name for path in tmp_path.iterdir()] == ["stack.h5"]
