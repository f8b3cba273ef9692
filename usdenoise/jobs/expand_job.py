"""Rebuild a filtered stack from its stored factors."""

from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.errors import OptionError
from usdenoise.formats.factors import StoredFactors, read_factors
from usdenoise.formats.file_state import sha256
from usdenoise.formats.open_input import other_files
from usdenoise.formats.result_content import ResultFile
from usdenoise.formats.results import output_suffix
from usdenoise.jobs.main_file import check_suffix, write_one_file
from usdenoise.stack.acquisition import Acquisition, canonical_axes, spatial_order
from usdenoise.system.provenance import record, to_json


def expand(
    path: str | Path, low: int | None = None, high: int | None = None, *, allow_external: bool = False
) -> Acquisition:
    """Rebuild the components [low, high) of a stack from the factors in a result file.

    Parameters
    ----------
    path : str or Path
        Result file with the group "factors", as a job with ``keep_factors`` writes it.
    low, high : int, optional
        First component, and the one after the last; by default the band that was kept. The residual, which
        ``high_cutoff="none"`` keeps, is not in the factors: the band ends at the rank.
    allow_external : bool
        Whether files outside the folder of the result file may be read; False by default.

    Returns
    -------
    Acquisition

    Raises
    ------
    InputError
        If the file holds no factors.
    OptionError
        If the band is empty or beyond the rank.

    Examples
    --------
    >>> import tempfile, usdenoise
    >>> from usdenoise.options.job_options import Output
    >>> from usdenoise.jobs.run_job import run
    >>> options = usdenoise.DenoiseOptions(rank=8, low_cutoff=4, high_cutoff="rank")
    >>> output = Output(keep_factors=True, stack=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = run("sample_data/phantom.h5", folder, options=options, output=output)
    ...     stack = usdenoise.expand(report["output"]["denoised"], low=6)
    >>> stack.axes, stack.iq.shape
    ('tzx', (150, 72, 56))
    """
    stored = read_factors(Path(path), allow_external)
    return _rebuilt(stored, *_chosen_band(stored, low, high))


def expand_to_file(
    path: str | Path,
    output: str | Path | None = None,
    *,
    low: int | None = None,
    high: int | None = None,
    allow_external: bool = False,
    overwrite: bool = False,
    command: list[str] | None = None,
) -> dict[str, Any]:
    """Rebuild a stack from its factors, and write it.

    Parameters
    ----------
    path : str or Path
        Result file with the group "factors", as a job with ``keep_factors`` writes it.
    output : str or Path, optional
        File to write, .h5, .mat or .zarr; by default ``<stem>_expanded`` in the current folder, in the format of
        the input.
    low, high, allow_external
        As for :func:`expand`.
    overwrite : bool
        Whether an existing file may be replaced.
    command : list of str, optional
        The command line, for the record.

    Returns
    -------
    dict
        The input, the output, the dataset, its shape and axes, and the band.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    path = Path(path)
    stored = read_factors(path, allow_external)
    low, high = _chosen_band(stored, low, high)
    stack = _rebuilt(stored, low, high)
    place = Path(f"{path.stem}_expanded{output_suffix(path)}") if output is None else Path(output)
    check_suffix(place)
    source = {
        "path": str(path),
        "sha256": sha256(path, other_files(path, {"allow_external": allow_external})),
    }
    provenance = to_json(record(command, {"low": low, "high": high}, source))
    write_one_file(place, ResultFile(stack, {}, provenance), overwrite)
    return {
        "input": source,
        "output": str(place),
        "dataset": stack.name,
        "shape": list(np.shape(stack.iq)),
        "axes": stack.axes,
        "band": [low, high],
    }


def _chosen_band(stored: StoredFactors, low: int | None, high: int | None) -> tuple[int, int]:
    low, high = stored.low if low is None else low, stored.high if high is None else high
    rank = len(stored.singular_values)
    if not 0 <= low < high <= rank:
        raise OptionError(
            f"the band [{low}, {high}) is empty or beyond the rank {rank} of the factors; give a band within "
            f"[0, {rank})"
        )
    return low, high


def _rebuilt(stored: StoredFactors, low: int, high: int) -> Acquisition:
    scaled = stored.left[:, low:high] * stored.singular_values[low:high].astype(stored.left.real.dtype)
    matrix = scaled @ stored.right[:, low:high].conj().T
    axes = stored.values["axes"]
    iq = spatial_order(matrix.reshape(*stored.spatial_shape, -1), canonical_axes(axes), axes)
    return Acquisition(iq, **stored.values, name=stored.name)
