"""The filter of one stack: blocks of frames in, filtered frames, maps, and a description of the estimate out.

`denoise.py` is the driver, `inspection.py`, `clutter_estimate.py`, `block_filter.py`, `combination.py` and
`stack_filter.py` are its steps, and `result.py` is its result. Any module is imported outside: `sessions` calls the same
steps.
"""
