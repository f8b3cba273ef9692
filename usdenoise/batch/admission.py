"""How much memory there is, and whether one more job fits in it."""

from collections.abc import Iterable


def admits(needed: int, running: Iterable[tuple[int, int]], available: float) -> bool:
    """Whether one more job fits beside those that run.

    Parameters
    ----------
    needed : int
        What it is expected to want, in bytes.
    running : iterable of pairs
        For each job that runs, what it was expected to want and what it has taken so far, in bytes.
    available : float
        Bytes left by the system.
    """
    promised = sum(max(0, expected - taken) for expected, taken in running)
    return needed <= available - promised
