"""Which components are clutter: similarity to tissue, the cutoff, the band that is kept; and bad pixels.

`clutter_cutoff.py` chooses the low cutoff, by `similarity.py`; `bad_pixels.py` finds noisy and saturated pixels.
"""
