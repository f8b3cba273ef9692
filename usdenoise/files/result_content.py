"""What a result file holds, in whatever format it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.files.layout import storage_dtype
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import Geometry

_DIMENSIONS = {
    "singular_values": ("component",),
    "factors/U": ("pixel", "component"),
    "factors/S": ("component",),
    "factors/V": ("frame", "component"),
}
"""Names of the axes of arrays that are not images."""

_UNITS = {"unobserved": "1 where the input was NaN or infinite", "singular_values": "the stack's unit"}
"""Units of arrays that come without one."""


@dataclass(frozen=True)
class ResultFile:
    """The content of a result file.

    Attributes
    ----------
    stack : Acquisition or Geometry
        The filtered stack, which is stored under its own name, in its own axis order and in the precision of the
        input file. If it is a geometry, only its scales and attributes are stored.
    arrays : mapping from str to array
        Other arrays by name; a slash in a name makes a group (a struct in MATLAB).
    provenance : str
        JSON text on the software, options and input that made the file.
    attributes : mapping from str to mapping
        Attributes of each array, by the name of the array; none by default.
    axes : mapping from str to str
        Axis letters of each array that is an image or a sequence, such as "zx" or "tzx", by its name. For a sequence t
        numbers the windows, and the array "time" has their times.
    source : Path or None
        The input. The other variables of a MATLAB file come along into a MATLAB file. None (the default) has none.
    called : str or None
        Name of the stored stack; None (the default) for its own.
    """

    stack: Acquisition | Geometry
    arrays: Mapping[str, Any]
    provenance: str
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)
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

    def dimensions(self, name: str) -> tuple[str, ...]:
        """Return names for the axes of an array that is not an image."""
        known = _DIMENSIONS.get(name)
        return known or tuple(
            f"{name.rpartition('/')[2]}_{axis}" for axis in range(np.ndim(self.arrays[name]))
        )

    def described(self, name: str) -> dict[str, Any]:
        """Return the attributes of an array, its unit among them."""
        attributes = dict(self.attributes.get(name, {}))
        unit = attributes.get("unit", _UNITS.get(name))
        return attributes if unit is None else {**attributes, "unit": unit, "units": unit}

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
