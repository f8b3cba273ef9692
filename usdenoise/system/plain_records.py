"""Records as JSON objects, and back: dataclasses of texts, numbers, enumerations, sequences and other records."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from usdenoise.system.provenance import to_json


def plain(record: Any) -> dict[str, Any]:
    """Return a record as a JSON object: mappings, lists, texts and numbers."""
    values: dict[str, Any] = json.loads(to_json(asdict(record)))
    return values


Kind = TypeVar("Kind")


def from_plain(kind: Callable[..., Kind], values: Any) -> Kind:
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
    try:
        return kind(
            **{name: _typed(hint, values[name]) for name, hint in _hints(kind).items() if name in values}
        )
    except TypeError as error:
        raise ValueError(str(error)) from error


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(hint: Any, value: Any) -> Any:
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
