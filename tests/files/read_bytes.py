"""Bytes that this process has read, as Linux counts them."""

from pathlib import Path


def read_bytes() -> int:
    """Bytes of all calls of `read` and their like so far."""
    return int(Path("/proc/self/io").read_text().split()[1])
