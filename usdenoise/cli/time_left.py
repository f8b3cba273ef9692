"""A first estimate of the time that a run takes, from the size of its input."""

import os
import time
from pathlib import Path

from usdenoise.cli.console import duration

START_S, BYTES_A_SECOND = 2.5, 80e6
"""Seconds of a run on a small file, and bytes of an uncompressed file that one takes in a second more. On two busy
processors a complex64 stack of 5 MB took 2 to 4 s, and one of 500 MB 6.5 to 12.5 s. Other machines, methods and compressed
files differ, so it is only a first word."""


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
