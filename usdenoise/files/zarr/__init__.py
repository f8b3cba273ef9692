"""Zarr groups, such as those of ConfUSIus and xarray."""
