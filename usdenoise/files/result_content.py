"""What a result file holds, in whatever format it is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.files.layout import storage_dtype
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.geometry import Geometry


@dataclass(frozen=True)
class ResultFile:
    """The content of a result file.

    Attributes
    ----------
    stack : Acquisition or Geometry
        The filtered stack, which is stored under its own name, in its own axis order and in the precision of the
        input file. If it is a geometry, only its scales and attributes are stored.
    arrays : sequence of NamedArray
        Other arrays.
    provenance : str
        JSON text on the software, options and input that made the file.
    source : Path or None
        The input. The other variables of a MATLAB file come along into a MATLAB file. None (the default) has none.
    called : str or None
        Name of the stored stack; None (the default) for its own.
    """

    stack: Acquisition | Geometry
    arrays: Sequence[NamedArray]
    provenance: str
    source: Path | None = None
    called: str | None = None

    @property
    def with_stack(self) -> bool:
        """Whether the stack itself is stored."""
        return isinstance(self.stack, Acquisition)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored stack."""
        stored = self.stack.stored_dtype
        return self.stack.dtype if stored is None else storage_dtype(stored)

    @property
    def scales(self) -> dict[str, Any]:
        """Known scales of the stack, by the names from which :func:`usdenoise.load` reads them."""
        stack = self.stack
        names = ("frame_rate_hz", "center_frequency_hz", "sound_speed_m_s")
        scales = {name: getattr(stack, name) for name in names if getattr(stack, name) is not None}
        if all(letter in stack.spacing_mm for letter in stack.spatial_axes):
            scales["spacing_mm"] = [stack.spacing_mm[letter] for letter in stack.spatial_axes]
        return scales

    @property
    def stack_attributes(self) -> dict[str, Any]:
        """Attributes of the stored stack: the attributes of the input, its axes and its scales."""
        kinds = (str, bytes, int, float, np.generic, np.ndarray)
        carried = {name: value for name, value in self.stack.attributes.items() if isinstance(value, kinds)}
        return {"units": "unit of the input", **carried, "axes": self.stack.axes, **self.scales}


def stored_values(array: NamedArray) -> Any:
    """Return the values of an array as files store them: masks as 0 and 1."""
    values = np.asarray(array.values)
    return values.astype(np.uint8) if values.dtype == bool else values


def stored_attributes(array: NamedArray) -> dict[str, Any]:
    """Return the attributes of an array, with its unit by both names that programs look for."""
    unit = array.attributes.get("unit")
    return {**array.attributes, **({} if unit is None else {"units": unit})}


def dimensions_of(array: NamedArray) -> tuple[str, ...]:
    """Return names for the axes of an array that is not an image."""
    last = array.name.rpartition("/")[2]
    return array.dimensions or tuple(f"{last}_{axis}" for axis in range(np.ndim(array.values)))
