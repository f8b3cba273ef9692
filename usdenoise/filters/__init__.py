"""Clutter filters: low-rank estimates of the Casorati matrix, and the band of components that is kept."""
