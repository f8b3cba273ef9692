"""Decide whether one more scan fits into the memory."""

from threading import Lock

from usdenoise.system import memory


class Admission:
    """The memory that the processes of a batch are expected to take.

    Running processes still have a claim on the part of their expected memory that they have not yet taken.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._expected: dict[int, int] = {}

    def admits(self, pid: int, needed: int) -> bool:
        """Return whether a process may begin, and then count it until it has ended.

        A process that is alone may always try: no other one will free memory for it.

        Parameters
        ----------
        pid : int
            Process id.
        needed : int
            Expected memory in bytes.
        """
        with self._lock:
            taken = {other: memory.resident_bytes(other) for other in self._expected}
            # A process that has ended holds none. Where the system does not say, all are admitted.
            self._expected = {other: self._expected[other] for other, held in taken.items() if held}
            promised = sum(max(0, expected - taken[other]) for other, expected in self._expected.items())
            fits = not self._expected or needed <= memory.available_bytes() - promised
            if fits:
                self._expected[pid] = needed
            return fits
