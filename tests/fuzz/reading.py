"""Reading of mutated files in a process of its own, with limits, so that a crash or a hang is an outcome like any."""

import multiprocessing
import os
import resource
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np

from tests.fuzz.mutations import mutated
from tests.fuzz.originals import originals

MEMORY_BYTES = 1 << 30
"""Memory that the process can take for a small file."""

SECONDS, MOST_SECONDS = 10.0, 60.0
"""Processor time that a small file may take; and time by the clock, after which a process is not even waited for."""

_ENOUGH_CASES = 2000
"""Cases of one process. A new one starts clean."""


@dataclass(frozen=True)
class Outcome:
    """What came of a mutated file, and how to see it again."""

    reader: str
    seed: int
    number: int
    mutation: str
    outcome: str

    @property
    def is_sound(self) -> bool:
        """Whether the file was loaded, or refused with a sentence, within the limits."""
        return self.outcome in ("loaded", "refused")

    def __str__(self) -> str:
        return f"{self.reader}, seed {self.seed}, case {self.number} ({self.mutation}): {self.outcome}"


class ChildReader:
    """A process that loads one file after the other; it is replaced when it has ended."""

    def __init__(self) -> None:
        self._process: Any = None
        self._n_cases = 0

    def outcome(self, path: Path) -> str:
        """What loading gave: loaded, refused, or what it should not have given."""
        if self._process is None or self._n_cases >= _ENOUGH_CASES:
            self.close()
            context = multiprocessing.get_context("spawn")
            self._connection, its_end = context.Pipe()
            self._process = context.Process(target=serve, args=(its_end,), daemon=True)
            self._process.start()
            its_end.close()
            self._n_cases = 0
            assert self._answer() == "ready"
        self._n_cases += 1
        self._connection.send(path)
        return self._answer()

    def _answer(self) -> str:
        began, before = time.monotonic(), _processor_seconds(self._process.pid)
        while not self._connection.poll(0.5):
            # The machine may be busy with something else: what counts is the time that the process had.
            used = _processor_seconds(self._process.pid) - before
            if used > SECONDS or time.monotonic() - began > MOST_SECONDS:
                self.close()
                return f"did not return within {SECONDS:g} s"
        try:
            return str(self._connection.recv())
        except EOFError:
            self._process.join()
            status = self._process.exitcode
            self.close()
            return f"the process ended with {status}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def case(reader: str, seed: int, number: int, folder: Path, mutation: str | None = None) -> tuple[Path, str]:
    """Write a mutated acquisition into a folder; return the path by which it is loaded, and what was done to it.

    Parameters
    ----------
    reader : str
        A row of READERS.
    seed, number : int
        The same numbers give the same files.
    folder : Path
        Empty folder.
    mutation : str, optional
        A row of MUTATIONS; by default one or two are drawn.
    """
    rng = np.random.default_rng([seed, zlib.crc32(reader.encode()), number])
    choices = originals(reader)
    files, name = choices[number % len(choices)]
    changed, what = mutated(files, rng, mutation)
    for place, content in changed.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    return folder / name, what


def outcomes(
    child: ChildReader, reader: str, seed: int, numbers: range, mutation: str | None = None
) -> Iterator[Outcome]:
    """Read mutated files of a reader, and yield what came of each.

    Parameters
    ----------
    child : ChildReader
        Reads them.
    reader, seed, mutation
        As for :func:`case`.
    numbers : range
        Numbers of the cases.
    """
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
            path, what = case(reader, seed, number, Path(work), mutation)
            outcome = child.outcome(path)
        yield Outcome(reader, seed, number, what, outcome)


# ---------------------------------------------------------------- in the child


def serve(connection: Connection) -> None:
    """Load the files whose paths come over a connection, and answer with the outcome of each."""
    for library in ("h5py", "scipy.io", "zarr", "usdenoise.formats.loading"):
        import_module(library)
    limit = _status("VmData") + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send("ready")
    while True:
        path = connection.recv()
        try:
            outcome = _load(path)
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        connection.send(outcome)


def _load(path: Path) -> str:
    import usdenoise
    from usdenoise.formats import describe

    try:
        loaded = usdenoise.load(path)
        described = describe(path).chosen
    except usdenoise.UsdenoiseError as error:
        return "refused" if str(error).strip() else "an empty message"
    except MemoryError:
        # The command line reports a lack of memory as a single message.
        return "refused"
    if described is None or loaded.iq.shape != tuple(described.shape):
        return f"loaded with shape {loaded.iq.shape}, described as {described}"
    return "loaded"


def _status(name: str) -> int:
    """Return a field of the status of this process in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) << 10
