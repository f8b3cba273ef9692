"""Mutated files of every reader: whatever is wrong with a file, it is loaded or refused, within limits of memory and time.

The suite reads a few dozen mutations for every reader. More of them on demand:

    FUZZ_CASES=5000 FUZZ_SEED=7 pytest tests/files/test_mutations.py -m slow -k "Zarr"
"""

import json
import multiprocessing
import resource
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numcodecs
import numpy as np
import zarr

from tests.files.layouts import IQ, LAYOUTS, Write, in_chunks, writer

Files = dict[str, bytes]
"""Content of each file by its path in a folder."""

MEMORY_BYTES, SECONDS = 1 << 30, 60.0
"""Memory and time that the process can take for a small file."""


@writer
def _zarr(folder: Path, version: int, codec: Any, shards: bool = False) -> Path:
    zarr.create_array(
        folder / "x.zarr", data=IQ, chunks=(4, 5, 4), shards=(8, 5, 4) if shards else None,
        compressors=[codec], zarr_format=version,
    )  # fmt: skip
    return folder / "x.zarr"


def _layouts(*names: str) -> tuple[Write, ...]:
    return tuple(LAYOUTS[name].write for name in names)


READERS: Mapping[str, tuple[Write, ...]] = {
    "HDF5": (
        *_layouts("h5py", "h5py, int16 members", "(t, z, x, 2)", "rIQ, iIQ, normValue"),
        in_chunks(compression="gzip", shuffle=True, fletcher32=True),
        in_chunks(compression="lzf"),
    ),
    "MATLAB 7.3": _layouts("PALA v7.3", "IQData v7.3, cell", "IData, QData v7.3, cells"),
    "MATLAB 5": _layouts(
        "PALA v5 with PData", "IQData v5 compressed", "IQData v5 compressed, cell", "IData, QData v5"
    ),
    "UFF": _layouts("UFF", "UFF, native complex"),
    "zea": _layouts("zea", "zea, volumes", "zea, older"),
    "NumPy npy": _layouts("npy", "npy, Fortran order"),
    "NumPy npz": _layouts("npz", "npz compressed"),
    "Zarr 3": (
        *_layouts("ConfUSIus", "ConfUSIus, volumes"),
        _zarr(3, zarr.codecs.GzipCodec(level=1)),
        _zarr(3, zarr.codecs.BloscCodec(), shards=True),
    ),
    "Zarr 2": (*_layouts("ConfUSIus, Zarr 2"), _zarr(2, numcodecs.Zlib(1)), _zarr(2, numcodecs.Blosc())),
}
"""Name of each reader -> functions that write its sound files."""


@cache
def originals(reader: str) -> tuple[tuple[Files, str], ...]:
    """Return the files of each original of a reader, and the path by which it is loaded."""
    found = []
    for write in READERS[reader]:
        with tempfile.TemporaryDirectory() as work:
            path = write(Path(work))
            files = sorted(file for file in Path(work).rglob("*") if file.is_file())
            contents = {str(file.relative_to(work)): file.read_bytes() for file in files}
            found.append((contents, str(path.relative_to(work))))
    return tuple(found)


# ---------------------------------------------------------------- mutations

_SHAPE_NUMBERS = {int(n) for n in (*IQ.shape, IQ.size, IQ.nbytes, np.prod(IQ.shape[1:]))}
"""Numbers that specify the shape of the stack in headers."""

_EXTREMES = (
    *(0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 20, (1 << 31) - 1, (1 << 32) - 1),
    *(1 << 40, (1 << 63) - 1, (1 << 64) - 1),
)

_JSON_VALUES: tuple[Any, ...] = (
    None, -1, 0, 3, 1 << 31, 1 << 70, 0.5, float("nan"), "", "x" * 5000, "\0", "f4", "|O", [], [-1, -1, -1],
    [1 << 40] * 3, [1] * 40, {}, {"name": "bytes"}, {"id": "zlib"}, [[[[[[]]]]]],
)  # fmt: skip


def _place(length: int, rng: np.random.Generator) -> int:
    # Headers are at the front.
    return int(length * rng.random() * (0.3 if rng.random() < 0.5 else 1.0))


def other_bytes(raw: bytearray, rng: np.random.Generator) -> None:
    """Change one to six bytes."""
    for _ in range(int(rng.integers(1, 7))):
        raw[_place(len(raw), rng)] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))


def truncated(raw: bytearray, rng: np.random.Generator) -> None:
    """Remove the end."""
    del raw[int(len(raw) * rng.random()) :]


