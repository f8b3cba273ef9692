"""The factors U, S and V of a low-rank estimate in a result file, from which its stack can be rebuilt."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.damage import guard
from usdenoise.formats.open_input import open_contents
from usdenoise.formats.stored import everything
from usdenoise.options.reading_options import ReadOptions
from usdenoise.stack.metadata import interpret, positive_numbers, with_options

GROUP = "factors"


@dataclass(frozen=True)
class StoredFactors:
    """The factors of a low-rank estimate U diag(S) V^H, as a result file holds them.

    Attributes
    ----------
    left : (n_pixels, r) array
        U, the spatial singular vectors. Pixels are numbered in the order z, x, y, the last fastest.
    singular_values : (r,) array
        S, the singular values.
    right : (n_frames, r) array
        V, the temporal singular vectors.
    spatial_shape : tuple of int
        Pixels along each spatial axis of the stack, in the order z, x, y.
    low, high : int
        Band [low, high) of the components that the filter kept.
    name : str
        Name of the stack.
    values : mapping
        Axes and scales of the stack, see :class:`usdenoise.stack.metadata.Metadata`.
    """

    left: NDArray[Any]
    singular_values: NDArray[np.float64]
    right: NDArray[Any]
    spatial_shape: tuple[int, ...]
    low: int
    high: int
    name: str
    values: Mapping[str, Any]


def factor_arrays(left: NDArray[Any], singular_values: NDArray[Any], right: NDArray[Any]) -> dict[str, Any]:
    """Return the factors by their names in a result file."""
    return {f"{GROUP}/U": left, f"{GROUP}/S": singular_values, f"{GROUP}/V": right}


def factor_attributes(
    spatial_shape: tuple[int, ...], band: tuple[int, int], name: str
) -> dict[str, dict[str, Any]]:
    """Return the attributes from which the factors become a stack again.

    Parameters
    ----------
    spatial_shape : tuple of int
        Pixels along each spatial axis of the stack, in the order z, x, y.
    band : (low, high) tuple of int
        Band [low, high) of the components that the filter kept.
    name : str
        Name of the stack.
    """
    return {
        GROUP: {"shape": np.array(spatial_shape, np.int32), "band": np.array(band, np.int32), "stack": name}
    }


def read_factors(path: Path, allow_external: bool = False) -> StoredFactors:
    """Read the factors of a result file.

    Parameters
    ----------
    path : Path
        The result file.
    allow_external : bool
        Whether files outside its folder may be read; False by default.

    Raises
    ------
    InputError
        If the file holds no factors, or factors whose shapes do not fit one another.
    """
    with open_contents(path, ReadOptions(allow_external=allow_external)) as contents:
        with guard(path, contents.damaged):
            found = [item for letter in "USV" if (item := contents.find(f"{GROUP}/{letter}"))]
            if len(found) < 3:
                raise InputError(
                    f"{path} holds no factors; write them with usdenoise run --keep-factors, and give that file"
                )
            left, singular, right = (everything(array) for array, _ in found)
        near: dict[str, tuple[Any, str]] = {}
        for _, of_array in reversed(found):
            near |= of_array
        values, sources, others = interpret(near)
    # A .mat file has no attributes, so there these values are variables.
    about = {key: others.get(f"{GROUP}_{key}", others.get(key, ())) for key in ("shape", "band", "stack")}
    shape = tuple(int(n) for n in positive_numbers(about["shape"]))
    band = np.asarray(about["band"]).reshape(-1)
    singular = np.asarray(singular, np.float64).reshape(-1)
    rank = len(singular)
    fits = (
        left.ndim == right.ndim == 2
        and left.shape == (np.prod(shape), rank)
        and right.shape[1] == rank
        and len(band) == 2
        and 0 <= band[0] <= band[1] <= rank
        and "axes" in values
        and len(values["axes"]) == len(shape) + 1
    )
    if not fits:
        raise InputError(
            f"the factors in {path} do not fit one another; "
            "write them again with usdenoise run --keep-factors"
        )
    metadata = with_options(values, sources, others)
    stack = about["stack"]
    name = stack.decode("utf-8", errors="replace") if isinstance(stack, bytes) else str(stack)
    low, high = (int(edge) for edge in band)
    return StoredFactors(left, singular, right, shape, low, high, name, metadata.values)
