"""A job: one acquisition, the folder of its results, the options between them, its times and its memory."""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.clutter_cutoff import CommonCutoff
from usdenoise.errors import InputError, OptionError, UsdenoiseError
from usdenoise.files.bids import BidsName
from usdenoise.files.images import import_nibabel
from usdenoise.files.input_files import files_of_report, size_on_disk
from usdenoise.files.open_input import Input
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.recordings import describe
from usdenoise.files.zarr_files import import_zarr
from usdenoise.options import DenoiseOptions, Display, Output, SessionOptions
from usdenoise.pipeline.recording import STORAGE
from usdenoise.report.record import ModelReport
from usdenoise.sessions.design import Event
from usdenoise.system.resources import HELD_CHUNKS, ScanMemory, available_bytes, available_threads
from usdenoise.system.text import distinct_names, plain_name, short_stem, to_json


@dataclass(frozen=True, kw_only=True)
class Job:
    """Input, output and options of a job.

    Attributes
    ----------
    paths : tuple of Path
        The acquisition, or the files of a session in the order of time; none (the default) if they are still to come.
    name : str
        Name of the input, with which the names of the results begin unless they are in BIDS; empty (the default) if it is
        not known yet.
    root : Path
        Folder of the results, or of the derivative data set of BIDS.
    options : DenoiseOptions
        Options of the denoiser.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    display : Display
        Options of the pictures; by default their defaults.
    output : Output
        The files to write next to, or instead of, the filtered stack; by default its defaults.
    command : list of str or None
        The command line, for the record; None (the default) for a library call.
    bids : BidsName or None
        Name of the results in BIDS; None (the default) names them after the acquisition.
    memory : int or None
        Bytes that the job may take; None (the default) for the free memory of the system.
    dask : str or None
        Dask workers that filter the stack: a number of processes, or the address of a scheduler; None (the default) for
        none.
    session : SessionOptions or None
        Options of a session of several blocks; None (the default) for one acquisition.
    groups : tuple of tuples of Path
        The files of each position of the probe, if each has its own; empty (the default) otherwise.
    regions : mapping
        Name of each region of a session -> the region, as for :class:`usdenoise.Session`; none by default.
    events : pair of sequences
        The events of a session, and notes on them, as :func:`usdenoise.jobs.session_inputs.events_of` returns them; none
        by default. A pipe can be read only once.
    notes : tuple of str
        Sentences for the report; none by default.
    is_model : bool
        Whether a series that exists is modelled, and nothing filtered; by default not.
    was_live : bool
        Whether it is the final series of a live session; by default not.
    common_cutoff : CommonCutoff or None
        How the low cutoff of the options follows from several scans; None (the default) if it does not.
    """

    paths: tuple[Path, ...] = ()
    name: str = ""
    root: Path
    options: DenoiseOptions
    reading: Mapping[str, Any]
    display: Display = field(default_factory=Display)
    output: Output = field(default_factory=Output)
    command: list[str] | None = None
    bids: BidsName | None = None
    memory: int | None = None
    dask: str | None = None
    session: SessionOptions | None = None
    groups: tuple[tuple[Path, ...], ...] = ()
    regions: Mapping[str, NDArray[np.bool_] | str] = field(default_factory=dict)
    events: tuple[Sequence[Event], Sequence[str]] = ((), ())
    notes: tuple[str, ...] = ()
    is_model: bool = False
    was_live: bool = False
    common_cutoff: CommonCutoff | None = None

    @property
    def path(self) -> Path:
        """The acquisition, or the first file of a session."""
        return self.paths[0]

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.root if self.bids is None else self.root / self.bids.folder

    @property
    def stem(self) -> str:
        """Beginning of the names of the results."""
        return short_stem(self.name) if self.bids is None else self.bids.entities

    @property
    def is_session(self) -> bool:
        """Whether the result is a series of images, one for each block of frames."""
        return self.session is not None

    @property
    def session_options(self) -> SessionOptions:
        """Options of the session; their defaults where there is none."""
        return self.session or SessionOptions()

    @property
    def requested_options(self) -> dict[str, object]:
        """Everything that the results depend on, besides the input."""
        session_group = () if self.session in (None, SessionOptions()) else ("session",)
        names = ("options", "display", "output", "reading", *session_group)
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Check that the options fit each other, before an hour of filtering.

        Raises
        ------
        OptionError
            If they do not, or if a package for NIfTI or Zarr is missing.
        """
        if self.session_options.zarr:
            import_zarr()
        if self.output.nifti:
            import_nibabel()
        elif self.bids is not None:
            raise OptionError("requires NIfTI files", option="bids", remedy="add {nifti}")


POSES_FOLDER = "poses"
"""Folder of the results of each position of the probe, in the folder of the session."""


def pose_job(job: Job, number: int, names: Sequence[str]) -> Job:
    """Return the job of one of several positions; in BIDS it has the entity pose, in a data set of its own.

    In one data set, sidecars of the session would apply to the images of the positions.
    """
    session = replace(job.session_options, poses=None, pose_step_mm=None)
    bids, root = job.bids, job.root / POSES_FOLDER
    name = distinct_names(names, plain_name)[names[number]]
    if bids is not None:
        bids = replace(bids, entities=f"{bids.entities}_pose-{number}")
    # What is of all positions is not of one.
    job = replace(job, groups=(), regions={}, notes=())
    return replace(job, name=f"{job.name}_pose-{name}", root=root, bids=bids, session=session)


class StageClock:
    """Seconds that each stage of a job has taken so far."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(("load", "solve", "filter", "write"), 0.0)
        self._began = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - began

    def add(self, timings: Mapping[str, float]) -> None:
        """Add measured seconds to their stages."""
        for name, seconds in timings.items():
            self._seconds[name] += seconds

    @property
    def timings_s(self) -> dict[str, float]:
        """Seconds by stage, and in total since the clock was made."""
        return {**self._seconds, "total": time.perf_counter() - self._began}


