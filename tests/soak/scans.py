"""The scans of a soak, in several containers, and the comparison of two folders of results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
import zarr

from tests.batch.shared import files
from tests.stacks import low_rank, write_stack

SUFFIXES = ("h5", "mat", "npy", "zarr", "npz", "hdf5")


def write_scans(folder: Path, number: int, seed: int) -> list[Path]:
    """Stacks in four subfolders, each in the next container."""
    places = []
    for i in range(number):
        suffix = SUFFIXES[i % len(SUFFIXES)]
        place = folder / f"day{i % 4}" / f"scan{i}.{suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_container(place, 1000 * seed + i)
        places.append(place)
    return places


def write_container(place: Path, seed: int) -> None:
    """Write a stack in the container of a suffix."""
    stack = low_rank((40, 24, 20), seed=seed)
    if place.suffix in (".h5", ".hdf5"):
        write_stack(place, stack, axes="tzx")
    elif place.suffix == ".mat":
        scipy.io.savemat(place, {"IQ": stack.transpose(1, 2, 0)})
    elif place.suffix == ".npy":
        np.save(place, stack)
    elif place.suffix == ".npz":
        np.savez(place, iq=stack)
    else:
        group = zarr.open_group(place, mode="w")
        group.create_array("iq", data=stack, chunks=(16, 24, 20), dimension_names=("time", "z", "x"))


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two folders of results: names of files, bytes of pictures, and arrays."""
    names = [name for name in files(one) if not _is_within_zarr(name)]
    others = [name for name in files(other) if not _is_within_zarr(name)]
    found = [f"{name} is in one folder only" for name in sorted(set(names) ^ set(others))]
    found += [
        f"the bytes of {name} differ"
        for name in names
        if name in others
        and name.endswith((".png", ".tif"))
        and (one / name).read_bytes() != (other / name).read_bytes()
    ]
    a, b = dict(_arrays(one)), dict(_arrays(other))
    found += [f"{name} is in one folder only" for name in sorted(set(a) ^ set(b))]
    found += [
        f"the numbers of {name} differ"
        for name in sorted(set(a) & set(b))
        if a[name].dtype != b[name].dtype or a[name].tobytes() != b[name].tobytes()
    ]
    return found


def _is_within_zarr(name: str) -> bool:
    return any(part.endswith(".zarr") for part in Path(name).parts)


def _arrays(folder: Path) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """All arrays of all results, by the names of their files and their own."""
    for path in folder.rglob("*_denoised.*"):
        name = str(path.relative_to(folder))
        if path.suffix == ".h5":
            with h5py.File(path) as file:
                yield from ((f"{name}:{key}", file[key][()]) for key in file)
        elif path.suffix == ".mat":
            content = scipy.io.loadmat(path)
            yield from (
                (f"{name}:{key}", np.asarray(value))
                for key, value in content.items()
                if not key.startswith("__") and key != "usdenoise_provenance"
            )
        elif path.suffix == ".zarr":
            group = zarr.open_group(path, mode="r")
            yield from ((f"{name}:{key}", np.asarray(array[...])) for key, array in group.arrays())
