"""Stacks of a few components, and the HDF5 files in which many tests hold a stack."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.jobs.session_job import run_session
from usdenoise.options.job_options import SessionOptions


def low_rank(
    shape: tuple[int, ...], scales: tuple[float, ...] = (300, 30, 10), noise: float = 1.0, seed: int = 0
) -> NDArray[np.complex64]:
    """A complex stack, time first: a component for each scale, over noise."""
    rng = np.random.default_rng(seed)

    def draw(*size: int) -> Any:
        return rng.standard_normal(size) + 1j * rng.standard_normal(size)

    n_frames, n_pixels = shape[0], int(np.prod(shape[1:]))
    components = draw(n_frames, len(scales)) * scales @ draw(len(scales), n_pixels)
    stack: NDArray[Any] = components + noise * draw(n_frames, n_pixels)
    return stack.reshape(shape).astype(np.complex64)


def write_stack(path: Path, values: Any, name: str = "iq", **attributes: Any) -> Path:
    """An HDF5 file of one dataset and its attributes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=values).attrs.update(attributes)
    return path


def run_in_windows(path: Path, folder: Path, window: int, **more: Any) -> dict[str, Any]:
    """The report of a session of the windows of a file; options of the session and arguments of `run_session` in `more`."""
    named = {name: more.pop(name) for name in SessionOptions.declared if name in more}
    return run_session([path], folder, session_options=SessionOptions(window=window, **named), **more)
