"""HDF5 files whose values are in other files: the library reads them, and a missing file is an error that names it."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.files.layouts import LAYOUTS, external, virtual
from tests.programs import python
from tests.stacks import write_stack
from usdenoise import load, session
from usdenoise.errors import InputError

_RNG = np.random.default_rng(3)
PARTS = [(_RNG.standard_normal((3, 5, 4)) + 1j * _RNG.standard_normal((3, 5, 4))).astype("c8") for _ in "012"]
IQ = np.concatenate(PARTS)
NAMES = ["part_0.h5", "part_1.h5", "part_2.h5"]


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of three parts; the current folder is another one."""
    for name, values in zip(NAMES, PARTS, strict=True):
        write_stack(tmp_path / "in" / name, values)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "in"


@pytest.mark.parametrize("place", ["{name}", "../in/{name}", "{folder}/{name}", "/absent/{name}"])
def test_a_virtual_dataset_is_read_and_a_missing_source_is_named(place: str, parts: Path) -> None:
    names = [place.format(folder=parts, name=name) for name in NAMES]
    path = virtual(parts / "all.h5", names, (3, 5, 4))
    assert np.array_equal(load(path).iq, IQ)
    Path("link.h5").symlink_to(path)
    assert np.array_equal(load("link.h5").iq, IQ)
    (parts / "part_1.h5").rename(parts / "away.h5")
    with pytest.raises(InputError, match=r"'iq' in .*all.h5 is read from \S*part_1.h5, which is missing"):
        load(path)
    write_stack(parts / "part_1.h5", PARTS[1], "rf")
    with pytest.raises(InputError, match=r"is read from 'iq' in \S*part_1.h5, which is missing"):
        load(path)


