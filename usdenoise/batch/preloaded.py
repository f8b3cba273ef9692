"""What the server of the pool imports before it forks: the libraries that the process of every scan needs.

Only the server imports this module. Importing it has two effects that its processes inherit: the libraries are loaded,
and the server prints no traceback. A server that fails, as when memory runs out, ends; the pool notices that and says
so in the rows of the scans. A library that could not be loaded here is imported again where it is needed.
"""

import sys
from contextlib import suppress
from importlib import import_module
from types import TracebackType

LIBRARIES = (
    "usdenoise.batch.scan_process",
    "usdenoise.completion.sparse_sweep",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "imageio.plugins.pillow",
    "imageio.v3",
    "scipy.io",
    "scipy.linalg",
)


def _say_nothing(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print nothing, in place of the traceback of an error that ends the process."""


sys.excepthook = _say_nothing
for name in LIBRARIES:
    with suppress(Exception):
        import_module(name)