def swapped(raw: bytearray, rng: np.random.Generator) -> None:
    """Exchange two pieces."""
    size = int(rng.choice([4, 8, 16, 64, 256, 1024]))
    if len(raw) >= 2 * size:
        a, b = (int(place) * size for place in rng.integers(0, len(raw) // size, 2))
        raw[a : a + size], raw[b : b + size] = raw[b : b + size], raw[a : a + size]


def extreme_number(raw: bytearray, rng: np.random.Generator) -> None:
    """Make a number of a header extreme, most often a number of the shape."""
    width, order = int(rng.choice([2, 4, 8])), str(rng.choice(["<", ">"]))
    form = order + {2: "H", 4: "I", 8: "Q"}[width]
    places = range(max(0, min(len(raw), 8192) - width))
    of_shape = [at for at in places if struct.unpack_from(form, raw, at)[0] in _SHAPE_NUMBERS]
    if places:
        at = int(rng.choice(of_shape if of_shape and rng.random() < 0.7 else places))
        value = _EXTREMES[int(rng.integers(len(_EXTREMES)))]
        struct.pack_into(form, raw, at, value & ((1 << 8 * width) - 1))


def other_text(raw: bytearray, rng: np.random.Generator) -> None:
    """Change a value of a JSON file, or digits near the front of another file."""
    try:
        content = json.loads(raw)
        key = str(rng.choice(sorted(content)))
    except (ValueError, TypeError):
        digits = [at for at, byte in enumerate(raw[:2048]) if 48 <= byte < 58]
        for at in rng.choice(digits, min(len(digits), 4), replace=False) if digits else ():
            raw[int(at)] = int(rng.choice(list(b"0123456789-.eL, ")))
        return
    owner = content
    while isinstance(owner[key], dict) and owner[key] and rng.random() < 0.7:
        owner = owner[key]
        key = str(rng.choice(sorted(owner)))
    owner[key] = _JSON_VALUES[int(rng.integers(len(_JSON_VALUES)))]
    raw[:] = json.dumps(content).encode()


MUTATIONS: tuple[Callable[[bytearray, np.random.Generator], None], ...] = (
    other_bytes, extreme_number, other_text, truncated, swapped,
)  # fmt: skip


def case(reader: str, seed: int, number: int, folder: Path) -> tuple[Path, str]:
    """Write a mutated acquisition into an empty folder; return the path by which it is loaded, and the mutation."""
    rng = np.random.default_rng([seed, zlib.crc32(reader.encode()), number])
    choices = originals(reader)
    files, name = choices[number % len(choices)]
    changed = dict(files)
    victim = str(rng.choice(sorted(files)))
    if len(files) > 1 and rng.random() < 0.05:
        del changed[victim]
        mutation = f"{victim} removed"
    else:
        raw, mutate = bytearray(files[victim]), MUTATIONS[int(rng.integers(len(MUTATIONS)))]
        if raw:
            mutate(raw, rng)
        changed[victim], mutation = bytes(raw), f"{mutate.__name__} in {victim}"
    for place, content in changed.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    return folder / name, mutation


# ---------------------------------------------------------------- reading in another process


class ChildReader:
    """A process that loads one file after the other; after a crash or a timeout it is replaced."""

    def __init__(self) -> None:
        self._process: Any = None

    def outcome(self, path: Path) -> str:
        """Return "loaded", "refused", or a description of another outcome."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, its_end = context.Pipe()
            self._process = context.Process(target=serve, args=(its_end,), daemon=True)
            self._process.start()
            its_end.close()
        self._connection.send(path)
        if not self._connection.poll(SECONDS):
            self.close()
            return f"did not return within {SECONDS:g} s"
        try:
            return str(self._connection.recv())
        except EOFError:
            self.close()
            return "the process ended"

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


def serve(connection: Connection) -> None:
    """Load the files whose paths arrive over a connection, and send the outcome of each."""
    for library in ("h5py", "scipy.io", "zarr", "usdenoise.files.recordings"):
        import_module(library)
    taken = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (taken + MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        path = connection.recv()
        try:
            outcome = _load(path)
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        connection.send(outcome)


def _load(path: Path) -> str:
    import usdenoise
    from usdenoise.files import describe

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


def read_cases(child: ChildReader, reader: str, seed: int, n_cases: int) -> tuple[list[str], int]:
    """Read mutated files of a reader; return the failures, and the number of files that were refused."""
    failures, n_refused = [], 0
    for number in range(n_cases):
        with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
            path, mutation = case(reader, seed, number, Path(work))
            outcome = child.outcome(path)
        n_refused += outcome == "refused"
        if outcome not in ("loaded", "refused"):
            failures.append(f"{reader}, seed {seed}, case {number} ({mutation}): {outcome}")
    return failures, n_refused
