"""Every option of the tool: a field of a class specifies its type, default, range, help and group once.

From the fields come the flags, the keys of a configuration file, the checks, the errors and ``help()``. Everyone may
import the option classes from here; ``declaration`` has the attributes of a field.
"""

from collections.abc import Mapping

from usdenoise.options.declaration import flag
from usdenoise.options.denoise_options import DenoiseOptions, ReadOptions
from usdenoise.options.job_options import (
    BatchOptions,
    CompareOptions,
    Display,
    JobOptions,
    Output,
    ReproduceOptions,
    SessionOptions,
)
from usdenoise.options.phantom_settings import PhantomSettings

__all__ = [
    "BatchOptions",
    "CompareOptions",
    "DenoiseOptions",
    "Display",
    "JobOptions",
    "Output",
    "PhantomSettings",
    "ReadOptions",
    "ReproduceOptions",
    "SessionOptions",
]


class _Flags(dict[str, str]):
    """Flags by the names of parameters; one that is not declared has the flag of its name."""

    def __missing__(self, name: str) -> str:
        return flag(name)


FLAGS: Mapping[str, str] = _Flags(
    {
        declared.name: declared.flag
        # A setting of a phantom comes first: its flag is the one of another option of the same name.
        for name in sorted(__all__, key=lambda name: name != "PhantomSettings")
        for declared in globals()[name].declared.values()
    }
)
"""Flags by the names of their parameters."""
