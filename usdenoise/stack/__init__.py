"""The acquisition and its labels, the rows of its Casorati matrix, and which entries are observed and sampled.

`rows.py` says what can be done with rows, and does it for arrays in memory; `dask_rows.py` does it for Dask arrays.
`labels.py`, `metadata.py`, `voxel_grid.py` and `data_arrays.py` know the names of files and of xarray. Any module is
imported outside.
"""
