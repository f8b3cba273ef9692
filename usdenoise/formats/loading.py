"""Loading an acquisition: recognise the container, choose the stack, read it and record what was assumed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError, check_names
from usdenoise.formats.choice import check_not_power, choose
from usdenoise.formats.contents import Contents, Stack
from usdenoise.formats.damage import readable
from usdenoise.formats.description import FileDescription, guess_axes
from usdenoise.formats.input_files import opened
from usdenoise.formats.layout import IN_MEMORY, Memory, frame_slice, read_stack, storage_dtype
from usdenoise.stack.acquisition import Acquisition, check_axes
from usdenoise.stack.metadata import Metadata, add_verasonics, interpret, with_options

PRECISIONS = (None, "single", "double")
"""Precisions of the values that are read; None keeps that of the file."""


@dataclass(frozen=True)
class ReadOptions:
    """What to read from a file, and metadata that override those of the file.

    Attributes
    ----------
    dataset : str or None
        Name of the stack in the file; None takes the only dataset that can be a stack.
    axes : str or None
        Axis letters (z depth, x lateral, y elevation, t frames) in the file's own order, which for .mat files
        is MATLAB's order. None takes those of the file, or guesses them from the shape.
    frames : slice or None
        Frames to read, counted from 0; None reads all.
    frame_rate_hz : float or None
        Frames per second after compounding; None takes the file's.
    spacing_mm : tuple of float or None
        Pixel pitch in mm: one number for all spatial axes, or one for each in the file's order. None takes
        the file's.
    allow_external : bool
        Whether files outside the folder of the acquisition may be read, which an HDF5 file can name and to which
        links in a folder can lead; False by default.

    Raises
    ------
    OptionError
        If `frames` is no slice of whole numbers.
    """

    dataset: str | None = None
    axes: str | None = None
    frames: slice | None = None
    frame_rate_hz: float | None = None
    spacing_mm: tuple[float, ...] | None = None
    allow_external: bool = False

    def __post_init__(self) -> None:
        frames = self.frames
        parts = (frames.start, frames.stop, frames.step) if isinstance(frames, slice) else (frames,)
        whole = all(part is None or isinstance(part, int | np.integer) for part in parts)
        if not whole or not isinstance(frames, slice | None):
            raise OptionError(
                f"--frames is {frames!r}, and must be a slice of whole numbers, such as slice(0, 400)"
            )


def load(
    path: str | Path,
    *,
    dtype: str | None = None,
    dataset: str | None = None,
    axes: str | None = None,
    frames: slice | None = None,
    frame_rate_hz: float | None = None,
    spacing_mm: tuple[float, ...] | None = None,
    allow_external: bool = False,
    memory: Memory = IN_MEMORY,
    on_part: Callable[[int, int], None] | None = None,
    **unknown: Any,
) -> Acquisition:
    """Read an acquisition from a file or a folder.

    Parameters
    ----------
    path : str or Path
        HDF5 file (of h5py, MATLAB 7.3, UFF, zea or usdenoise), MATLAB file before 7.3, .npy or .npz file,
        EchoFrame or AUTC recording, or Zarr group.
    dtype : str, optional
        "single" or "double" converts the values to that precision. By default floats and complex numbers keep
        the precision of the file, except half floats; these and integers become float32.
    dataset : str, optional
        Name of the stack in the file. By default it is the only dataset that can be a stack.
    axes : str, optional
        Axis letters (z depth, x lateral, y elevation, t frames) in the file's own order, which for .mat files is
        MATLAB's order. By default they are those of the file, or guessed from the shape.
    frames : slice, optional
        Frames to read, counted from 0; by default all.
    frame_rate_hz : float, optional
        Frames per second after compounding; by default the file's.
    spacing_mm : tuple of float, optional
        Pixel pitch in mm: one number for all spatial axes, or one for each in the file's order. By default the file's.
    allow_external : bool
        Whether files outside the folder of the acquisition may be read; by default False.
    memory : Memory, optional
        Where the stack is read to; by default the memory of this process.
        :func:`usdenoise.formats.scratch.memory_on_disk` takes a file instead.
    on_part : callable, optional
        Called with the bytes that are read so far, and those of the whole stack.
    **unknown
        No other option is known: another name raises an OptionError that lists these.

    Returns
    -------
    Acquisition
        The stack with its metadata, axes in the file's own order. Its memory is in the order z, x, y, t, so
        that the Casorati matrix is a view of it.

    Raises
    ------
    InputError
        If the file is missing, damaged or of an unknown format, if it does not hold exactly one possible
        stack, if that stack is power Doppler, which has no phase left to filter by, or if it is read from files
        outside its folder without `allow_external`.
    OptionError
        If an option is unknown, or `dtype` or `frames` is of another kind.

    Examples
    --------
    From the root of the repository:

    >>> import usdenoise
    >>> acquisition = usdenoise.load("sample_data/phantom.h5")
    >>> acquisition.iq.shape, acquisition.axes, acquisition.frame_rate_hz
    ((150, 72, 56), 'tzx', 500.0)

    Every second of the first 100 frames, in double precision:

    >>> acquisition = usdenoise.load("sample_data/phantom.h5", frames=slice(0, 100, 2), dtype="double")
    >>> acquisition.iq.shape, acquisition.iq.dtype, acquisition.frame_rate_hz
    ((50, 72, 56), dtype('complex128'), 250.0)
    """
    options = {
        "dataset": dataset,
        "axes": axes,
        "frames": frames,
        "frame_rate_hz": frame_rate_hz,
        "spacing_mm": spacing_mm,
        "allow_external": allow_external,
    }
    with open_stack(path, dtype=dtype, **options, **unknown) as source:
        return source.read(memory=memory, on_part=on_part)


@dataclass(frozen=True)
class Source:
    """A stack in an open file, whose frames can be read in parts.

    Attributes
    ----------
    stack : Stack
        The stack in its file.
    metadata : Metadata
        Axes and scales of the stack.
    dtype : numpy.dtype
        Type of the values that :meth:`read` returns.
    frames : slice
        The selected frames of the file: start, stop and a positive step.
    """

    stack: Stack
    metadata: Metadata
    dtype: np.dtype[Any]
    frames: slice

    @property
    def n_frames(self) -> int:
        """Number of selected frames."""
        return len(range(self.frames.start, self.frames.stop, self.frames.step))

    @property
    def time_of_first_frame(self) -> float:
        """Time of the first selected frame after the first frame of the file, in units of the frame step."""
        return float(self.frames.start / self.frames.step)

    def read(
        self,
        start: int = 0,
        stop: int | None = None,
        memory: Memory = IN_MEMORY,
        on_part: Callable[[int, int], None] | None = None,
    ) -> Acquisition:
        """Read the selected frames [start, stop) as an acquisition; frame 0 is the first selected one.

        Parameters
        ----------
        start : int
            First frame to read; 0 by default.
        stop : int, optional
            Frame after the last one to read; by default the number of selected frames.
        memory : Memory
            Where the frames are read to; by default the memory of this process.
        on_part : callable, optional
            As for :func:`load`.
        """
        step = self.frames.step
        last = self.n_frames if stop is None else stop
        wanted = slice(self.frames.start + start * step, self.frames.start + (last - 1) * step + 1, step)
        stack = self.stack
        iq = read_stack(
            stack.array, self.metadata.values["axes"], wanted, self.dtype, stack.name, memory, on_part
        )
        return self.acquisition(iq, wanted)

    def acquisition(self, iq: NDArray[Any], frames: slice) -> Acquisition:
        """Return some frames of the stack with its metadata.

        Parameters
        ----------
        iq : array
            Their values, also as a Dask array.
        frames : slice
            Which frames of the file they are.
        """
        values, stack, step = self.metadata.values, self.stack, self.frames.step
        rate = values.get("frame_rate_hz")
        return Acquisition(
            iq,
            values["axes"],
            # With every step-th frame selected, the time between frames is `step` times as long.
            frame_rate_hz=None if rate is None else rate / step,
            spacing_mm=values.get("spacing_mm", {}),
            center_frequency_hz=values.get("center_frequency_hz"),
            sound_speed_m_s=values.get("sound_speed_m_s"),
            name=stack.name,
            stored_dtype=stack.array.dtype,
            assumptions=self._assumptions(),
            attributes=self.metadata.attributes,
            coordinates={
                letter: made[frames] if letter == "t" else made
                for letter, made in self.metadata.coordinates.items()
            },
            form=stack.form,
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
def open_stack(path: str | Path, *, dtype: str | None = None, **options: Any) -> Iterator[Source]:
    """Open a file and yield its stack as a :class:`Source`, which reads parts of it.

    Parameters
    ----------
    path, dtype, **options
        File, precision and reading options, as for :func:`load`.

    Raises
    ------
    InputError
        For the same reasons as :func:`load`.
    OptionError
        For the same reasons as :func:`load`.
    """
    path, how = Path(path), _read_options(options)
    if not isinstance(dtype, str | None) or dtype not in PRECISIONS:
        raise OptionError(f"dtype is {dtype!r}, and must be 'single', 'double' or None")
    with _opened(path, how) as contents:
        stack, metadata = _picked(contents, path, how, carried=True)
        n_frames = stack.array.shape[metadata.values["axes"].index("t")]
        yield Source(
            stack, metadata, _kept_dtype(stack.array.dtype, dtype), frame_slice(how.frames, n_frames)
        )


def describe(path: str | Path, **options: Any) -> FileDescription:
    """Describe the contents of a file, and how :func:`load` would read it, from its headers alone.

    Parameters
    ----------
    path, **options
        File and reading options, as for :func:`load`.

    Returns
    -------
    FileDescription
        The possible stacks and the chosen one. Where none can be chosen, its `problem` says why.

    Raises
    ------
    InputError
        If the file is missing, damaged or of an unknown format.
    """
    path, how = Path(path), _read_options(options)
    metadata, chosen, problem = Metadata(), None, None
    with _opened(path, how) as contents:
        candidates = tuple(stack.candidate for stack in contents.stacks)
        try:
            stack, metadata = _picked(contents, path, how, carried=False)
            chosen = stack.candidate
        except InputError as error:
            problem = error.command_line_text
        return FileDescription(str(path), contents.container, candidates, chosen, problem, metadata)


def _read_options(options: Mapping[str, Any]) -> ReadOptions:
    check_names(options, [field.name for field in fields(ReadOptions)])
    return ReadOptions(**options)


@contextmanager
def _opened(path: Path, how: ReadOptions) -> Iterator[Contents]:
    n_axes = None if how.axes is None else len(how.axes)
    with ExitStack() as stack:
        with readable(path):
            contents = stack.enter_context(opened(path, n_axes, how.dataset, how.allow_external))
        yield contents


def _picked(contents: Contents, path: Path, how: ReadOptions, carried: bool) -> tuple[Stack, Metadata]:
    """Choose the stack of an opened file, and check that the file holds all of it.

    Parameters
    ----------
    contents : Contents
        The possible stacks of the file.
    path : Path
        The file, for error messages.
    how : ReadOptions
        Reading options.
    carried : bool
        Whether to read also the metadata that are only carried to the output.
    """
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
