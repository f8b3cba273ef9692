"""What has to be done once another package is imported, without importing it."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call a function once a package is imported: now if it is, otherwise at the end of its import.

    Parameters
    ----------
    name : str
        Name of the package.
    then : callable
        The function. What it raises is raised by the import.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Watch(name, then))


class _Watch(MetaPathFinder):
    """A finder that leaves the finding of a package to the others, and its loading to a :class:`_Loader`."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then
        self._is_asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the package, and None of all others."""
        if fullname != self._name or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._loaded)
        return spec

    def _loaded(self) -> None:
        sys.meta_path.remove(self)
        self._then()


class _Loader(Loader):
    """A loader that calls a function after it has loaded a module."""

    def __init__(self, loader: Loader, then: Callable[[], None]) -> None:
        self._loader, self._then_call = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what the loader of the package makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load the module, and then call the function."""
        self._loader.exec_module(module)
        self._then_call()

    def __getattr__(self, name: str) -> Any:
        # Resources and sources of the package are asked of its own loader.
        return getattr(self._loader, name)
