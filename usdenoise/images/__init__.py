"""Images and figures of merit that follow from a filtered stack.

`power_doppler.py`, `flow.py` (directional power, velocity) and `metrics.py`; all of their functions are imported
outside.
"""
