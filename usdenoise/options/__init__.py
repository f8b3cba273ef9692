"""Every option of the tool: a field of a class specifies its type, default, range, help and group once.

From the fields come the flags, the keys of a configuration file, the checks, the errors and ``help()``. Everyone may
import the option classes from here; ``declaration`` has the attributes of a field.
"""

from collections.abc import Mapping

from usdenoise.options.declaration import Options, flag
from usdenoise.options.denoise_options import DenoiseOptions as DenoiseOptions
from usdenoise.options.denoise_options import ReadOptions as ReadOptions
from usdenoise.options.job_options import BatchOptions as BatchOptions
from usdenoise.options.job_options import CompareOptions as CompareOptions
from usdenoise.options.job_options import Display as Display
from usdenoise.options.job_options import JobOptions as JobOptions
from usdenoise.options.job_options import Output as Output
from usdenoise.options.job_options import ReproduceOptions as ReproduceOptions
from usdenoise.options.job_options import SessionOptions as SessionOptions
from usdenoise.options.phantom_settings import PhantomSettings as PhantomSettings


class _Flags(dict[str, str]):
    """Flags by the names of parameters; one that is not declared has the flag of its name."""

    def __missing__(self, name: str) -> str:
        return flag(name)


FLAGS: Mapping[str, str] = _Flags(
    {
        declared.name: declared.flag
        # A setting of a phantom comes first: its flag is the one of another option of the same name.
        for options in reversed(Options.__subclasses__())
        for declared in options.declared.values()
    }
)
"""Flags by the names of their parameters."""
