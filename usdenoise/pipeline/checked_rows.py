"""The rows of a stack, in memory or in the chunks of a Dask array, after a check of all entries, and their energy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.estimate.extension import COARSE_PIXELS
from usdenoise.estimate.pixel_subset import RANK_LIMIT, SUBSET_PIXELS
from usdenoise.estimate.sample_fit import sampled_pixel_count
from usdenoise.frames.bad_frames import SAMPLE_PIXELS
from usdenoise.frames.displacement import middle_part
from usdenoise.frames.frame_check import CURVE_PIXELS
from usdenoise.linalg.executor import Executor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.casorati import casorati
from usdenoise.stack.dask_rows import check_chunks
from usdenoise.stack.file_rows import FileRows
from usdenoise.stack.file_stack import FileStack
from usdenoise.stack.lazy_arrays import is_dask_array
from usdenoise.stack.random_streams import RandomStream
from usdenoise.stack.rows import ArrayRows, Rows, check_entries
from usdenoise.stack.sampling import spread_rows

STORAGE = {("single", False): np.float32, ("single", True): np.complex64}
STORAGE |= {("double", False): np.float64, ("double", True): np.complex128}
"""Type of the entries by precision, and by whether the stack is complex."""

SCALES = (1e-12, 1e14)
"""Range of the largest magnitude of a stack: float32 holds its power, the sum of it, and power 60 dB below."""

IN_MEMORY = (("method", "svd", "another method"), ("refit", "none", "'all'"))
"""Options whose value needs the whole stack in memory, and what to choose for a Dask array instead."""


def checked_rows(
    stack: Acquisition, options: DenoiseOptions, executor: Executor, in_place: bool
) -> tuple[Rows, NDArray[np.float64]]:
    """Return the rows of a stack, without the entries that are not finite, and their energy.

    Parameters
    ----------
    stack : Acquisition
        The stack; of a Dask array the rows that the estimate will ask for are gathered in the same pass.
    options : DenoiseOptions
        The precision, and the options that say which rows those are.
    executor : Executor
        For the passes over rows in memory.
    in_place : bool
        Whether the rows may take the memory of the stack.

    Returns
    -------
    rows : Rows
        The rows.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row.

    Raises
    ------
    InputError
        If the stack is zero or unobserved everywhere, or its magnitudes are outside SCALES.
    OptionError
        If the stack is a Dask array, and an option needs all of it in memory.
    """
    dtype = STORAGE[options.precision, np.iscomplexobj(stack.iq)]
    rows: Rows
    iq: Any = stack.iq
    if is_dask_array(iq):
        _check_options_of_chunks(options, stack.name)
        rows, energy = check_chunks(stack, dtype, executor, _rows_to_gather(stack, options))
    elif isinstance(iq, FileStack):
        rows, energy = check_entries(FileRows(iq.rows, None, executor))
    else:
        values = casorati(stack, dtype)
        if not in_place and np.may_share_memory(values, stack.iq):
            values = values.copy()
        rows, energy = check_entries(ArrayRows(values, None, executor))
    if rows.n_unobserved == stack.iq.size:
        raise InputError(f"'{stack.name}' has no finite entry; check how the file was written")
    _check_scale(rows, energy, stack.name)
    return rows, energy


def _check_options_of_chunks(options: DenoiseOptions, name: str) -> None:
    for option, value, wanted in IN_MEMORY:
        if getattr(options, option) == value:
            raise OptionError(
                f"{option} '{value}' needs the whole stack in memory, and '{name}' is in chunks; "
                f"choose {wanted}, or call compute() on the stack first"
            )


def _rows_to_gather(stack: Acquisition, options: DenoiseOptions) -> list[NDArray[np.intp]]:
    """Return the sets of rows that the estimate asks for if every entry is observed; others are gathered later."""
    n_pixels, shape = stack.n_pixels, stack.shape_in(canonical_axes(stack.spatial_axes))
    numbers = np.arange(n_pixels)
    rank = RANK_LIMIT if isinstance(options.rank, str) else options.rank
    sampled = RandomStream.SAMPLED_PIXELS.generator(options.seed).permutation(n_pixels)
    wanted = [
        spread_rows(n_pixels, COARSE_PIXELS) if n_pixels >= 2 * COARSE_PIXELS else numbers[:0],
        RandomStream.PIXEL_SUBSET.generator(options.seed).permutation(n_pixels)[:SUBSET_PIXELS],
        sampled[: sampled_pixel_count(rank, options.sampling)],
        numbers.reshape(shape)[middle_part(shape)].ravel(),
        *(spread_rows(n_pixels, count) for count in (SAMPLE_PIXELS, CURVE_PIXELS)),
    ]
    return [np.sort(rows) for rows in wanted]


def _check_scale(rows: Rows, energy: NDArray[np.float64], name: str) -> None:
    most = float(energy.max())
    # The largest magnitude x of a row of energy e obeys e / (2 n_frames) <= x^2 <= e.
    if SCALES[0] ** 2 <= most / (2 * rows.n_frames) and most <= SCALES[1] ** 2:
        return
    largest = rows.largest_part()
    if largest == 0:
        raise InputError(f"'{name}' is zero everywhere", remedy="check {dataset} and {frames}")
    if not SCALES[0] <= largest <= SCALES[1]:
        raise InputError(
            f"the largest magnitude in '{name}' is {largest:.3g}, and its power has to fit in single precision; "
            f"scale the stack to between {SCALES[0]:g} and {SCALES[1]:g}"
        )
