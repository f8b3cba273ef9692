"""The blood in a filtered stack: power Doppler, velocity, and the blood map without the noise.

`power_doppler.py` has power Doppler and decibels, `flow.py` what follows from the Doppler frequency, `metrics.py` the
metrics.
`noise_map.py` and `blood_background.py` measure noise and remaining tissue, `blood_map.py` subtracts them,
`picture_quality.py` judges the map. Outside, these, the effect of the clutter filter (`clutter_projection.py`) and
`Neighbourhood` are imported.
"""
