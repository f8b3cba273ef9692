"""The blood map: power of the blood and of the noise in a filtered stack.

`noise_map.py` and `blood_background.py` measure what is there without blood, `blood_map.py` takes it off,
`picture_quality.py` judges the map. Outside, these, the effect of the clutter filter (`clutter_projection.py`) and
`Neighbourhood` are imported.
"""
