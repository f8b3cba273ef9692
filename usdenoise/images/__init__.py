"""Images that follow from a filtered stack, and figures of merit: arrays in, arrays and numbers out.

`power_doppler` has power Doppler and decibels, `flow` what follows from the Doppler frequency, `metrics` the figures of
merit. From outside, the functions are imported from these files.
"""
