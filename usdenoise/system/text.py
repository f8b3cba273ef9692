"""Printable text, distinct names of files and columns, enums of sentences, records as JSON objects, and provenance.

The provenance of a file is its software, parameters, input and environment.
"""

import hashlib
import json
import math
import os
import platform
import re
import unicodedata
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import count
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def printable(text: str) -> str:
    """Return the text with line breaks, control characters and other unprintable ones escaped."""
    # Pictures in a page are long, and printable.
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def decoded(content: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 if it begins with that byte order mark, without the mark."""
    return content.decode("utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")


_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
"""Characters that a file system, or a path within a file, does not allow in a name."""

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
"""Names that Windows does not allow, whatever follows after a dot."""

_LONGEST_BYTES = 100
"""Most bytes of a name, of 255 in most file systems: the names of results have a beginning and an end besides."""


def alike(name: str) -> str:
    """Return a key that is equal for names that some file systems do not distinguish."""
    return unicodedata.normalize("NFC", name).casefold()


def rate_text(frames_a_second: float) -> str:
    """Return a rate of frames in words, with a digit behind the point where it is small."""
    return f"{frames_a_second:.{0 if frames_a_second >= 10 else 1}f} frames/s"


def counted(count: int, what: str) -> str:
    """Return a number of things in words, for example "1 block" or "3 blocks"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def plain_name(name: str, space: str = "-") -> str:
    """Return a name as most file systems allow it.

    Letters of all scripts, digits and most signs stay.

    Parameters
    ----------
    name : str
        The name.
    space : str
        What stands for a run of white space, by default a hyphen.
    """
    plain = re.sub(r"\s+", space, unicodedata.normalize("NFC", name).strip())
    plain = "".join(letter if letter.isprintable() else "-" for letter in _FORBIDDEN.sub("-", plain))
    plain = plain.encode()[:_LONGEST_BYTES].decode(errors="ignore").strip(". ")
    return f"-{plain}" if plain.split(".")[0].strip().casefold() in {"", *_DEVICES} else plain


_LONGEST_STEM = 200
"""Most bytes of the beginning of the names of results: of the 255, the lock of a result needs 24 besides, and an end such as
_activation_any-type_stat-effect_statmap.nii.gz 47."""


def short_stem(stem: str) -> str:
    """Return the beginning of the names of results for an input: its name, or the beginning of a long one and a digest."""
    stored = os.fsencode(stem)
    if len(stored) <= _LONGEST_STEM:
        return stem
    digest = hashlib.sha256(stored).hexdigest()[:8]
    return f"{stored[: _LONGEST_STEM - 9].decode(errors='ignore')}-{digest}"


def distinct_names(
    names: Iterable[str], plain: Callable[[str], str] = plain_name, key: Callable[[str], str] = alike
) -> dict[str, str]:
    """Return a plain name for each name, no two of which are the same.

    A name that is plain already stays as it is. If another name would become the same, it gets a number.

    Parameters
    ----------
    names : iterable of str
        The names.
    plain : callable
        Returns a name without what is not allowed; by default :func:`plain_name`.
    key : callable
        Returns a text that is equal for names that must not both be there; by default :func:`alike`.

    Examples
    --------
    >>> distinct_names(["left/right", "left-right", "Left-right", "rest"])
    {'left/right': 'left-right_2', 'left-right': 'left-right', 'Left-right': 'Left-right_3', 'rest': 'rest'}
    """
    names = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(names, key=lambda name: plain(name) != name):
        candidate = stem = plain(name)
        for number in count(2):
            if key(candidate) not in used:
                break
            # A long name gives way to its number.
            while not (candidate := plain(f"{stem}_{number}")).endswith(f"_{number}"):
                stem = stem[:-1]
        used.add(key(candidate))
        found[name] = candidate
    return {name: found[name] for name in names}


def beyond(selected: slice | None, n: int, name: str, of: str) -> list[str]:
    """Return a sentence on a selection of frames or blocks with an end beyond the last one; none if it has none.

    Parameters
    ----------
    selected : slice or None
        The selection; None for all.
    n : int
        Number of frames or blocks that there are.
    name, of : str
        What they are, and are of, for the sentence.

    Examples
    --------
    >>> beyond(slice(100, 400), 150, "frames", "stack")
    ['frames 100:400 reach beyond the stack, which has 150 frames: 50 are used']
    """
    if selected is None or all(abs(end or 0) <= n for end in (selected.start, selected.stop)):
        return []
    given = ":".join("" if end is None else str(end) for end in (selected.start, selected.stop))
    n_used = len(range(*selected.indices(n)))
    return [f"{name} {given} reach beyond the {of}, which has {n} {name}: {n_used} are used"]


class CodedEnum(Enum):
    """An enum whose values are sentences. Reports have the code of a member next to its sentence."""

    @property
    def code(self) -> str:
        """The name for scripts: "tissue-square" for TISSUE_SQUARE."""
        return self.name.lower().replace("_", "-")


PROVENANCE = "usdenoise_provenance"
"""Name of the attribute, or variable, with the provenance of a file or a DataArray as JSON text."""


@cache
def software() -> Mapping[str, str]:
    """Return the versions of the software that the numbers depend on."""
    import numpy as np
    import scipy

    # importlib.metadata would read and parse the descriptions of the packages.
    return {
        # All packages are above this one.
        "usdenoise": import_module("usdenoise").__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def to_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON text, with null for NaN and infinities and a list for a slice, which JSON does not have."""
    return json.dumps(_plain_value(value), indent=indent, allow_nan=False)


def _plain_value(value: object, without: Sequence[str] = ()) -> object:
    """Return a value in types that JSON has, without some keys of its mappings, on all levels."""
    # Most values are numbers of curves, and the types of mappings are slow to ask for
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {key: _plain_value(item, without) for key, item in value.items() if key not in without}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain_value(item, without) for item in value]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    if is_dataclass(value) and not isinstance(value, type):
        return _plain_value(asdict(value), without)
    return value


_RESOURCES = ("threads", "memory", "device")


def requested(**arguments: object) -> dict[str, object]:
    """Return the arguments of a job in JSON types. Jobs with equal ones make equal results from the same input.

    Parameters
    ----------
    **arguments
        Dataclasses, mappings and plain values. Results do not depend on `threads`, `memory` and `device`, which are
        excluded.
    """
    values: dict[str, object] = json.loads(json.dumps(_plain_value(arguments, _RESOURCES), default=str))
    return values


def record(
    command: list[str] | None, parameters: Mapping[str, object], source: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the provenance of an output file.

    Parameters
    ----------
    command : list of str or None
        The command line; None for a library call.
    parameters : mapping
        The options as used, the seed among them.
    source : mapping or None
        The input's path, digest, dataset, shape, axes and type; None if nothing was read.
    """
    return {
        "software": dict(software()),
        "command": command,
        "parameters": dict(parameters),
        "input": None if source is None else dict(source),
        "environment": {
            "system": platform.system(),
            "machine": platform.machine(),
            "processors": os.cpu_count(),
        },
    }


def plain(record: "DataclassInstance") -> dict[str, object]:
    """Return a record as a JSON object: mappings, lists, texts and numbers."""
    values: dict[str, object] = json.loads(to_json(record))
    return values


Record = TypeVar("Record")


def from_plain(kind: Callable[..., Record], values: Mapping[str, object]) -> Record:
    """Return the record of a JSON object, whose other keys are ignored.

    Parameters
    ----------
    kind : type
        A dataclass.
    values : mapping
        The JSON object.

    Raises
    ------
    ValueError
        If a key without a default is missing, or a value has another type than its field.
    """
    hints = _hints(kind)
    try:
        return kind(**{name: _typed(hint, values[name]) for name, hint in hints.items() if name in values})
    except TypeError as error:
        raise ValueError(str(error)) from error


_hints = cache(get_type_hints)


def _typed(hint: Any, value: Any) -> object:
    """Return a JSON value as the type of its field.

    Raises
    ------
    TypeError
        If it is of another type.
    """
    kinds = get_args(hint)
    if isinstance(hint, UnionType):
        if value is None and NoneType in kinds:
            return None
        others = [kind for kind in kinds if kind is not NoneType]
        return _typed(others[0], value) if len(others) == 1 else value
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_plain(hint, value)
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(_typed(kinds[0], item) for item in value)
    if hint is float and isinstance(value, int | None):
        # JSON has null for NaN.
        return math.nan if value is None else float(value)
    if not isinstance(value, get_origin(hint) or hint):
        raise TypeError(f"{value!r:.40} is not a {hint}")
    return value
