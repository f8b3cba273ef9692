"""What is done to the files of an acquisition: each mutation takes them and a generator, and changes them."""

import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.fuzz.originals import SHAPE_NUMBERS, Files

EXTREMES = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40,
            (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
"""Values at which sizes, offsets and counts go wrong."""

_JSON_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 1 << 20, 1 << 31, 1 << 63, 1 << 70, 0.5, 1e308, float("nan"), "", "x" * 5000, "\0", "f4",
    "<c8", "|O", "é", [], [0], [-1, -1, -1], [1 << 40] * 3, [12, 5, 4], [1] * 40, {}, {"name": "bytes"}, {"id": "zlib"},
    [{"name": "gzip", "configuration": {"level": 1}}], [[[[[[]]]]]],
)  # fmt: skip

_JSON_NAMES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

Random = np.random.Generator


def _victim(files: Files, rng: Random) -> str:
    return str(rng.choice(sorted(files)))


def _place(length: int, rng: Random) -> int:
    # Headers are at the front.
    return int(length * (rng.random() * (0.3 if rng.random() < 0.5 else 1.0)))


def flipped(files: Files, rng: Random) -> None:
    """Other bytes, or other bits, in one to six places."""
    name = _victim(files, rng)
    raw = bytearray(files[name])
    for _ in range(int(rng.integers(1, 7)) if raw else 0):
        place = _place(len(raw), rng)
        if rng.random() < 0.5:
            raw[place] ^= 1 << int(rng.integers(8))
        else:
            raw[place] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
    files[name] = bytes(raw)


def truncated(files: Files, rng: Random) -> None:
    """The end is missing."""
    name = _victim(files, rng)
    files[name] = files[name][: int(len(files[name]) * rng.random())]


def extended(files: Files, rng: Random) -> None:
    """Something follows the end."""
    name = _victim(files, rng)
    more = int(rng.integers(1, 5000))
    files[name] += [bytes(more), rng.bytes(more), files[name]][int(rng.integers(3))]


def swapped(files: Files, rng: Random) -> None:
    """Two parts of a file, or two files, have changed places."""
    if len(files) > 1 and rng.random() < 0.5:
        first, second = rng.choice(sorted(files), 2, replace=False)
        files[first], files[second] = files[second], files[first]
        return
    name = _victim(files, rng)
    raw = bytearray(files[name])
    size = int(rng.choice([4, 8, 16, 64, 256, 1024]))
    if len(raw) >= 2 * size:
        a, b = sorted(int(place) * size for place in rng.integers(0, len(raw) // size, 2))
        raw[a : a + size], raw[b : b + size] = raw[b : b + size], raw[a : a + size]
    files[name] = bytes(raw)


def extreme(files: Files, rng: Random) -> None:
    """One to three numbers of a header, most of them numbers of the shape, have become extreme."""
    name = _victim(files, rng)
    raw = bytearray(files[name])
    for _ in range(int(rng.integers(1, 4))):
        width, order = int(rng.choice([2, 4, 8])), str(rng.choice(["<", ">"]))
        form = order + {2: "H", 4: "I", 8: "Q"}[width]
        front = min(len(raw), 8192) - width
        if front < 0:
            return
        spots = [at for at in range(0, front + 1) if struct.unpack_from(form, raw, at)[0] in SHAPE_NUMBERS]
        at = int(rng.choice(spots)) if spots and rng.random() < 0.7 else int(rng.integers(0, front + 1))
        value = int(EXTREMES[int(rng.integers(len(EXTREMES)))]) & ((1 << 8 * width) - 1)
        struct.pack_into(form, raw, at, value)
    files[name] = bytes(raw)


def other_digits(files: Files, rng: Random) -> None:
    """A number that is written as text near the front of a file has other digits."""
    name = _victim(files, rng)
    raw = bytearray(files[name])
    digits = [at for at, byte in enumerate(raw[:2048]) if 48 <= byte < 58]
    for at in rng.choice(digits, min(len(digits), 4), replace=False) if digits else ():
        raw[int(at)] = int(rng.choice(list(b"0123456789-.eL, ")))
    files[name] = bytes(raw)


def removed(files: Files, rng: Random) -> None:
    """A member is missing: a file of a folder, or an array of an archive."""
    name = _victim(files, rng)
    if name.endswith(".npz") and files[name]:
        _edit_archive(files, name, rng)
    elif len(files) > 1:
        del files[name]
    else:
        files[name] = b""


def edited(files: Files, rng: Random) -> None:
    """A value of a JSON file is another, or missing; elsewhere the text of a header."""
    names = [name for name in sorted(files) if name.endswith(_JSON_NAMES)]
    if not names:
        other_digits(files, rng)
        return
    name = str(rng.choice(names))
    try:
        content = json.loads(files[name])
    except ValueError:
        # An earlier mutation has left no JSON.
        return
    owners: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting:
        owner = waiting.pop()
        inner = owner.items() if isinstance(owner, dict) else enumerate(owner)
        for key, value in inner:
            owners.append((owner, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    for place in rng.permutation(len(owners))[: int(rng.integers(1, 3))]:
        owner, key = owners[int(place)]
        if rng.random() < 0.2 and isinstance(owner, dict):
            owner.pop(key, None)
        else:
            owner[key] = _JSON_VALUES[int(rng.integers(len(_JSON_VALUES)))]
    files[name] = json.dumps(content).encode()


def _edit_archive(files: Files, name: str, rng: Random) -> None:
    """Leave out a member of an archive, or store it twice or under another name."""
    made = io.BytesIO()
    if not zipfile.is_zipfile(io.BytesIO(files[name])):
        return
    # Another mutation may have damaged it; then it stays as it is.
    with (
        suppress(zipfile.BadZipFile),
        zipfile.ZipFile(io.BytesIO(files[name])) as archive,
        zipfile.ZipFile(made, "w") as changed,
    ):
        members = archive.namelist()
        chosen, kind = str(rng.choice(members)), int(rng.integers(3))
        for member in members:
            content = archive.read(member)
            if member != chosen:
                changed.writestr(member, content)
            elif kind:
                changed.writestr(member if kind == 1 else f"../{member}", content[: len(content) // 2])
        changed.close()
        files[name] = made.getvalue()


Mutation = Callable[[Files, Random], None]

MUTATIONS: Mapping[str, tuple[Mutation, float]] = MappingProxyType(
    {
        "flipped": (flipped, 6),
        "truncated": (truncated, 2),
        "extended": (extended, 1),
        "swapped": (swapped, 2),
        "extreme": (extreme, 6),
        "digits": (other_digits, 1),
        "removed": (removed, 1),
        "edited": (edited, 4),
    }
)
"""Name -> mutation, and how often it is taken."""


def mutated(files: Files, rng: Random, mutation: str | None = None) -> tuple[Files, str]:
    """Files with one or two mutations, or a given one, and their names. Those that need a sound file come first."""
    changed = dict(files)
    names, weights = list(MUTATIONS), np.array([weight for _, weight in MUTATIONS.values()])
    chosen = [str(name) for name in rng.choice(names, int(rng.integers(1, 3)), p=weights / weights.sum())]
    chosen = sorted(set(chosen), key=lambda name: name != "removed")
    for name in chosen if mutation is None else [mutation]:
        if changed:
            MUTATIONS[name][0](changed, rng)
    return changed, mutation or ", ".join(chosen)
