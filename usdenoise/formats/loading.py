"""From a path to an acquisition: recognise the container, pick the stack, read it, say what was assumed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usdenoise.errors import InputError
from usdenoise.formats.choice import check_not_power, choose
from usdenoise.formats.containers import opener
from usdenoise.formats.contents import Contents, Stack
from usdenoise.formats.description import FileDescription, Metadata, guess_axes
from usdenoise.formats.layout import frame_slice, read_stack, storage_dtype
from usdenoise.formats.metadata import add_verasonics, interpret, with_options
from usdenoise.stack.acquisition import Acquisition, check_axes


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file where it does not say so itself.

    Attributes
    ----------
    dataset : str or None
        Name of the stack in the file.
    axes : str or None
        Axis letters in the file's own order (MATLAB's order for .mat files).
    frames : slice or None
        Frames to read.
    frame_rate_hz : float or None
        Frames a second.
    spacing_mm : tuple of float or None
        Pixel pitch, one number or one for each spatial axis in the file's order.
    """

    dataset: str | None = None
    axes: str | None = None
    frames: slice | None = None
    frame_rate_hz: float | None = None
    spacing_mm: tuple[float, ...] | None = None


def load(path: str | Path, *, dtype: Any = None, **options: Any) -> Acquisition:
    """Read an acquisition.

    Parameters
    ----------
    path : str or Path
        HDF5 (of h5py, MATLAB 7.3, UFF, zea, or ours), MATLAB before 7.3, .npy, .npz, EchoFrame, AUTC or a
        Zarr group.
    dtype : str, optional
        "single" or "double" converts on reading; by default floats and complex numbers keep their
        precision. Integers become float32.
    **options
        Fields of :class:`ReadOptions`.

    Returns
    -------
    Acquisition
        Its memory is in Casorati order, so that the Casorati matrix is a view.

    Raises
    ------
    InputError
        If the file is missing, damaged, of an unknown kind, or does not hold exactly one possible stack, or
        if that is power Doppler already.
    """
    with open_stack(path, dtype=dtype, **options) as source:
        return source.read()


@dataclass(frozen=True)
class Source:
    """A stack in an open file, of which frames can be read.

    Attributes
    ----------
    stack : Stack
        What was picked.
    metadata : Metadata
        What is known of it.
    dtype : numpy.dtype
        In which it is read.
    frames : slice
        The frames that were asked for, with bounds.
    """

    stack: Stack
    metadata: Metadata
    dtype: np.dtype[Any]
    frames: slice

    @property
    def n_frames(self) -> int:
        """Number of frames that were asked for."""
        return len(range(self.frames.start, self.frames.stop, self.frames.step))

    @property
    def time_of_first_frame(self) -> float:
        """Time of the first of them from the beginning of the file, in units of their distance."""
        return float(self.frames.start / self.frames.step)

    def read(self, start: int = 0, stop: int | None = None) -> Acquisition:
        """The frames [start, stop) of those that were asked for, as an acquisition."""
        step = self.frames.step
        last = self.n_frames if stop is None else stop
        wanted = slice(self.frames.start + start * step, self.frames.start + (last - 1) * step + 1, step)
        values, stack = self.metadata.values, self.stack
        iq = read_stack(stack.array, values["axes"], wanted, self.dtype)
        rate = values.get("frame_rate_hz")
        return Acquisition(
            iq,
            values["axes"],
            # Of every step-th frame.
            frame_rate_hz=None if rate is None else rate / step,
            spacing_mm=values.get("spacing_mm", {}),
            center_frequency_hz=values.get("center_frequency_hz"),
            sound_speed_m_s=values.get("sound_speed_m_s"),
            name=stack.name,
            stored_dtype=stack.array.dtype,
            assumptions=self._assumptions(),
            attributes=self.metadata.attributes,
        )

    def _assumptions(self) -> tuple[str, ...]:
        stack, sources = self.stack, self.metadata.sources
        assumptions = [*stack.assumptions]
        if sources["axes"] == "assumed":
            assumptions.append(
                f"the axes of '{stack.name}' {stack.array.shape} are taken as {self.metadata.values['axes']}; "
                "--axes overrides that"
            )
        if "assumed" in sources.get("spacing_mm", ""):
            assumptions.append(
                f"the pixel pitch is from the {sources['spacing_mm']}; --spacing overrides that"
            )
        return tuple(assumptions)


@contextmanager
def open_stack(path: str | Path, *, dtype: Any = None, **options: Any) -> Iterator[Source]:
    """Open a stack of which parts are to be read.

    Parameters
    ----------
    path, dtype, **options
        As for :func:`load`.

    Raises
    ------
    InputError
        As for :func:`load`.
    """
    path, how = Path(path), ReadOptions(**options)
    with _opened(path, how) as contents:
        stack, metadata = _picked(contents, path, how, carried=True)
        n_frames = stack.array.shape[metadata.values["axes"].index("t")]
        yield Source(
            stack, metadata, _kept_dtype(stack.array.dtype, dtype), frame_slice(how.frames, n_frames)
        )


def describe(path: str | Path, **options: Any) -> FileDescription:
    """What is in a file and how it would be read, from its headers alone.

    Parameters
    ----------
    path, **options
        As for :func:`load`.

    Raises
    ------
    InputError
        If the file is missing, damaged or of an unknown kind.
    """
    path, how = Path(path), ReadOptions(**options)
    metadata, chosen, problem = Metadata(), None, None
    with _opened(path, how) as contents:
        candidates = tuple(stack.candidate for stack in contents.stacks)
        try:
            stack, metadata = _picked(contents, path, how, carried=False)
            chosen = stack.candidate
        except InputError as error:
            problem = error.command_line_text
        return FileDescription(str(path), contents.container, candidates, chosen, problem, metadata)


def _opened(path: Path, how: ReadOptions) -> AbstractContextManager[Contents]:
    return opener(path)(path, None if how.axes is None else len(how.axes))


def _picked(contents: Contents, path: Path, how: ReadOptions, carried: bool) -> tuple[Stack, Metadata]:
    """The stack to read and what is known of it, once the file holds what it claims."""
    stack = choose(contents, how.dataset, str(path))
    values, sources, others = interpret(stack.metadata(carried))
    add_verasonics(values, sources, others)
    metadata = with_options(
        values,
        sources,
        others,
        axes=how.axes,
        guessed_axes=guess_axes(stack.array.shape, stack.time_last),
        frame_rate_hz=how.frame_rate_hz,
        spacing_mm=how.spacing_mm,
    )
    check_axes(metadata.values["axes"], stack.array.shape)
    stack.check()
    if how.dataset is None:
        check_not_power(stack, str(path))
    return stack, metadata


def _kept_dtype(stored: np.dtype[Any], precision: str | None) -> np.dtype[Any]:
    kept = storage_dtype(stored)
    if precision is None:
        return kept
    double = precision == "double"
    return np.dtype(
        (np.complex128 if double else np.complex64)
        if kept.kind == "c"
        else (np.float64 if double else np.float32)
    )
