"""Importing this module gives every xarray.DataArray the accessor `usdenoise`.

>>> import numpy as np, xarray
>>> import usdenoise.xarray
>>> data = xarray.DataArray(np.ones((4, 3, 2)), dims=("time", "depth", "lateral"))
>>> data.usdenoise.info()["axes"]
('tzx', 'file: dimensions time, depth, lateral')
"""

from usdenoise.pipeline.xarray_accessor import Accessor, register

__all__ = ["Accessor"]

register()
