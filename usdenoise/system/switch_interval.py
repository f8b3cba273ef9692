"""The interval after which Python hands over from one thread to another.

Compiled code needs the interpreter for a moment between its steps. While another thread runs Python code, that
moment comes after the switch interval, 5 ms by default. A job has a hundred such steps while files are hashed and
libraries are loaded in the background, so it shortens the interval. ``tests/benchmarks/switch_interval.py``
measures the gain: 3.8 times at 200 x 130 x 2400 next to a thread that runs Python code all the time.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from usdenoise.system.process_wide import ProcessWideSetting

SHORT_INTERVAL_S = 2e-4
"""Short against the 1 to 10 ms of a row block; far shorter ones cost more in switching than they gain."""


def short_switch_interval() -> AbstractContextManager[None]:
    """Let threads hand over to each other every SHORT_INTERVAL_S until the context ends.

    Contexts may be nested and may overlap between threads; the last one to end restores the interval that the
    first one found.
    """
    return _SHORT.changed()


def _shorten() -> Callable[[], None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SHORT_INTERVAL_S))
    return lambda: sys.setswitchinterval(before)


_SHORT = ProcessWideSetting(_shorten)
