"""Which components are clutter: similarity to tissue, the cutoff, per-pixel cutoffs, the band that is kept.

`clutter_cutoff.py` chooses the low cutoff, by `similarity.py` and `blood_split.py`; `local_cutoffs.py` has per-pixel
cutoffs.
"""
