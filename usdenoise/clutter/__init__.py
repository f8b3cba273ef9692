"""Which components are clutter: similarity to tissue, the cutoff, cutoffs by place, the band that is kept."""
