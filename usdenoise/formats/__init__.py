"""Every byte on disk: readers and writers, one file a format, and what chooses between them."""

from usdenoise.formats.loading import describe, load

__all__ = ["describe", "load"]
