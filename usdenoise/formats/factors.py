"""The factors of a low-rank estimate in a result file: U diag(S) V^H, and what makes it a stack again."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.containers import opener
from usdenoise.formats.metadata import interpret, positive_numbers, with_options
from usdenoise.formats.stored import everything

GROUP = "factors"


@dataclass(frozen=True)
class StoredFactors:
    """Factors as they were read.

    Attributes
    ----------
    left, singular_values, right : arrays (n_pixels, r), (r,), (n_frames, r)
        U, S and V. Pixels are numbered in the order z, x, y, the last fastest.
    spatial_shape : tuple of int
        Pixels along the axes z, x, y that are there.
    low, high : int
        The band that was kept.
    name : str
        Of the stack.
    values : mapping
        Axes and scales; see :class:`usdenoise.formats.description.Metadata`.
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
    """Factors under the names that they have in a result file."""
    return {f"{GROUP}/U": left, f"{GROUP}/S": singular_values, f"{GROUP}/V": right}


def factor_attributes(
    spatial_shape: tuple[int, ...], band: tuple[int, int], name: str
) -> dict[str, dict[str, Any]]:
    """What has to be known to make a stack of them: see :class:`StoredFactors`."""
    return {
        GROUP: {"shape": np.array(spatial_shape, np.int32), "band": np.array(band, np.int32), "stack": name}
    }


def read_factors(path: Path) -> StoredFactors:
    """Read the factors of a result file.

    Raises
    ------
    InputError
        If there are none, or they do not fit one another.
    """
    with opener(path)(path, None) as contents:
        found = [contents.find(f"{GROUP}/{letter}") for letter in "USV"]
        if any(item is None for item in found):
            raise InputError(
                f"{path} holds no factors; write them with usdenoise run --keep-factors, and give that file"
            )
        left, singular, right = (everything(item[0]) for item in found if item is not None)
        near: dict[str, tuple[Any, str]] = {}
        for item in found:
            near = {**(item[1] if item is not None else {}), **near}
        values, sources, others = interpret(near)
    # In a .mat file, which has no attributes, they are variables.
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
        raise InputError(f"the factors in {path} do not fit one another; write them anew with --keep-factors")
    metadata = with_options(
        values, sources, others, axes=None, guessed_axes="", frame_rate_hz=None, spacing_mm=None
    )
    stack = about["stack"]
    name = stack.decode("utf-8", errors="replace") if isinstance(stack, bytes) else str(stack)
    low, high = (int(edge) for edge in band)
    return StoredFactors(left, singular, right, shape, low, high, name, metadata.values)
