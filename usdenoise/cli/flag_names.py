"""The names of options on the command line."""

from collections.abc import Mapping

from usdenoise.options import DenoiseOptions, Display, Output, PhantomSettings, ReadOptions, SessionOptions
from usdenoise.options.declaration import flag
from usdenoise.options.reading_options import SCALE_NAMES


class _Flags(dict[str, str]):
    """Flags by the names of parameters; a parameter that is not declared is called as its flag."""

    def __missing__(self, name: str) -> str:
        return flag(name)


_CLASSES = (PhantomSettings, SessionOptions, ReadOptions, DenoiseOptions, Output, Display)

FLAGS: Mapping[str, str] = _Flags(
    {declared.name: declared.flag for options in _CLASSES for declared in options.declared.values()}
    | {name: flag(field) for name, field in SCALE_NAMES.items()}
    | {"patterns": "--pattern", "regions": "--region"}
)
"""Flags by the names of their parameters."""
