"""Comparison of two folders of results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import numpy as np
import scipy.io
import zarr


def differences(one: Path, other: Path, near: float = 0.0) -> list[str]:
    """What differs between two folders of results: names of files, bytes of pictures, and arrays.

    Arrays and TIFF images differ if they do by more than `near` of the largest value, and PNG pictures if that is not 0 by
    more than a twentieth of a level on the mean.
    """
    names = [_names(folder) for folder in (one, other)]
    found = [f"{name} is in one folder only" for name in sorted(names[0] ^ names[1])]
    found += [
        f"the bytes of {name} differ"
        for name in sorted(names[0] & names[1])
        if name.endswith((".png", ".tif"))
        and (one / name).read_bytes() != (other / name).read_bytes()
        and not (near and _show_the_same(one / name, other / name, near))
    ]
    a, b = dict(_arrays(one)), dict(_arrays(other))
    found += [f"{name} is in one folder only" for name in sorted(set(a) ^ set(b))]
    found += [
        f"the numbers of {name} differ"
        for name in sorted(set(a) & set(b))
        if a[name].dtype != b[name].dtype
        or (a[name].tobytes() != b[name].tobytes() and not (near and _are_near(a[name], b[name], near)))
    ]
    return found


def _show_the_same(one: Path, other: Path, near: float) -> bool:
    """Whether two pictures are the same but for rounding."""
    a, b = iio.imread(one), iio.imread(other)
    if a.dtype != np.uint8 or a.shape != b.shape:
        return _are_near(a, b, near)
    return bool(np.mean(np.abs(a.astype(float) - b)) < 0.05)


def _are_near(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], near: float) -> bool:
    """Whether two arrays differ by at most `near` of the largest value."""
    if one.shape != other.shape or one.dtype.kind not in "fc" or not one.size:
        return False
    return np.allclose(other, one, rtol=0, atol=near * float(np.nanmax(np.abs(one))), equal_nan=True)


def _names(folder: Path) -> set[str]:
    """Names of all files, hidden ones too, except those in Zarr groups."""
    names = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {str(name) for name in names if not any(part.endswith(".zarr") for part in name.parts)}


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
