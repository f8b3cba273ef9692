"""The accessor `usdenoise` of xarray.DataArray, which importing this module registers."""

from typing import Any

import xarray

from usdenoise.blood.doppler import POWER_FORMULA, POWER_UNIT, power_doppler
from usdenoise.pipeline.denoise import denoise
from usdenoise.stack.data_arrays import to_data_array
from usdenoise.stack.given_stack import describe_data_array, from_data_array


@xarray.register_dataarray_accessor("usdenoise")
class Accessor:
    """The methods of usdenoise on an xarray.DataArray, under its attribute `usdenoise`.

    Parameters
    ----------
    data : xarray.DataArray
        Stack whose dimensions and coordinates identify its axes.

    Examples
    --------
    >>> import numpy as np, xarray
    >>> import usdenoise.xarray
    >>> rng = np.random.default_rng(0)
    >>> data = xarray.DataArray(rng.standard_normal((60, 20, 10)), dims=("time", "z", "x"))
    >>> result = data.usdenoise.denoise(low_cutoff=1)
    >>> result["power_doppler"].dims
    ('z', 'x')
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def denoise(self, *, axes: str | None = None, **options: Any) -> Any:
        """Filter the stack, and return it with its images as an xarray.Dataset.

        Parameters
        ----------
        axes : str, optional
            One letter for each axis, if the dimensions do not identify them.
        **options
            As for :func:`usdenoise.denoise`.

        Returns
        -------
        xarray.Dataset
            The filtered stack, `power_doppler`, `blood_power` and `noise_power`, `axial_velocity` if the stack is
            complex, and `unobserved` if entries were NaN or infinite.
        """
        return denoise(self._data, axes=axes, **options).to_xarray()

    def power_doppler(self, *, axes: str | None = None) -> Any:
        """Return the mean power over the frames as an xarray.DataArray; see :func:`usdenoise.power_doppler`.

        Parameters
        ----------
        axes : str, optional
            One letter for each axis, if the dimensions do not identify them.
        """
        stack = from_data_array(self._data, axes)
        attributes = {"units": POWER_UNIT, "long_name": "Power Doppler", "formula": POWER_FORMULA}
        return to_data_array(power_doppler(stack), stack, stack.spatial_axes, "power_doppler", attributes)

    def info(self, *, axes: str | None = None) -> dict[str, tuple[Any, str]]:
        """Return the axes and scales that the labels give, each with its source.

        Parameters
        ----------
        axes : str, optional
            One letter for each axis, if the dimensions do not identify them.
        """
        metadata = describe_data_array(self._data, axes)
        return {name: (value, metadata.sources[name]) for name, value in metadata.values.items()}
