"""The time that is left, in words: from the pace so far, or at first from the size of the input."""

import time
from pathlib import Path

START_S, BYTES_A_SECOND = 2.5, 80e6
"""Seconds of a run on a small file, and bytes of an uncompressed file that one takes in a second more. On two busy
processors a complex64 stack of 5 MB took 2 to 4 s, and one of 500 MB 6.5 to 12.5 s. Other machines, methods and compressed
files differ, so it is only a first word."""


class Clock:
    """The time since the start, and what is left of an expected time."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def left_of(self, seconds: float) -> str:
        """Return how much of an expected time is left; empty where it is over."""
        left = seconds - (time.monotonic() - self._began)
        return f"about {duration(left)} left" if left > 0 else ""

    def left_at_this_pace(self, done: int, total: int) -> str:
        """Return the time left where some of the steps are done; empty before the first and after the last."""
        if not 0 < done < total:
            return ""
        return self.left_of((time.monotonic() - self._began) / done * total)


def expected_seconds(path: Path) -> float:
    """Return the time that a run on a file or a folder of files may take in s; 0 where its size is not known."""
    # At the top it would load the libraries of the formats for --help.
    from usdenoise.formats.file_state import size_on_disk

    size = size_on_disk(path)
    return START_S + size / BYTES_A_SECOND if size else 0.0


def duration(seconds: float) -> str:
    """Return a time in the two largest of hours, minutes and seconds that it has, for example "1 h 5 min"."""
    whole = max(round(seconds), 1)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
