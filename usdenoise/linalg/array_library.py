"""Arrays of any library of the Python array API standard, such as CuPy, PyTorch and JAX, beside arrays of NumPy.

The functions of an array come from its own library, so that frames on a device stay there. Small results are copied to the
host, the memory of the processor.
"""

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_cupy_array,
    is_dask_array,
    is_torch_array,
)
from numpy.typing import NDArray

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Entry = TypeVar("Entry", bound=np.generic)
Inexact = TypeVar("Inexact", bound=np.inexact)

Array: TypeAlias = Any
"""An array of any library, NumPy among them: the libraries have no common type. Its operators, `shape` and `dtype` are those
of the standard, and its functions come from :func:`namespace`."""

Numbers: TypeAlias = NDArray[np.inexact]
"""An array of NumPy of real or complex numbers, in single or double precision."""

HostArray: TypeAlias = NDArray[Any]
"""An array of NumPy with entries of any type, such as numbers, booleans or positions."""


def in_full_precision(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make the products of a function exact in JAX, which rounds their factors to 10 bits on a GPU by default.

    Such a rounding error of the tissue, 60 dB below it, would be as strong as the blood.
    """

    @wraps(function)
    def exact(*arguments: Arguments.args, **more: Arguments.kwargs) -> Result:
        jax = sys.modules.get("jax")
        if jax is None:
            return function(*arguments, **more)
        with jax.default_matmul_precision("highest"):
            return function(*arguments, **more)

    return exact


def is_foreign_array(values: object) -> bool:
    """Return whether a value is an array of another library than NumPy and Dask."""
    is_known = isinstance(values, np.ndarray | np.generic) or is_dask_array(values)
    return is_array_api_obj(values) and not is_known


def namespace(values: Array) -> ModuleType:
    """Return the functions of the library of an array."""
    return np if isinstance(values, np.ndarray) else array_namespace(values)


def library_of(values: Array) -> tuple[str, str]:
    """Return the names of the library and of the device of an array."""
    return namespace(values).__name__, str(device(values))


def to_host(values: Array) -> HostArray:
    """Return an array as an array of NumPy; itself if it is one."""
    if isinstance(values, np.ndarray):
        return values
    if is_cupy_array(values):
        values = values.get()
    elif is_torch_array(values):
        # Conjugates and negatives are views there, which NumPy does not have.
        values = values.detach().cpu().resolve_conj().resolve_neg()
    host: HostArray = np.asarray(values)
    return host if host.flags.writeable else host.copy()


def to_library(values: NDArray[np.generic], like: Array) -> Array:
    """Return an array of NumPy as an array of the library of another one, and on its device."""
    if isinstance(like, np.ndarray):
        return values
    return namespace(like).asarray(values, device=device(like))


def on_host(values: Array) -> Array:
    """Return an array of another library than NumPy and Dask as an array of NumPy, and any other value as it is."""
    return to_host(values) if is_foreign_array(values) else values


def is_by_pixel(x: Array) -> bool:
    """Return whether memory has the frames of a pixel side by side in an array (n, n_pixels) of NumPy."""
    return isinstance(x, np.ndarray) and x.strides[0] < x.strides[1]


def columns(values: Array, numbers: NDArray[np.intp]) -> HostArray:
    """Return some columns of a matrix on the host, in the order of its memory."""
    if isinstance(values, np.ndarray):
        # A quarter of the time of an index
        return (
            np.take(values.T, numbers, axis=0).T if is_by_pixel(values) else np.take(values, numbers, axis=1)
        )
    return to_host(namespace(values).take(values, to_library(numbers, values), axis=1))


def used_frames(x: Array, used: NDArray[np.bool_]) -> Array:
    """Return the frames of a chunk, (n, n_pixels), that count, in its library; the chunk itself if all do."""
    return x if used.all() else namespace(x).take(x, to_library(np.flatnonzero(used), x), axis=0)


def zero_outside(values: Array, counted: Array) -> Array:
    """Return the values of a matrix, in its library and type, with 0 where a mask of this library is false."""
    xp = namespace(values)
    return xp.where(counted, values, xp.zeros_like(values[:1, :1]))


def finite_or_zero(values: Array) -> Array:
    """Return the values of a matrix, in its library and type, with 0 for those that are not finite."""
    return zero_outside(values, namespace(values).isfinite(values))


def squared_magnitudes(values: Array) -> Array:
    """Return |x|^2 of the entries of an array, in its library and precision."""
    xp = namespace(values)
    if not xp.isdtype(values.dtype, "complex floating"):
        return values**2
    return xp.real(values) ** 2 + xp.imag(values) ** 2


def dtype_of(values: Array) -> np.dtype[np.inexact]:
    """Return the type of the entries of an array as a type of NumPy.

    Raises
    ------
    TypeError
        If NumPy does not have this type.
    """
    if isinstance(values, np.ndarray):
        own: np.dtype[np.inexact] = values.dtype
        return own
    return np.dtype(str(values.dtype).rpartition(".")[2])
