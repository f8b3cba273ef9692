"""An ultrafast acquisition: the beamformed stack, the meaning of its axes, and its physical scales."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.stack.coordinates import Coordinate
from usdenoise.stack.file_stack import FileStack
from usdenoise.stack.lazy_arrays import is_dask_array
from usdenoise.stack.stored_form import StoredForm
from usdenoise.stack.voxel_grid import GriddedStack

SPATIAL_LETTERS = "zxy"
"""Depth, lateral, elevation: pixels are numbered in this order, whatever the order in the file."""


def check_axes(axes: str, shape: tuple[int, ...]) -> None:
    """Check that `axes` names every axis of a stack of `shape` once, time among them.

    Raises
    ------
    InputError
        If the letters are not distinct ones of z, x, y and t, if t is missing, or if their number is wrong.
    """
    letters = set(axes)
    if len(letters) != len(axes) or not letters <= set(SPATIAL_LETTERS + "t") or "t" not in letters:
        raise InputError(
            f"axes '{axes}' must be distinct letters of z, x, y and t, with t among them",
            remedy="give {axes} in the file's own order, for example tzx",
        )
    if len(axes) != len(shape):
        raise InputError(
            f"axes '{axes}' names {len(axes)} axes, but the data have {len(shape)} {words_of_shape(shape)}",
            remedy="give {axes} one letter for each axis",
        )


def check_stack(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    """Check that an array could be an ultrafast stack: numeric, two or three spatial axes and time.

    Raises
    ------
    InputError
        If the data are not numeric, have another number of axes, or are empty, or their shape is not known.
    """
    if dtype.kind not in "fciu":
        raise InputError(
            f"'{name}' holds {dtype} values, not numbers", remedy="pick the stack with {dataset}"
        )
    if len(shape) not in (3, 4):
        raise InputError(
            f"'{name}' is {len(shape)}-D {words_of_shape(shape)}, but a stack has 3 axes (2-D + time) "
            "or 4 (3-D + time)",
            remedy="pick another one with {dataset}",
        )
    if any(np.isnan(n) for n in shape):
        raise InputError(
            f"the sizes of the chunks of '{name}' are not known; call compute_chunk_sizes() on it first"
        )
    if 0 in shape:
        raise InputError(f"'{name}' is empty {words_of_shape(shape)}; check how the file was written")


@dataclass(frozen=True)
class Acquisition(GriddedStack):
    """A beamformed ultrafast Doppler stack, its axes and its physical scales.

    Attributes
    ----------
    iq : complex or real array, 3-D or 4-D, axes in the order of `axes`
        Complex IQ, or real RF or envelope, in any unit. NaN and infinite entries are unobserved; the masked
        entries of a masked array become NaN.
    axes : str
        One letter for each axis of `iq`: z depth, x lateral, y elevation, t time (frames); for example "tzx".
    frame_rate_hz : float or None
        Frames per second, after compounding.
    spacing_mm : mapping from axis letter to float
        Pixel pitch in mm, for the axes for which it is known.
    center_frequency_hz, sound_speed_m_s : float or None
        Transmit centre frequency in Hz and speed of sound in m/s, where known.
    name : str
        Name of the stack in its file; results are stored under it.
    stored_dtype : numpy.dtype or None
        Type in the file, where `iq` was converted on reading.
    assumptions : tuple of str
        Sentences on what was guessed on reading, each with the option that overrides the guess.
    attributes : mapping
        Other metadata of the stack, which the output carries on.
    coordinates : mapping from axis letter to Coordinate
        Positions of the pixels in mm and times of the frames in s, where the input gives them. That of an axis of
        length 1, which the stack does not have, can be among them.
    labels : xarray.DataArray or None
        Dimensions and coordinates of the DataArray that the stack came from, for the results; None (the default)
        where it came from elsewhere.
    form : StoredForm
        How the file holds the stack, for a result in the same form.

    Raises
    ------
    InputError
        If `iq` cannot be a stack (see :func:`check_stack`), `axes` does not fit it, or it holds one frame.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> iq = np.zeros((200, 64, 48), np.complex64)
    >>> stack = usdenoise.Acquisition(iq, "tzx", frame_rate_hz=500.0, spacing_mm={"z": 0.1, "x": 0.1})
    >>> stack.n_frames, stack.n_pixels, stack.spatial_axes
    (200, 3072, 'zx')
    """

    iq: NDArray[Any]
    axes: str
    frame_rate_hz: float | None = None
    spacing_mm: Mapping[str, float] = field(default_factory=dict)
    center_frequency_hz: float | None = None
    sound_speed_m_s: float | None = None
    name: str = "iq"
    stored_dtype: np.dtype[Any] | None = None
    assumptions: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    labels: Any = None
    form: StoredForm = field(default_factory=StoredForm)

    def __post_init__(self) -> None:
        object.__setattr__(self, "iq", without_mask(self.iq))
        check_stack(self.iq.shape, self.iq.dtype, self.name)
        check_axes(self.axes, self.iq.shape)
        if self.n_frames < 2:
            raise InputError(
                f"'{self.name}' holds one frame, and a clutter filter needs at least two",
                remedy="check {frames} and {axes}",
            )

    def __repr__(self) -> str:
        rate = "frame rate unknown" if self.frame_rate_hz is None else f"{self.frame_rate_hz:g} Hz"
        pitches = ", ".join(f"{letter} {pitch:.4g} mm" for letter, pitch in self.spacing_mm.items())
        kind = f"{self.name}, {self.shape_text}, {self.iq.dtype}"
        return f"<{type(self).__name__} {kind}, {rate}, {pitches or 'pixel pitch unknown'}>"

    @property
    def shape_text(self) -> str:
        """Axes and shape in words, for example "t 150, z 72, x 56"."""
        return ", ".join(f"{letter} {n}" for letter, n in zip(self.axes, self.iq.shape, strict=True))

    @property
    def n_frames(self) -> int:
        """Number of frames (the ensemble)."""
        return int(self.iq.shape[self.axes.index("t")])

    @property
    def n_pixels(self) -> int:
        """Number of pixels of a frame."""
        return self.iq.size // self.n_frames

    def to_xarray(self) -> Any:
        """Return the stack as an xarray.DataArray with its positions, units and scales.

        The dimensions are those of the DataArray that the stack came from. Otherwise they are those of ConfUSIus 0.8:
        time, k (elevation), j (depth) and i (lateral), with the positions z, y and x in mm.

        Raises
        ------
        OptionError
            If xarray is not installed.
        """
        from usdenoise.stack.data_arrays import stack_to_data_array

        return stack_to_data_array(self)


def without_mask(values: Any) -> NDArray[Any]:
    """Return a masked array as a plain one with NaN for the masked entries, and any other as it is.

    One of Dask or in a file stays what it is.

    Parameters
    ----------
    values : array or masked array
        Masked integers become float64.
    """
    lazy: Any = values
    if is_dask_array(values) or isinstance(values, FileStack):
        return cast(NDArray[Any], lazy)
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    kept = np.array(values.data, dtype=None if values.dtype.kind in "fc" else np.float64)
    kept[np.ma.getmaskarray(values)] = np.nan
    return kept


def canonical_axes(axes: str) -> str:
    """Return `axes` in the order in which the Casorati matrix numbers them: z, x, y, then t."""
    return "".join(letter for letter in SPATIAL_LETTERS + "t" if letter in axes)


def spatial_order(image: NDArray[Any], axes: str, order: str) -> NDArray[Any]:
    """Return a view of an array with axes `axes`, its axes in the order of the letters `order`."""
    return image.transpose([axes.index(letter) for letter in order])


def words_of_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as in "(30 x 12 x 10)", for messages."""
    return "(" + " x ".join(str(n) for n in shape) + ")"
