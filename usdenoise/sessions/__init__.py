"""Many blocks of one scan as one series: their common clutter, the filter of a block, weights, and bad blocks.

Arrays only; files are for `jobs`. Others import :mod:`usdenoise.sessions.session_clutter`,
:mod:`usdenoise.sessions.block_filter` and :mod:`usdenoise.sessions.session_series`.
"""
