"""Every option of the tool: a field of a class specifies its type, default, range, help and group once.

From the fields come the flags, the keys of a configuration file, the checks, the errors and ``help()``. Everyone may
import the option classes; ``declaration`` has the attributes of a field.
"""

from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display, Output, ReadOptions, SessionOptions
from usdenoise.options.phantom_settings import PhantomSettings

__all__ = ["DenoiseOptions", "Display", "Output", "PhantomSettings", "ReadOptions", "SessionOptions"]
