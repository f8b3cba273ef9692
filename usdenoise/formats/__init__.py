"""Files: readers and writers, one module for each format, and the choice between them."""

from usdenoise.formats.loading import describe, load

__all__ = ["describe", "load"]
