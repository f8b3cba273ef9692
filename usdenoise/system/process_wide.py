"""A setting of the whole process that several threads change for a while, and that ends as it was found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock


class ProcessWideSetting:
    """A setting that is changed while any thread is inside a context.

    The first thread that enters changes it, and the last one that leaves restores it. If every thread restored
    what it found on entering, the second of two overlapping threads would restore the first one's change and
    leave it for good.

    Parameters
    ----------
    change : callable
        Changes the setting and returns a callable that restores it. It is called at the first entry, and again
        at a nested one where `changed_since` says that the change does not cover everything any more.
    changed_since : callable, optional
        Whether something has appeared to which the change has to be applied as well; by default nothing does.

    Examples
    --------
    >>> values = [5]
    >>> def change():
    ...     before, values[0] = values[0], 1
    ...     return lambda: values.__setitem__(0, before)
    >>> setting = ProcessWideSetting(change)
    >>> with setting.changed(), setting.changed():
    ...     values[0]
    1
    >>> values[0]
    5
    """

    def __init__(
        self, change: Callable[[], Callable[[], None]], changed_since: Callable[[], bool] = lambda: False
    ) -> None:
        self._change = change
        self._changed_since = changed_since
        self._lock = RLock()
        self._n_inside = 0
        self._restorers: list[Callable[[], None]] = []

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Keep the setting changed until the context ends, and as long as another thread is inside one."""
        with self._lock:
            if self._n_inside == 0 or self._changed_since():
                self._restorers.append(self._change())
            self._n_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_inside -= 1
                if self._n_inside == 0:
                    # The latest change first: an earlier one knows the values from before all of them.
                    while self._restorers:
                        self._restorers.pop()()
