"""The remaining time, in words, from the pace of the finished steps."""

import time


class Clock:
    """The time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def left(self, done: int, total: int) -> str:
        """Return the time left after some of the steps; empty before the first and after the last."""
        if not 0 < done < total:
            return ""
        pace = (time.monotonic() - self._began) / done
        return f"about {duration(pace * (total - done))} left"


def duration(seconds: float) -> str:
    """Return a time in the two largest of hours, minutes and seconds that it has, for example "1 h 5 min"."""
    whole = max(round(seconds), 1)
    hours, minutes, remaining = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {remaining} s" if minutes else f"{remaining} s"
