"""The library call that writes a result to one file."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from usdenoise.errors import OutputError, check_path
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.results import ResultFile, write_result
from usdenoise.images.power_doppler import POWER_IMAGES
from usdenoise.recipe.result import DenoiseResult
from usdenoise.stack.bit_mask import unpack
from usdenoise.stack.casorati import from_casorati
from usdenoise.system.provenance import record, to_json
from usdenoise.system.signals import uninterrupted


def save(
    result: DenoiseResult, path: str | Path, *, compression: str = "none", overwrite: bool = False
) -> Path:
    """Write a filtered stack and its images to a file, as `usdenoise run` writes them.

    Parameters
    ----------
    result : DenoiseResult
        From :func:`usdenoise.denoise`.
    path : str or Path
        File to write: .h5 or .hdf5, .mat, or .zarr (needs the package zarr).
    compression : str
        "none", the default, or "gzip".
    overwrite : bool
        Whether an existing file may be replaced; by default False.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        If the file exists, its suffix is of no format that is written, or it cannot be written.

    Examples
    --------
    >>> import tempfile, usdenoise
    >>> result = usdenoise.denoise(usdenoise.load("sample_data/phantom.h5"), low_cutoff=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     back = usdenoise.load(usdenoise.save(result, f"{folder}/filtered.h5"))
    >>> back.axes, back.iq.shape
    ('tzx', (150, 72, 56))
    """
    check_path(path, OutputError)
    place = Path(path)
    suffix = place.suffix.lower()
    if suffix not in (".h5", ".hdf5", ".mat", ".zarr"):
        raise OutputError(f"{place} has a suffix of no format that is written; name it .h5, .mat or .zarr")
    if compression not in ("none", "gzip"):
        raise OutputError(f"compression '{compression}' is not known; choose one of none, gzip")
    stack = result.acquisition
    shape = stack.shape_in(stack.spatial_axes)
    # The images of a result for a DataArray have the dimensions of the input.
    arrays = {name: np.asarray(getattr(result, name)).reshape(shape) for name in POWER_IMAGES}
    axes = dict.fromkeys(arrays, stack.spatial_axes)
    arrays["singular_values"] = result.singular_values
    if result.observed is not None:
        arrays["unobserved"] = from_casorati(~unpack(result.observed, stack.n_frames), stack).astype(np.uint8)
        axes["unobserved"] = stack.axes
    source = {"dataset": stack.name, "shape": list(stack.iq.shape), "axes": stack.axes}
    provenance = to_json(record(None, asdict(result.options), source))
    content = ResultFile(stack, arrays, provenance, POWER_IMAGES, axes, compression=compression)
    with OutputFolder(place.parent, overwrite) as outputs:
        waiting = outputs.reserve(place.name)
        with uninterrupted():
            write_result(waiting, suffix, content)
        outputs.commit()
    return place
