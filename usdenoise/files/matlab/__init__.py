"""MATLAB files of all versions: up to 7, and 7.3, which is HDF5."""
