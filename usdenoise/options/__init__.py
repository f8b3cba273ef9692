"""Every option of the tool: a field of a class specifies its type, default, range, help and group once.

From the fields come the flags, the keys of a configuration file, the checks, the errors and ``help()``. Everyone may
import the option classes from here; ``declaration`` has the attributes of a field.
"""

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
