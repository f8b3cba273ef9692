"""Stacks whose values are in other files: read where they may be, refused elsewhere, an error where they are missing."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import usdenoise
from tests.formats.layouts import LAYOUTS, external, virtual
from tests.stacks import low_rank, write_stack
from usdenoise import load
from usdenoise.cli import main
from usdenoise.errors import InputError
from usdenoise.formats.file_state import file_state
from usdenoise.formats.open_input import other_files

_RNG = np.random.default_rng(3)
PARTS = [(_RNG.standard_normal((3, 5, 4)) + 1j * _RNG.standard_normal((3, 5, 4))).astype("c8") for _ in "012"]
IQ = np.concatenate(PARTS)
NAMES = ["part_0.h5", "part_1.h5", "part_2.h5"]


def write_virtual(path: Path, names: list[str]) -> Path:
    """A virtual dataset of the parts under any names."""
    return virtual(path, names, (3, 5, 4))


def write_whole(path: Path, source: str, inner: str = "iq", shape: tuple[int, ...] = IQ.shape) -> Path:
    """Add a virtual dataset that is taken whole from another one."""
    return virtual(path, [source], shape, inner)


def write_numbered(path: Path, name: str) -> Path:
    """A virtual dataset whose parts are numbered and may become more."""
    space = h5py.h5s.create_simple((0, 5, 4), (h5py.h5s.UNLIMITED, 5, 4))
    space.select_hyperslab((0, 0, 0), (h5py.h5s.UNLIMITED, 1, 1), (3, 1, 1), (3, 5, 4))
    part = h5py.h5s.create_simple((3, 5, 4))
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_virtual(space, name.encode(), b"iq", part)
    with h5py.File(path, "w") as file:
        dtype = h5py.h5t.py_create(np.dtype("c8"), logical=True)
        whole = h5py.h5s.create_simple((0, 5, 4), (h5py.h5s.UNLIMITED, 5, 4))
        h5py.h5d.create(file.id, b"iq", dtype, whole, dcpl=settings)
        file["iq"].attrs["axes"] = "tzx"
    return path


def write_external(path: Path, *stores: tuple[str, int, int]) -> Path:
    """The stack as plain numbers in other files."""
    return external(path, IQ.shape, *stores)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of three parts, with another folder next to it; the current folder is a third one."""
    for name, values in zip(NAMES, PARTS, strict=True):
        write_stack(tmp_path / "in" / name, values)
        write_stack(tmp_path / "out" / name, values)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "in"


def fails(sentence: str, path: Path, **options: Any) -> None:
    """Loading fails with this sentence."""
    with pytest.raises(InputError, match=sentence):
        load(path, **options)


def refused(path: Path, file: Path, **options: Any) -> None:
    """The file is named, and so is the way out, in Python and on the command line; with it the stack is read."""
    sentence = rf"{re.escape(str(path))} is read from {re.escape(str(file))} too, which is outside the folder \S+; give "
    for attempt in (load, usdenoise.formats.describe):
        with pytest.raises(InputError, match=f"^{sentence}allow_external if you trust both files$"):
            attempt(path, **options)
    flags = [f"--{name}={value}" for name, value in options.items()]
    for command in ("info", "run", "compare"):
        result = CliRunner().invoke(main, [command, str(path), *flags])
        assert result.exit_code == 1
        assert re.search(f"usdenoise: {sentence}--allow-external if you trust both files\n$", result.stderr)
        assert os.listdir() == []
    assert CliRunner().invoke(main, ["info", str(path), *flags, "--allow-external"]).exit_code == 0
    assert np.array_equal(load(path, allow_external=True, **options).iq, IQ)


# ---------------------------------------------------------------- virtual datasets


INSIDE: dict[str, Callable[[Path], list[str]]] = {
    "next to it": lambda folder: NAMES,
    "with dots": lambda folder: [f"../in/./{name}" for name in NAMES],
    "absolute": lambda folder: [str(folder / name) for name in NAMES],
    "absolute, moved since": lambda folder: [f"/absent/{name}" for name in NAMES],
}


@pytest.mark.parametrize("key", INSIDE)
def test_sources_in_the_folder_are_read(key: str, parts: Path) -> None:
    path = write_virtual(parts / "all.h5", INSIDE[key](parts))
    assert np.array_equal(load(path).iq, IQ)
    assert set(NAMES) <= set(other_files(path))


