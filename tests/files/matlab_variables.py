"""The variables of .mat files of both versions, through other readers than ours."""

from pathlib import Path
from typing import Any

import h5py
import scipy.io


def variables(path: Path) -> dict[str, Any]:
    """The values by name; fields of a struct are named STRUCT/FIELD, and text is a str."""
    found: dict[str, Any] = {}

    def of_v5(name: str, value: Any) -> None:
        if value.dtype.names:
            for field in value.dtype.names:
                of_v5(f"{name}/{field}", value[field][0, 0])
        else:
            found[name] = value.item() if value.dtype.kind == "U" else value

    def of_v73(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            values = item[()].transpose()
            if item.attrs["MATLAB_class"] == b"char":
                found[name] = values.tobytes().decode("utf-16-le")
            else:
                found[name] = values["real"] + 1j * values["imag"] if values.dtype.names else values

    if h5py.is_hdf5(path):
        with h5py.File(path) as file:
            file.visititems(of_v73)
    else:
        for name, value in scipy.io.loadmat(path).items():
            if not name.startswith("__"):
                of_v5(name, value)
    return found
