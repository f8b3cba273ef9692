"""The blood in a filtered stack: power Doppler, velocity, and the blood map without the noise.

`doppler.py` has power Doppler, decibels and what follows from the Doppler frequency, `metrics.py` the metrics.
`noise.py` has the effect of the clutter filter, and measures noise and remaining tissue, `blood_map.py` subtracts them,
`picture_quality.py` judges the map. Outside the package, these and `Neighbourhood` are imported.
"""
