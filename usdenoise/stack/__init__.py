"""The acquisition and its labels, its Casorati matrix, a sample of its pixels, and which entries are sampled.

`labels.py`, `metadata.py` and `data_arrays.py` have the names in files and in xarray. Any module is
imported outside.
"""
