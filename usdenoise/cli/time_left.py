"""A first estimate of the time that a run takes, from the size of its input."""

import os
import time
from pathlib import Path

from usdenoise.cli.console import duration

START_S, BYTES_A_SECOND = 2.5, 100e6
"""Seconds of a run on a small file, and bytes of an uncompressed file that one takes in a second more. Measured on two
processors with complex64 stacks of 5 to 500 MB: 2 s and 6 s. Other machines and methods differ, so it is only a first word."""


class TimeLeft:
    """The expected time left of a run.

    Parameters
    ----------
    path : Path
        The acquisition.
    """

    def __init__(self, path: Path) -> None:
        self._began = time.monotonic()
        size = _size(path)
        self._expected = None if size is None else START_S + size / BYTES_A_SECOND

    @property
    def text(self) -> str:
        """The time left in words; empty where it is not known, or the run takes longer than expected."""
        if self._expected is None:
            return ""
        left = self._expected - (time.monotonic() - self._began)
        return f"about {duration(left)} left" if left > 0 else ""


def _size(path: Path) -> int | None:
    try:
        if path.is_dir():
            return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file()) or None
        return path.stat().st_size
    except OSError:
        return None
