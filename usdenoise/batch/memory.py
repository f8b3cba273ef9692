"""How much memory there is, and whether one more job fits in it."""

import math
import re
import resource
from collections.abc import Iterable
from pathlib import Path

from usdenoise.memory import pages


def available_bytes(root: Path = Path("/")) -> float:
    """Memory that can still be taken without swapping, by the system and by the control group.

    Infinite where the system does not say (anything but Linux).
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    system = int(found[1]) * 1024 if found else math.inf
    return min(system, _group_bytes(root))


def resident_bytes(pid: int | None) -> int:
    """Memory that a process has taken, 0 where the system does not say."""
    return 0 if pid is None else pages(pid, 1) * resource.getpagesize()


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


def _group_bytes(root: Path) -> float:
    """What the control group (version 2) leaves; file pages that the kernel can drop count as left."""
    found = re.search(r"^0::/?(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    folder = root / "sys/fs/cgroup" / (found[1] if found else "")
    limit, used = _text(folder / "memory.max").strip(), _text(folder / "memory.current").strip()
    if not (limit.isdigit() and used.isdigit()):
        return math.inf
    dropped = re.search(r"^inactive_file (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return int(limit) - int(used) + (int(dropped[1]) if dropped else 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
