"""HDF5 files whose values are in other files: the library reads them, and a missing file is an error that names it."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.files.layouts import LAYOUTS, external, virtual
from tests.stacks import write_stack
from usdenoise import load
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


def test_a_zarr_group_of_links_is_read(tmp_path: Path) -> None:
    layout = LAYOUTS["ConfUSIus"]
    path = layout.write(tmp_path)
    for number, chunk in enumerate(sorted((path / "iq/c").rglob("*"))):
        if chunk.is_file():
            chunk.rename(tmp_path / f"chunk{number}")
            chunk.symlink_to(tmp_path / f"chunk{number}")
    (tmp_path / "link.zarr").symlink_to(path)
    assert np.array_equal(load(tmp_path / "link.zarr").iq, layout.expected)
