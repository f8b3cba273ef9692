"""The other clutter filters: truncated and randomized SVD, robust PCA, Soft-Impute, high-pass and polynomial regression."""
