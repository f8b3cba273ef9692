"""What made a file: software, parameters, input, and environment."""

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from typing import Any


def software() -> dict[str, str]:
    """Versions of what computed the numbers."""
    return {
        "usdenoise": version("usdenoise"),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "python": platform.python_version(),
    }


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON text of a value, with null for numbers that JSON does not have (NaN and infinities)."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def requested(**arguments: Any) -> dict[str, Any]:
    """What was asked of a job, as JSON has it: two jobs with equal ones make equal results of one input.

    Parameters
    ----------
    **arguments
        Dataclasses, mappings and plain values. `threads` is left out: results do not depend on it.
    """
    return {name: _plain(value) for name, value in arguments.items()}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if key != "threads"}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return _finite(value) if isinstance(value, str | int | float | None) else str(value)


def record(
    command: list[str] | None, parameters: Mapping[str, Any], source: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Provenance of an output file.

    Parameters
    ----------
    command : list of str or None
        The command line, None for a library call.
    parameters : mapping
        The effective options, the seed among them.
    source : mapping or None
        The input's path, digest, dataset, shape, axes and type; None where nothing was read.
    """
    return {
        "software": software(),
        "command": command,
        "parameters": dict(parameters),
        "input": None if source is None else dict(source),
        "environment": {
            "system": platform.system(),
            "machine": platform.machine(),
            "processors": os.cpu_count(),
        },
    }
