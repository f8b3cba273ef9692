"""Linear algebra on tall matrices, by parts of their rows.

The executor, Gram matrices, orthonormal bases, the low-rank model, noise spectra, lags (`lag_sums.py`) and
fits of rows with gaps. All of its modules are imported outside; nothing here is specific to ultrasound.
"""
