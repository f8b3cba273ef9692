"""Arrays of values: of a result by name, lazy ones, their precision, whether they are power, and masks as bits."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.linalg.array_library import Numbers, namespace

HALF_PRECISION = ("float16", "bfloat16", "complex32")
"""Types of other libraries that have fewer digits than the tissue is above the blood."""


@dataclass(frozen=True, eq=False)
class NamedArray:
    """An array of a result, which files of every format and xarray write from this record.

    Attributes
    ----------
    name : str
        Its name; a slash makes a group (a struct in MATLAB).
    values : array
        Its values; a boolean one is stored as 0 and 1.
    axes : str
        Axis letters of an image or a sequence, such as "zx" or "tzx"; empty (the default) for other arrays. In a session
        t numbers the blocks, and the array "time" has their times.
    attributes : mapping
        Its unit, formula and meaning; none by default.
    dimensions : tuple of str
        Names of the axes of an array that is not an image; by default they are numbered.
    """

    name: str
    values: Any
    axes: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dimensions: tuple[str, ...] = ()


def check_library(values: Any) -> None:
    """Check that an array of another library than NumPy has a type in which it can be filtered.

    Raises
    ------
    InputError
        If its library has no complex numbers, or the array has half precision.
    """
    library = namespace(values).__name__.removeprefix("array_api_compat.")
    if not hasattr(namespace(values), "complex64"):
        raise InputError(f"{library} has no complex numbers; give an array of another library, such as NumPy")
    name = str(values.dtype).rpartition(".")[2]
    if name in HALF_PRECISION:
        raise InputError(f"the stack is of {name}, whose precision is too low; give float32 or complex64")


def largest_part(x: Numbers) -> float:
    """Return the largest finite magnitude of a real or imaginary part; NaN without any finite entry."""
    parts = (x.real, x.imag) if np.iscomplexobj(x) else (x,)
    finite = np.isfinite(x)
    if not finite.any():
        return np.nan
    return max(float(np.max(np.abs(part), where=finite, initial=0.0)) for part in parts)


@contextmanager
def checked_conversion(values: Numbers, dtype: np.dtype, name: str) -> Iterator[None]:
    """Check that a conversion within the context makes no finite value infinite.

    An infinite entry would count as unobserved.

    Parameters
    ----------
    values : array
        The values that are converted.
    dtype : numpy.dtype
        The type to which they are converted.
    name : str
        Name of the stack, for the message.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError as error:
        # One part may be finite, and the other one not
        parts = (largest_part(part) for part in (values.real, values.imag))
        limit, largest = np.finfo(dtype), np.nanmax([*parts])
        precision = {4: "single", 8: "double"}[limit.dtype.itemsize]
        raise InputError(
            f"'{name}' holds a value of magnitude {largest:.3g}, and {precision} precision ends at "
            f"{float(limit.max):.3g}; scale the stack first"
        ) from error


SYMMETRIC = 0.1
"""Skewness up to which values are symmetric about their median. It is 0 for RF, 0.17 or more for an envelope or power, and
-0.23 or less in dB."""

NEAR_POWER = 0.01
"""Relative distance from a power of two up to which an offset is this power: the middle of the range of integers."""


def skewness(values: NDArray[np.floating]) -> float:
    """Return (q95 + q5 - 2 q50) / (q95 - q5) of the quantiles of finite values."""
    low, middle, high = np.percentile(values, (5, 50, 95))
    return float((low + high - 2 * middle) / max(high - low, np.finfo(float).tiny))


def offset_of(values: Numbers) -> float | None:
    """Return the offset of unsigned RF: the value about which the finite values are symmetric; None if they are not.

    Parameters
    ----------
    values : array
        Some values of a real stack.
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size or abs(skewness(finite)) > SYMMETRIC:
        return None
    offset = float(np.median(finite))
    power = 2.0 ** np.round(np.log2(abs(offset) or 1.0)) * np.sign(offset)
    return float(power if abs(offset - power) < NEAR_POWER * abs(power) else offset)


def check_not_power(slabs: Iterable[Numbers], what: str, other_way: str) -> None:
    """Check that a real stack is not power Doppler or an envelope, which are nowhere negative.

    Parameters
    ----------
    slabs : iterable of arrays
        The first slab of the stack and the one in its middle; none is looked at after the first negative value. A stack that
        is zero in both of them passes.
    what : str
        The stack, for the message.
    other_way : str
        What the user can do to filter it as it is.

    Raises
    ------
    InputError
        If the slabs hold positive values and no negative one.
    """
    has_values = False
    for values in slabs:
        finite = values[np.isfinite(values)]
        if finite.size and finite.min() < 0:
            return
        has_values = has_values or bool(finite.any())
    if not has_values:
        return
    if offset := offset_of(values):
        raise InputError(
            f"{what} is real, and symmetric about {offset:g}",
            remedy=f"subtract the offset {offset:g} if it is RF, or {other_way} to filter it as it is",
        )
    raise InputError(
        f"{what} is real and nowhere negative: it is power Doppler already, or an envelope, without the phase that the "
        "filter requires",
        remedy=f"give the beamformed IQ or RF, or {other_way} to filter it anyway",
    )


def pack(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return a mask of booleans as bits, little-endian along the rows.

    Parameters
    ----------
    mask : (n_rows, n_columns) array of booleans
        The mask.

    Returns
    -------
    (n_rows, ceil(n_columns / 8)) uint8 array
        Padding bits are 0.
    """
    return np.packbits(mask, axis=1, bitorder="little")


def unpack(bits: NDArray[np.uint8], n_columns: int) -> NDArray[np.bool_]:
    """Return bits of some rows as a mask of booleans, (n_rows, n_columns): the inverse of :func:`pack`."""
    return np.unpackbits(bits, axis=1, count=n_columns, bitorder="little").view(np.bool_)
