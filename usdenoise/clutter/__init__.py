"""Which components are clutter: similarity to tissue, the cutoff, per-pixel cutoffs, the band that is kept.

`clutter_cutoff.py` chooses the low cutoff, by `similarity.py`; `local_cutoffs.py` has per-pixel cutoffs, and
`bad_pixels.py` finds noisy lines and pixels.
"""
