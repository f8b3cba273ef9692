"""The faults of a soak. Each one strikes a batch that runs, and is undone after a while."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.batch.shared import in_session
from tests.soak.scans import write_container


@dataclass(frozen=True)
class Target:
    """What a fault may strike.

    Attributes
    ----------
    batch : subprocess.Popen
        The batch, which leads a session.
    scans : list of Path
        Its inputs.
    output : Path
        Folder of its results.
    random : random.Random
        Source of all choices.
    """

    batch: "subprocess.Popen[str]"
    scans: list[Path]
    output: Path
    random: random.Random

    @property
    def children(self) -> list[int]:
        """Processes of the batch without the first one."""
        return [pid for pid in in_session(self.batch.pid) if pid != self.batch.pid]

    def wait(self, longest_s: float = 1.5) -> None:
        """Let the fault last for a random time."""
        time.sleep(self.random.uniform(0.1, longest_s))


def kill_a_child(target: Target) -> None:
    """SIGKILL of the process of a scan, or of the server that forks them."""
    if children := target.children:
        with suppress(ProcessLookupError):
            os.kill(target.random.choice(children), signal.SIGKILL)


def kill_the_batch(target: Target) -> None:
    """SIGKILL of the batch alone; the processes of the scans notice it."""
    target.batch.kill()


def kill_all(target: Target) -> None:
    """SIGKILL of the batch and all of its processes at once, as when a machine is switched off."""
    os.killpg(target.batch.pid, signal.SIGKILL)


def interrupt(target: Target) -> None:
    """SIGINT to the whole group, as Ctrl-C in a terminal, or SIGTERM."""
    os.killpg(target.batch.pid, target.random.choice((signal.SIGINT, signal.SIGTERM)))


def fill_the_disk(target: Target) -> None:
    """No room for files beyond a size, as on a disk that is full."""
    with _limited(target, resource.RLIMIT_FSIZE, target.random.choice((0, 1000, 20_000))):
        target.wait()


def replace_an_input(target: Target) -> None:
    """Another stack, half a stack or nothing in the place of an input, and then the input again."""
    scan = target.random.choice(target.scans)
    aside = scan.with_name(f".{scan.name}")
    scan.rename(aside)
    try:
        match target.random.choice(("another", "half", "nothing")):
            case "another":
                write_container(scan, 0)
            case "half" if aside.is_file():
                content = aside.read_bytes()
                scan.write_bytes(content[: len(content) // 2])
        target.wait()
    finally:
        if scan.is_dir():
            shutil.rmtree(scan)
        aside.replace(scan)


def close_a_folder(target: Target) -> None:
    """A folder of inputs or of results that may not be read, or not be entered."""
    folders = [scan.parent for scan in target.scans] + [
        scan.parent for scan in target.output.rglob("*_report.json")
    ]
    folder = target.random.choice(folders)
    before = folder.stat().st_mode
    folder.chmod(target.random.choice((0o000, 0o444)))
    try:
        target.wait()
    finally:
        folder.chmod(before)


def limit_the_memory(target: Target) -> None:
    """Room for little more than what each process has."""
    with _limited(
        target, resource.RLIMIT_AS, target.random.choice((1 << 20, 16 << 20, 128 << 20)), more=True
    ):
        target.wait()


FAULTS: dict[str, Callable[[Target], None]] = {
    "worker killed": kill_a_child,
    "batch killed": kill_the_batch,
    "all killed": kill_all,
    "interrupted": interrupt,
    "disk full": fill_the_disk,
    "input replaced": replace_an_input,
    "folder closed": close_a_folder,
    "memory limited": limit_the_memory,
}


@contextmanager
def _limited(target: Target, what: int, value: int, more: bool = False) -> Iterator[None]:
    """Limit all processes of the batch; with `more`, to that many bytes beyond the addresses that each one has."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    for pid in in_session(target.batch.pid):
        with suppress(OSError, ValueError):
            taken = (
                int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize() if more else 0
            )
            resource.prlimit(pid, what, (taken + value, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        # Those that were forked meanwhile have inherited the limit.
        for pid in in_session(target.batch.pid):
            with suppress(OSError, ValueError):
                resource.prlimit(pid, what, unlimited)
