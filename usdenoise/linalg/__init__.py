"""Linear algebra on tall matrices, by parts of their rows.

The executor, Gram matrices, orthonormal bases, the low-rank model, noise spectra, lags (`lag_sums.py`) and
fits of rows with gaps. Any module is imported outside; nothing here is specific to ultrasound.
"""
