"""Power images as float32 TIFF, and as NIfTI with the JSON sidecar of fUSI-BIDS (BIDS extension proposal 40).

The axes are lateral, depth, elevation, then time, which ConfUSIus and its proposal for BIDS call i, j, k and time. The
world has the same order. The package nibabel is imported only when needed.
"""

import gzip
import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.stack.data_arrays import grid_attributes, positions, slice_thickness_mm
from usdenoise.stack.geometry import GriddedStack, in_axes, picture_axes

_RESOLUTION_UNIT = 296
"""Tag of TIFF for the unit of the resolution; 1 means that the description has it, since TIFF has no millimetre."""


def tiff(image: NDArray[np.floating], axes: str, spacing_mm: Mapping[str, float] | None = None) -> bytes:
    """Encode linear power as float32 TIFF, with one page for an image and one per elevation for a volume.

    Rows are depth and columns lateral, whatever the axis order of `image`. Where the pixel pitch is known, the file has
    it in the way of ImageJ and Fiji, in mm.

    Parameters
    ----------
    image : 2-D or 3-D array
        Linear power.
    axes : str
        Axis letters of `image`, in its own order.
    spacing_mm : mapping from str to float
        Axis letter -> pixel pitch in mm, where it is known; None (the default) for none.
    """
    from PIL import Image

    # Without it, Pillow would look for the format in all of its forty plugins, which takes 60 ms.
    import_module("PIL.TiffImagePlugin")
    order = picture_axes(axes)
    rows, columns = order[-2], order[-1]
    ordered = np.ascontiguousarray(in_axes(image, axes, order), dtype=np.float32)
    first, *others = (Image.fromarray(page) for page in ordered.reshape(-1, *ordered.shape[-2:]))
    scales: dict[str, object] = {}
    if spacing_mm is not None and {rows, columns} <= set(spacing_mm):
        # ImageJ and Fiji read the unit of the resolution, and the slices of a volume, from the description.
        n_pages = 1 + len(others)
        description = ["ImageJ=1.53t", f"images={n_pages}", f"slices={n_pages}", "unit=mm", "loop=false"]
        if ordered.ndim == 3 and "y" in spacing_mm:
            description.append(f"spacing={spacing_mm['y']:.12g}")
        scales = {
            "description": "\n".join([*description, ""]),
            "x_resolution": 1 / spacing_mm[columns],
            "y_resolution": 1 / spacing_mm[rows],
            "tiffinfo": {_RESOLUTION_UNIT: 1},
        }
    buffer = io.BytesIO()
    first.save(buffer, "TIFF", save_all=bool(others), append_images=others, **scales)
    return buffer.getvalue()


def read_tiff(path: Path) -> NDArray[np.float32]:
    """Read power Doppler that :func:`tiff` encoded.

    Parameters
    ----------
    path : Path
        The TIFF file.

    Returns
    -------
    (n_pages, n_rows, n_columns) float32 array
        Linear power: one page for a 2-D image, one for each elevation of a volume.

    Raises
    ------
    OSError
        If the file cannot be read or is not an image.
    """
    import imageio.v3 as iio

    # Without memory for its plugin, imageio would report that the plugin is not installed.
    import_module("imageio.plugins.pillow")
    return np.stack(list(iio.imiter(path, extension=".tif", plugin="pillow"))).astype(np.float32)


_ORDER = "xzy"
"""Spatial axes in the order of the NIfTI file."""

_SCANNER = 1
"""Code of NIfTI for positions relative to the scanner, here the probe."""


def write_nifti(
    path: Path,
    power: NDArray[np.float32],
    stack: GriddedStack,
    starts: Sequence[float],
    unit: str,
    window: int,
    stride: int,
    blocks: Sequence[Mapping[str, Any]],
) -> dict[str, object]:
    """Write power images as NIfTI, gzipped if the suffix is .gz, and return the fields of its sidecar.

    The time step is the usual interval between the starts of windows, and for a single image the duration of its
    frames. A single image of unknown duration has no axis of time.

    Parameters
    ----------
    path : Path
        File to write, which may have a temporary name.
    power : float32 array, (n_windows, ...) with the spatial axes of the stack in its order
        Linear power Doppler of each window.
    stack : Geometry or Acquisition
        Stack with the axes and scales of `power`. If the pixel pitch of an axis is not known, the file counts voxels
        instead of mm. The slice of a 2-D stack gets 1 mm if its thickness is not known. The sidecar lists these axes
        under PixelPitchUnknown.
    starts : sequence of float
        Time of the first frame of each window, in `unit`.
    unit : str
        "s" or "frames".
    window, stride : int
        Frames per window, and frames from the start of one window to the start of the next.
    blocks : sequence of mappings
        Record of each window in order, with the keys low_cutoff and complete.

    Returns
    -------
    dict
        Fields of the JSON sidecar; unknown ones are omitted.

    Raises
    ------
    OptionError
        If nibabel is not installed.
    """
    spatial = stack.spatial_axes
    rate = stack.frame_rate_hz if unit == "s" else None
    starts = [round(float(start), 9) for start in starts]
    with_time = len(starts) > 1 or rate is not None
    image, in_mm = _nifti_image(power if with_time else power[0], stack, with_time)
    if with_time:
        step = float(np.median(np.diff(starts))) if len(starts) > 1 else window / (rate or 1.0)
        image.header.set_zooms((*image.header.get_zooms()[:3], step))
        image.header["toffset"] = starts[0]
    image.header.set_xyzt_units("mm" if in_mm else "unknown", "sec" if unit == "s" else "unknown")
    _write(path, image)
    unknown = [x for x in spatial if x not in stack.spacing_mm]
    unknown += [x for x in _ORDER if x not in spatial and slice_thickness_mm(stack, x) is None]
    # The fields of the sidecar
    frame_rate, depths = stack.frame_rate_hz, positions(stack, "z")
    # Known where they are in mm
    has_depths = depths.unit == "mm" and "z" in stack.axes
    cutoffs = sorted({int(block["low_cutoff"]) for block in blocks})
    components = f"{cutoffs[0]}" if len(cutoffs) == 1 else f"{cutoffs[0]} to {cutoffs[-1]}"
    each = " in each block" if len(blocks) > 1 else ""
    fields: dict[str, object] = {
        "ClutterFilters": [f"low-rank, {components} leading components removed{each}"],
        "TransmitFrequency": stack.center_frequency_hz,
        "SliceThickness": slice_thickness_mm(stack),
        "Depth": [float(depths.values.min()), float(depths.values.max())] if has_depths else None,
        "BeamformingSoundVelocity": stack.sound_speed_m_s,
        "CompoundSamplingFrequency": frame_rate,
        "FramesPerBlock": window,
        "BlockStride": stride,
        "CompleteBlocks": [bool(block["complete"]) for block in blocks],
    }
    if frame_rate is not None:
        fields |= {
            "VolumeTiming": starts,
            "FrameAcquisitionDuration": window / frame_rate,
            # These are in ms, those above in s.
            "ClutterFilterWindowDuration": 1e3 * window / frame_rate,
            "ClutterFilterWindowStride": 1e3
            * (float(np.median(np.diff(starts))) if len(starts) > 1 else stride / frame_rate),
            "PowerDopplerIntegrationDuration": 1e3 * window / frame_rate,
        }
    if unknown:
        fields["PixelPitchUnknown"] = unknown
    return {name: value for name, value in fields.items() if value is not None}