def test_sources_in_a_subfolder_and_in_turn(parts: Path) -> None:
    for name in NAMES:
        (parts / "sub").mkdir(exist_ok=True)
        (parts / name).rename(parts / "sub" / name)
    write_virtual(parts / "sub/all.h5", NAMES)
    write_whole(parts / "top.h5", "sub/all.h5")
    assert np.array_equal(load(parts / "top.h5").iq, IQ)
    assert other_files(parts / "top.h5") == ["sub/all.h5", *(f"sub/{name}" for name in NAMES)]
    (parts / "sub/part_1.h5").unlink()
    fails(r"'iq' in \S+/sub/all.h5 is read from part_1.h5, which is missing", parts / "top.h5")


def test_a_source_in_the_same_file(parts: Path) -> None:
    path = write_whole(write_stack(parts / "own.h5", IQ, "raw"), ".", "raw")
    assert np.array_equal(load(path, dataset="iq").iq, IQ)
    assert other_files(path) == []
    with h5py.File(path, "r+") as file:
        del file["raw"]
    fails(r"is read from the dataset 'raw' of \S+own.h5, which is missing there", path, dataset="iq")


def test_a_name_with_a_percent_sign(parts: Path) -> None:
    (parts / "part_0.h5").rename(parts / "100%b.h5")
    path = write_virtual(parts / "all.h5", ["100%%b.h5", *NAMES[1:]])
    assert np.array_equal(load(path).iq, IQ)
    assert other_files(path) == ["100%b.h5", *NAMES[1:]]


def test_numbered_sources(parts: Path) -> None:
    path = write_numbered(parts / "all.h5", "part_%b.h5")
    fails(r"is read from part_%b.h5 too, which a number \(%b\) or a prefix", path)
    assert np.array_equal(load(path, allow_external=True).iq, IQ)
    assert sorted(other_files(path, {"allow_external": True})) == NAMES
    write_stack(parts / "part_3.h5", PARTS[0])
    assert load(path, allow_external=True).iq.shape == (12, 5, 4)


def test_a_missing_source_is_named(parts: Path) -> None:
    path = write_virtual(parts / "all.h5", NAMES)
    (parts / "part_1.h5").unlink()
    for options in ({}, {"allow_external": True}):
        fails(
            rf"^'iq' in {path} is read from part_1.h5, which is missing; put that file to {parts}/part_1.h5$",
            path,
            **options,
        )
    assert usdenoise.formats.describe(path).problem is not None
    result = CliRunner().invoke(main, ["run", str(path)])
    assert result.exit_code == 1
    assert "part_1.h5, which is missing" in result.stderr
    assert os.listdir() == []


def half_written(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("iq", (3, 5, 4), "c8", chunks=(1, 5, 4))[0] = 1


WRONG: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "another dataset": (
        "part_1.h5",
        lambda path: write_stack(path, PARTS[1], "rf"),
        r"^'iq' in {} is read from the dataset 'iq' of \S+part_1.h5, which is missing there",
    ),
    "too short": (
        "part_1.h5",
        lambda path: write_stack(path, PARTS[1][:2]),
        r"^'iq' in {} needs 60 values of 'iq' in \S+part_1.h5, which holds 2 x 5 x 4",
    ),
    "too short for a selection": (
        "part_0.h5",
        lambda path: write_stack(path, PARTS[0][:, :, :3]),
        r"^'iq' in {} needs 3 x 5 x 4 values of 'iq' in \S+part_0.h5, which holds 3 x 5 x 3",
    ),
    "no HDF5 file": (
        "part_1.h5",
        lambda path: path.write_bytes(b"text"),
        r"^'iq' in {} is read from \S+part_1.h5, which cannot be read as",
    ),
    "half written": ("part_2.h5", half_written, r"'iq' in \S+part_2.h5 claims 480 bytes .* not written to its end"),
}  # fmt: skip


@pytest.mark.parametrize("key", WRONG)
def test_a_source_that_does_not_hold_its_part(key: str, parts: Path) -> None:
    name, spoil, sentence = WRONG[key]
    path = write_virtual(parts / "all.h5", NAMES)
    spoil(parts / name)
    fails(sentence.format(path) + ".*(copy|write)", path)


def test_sources_in_a_circle(parts: Path) -> None:
    write_whole(parts / "a.h5", "b.h5")
    write_whole(parts / "b.h5", "a.h5")
    fails("is a virtual dataset whose sources lead in a circle; write it again", parts / "a.h5")


@pytest.mark.parametrize("name", ["../out/part_2.h5", "{out}/part_2.h5", "link.h5", "folder/part_2.h5"])
def test_a_source_outside_the_folder_is_refused(name: str, parts: Path) -> None:
    out = parts.parent / "out"
    (parts / "link.h5").symlink_to(out / "part_2.h5")
    (parts / "folder").symlink_to(out)
    path = write_virtual(parts / "all.h5", [*NAMES[:2], name.format(out=out)])
    refused(path, out / "part_2.h5")


