"""An ultrafast acquisition: the beamformed stack, the meaning of its axes, and its physical scales."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from array_api_compat import is_dask_array

from usdenoise.linalg.array_library import Numbers, dtype_of, is_foreign_array, on_host
from usdenoise.stack.arrays import check_library
from usdenoise.stack.geometry import GriddedStack, as_frames


@dataclass(frozen=True)
class _Values:
    """The first field of an acquisition, before the fields of its geometry."""

    iq: Numbers


@dataclass(frozen=True)
class Acquisition(GriddedStack, _Values):
    """A beamformed ultrafast Doppler stack, its axes and its physical scales.

    Attributes
    ----------
    iq : complex or real array, 3-D or 4-D, axes in the order of `axes`
        Complex IQ, or real RF or envelope, in any unit, of NumPy, Dask, or a library of the Python array API standard, such
        as CuPy, PyTorch and JAX. NaN and infinite entries are unobserved; the masked
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
        Positions of the pixels in mm and times of the frames in s, where the input gives them. Positions of an axis of
        length 1, which the stack does not have, can be among them.
    labels : xarray.DataArray or None
        Dimensions and coordinates of the DataArray that the stack came from, for the results; None (the default)
        where it came from elsewhere.
    form : StoredForm
        How the file holds the stack, for a result in the same form.
    shape, dtype
        Shape and type of `iq`.

    Raises
    ------
    InputError
        If `iq` cannot be a stack (see :func:`usdenoise.stack.geometry.check_stack`), `axes` does not fit it, or it
        holds one frame.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> iq = np.zeros((200, 64, 48), np.complex64)
    >>> stack = usdenoise.Acquisition(iq, "tzx", frame_rate_hz=500.0, spacing_mm={"z": 0.1, "x": 0.1})
    >>> stack.n_frames, stack.n_pixels, stack.spatial_axes
    (200, 3072, 'zx')
    """

    shape: tuple[int, ...] = field(init=False, repr=False, compare=False)
    dtype: np.dtype = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "iq", without_mask(self.iq))
        object.__setattr__(self, "shape", tuple(self.iq.shape))
        object.__setattr__(self, "dtype", self.iq.dtype if is_dask_array(self.iq) else dtype_of(self.iq))
        self._check()

    @classmethod
    def of(cls, geometry: GriddedStack, iq: Numbers) -> Self:
        """Return an acquisition with the axes and scales of a geometry, also of another number of frames.

        Parameters
        ----------
        geometry : Geometry or Acquisition
            Axes and scales.
        iq : array
            The values, axes in the order of the geometry.
        """
        return cls(iq, **geometry.scales)

    @property
    def frames(self) -> Numbers:
        """The frames, (n_frames, n_pixels), pixels in the order z, x, y: the transpose of the Casorati matrix."""
        frames: Numbers = as_frames(self.iq, self.axes)
        return frames

    def __repr__(self) -> str:
        rate = "frame rate unknown" if self.frame_rate_hz is None else f"{self.frame_rate_hz:g} Hz"
        pitches = ", ".join(f"{letter} {pitch:.4g} mm" for letter, pitch in self.spacing_mm.items())
        kind = f"{self.name}, {self.shape_text}, {self.dtype}"
        return f"<{type(self).__name__} {kind}, {rate}, {pitches or 'pixel pitch unknown'}>"

    def to_xarray(self) -> Any:
        """Return the stack as an xarray.DataArray with its positions, units and scales.

        The dimensions come from the DataArray that the stack came from. Otherwise they follow ConfUSIus 0.8:
        time, k (elevation), j (depth) and i (lateral), with the positions z, y and x in mm.

        Raises
        ------
        OptionError
            If xarray is not installed.
        """
        from usdenoise.stack.data_arrays import confusius_scales, to_data_array

        own = self.attributes if self.labels is None else self.labels.attrs
        attributes = {**own, **confusius_scales(self)}
        return to_data_array(on_host(self.iq), self, self.axes, self.name, attributes)


def without_mask(values: Any) -> Numbers:
    """Return a masked array as a plain one with NaN for the masked entries, and any other as it is.

    One of Dask or of another library stays what it is.

    Parameters
    ----------
    values : array or masked array
        Masked integers become float64.
    """
    unchanged: Numbers = values
    if is_foreign_array(values):
        check_library(values)
        return unchanged
    if is_dask_array(values):
        return unchanged
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    kept = np.array(values.data, dtype=None if values.dtype.kind in "fc" else np.float64)
    kept[np.ma.getmaskarray(values)] = np.nan
    return kept
