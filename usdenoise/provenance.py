"""What made a file: software, parameters, input, environment and resources."""

import os
import platform
import resource
import sys
from collections.abc import Mapping
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


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


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
