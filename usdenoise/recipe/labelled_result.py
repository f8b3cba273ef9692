"""Results as labelled arrays of xarray."""

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.images.flow import axial_velocity
from usdenoise.images.power_doppler import POWER_IMAGES
from usdenoise.recipe.result import DenoiseResult
from usdenoise.stack.bit_mask import unpack
from usdenoise.stack.casorati import from_casorati
from usdenoise.stack.data_arrays import import_xarray, to_data_array
from usdenoise.system.provenance import record, to_json

LONG_NAMES = {
    "power_doppler": "Power Doppler",
    "blood_power": "Blood power",
    "noise_power": "Noise power",
    "axial_velocity": "Axial velocity",
    "unobserved": "Unobserved entries",
}
"""Name of an image -> its name in words, as xarray shows it beside a plot."""


@dataclass(frozen=True, repr=False)
class LabelledResult(DenoiseResult):
    """The result for an xarray.DataArray: its images are DataArrays, with the labels of the input.

    Attributes
    ----------
    power_doppler, blood_power, noise_power : xarray.DataArray
        As in :class:`usdenoise.DenoiseResult`.
    """

    power_doppler: Any
    blood_power: Any
    noise_power: Any

    @cached_property
    def stack(self) -> Any:
        """The filtered stack as an xarray.DataArray."""
        return _stack(self)

    @cached_property
    def axial_velocity(self) -> Any:
        """The axial velocity as an xarray.DataArray; see :func:`usdenoise.axial_velocity`."""
        return _velocity(self)

    @cached_property
    def unobserved(self) -> Any:
        """Which entries were NaN or infinite, as an xarray.DataArray of bool."""
        return _unobserved(self)


def label(result: DenoiseResult) -> LabelledResult:
    """Return the result for a DataArray with its images as DataArrays."""
    values = {field.name: getattr(result, field.name) for field in fields(DenoiseResult)}
    return LabelledResult(**{**values, **{name: _power(result, name) for name in POWER_IMAGES}})


def to_dataset(result: DenoiseResult) -> Any:
    """Return a result as an xarray.Dataset.

    It has the filtered stack under its own name, `power_doppler`, `blood_power` and `noise_power`, `axial_velocity` if
    the stack is complex, and `unobserved` if entries were. Its attributes are the provenance and the verdict.
    """
    stack = result.acquisition
    arrays = {name: _power(result, name) for name in POWER_IMAGES}
    if np.iscomplexobj(stack.iq):
        arrays["axial_velocity"] = _velocity(result)
    if result.observed is not None:
        arrays["unobserved"] = _unobserved(result)
    attributes = {
        "low_cutoff": result.options.low_cutoff,
        "rank": result.options.rank,
        "cutoff": result.cutoff_sentence,
        "verdict": result.verdict,
        "usdenoise_provenance": _provenance(result),
    }
    return import_xarray().Dataset({stack.name: _stack(result), **arrays}, attrs=attributes)


def _power(result: DenoiseResult, name: str) -> Any:
    return _image(result, name, np.asarray(getattr(result, name)), POWER_IMAGES[name])


def _velocity(result: DenoiseResult) -> Any:
    velocity = axial_velocity(result.acquisition)
    return _image(
        result, "axial_velocity", velocity.values, {"unit": velocity.unit, "formula": velocity.formula}
    )


def _image(result: DenoiseResult, name: str, values: NDArray[Any], about: dict[str, str]) -> Any:
    stack = result.acquisition
    attributes = {"units": about["unit"], "long_name": LONG_NAMES[name], "formula": about["formula"]}
    attributes["usdenoise_provenance"] = _provenance(result)
    return to_data_array(values, stack, stack.spatial_axes, name, attributes)


def _stack(result: DenoiseResult) -> Any:
    made = result.acquisition.to_xarray()
    made.attrs["usdenoise_provenance"] = _provenance(result)
    return made


def _unobserved(result: DenoiseResult) -> Any:
    stack = result.acquisition
    if result.observed is None:
        missing = np.zeros(stack.iq.shape, bool)
    else:
        missing = from_casorati(~unpack(result.observed, stack.n_frames), stack)
    about = {"long_name": LONG_NAMES["unobserved"]}
    return to_data_array(missing, stack, stack.axes, "unobserved", about)


def _provenance(result: DenoiseResult) -> str:
    stack = result.acquisition
    source = {"dataset": stack.name, "shape": list(stack.iq.shape), "axes": stack.axes}
    return to_json(record(None, asdict(result.options), source))
