"""Decide whether one more job fits into the memory."""

from collections.abc import Iterable


def admits(needed: int, running: Iterable[tuple[int, int]], available: float) -> bool:
    """Return whether one more job fits into the memory that the running jobs leave.

    Running jobs still have a claim on the part of their expected memory that they have not yet taken.

    Parameters
    ----------
    needed : int
        Expected memory of the new job, in bytes.
    running : iterable of (int, int)
        Expected memory of each running job and the memory that it holds now, both in bytes.
    available : float
        Memory that the system can still give, in bytes.
    """
    promised = sum(max(0, expected - taken) for expected, taken in running)
    return needed <= available - promised
