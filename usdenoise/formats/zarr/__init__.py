"""Zarr groups."""
