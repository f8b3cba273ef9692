"""Which components are clutter: similarity to tissue, the cutoff, per-pixel cutoffs, the band that is kept.

`clutter_cutoff.py` chooses the low cutoff, by `similarity.py` and `blood_split.py`; `choose_local_cutoffs.py` chooses
per-pixel cutoffs. Imported from outside: `choose_low_cutoff`, `choose_local_cutoffs`, `map_blood`, the band and the
reasons of a cutoff.
"""
