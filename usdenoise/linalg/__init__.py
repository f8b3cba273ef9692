"""Linear algebra on tall matrices, by row blocks: Gram matrices, orthonormal bases, the low-rank model, the executor."""
