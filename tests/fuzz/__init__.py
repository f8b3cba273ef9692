"""Mutated files: whatever is wrong with one, it is loaded or refused, within limits of memory and time.

The suite runs a few hundred mutations of every reader. More of them, or other ones, on demand:

    python -m tests.fuzz
    python -m tests.fuzz --cases 5000 --seed 7
    python -m tests.fuzz --reader MATLAB --reader Zarr
"""
