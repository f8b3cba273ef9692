"""Zarr groups, such as ConfUSIus and xarray write them."""
