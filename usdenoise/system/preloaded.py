"""What the server of a pool of processes imports first: libraries that take long to load.

Only such a server imports this module. It has effects that its processes inherit. The libraries are loaded, and no
traceback is printed: a server or a process that fails ends, and the pool says so. A server without enough memory for a
library ends at once, because a library that is half loaded cannot be loaded again in the same process.
"""

import sys
from importlib import import_module
from types import TracebackType

from usdenoise.errors import is_out_of_memory

LIBRARIES = (
    "PIL.TiffImagePlugin",
    "numpy",
    "h5py",
    "scipy.io",
    "scipy.linalg",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
)


def _say_nothing(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print nothing, in place of the traceback of an error that ends the process."""


sys.excepthook = _say_nothing
for _name in LIBRARIES:
    try:
        import_module(_name)
    except Exception as _error:
        # Any other error comes again where the library is used, and has its message there.
        if is_out_of_memory(_error):
            sys.exit(1)
