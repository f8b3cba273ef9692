"""Control groups with little memory, where the system lets tests make them."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_PLACES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Yield the folder of a new control group, of version 1 or 2, or skip the test where none can be made."""
    for place, name in _PLACES:
        group = Path(place) / f"usdenoise-test-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
        try:
            if not (group / name).exists():
                continue
            (group / name).write_text(str(limit))
            yield group
            return
        except OSError:
            continue
        finally:
            with suppress(OSError):
                group.rmdir()
    pytest.skip("no control group with a limit on memory can be made here")


def run_in_group(group: Path, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command in a control group."""
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    return subprocess.run(["sh", "-c", enter, "sh", *command], capture_output=True, text=True)