def expected_bytes(path: Path, reading: Mapping[str, Any], precision: str) -> int:
    """Return the memory of a job on all frames of a file, from the file's headers.

    Parameters
    ----------
    path : Path
        The acquisition.
    reading : mapping
        Fields of :class:`usdenoise.options.ReadOptions`.
    precision : str
        "single" or "double".

    Returns
    -------
    int
        Bytes; for an unreadable file, the bytes of a job on an empty file.
    """
    stack = pixels = 0
    # What is wrong with the file is reported when it is read.
    with suppress(UsdenoiseError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = describe(path, **reading)
        if (chosen := file.chosen) is not None:
            stack = _array_bytes(chosen.shape, np.dtype(chosen.dtype), precision)
            if "t" in (axes := str(file.metadata.values.get("axes", ""))):
                pixels = math.prod(chosen.shape) // max(chosen.shape[axes.index("t")], 1)
    return int(ScanMemory(stack=stack, pixels=pixels).whole)


def _array_bytes(shape: Sequence[int], stored: np.dtype[np.generic], precision: str) -> int:
    working = np.dtype(STORAGE[precision, stored.kind == "c"])
    return math.prod(shape) * max(working.itemsize, stored.itemsize)


def _memory(source: Input, job: Job) -> tuple[ScanMemory, float]:
    """Return the memory of a job on an open acquisition, and the bytes that it may use."""
    stored, precision = source.stack.array, job.options.precision
    memory = ScanMemory(
        stack=_array_bytes(stored.shape, stored.dtype, precision),
        pixels=source.geometry.n_pixels,
        chunk=_array_bytes(stored.chunks, stored.dtype, precision) if stored.chunks else 0,
        threads=job.options.threads or available_threads(),
    )
    return memory, available_bytes() if job.memory is None else job.memory


def scratch_folder(source: Input, job: Job) -> Path | None:
    """Return the folder of a temporary file for the stack of a job that does not fit into memory; None if it fits.

    Parameters
    ----------
    source : Input
        The open acquisition.
    job : Job
        Contains the bytes that the job may use; by default the free memory of the system.

    Raises
    ------
    InputError
        If the stack does not fit and its file cannot be read in parts, or in too large ones.
    OptionError
        If it does not fit and the method needs all of it in memory.
    """
    memory, most = _memory(source, job)
    if memory.whole <= most:
        return None
    too_large = f"{source.path} does not fit into {most / 2**20:.0f} MiB"
    if source.is_read_whole:
        raise InputError(
            f"{too_large} of memory, and {source.container} files cannot be read in blocks",
            remedy="save it as HDF5, MATLAB 7.3 or Zarr, or raise {memory}",
        )
    if job.dask is None and job.memory is not None and memory.chunks <= most < memory.in_parts:
        raise OptionError(
            f"of {most / 2**20:.0f} MiB is too small: the process and a part of the stack take "
            f"{memory.in_parts / 2**20:.0f} MiB",
            option="memory",
            remedy="raise {memory}",
        )
    if job.dask is None and not memory.reads_chunks(most):
        raise InputError(
            f"{too_large} of memory, and {HELD_CHUNKS} of its chunks of {memory.chunk / 2**20:.0f} MiB are held at a "
            "time",
            remedy="save it in smaller chunks, or raise {memory}",
        )
    if job.options.method == "svd":
        raise OptionError(
            f"svd requires the whole stack in memory, and {too_large}",
            option="method",
            remedy="choose another method, or raise {memory}",
        )
    return job.folder


def chunk_entries(source: Input, job: Job) -> float:
    """Return how many entries a chunk of a file may have in the memory that a job may use.

    Parameters
    ----------
    source, job
        As for :func:`scratch_folder`.
    """
    if job.dask is not None:
        return 0
    memory, most = _memory(source, job)
    return memory.most_a_part(most) / source.dtype.itemsize


REPORT, PAGE = "report", "report_html"
"""Keys of the report and of its page among the files of a job. The report is reserved last, as the record of the
others."""


class Results:
    """The results of a job while they are made: the names of all files are reserved before.

    Parameters
    ----------
    job : Job
        The job.
    folder : OutputFolder
        The folder of the job, within its context.

    Attributes
    ----------
    pictures : dict
        The pictures of the page in its order, as PNG by their names.
    activations : dict
        The pictures of the activation by each type of event, and ("") by any of several, as PNG.
    notes : list of str
        Sentences on what the main file has otherwise than the input, or has not.
    """

    def __init__(self, job: Job, folder: OutputFolder) -> None:
        self.job = job
        self.pictures: dict[str, bytes] = {}
        self.activations: dict[str, bytes] = {}
        self.notes: list[str] = []
        self._folder = folder
        self._places: dict[str, Path] = {}

    def reserve(self, key: str, ending: str) -> Path:
        """Return the temporary path of a file, with its key in the report and the end of its name.

        Raises
        ------
        OutputError
            If the file exists and may not be replaced.
        """
        self._places[key] = self._folder.reserve(f"{self.job.stem}_{ending}")
        return self._places[key]

    def path_of(self, key: str) -> Path:
        """Return the temporary path of a file that is reserved."""
        return self._places[key]

    @property
    def names(self) -> dict[str, str]:
        """Key -> final path of each file, as the report has them."""
        return {key: str(final) for key, final in zip(self._places, self._folder.finals, strict=True)}

    def commit(self, report: ModelReport, page: str | None) -> dict[str, Any]:
        """Write the page, if there is one, and the report, and give all files their final names.

        Parameters
        ----------
        report : ModelReport
            The report.
        page : str or None
            The page; None without one.

        Returns
        -------
        dict
            The report as it is written: with the bytes of each file, from which a later batch checks that the results are
            complete.
        """
        if page is not None:
            self._places[PAGE].write_text(page, encoding="utf-8")
        # Files that were not reserved here are in the folder already.
        others = {key: name for key, name in report.output.items() if key != REPORT}
        sizes = {key: size_on_disk(self._places.get(key, Path(name))) for key, name in others.items()}
        written = replace(report, output_bytes=sizes).as_json()
        self._places[REPORT].write_text(to_json(written, indent=2) + "\n")
        # Filtered blocks of a session that was stopped are in the folder, and may be in the report of the killed process.
        kept = {Path(name) for name in report.output.values()}
        self._folder.commit(set(files_of_report(self._folder.finals[-1])) - kept)
        return written
