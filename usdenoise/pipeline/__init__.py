"""Recordings, the loop over their chunks, and the filter: estimate, filter, series, and the library call with its result.

`denoise.py` is the driver of a scan: `inspection.py`, `estimate_clutter.py`, `fit_result.py`, `filter_chunk.py` and
`series.py` are its steps. A session calls the same steps.
"""
