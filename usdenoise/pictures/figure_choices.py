"""Colour maps, formats and ranges of figures. The command line reads them, so this module imports nothing heavy."""

COLOR_MAPS = ("inferno", "magma", "viridis", "cividis", "gray", "hot")
"""Colour maps for power, dark to bright, the default first. All but "hot" are perceptually uniform: equal steps in dB look
equally large, also in grey and to colour-blind readers."""

FORMATS = ("png", "pdf", "svg")
"""Formats of a figure."""

DynamicRange = float | tuple[float, float] | None
"""Which levels the colours cover: dB below the maximum; the lowest and the highest level in dB of the power in the square
of the file's unit; or None for a range that suits the image."""
