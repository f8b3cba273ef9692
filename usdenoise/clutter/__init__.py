"""Which components are clutter: similarity to tissue, the cutoff, cutoffs by place, the band that is kept.

`clutter_cutoff.py` chooses the low cutoff, by `similarity.py` and `blood_split.py`; `blood_by_place.py` chooses
cutoffs by place. Outside, `choose_low_cutoff`, `filter_by_place`, `map_blood`, the band and the reasons of a cutoff
are imported.
"""
