"""Stacks in chunks of Dask: the passes of the estimate and the filter, chunk by chunk."""
