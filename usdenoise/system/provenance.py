"""Provenance of a file: software, parameters, input and environment."""

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.metadata import version
from typing import Any


@cache
def software() -> Mapping[str, str]:
    """Return the versions of the software that the numbers depend on.

    Looking them up takes tens of milliseconds, which is done once.
    """
    return {
        "usdenoise": version("usdenoise"),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "python": platform.python_version(),
    }


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON text, with null for NaN and infinities, which JSON does not have."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_RESOURCES = ("threads", "memory", "device")


def requested(**arguments: Any) -> dict[str, Any]:
    """Return the arguments of a job in JSON types. Jobs with equal ones make equal results from the same input.

    Parameters
    ----------
    **arguments
        Dataclasses, mappings and plain values. Results do not depend on `threads`, `memory` and `device`, which are
        excluded.
    """
    return {name: _plain(value) for name, value in arguments.items() if name not in _RESOURCES}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if key not in _RESOURCES}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return _finite(value) if isinstance(value, str | int | float | None) else str(value)


def record(
    command: list[str] | None, parameters: Mapping[str, Any], source: Mapping[str, Any] | None
) -> dict[str, Any]:
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