def test_virtual_sources_through_a_prefix(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (parts.parent / "out").mkdir()
    path = virtual(parts.parent / "out/all.h5", NAMES, (3, 5, 4))
    with pytest.raises(InputError, match="is missing"):
        load(path)
    monkeypatch.setenv("HDF5_VDS_PREFIX", f"/absent:{parts}")
    assert np.array_equal(load(path).iq, IQ)


def test_a_virtual_source_in_the_same_file(parts: Path) -> None:
    path = virtual(write_stack(parts / "own.h5", IQ, "raw"), ["."], IQ.shape, "raw")
    assert np.array_equal(load(path, dataset="iq").iq, IQ)
    with h5py.File(path, "r+") as file:
        del file["raw"]
    with pytest.raises(InputError, match=r"is read from 'raw' in .*missing"):
        load(path, dataset="iq")


def test_external_storage(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(parts)
    Path("a.raw").write_bytes(b"header" + IQ[:4].tobytes())
    Path("b.raw").write_bytes(IQ[4:].tobytes())
    path = external(parts / "x.h5", IQ.shape, ("a.raw", 6, 640), ("b.raw", 0, h5py.h5f.UNLIMITED))
    assert np.array_equal(load(path).iq, IQ)
    Path("b.raw").unlink()
    with pytest.raises(InputError, match=r"'iq' in .*x.h5 is read from b.raw, which is missing"):
        load(path)


def test_links_are_followed_by_name(parts: Path) -> None:
    write_stack(parts / "whole.h5", IQ, "data/iq")
    path = parts / "x.h5"
    with h5py.File(path, "w") as file:
        file["link"] = h5py.ExternalLink("whole.h5", "/data")
        file["soft"] = h5py.SoftLink("/link/iq")
        file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
    for name in ("link/iq", "soft"):
        assert np.array_equal(load(path, dataset=name, axes="tzx").iq, IQ)
    with pytest.raises(InputError, match="has no dataset 'a'"):
        load(path, dataset="a")
    os.unlink(parts / "whole.h5")
    with pytest.raises(InputError, match=r"is a link to '/data' in whole.h5, which cannot be opened"):
        load(path, dataset="link/iq")


CIRCLES = {
    "itself": {"a.h5": (".", "iq")},
    "itself by the name of its file": {"a.h5": ("a.h5", "/iq")},
    "two files": {"a.h5": ("b.h5", "iq"), "b.h5": ("a.h5", "iq")},
    "a link": {"a.h5": ("b.h5", "link"), "b.h5": ("a.h5", "iq")},
}


@pytest.mark.parametrize("circle", CIRCLES)
def test_a_virtual_dataset_among_its_sources_is_refused(circle: str, parts: Path) -> None:
    for name, (file, inner) in CIRCLES[circle].items():
        with h5py.File(virtual(parts / name, [file], IQ.shape, inner), "r+") as opened:
            opened["link"] = h5py.SoftLink("/iq")
    with pytest.raises(InputError, match=r"'iq' in \S*a.h5 is read from itself"):
        load(parts / "a.h5", axes="tzx")


def test_numbers_that_are_read_from_themselves_are_no_scale(parts: Path) -> None:
    path, layout = write_stack(parts / "x.h5", IQ, axes="tzx"), h5py.VirtualLayout((1,), "f8")
    layout[:] = h5py.VirtualSource(".", "frame_rate_hz", (1,))
    with h5py.File(path, "r+") as file:
        file.create_virtual_dataset("frame_rate_hz", layout)
    assert load(path).frame_rate_hz is None


def test_numbered_sources_are_all_checked(parts: Path) -> None:
    unlimited, shape = (h5py.h5s.UNLIMITED, *IQ.shape[1:]), IQ.shape
    space, source = h5py.h5s.create_simple(shape, unlimited), h5py.h5s.create_simple(shape)
    space.select_hyperslab((0, 0, 0), (h5py.h5s.UNLIMITED, 1, 1), shape, shape)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.VIRTUAL)
    properties.set_virtual(space, b"own%%_%b.h5", b"iq", source)
    kind = h5py.h5t.py_create(IQ.dtype, logical=True)
    for number in range(3):
        write_stack(parts / f"own%_{number}.h5", IQ)
    with h5py.File(parts / "all.h5", "w") as file:
        h5py.h5d.create(file.id, b"iq", kind, h5py.h5s.create_simple(shape, unlimited), dcpl=properties)
    assert load(parts / "all.h5", axes="tzx").n_frames == 3 * len(IQ)
    (parts / "own%_2.h5").unlink()
    (parts / "own%_2.h5").symlink_to("all.h5")
    with pytest.raises(InputError, match="is read from itself"):
        load(parts / "all.h5", axes="tzx")


def test_a_missing_source_ends_the_command_with_its_exit_code(parts: Path) -> None:
    # The properties of the dataset, which the error kept, ended the process with a signal.
    path = virtual(parts / "all.h5", ["absent.h5"], IQ.shape)
    ended = python("from usdenoise.__main__ import main; main()", "info", path)
    assert (ended.returncode, "absent.h5, which is missing" in ended.stderr) == (1, True)


def test_a_pipe_behind_a_link_is_refused(parts: Path) -> None:
    os.mkfifo(parts / "pipe")
    with h5py.File(parts / "x.h5", "w") as file:
        file["rf"], file["UF"] = IQ, h5py.ExternalLink("pipe", "/UF")
        file["link"], file["soft"] = h5py.ExternalLink("pipe", "/iq"), h5py.SoftLink("/link")
    with h5py.File(parts / "y.h5", "w") as file:
        file["link"] = h5py.ExternalLink("x.h5", "/soft")
    # Beside a stack that is read, it is nothing.
    assert np.array_equal(load(parts / "x.h5", axes="tzx").iq, IQ)
    virtual(parts / "v.h5", ["pipe"], IQ.shape)
    virtual(parts / "w.h5", ["y.h5"], IQ.shape, "link")
    for name, dataset in (("x", "link"), ("x", "soft"), ("y", "link"), ("v", "iq"), ("w", "iq")):
        with pytest.raises(InputError, match="pipe is a pipe, a socket or a device"):
            load(parts / f"{name}.h5", dataset=dataset, axes="tzx")


def test_a_zarr_group_of_links_is_read(tmp_path: Path) -> None:
    layout = LAYOUTS["ConfUSIus"]
    path = layout.write(tmp_path)
    for number, chunk in enumerate(sorted((path / "iq/c").rglob("*"))):
        if chunk.is_file():
            chunk.rename(tmp_path / f"chunk{number}")
            chunk.symlink_to(tmp_path / f"chunk{number}")
    (tmp_path / "link.zarr").symlink_to(path)
    assert np.array_equal(load(tmp_path / "link.zarr").iq, layout.expected)


def test_a_file_without_its_content_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.h5").symlink_to("../.git/annex/objects/a.h5")
    (tmp_path / "in/b.h5").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")
    says = r"a.h5 is a link to ../.git/annex/objects/a.h5, which does not exist"
    with pytest.raises(InputError, match=says):
        load(tmp_path / "in/a.h5")
    with pytest.raises(InputError, match=r"a.h5 is a link to .* which does not exist"):
        session(tmp_path / "in")
    with pytest.raises(InputError, match=r"b.h5 is a pointer of Git LFS"):
        load(tmp_path / "in/b.h5")
    # A name that is not there at all
    with pytest.raises(InputError, match=r"c.h5 does not exist; check the path"):
        load(tmp_path / "in/c.h5")