def test_a_source_that_is_found_through_the_environment(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_virtual(parts / "all.h5", NAMES)
    monkeypatch.setenv("HDF5_VDS_PREFIX", f"/absent:{parts.parent}/out")
    fails(r"is read from part_0.h5 too, .* prefix in the environment .*; give", path)
    assert np.array_equal(load(path, allow_external=True).iq, IQ)


def test_a_source_outside_of_a_dataset_that_is_not_the_stack(parts: Path) -> None:
    path = write_stack(parts / "x.h5", IQ, axes="tzx")
    write_stack(parts.parent / "out/rate.h5", np.float32([123]), "rate")
    layout = h5py.VirtualLayout((1,), "f4")
    layout[...] = h5py.VirtualSource("../out/rate.h5", "rate", (1,))
    with h5py.File(path, "r+") as file:
        file.create_virtual_dataset("frame_rate", layout)
    refused(path, parts.parent / "out/rate.h5")
    assert load(path, allow_external=True).frame_rate_hz == 123
    (parts.parent / "out/rate.h5").unlink()
    assert load(path).frame_rate_hz is None


def test_a_link_to_a_file_brings_its_folder_with_it(parts: Path) -> None:
    write_virtual(parts / "all.h5", NAMES)
    Path("link.h5").symlink_to(parts / "all.h5")
    assert np.array_equal(load("link.h5").iq, IQ)
    assert other_files(Path("link.h5"))[-3:] != NAMES
    assert {str(parts / name) for name in NAMES} <= set(other_files(Path("link.h5")))


# ---------------------------------------------------------------- plain numbers in other files


def test_plain_numbers_in_the_folder_are_read(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(parts)
    Path("a.raw").write_bytes(b"header" + IQ[:4].tobytes())
    Path("b.raw").write_bytes(IQ[4:].tobytes())
    path = write_external(parts / "x.h5", ("a.raw", 6, 640), ("b.raw", 0, h5py.h5f.UNLIMITED))
    assert np.array_equal(load(path).iq, IQ)
    assert other_files(path) == ["a.raw", "b.raw"]
    with Path("b.raw").open("r+b") as file:
        file.truncate(799)
    fails(rf"^'iq' in {path} needs 800 bytes of \S+b.raw, which holds 799; copy or ", path)
    Path("b.raw").unlink()
    fails(rf"^'iq' in {path} is read from b.raw, which is missing; put that file to {parts}/b.raw$", path)


@pytest.mark.parametrize("name", ["../out/iq.raw", "{out}/iq.raw", "link.raw"])
def test_plain_numbers_outside_the_folder_are_refused(name: str, parts: Path) -> None:
    out = parts.parent / "out"
    (out / "iq.raw").write_bytes(IQ.tobytes())
    (parts / "link.raw").symlink_to(out / "iq.raw")
    named = str(parts / name) if name == "link.raw" else name.format(out=out)
    refused(write_external(parts / "x.h5", (named, 0, h5py.h5f.UNLIMITED)), out / "iq.raw")


def test_a_system_file_is_not_read_as_numbers(parts: Path) -> None:
    path = parts / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("rf", (3, 4, 4), "i1", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])
    fails(r"is read from /etc/passwd too, which is outside the folder \S+/in; give", path)


# ---------------------------------------------------------------- external links


def test_a_link_within_the_folder_is_followed(parts: Path) -> None:
    write_stack(parts / "whole.h5", IQ, "data/iq")
    with h5py.File(parts / "x.h5", "w") as file:
        file["link"] = h5py.ExternalLink("whole.h5", "/data")
        file["soft"] = h5py.SoftLink("/link/iq")
    for name in ("link/iq", "soft"):
        assert np.array_equal(load(parts / "x.h5", dataset=name, axes="tzx").iq, IQ)
        assert other_files(parts / "x.h5", {"dataset": name}) == ["whole.h5"]
    assert other_files(parts / "x.h5") == []


@pytest.mark.parametrize("name", ["link/iq", "soft", "far"])
def test_a_link_that_leads_out_of_the_folder_is_refused(name: str, parts: Path) -> None:
    out = write_stack(parts.parent / "out/whole.h5", IQ, "data/iq")
    with h5py.File(parts / "between.h5", "w") as file:
        file["on"] = h5py.ExternalLink("../out/whole.h5", "data/iq")
    with h5py.File(parts / "x.h5", "w") as file:
        file["link"] = h5py.ExternalLink(str(out), "/data")
        file["soft"] = h5py.SoftLink("link/iq")
        file["far"] = h5py.ExternalLink("between.h5", "on")
    refused(parts / "x.h5", out, dataset=name, axes="tzx")


def test_metadata_are_not_taken_from_other_files(parts: Path) -> None:
    write_stack(parts.parent / "out/uf.h5", 250.0, "UF/FrameRateUF")
    path = write_stack(parts / "x.h5", IQ, axes="tzx")
    with h5py.File(path, "r+") as file:
        file["UF"] = h5py.ExternalLink("../out/uf.h5", "UF")
    assert load(path).frame_rate_hz is None
    assert other_files(path) == []


def test_links_in_a_circle(parts: Path) -> None:
    with h5py.File(parts / "x.h5", "w") as file:
        file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
        file["c"] = h5py.ExternalLink("x.h5", "/c")
    for name in "abc":
        fails(f"there is no dataset '{name}'", parts / "x.h5", dataset=name)


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_out_of_a_zarr_group_is_refused(kind: str, tmp_path: Path) -> None:
    layout = LAYOUTS["ConfUSIus"]
    path = layout.write(tmp_path)
    chunk = next(
        place for place in sorted((path / "iq").rglob("*")) if place.is_file() and place.name != "zarr.json"
    )
    moved = chunk if kind == "file" else path / "iq/c"
    target = tmp_path / "elsewhere" / moved.name
    target.parent.mkdir()
    moved.rename(target)
    moved.symlink_to(target)
    sentence = (
        rf"x.zarr is read from {target} too, which is outside the folder {path}; give allow_external if you"
    )
    fails(sentence, path)
    assert np.array_equal(load(path, allow_external=True).iq, layout.expected)


def test_links_within_a_zarr_group_and_to_it_are_followed(tmp_path: Path) -> None:
    layout = LAYOUTS["ConfUSIus"]
    path = layout.write(tmp_path)
    (path / "iq/c").rename(path / "iq/stored")
    (path / "iq/c").symlink_to("stored")
    (path / "up").symlink_to("..")
    (tmp_path / "link.zarr").symlink_to(path)
    fails(r"is read from \S+ too, which is outside the folder", path)
    (path / "up").unlink()
    (path / "iq/up").symlink_to("..")
    assert np.array_equal(load(tmp_path / "link.zarr").iq, layout.expected)


@pytest.mark.parametrize(
    ("key", "name"), [("AUTC in parts", "bf0part001.dat"), ("EchoFrame", "ScanParameters.mat")]
)
def test_a_link_out_of_a_folder_of_binary_files_is_refused(key: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = LAYOUTS[key].write(tmp_path / "in")
    (tmp_path / "in" / name).rename(tmp_path / "far")
    (tmp_path / "in" / name).symlink_to(tmp_path / "far")
    fails(rf"{path} is read from {tmp_path}/far too, which is outside the folder {tmp_path}/in", path)
    assert np.array_equal(load(path, allow_external=True).iq, LAYOUTS[key].expected)
    assert other_files(path) == ([name] if key == "EchoFrame" else [])


def test_links_that_are_no_part_of_an_acquisition_do_not_count(tmp_path: Path) -> None:
    path = LAYOUTS["AUTC in parts"].write(tmp_path)
    (path / "notes").symlink_to("/etc")
    assert load(path).iq.shape == LAYOUTS["AUTC in parts"].expected.shape


def test_a_subfolder_of_a_zarr_group_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LAYOUTS["ConfUSIus"].write(tmp_path)
    scandir = os.scandir

    def forbidden(folder: Any) -> Any:
        if str(folder).endswith("iq"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", forbidden)
    fails(rf"^{path} cannot be read \(iq: Permission denied\); check the permissions$", path)
    assert file_state(path) is None


# ---------------------------------------------------------------- commands


def test_a_configuration_file_beside_the_scan_does_not_allow_other_files(parts: Path) -> None:
    shape = (40, 12, 10)
    write_stack(parts.parent / "out/whole.h5", low_rank(shape))
    path = write_whole(parts / "x.h5", "../out/whole.h5", shape=shape)
    run = ["run", str(path), "--rank=3", "--low-cutoff=1", "--high-cutoff=rank"]
    config = parts / "usdenoise.toml"
    config.write_text("allow-external = true\n")
    assert CliRunner().invoke(main, [*run, "-o", "result"]).exit_code == 2
    assert CliRunner().invoke(main, [*run, "-o", "result", "--config", str(config)]).exit_code == 0