def write_stat_map(path: Path, values: NDArray[np.float32], stack: GriddedStack, name: str = "t") -> None:
    """Write a map of t, F or an effect as NIfTI, as :func:`write_nifti` does; a 2-D one is a slice.

    Parameters
    ----------
    path : Path
        File to write, which may have a temporary name.
    values : (spatial) float32 array
        The values, with the spatial axes of the stack in its order.
    stack : Geometry or Acquisition
        Axes and scales, as for :func:`write_nifti`.
    name : str
        What the values are, in up to 15 letters, for the header: "t" (the default), "F" or "change".

    Raises
    ------
    OptionError
        If nibabel is not installed.
    """
    image, in_mm = _nifti_image(values, stack, with_time=False)
    image.header.set_xyzt_units("mm" if in_mm else "unknown", "unknown")
    image.header.set_intent("none", (), name=name)
    _write(path, image)


def _nifti_image(values: NDArray[np.float32], stack: GriddedStack, with_time: bool) -> tuple[Any, bool]:
    """Return a NIfTI image of values with the axes of a stack, time first, and whether its affine is in mm."""
    nibabel, spatial = import_nibabel(), stack.spatial_axes
    present = "".join(letter for letter in _ORDER if letter in spatial)
    time = "t" if with_time else ""
    ordered = in_axes(values, time + spatial, present + time)
    ordered = np.expand_dims(ordered, [axis for axis, letter in enumerate(_ORDER) if letter not in spatial])
    grid = grid_attributes(stack)
    # ConfUSIus has the axes in reverse.
    world = np.flip(grid["voxel_to_world"][:3, :3]), np.flip(grid["voxel_to_world"][:3, 3])
    affine = np.block([[world[0], world[1][:, None]], [np.zeros((1, 3)), np.ones((1, 1))]])
    image = nibabel.Nifti1Image(np.ascontiguousarray(ordered), affine)
    image.set_sform(affine, _SCANNER)
    image.set_qform(affine, _SCANNER)
    return image, grid["voxel_to_world_units"] == "mm"


def read_nifti(path: Path, axes: str) -> tuple[NDArray[np.generic], str]:
    """Return the values of a NIfTI file with the axes of the files that are written here, and the order of its axes.

    Parameters
    ----------
    path : Path
        The file.
    axes : str
        Letters of the spatial axes of the stack. An axis of length 1 that the stack has not is dropped.

    Raises
    ------
    InputError
        If its axes have another order or direction.
    OptionError
        If nibabel is not installed.
    """
    nibabel = import_nibabel()
    image = nibabel.load(path)
    if nibabel.aff2axcodes(image.affine) != ("R", "A", "S"):
        problem = f"the axes of {path} are not lateral, depth and elevation with rising positions"
        raise InputError(problem, remedy="draw it over the NIfTI file of a result, or give a .npy file")
    values = np.asarray(image.dataobj)
    dropped = [at for at, n in enumerate(values.shape) if n == 1 and at < 3 and _ORDER[at] not in axes]
    return values.squeeze(tuple(dropped)), "".join(letter for letter in _ORDER if letter in axes)


def _write(path: Path, image: Any) -> None:
    content = image.to_bytes()
    # Time 0 in the gzip header gives the same bytes for the same sequence.
    path.write_bytes(gzip.compress(content, 6, mtime=0) if path.suffix.lower() == ".gz" else content)


def import_nibabel() -> Any:
    """Import and return the package nibabel.

    Raises
    ------
    OptionError
        If nibabel is not installed.
    """
    try:
        return import_module("nibabel")
    except ImportError as error:
        raise OptionError(
            "NIfTI requires the package nibabel", remedy="run pip install nibabel, or omit {nifti}"
        ) from error
